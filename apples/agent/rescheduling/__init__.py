"""Rescheduling: an application that runs is held to its prediction, and moved where a move pays.

The method is that of performance contracts (Vraalsen et al. 2001, GrADS). Read `contract` (the contract, and the
measured rate that is held against it), `evaluation` (what a move would bring and cost), `rescheduler` (the policy,
the decisions, the execution that carries both, and the hosts for one that asks for more, or fewer), `by_load` (the
same by the loads of hosts, by a scheduling policy).
"""

from apples.agent.rescheduling.by_load import LoadRescheduling
from apples.agent.rescheduling.contract import (
    IterationRate,
    PerformanceContract,
    PerformanceMonitor,
)
from apples.agent.rescheduling.evaluation import Move, as_measured, evaluate_move
from apples.agent.rescheduling.rescheduler import (
    AdaptiveExecution,
    Rescheduler,
    ReschedulingDecision,
    ReschedulingPolicy,
    best_of_size,
)

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
    "best_of_size",
    "evaluate_move",
]
