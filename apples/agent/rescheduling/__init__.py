"""Rescheduling: compare a running application with its prediction, and move it if the move pays.

The method is that of performance contracts (Vraalsen et al. 2001, GrADS). Read `contract` (the contract, and
the measured rate that is compared with it), `evaluation` (gain and cost of a move), `execution` (the running
application; it makes and records every move), then the deciders: `rescheduler` (by the contract) and `by_load`
(by the loads of hosts, through a scheduling policy).
"""

from apples.agent.rescheduling.by_load import LoadRescheduling
from apples.agent.rescheduling.contract import (
    IterationRate,
    PerformanceContract,
    PerformanceMonitor,
)
from apples.agent.rescheduling.evaluation import Move, as_measured, evaluate_move
from apples.agent.rescheduling.execution import AdaptiveExecution, ReschedulingDecision
from apples.agent.rescheduling.rescheduler import Rescheduler, ReschedulingPolicy, move_to_size

__all__ = [
    "AdaptiveExecution",
    "IterationRate",
    "LoadRescheduling",
    "Move",
    "PerformanceContract",
    "PerformanceMonitor",
    "Rescheduler",
    "ReschedulingDecision",
    "ReschedulingPolicy",
    "as_measured",
    "evaluate_move",
    "move_to_size",
]
