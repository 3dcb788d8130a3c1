"""Rescheduling: an application that runs is held to its prediction, and moved where a move pays.

The method is that of performance contracts (Vraalsen et al. 2001, GrADS). Read `monitor` (the contract, and the
measured rate that is held against it), `evaluation` (what a move would bring and cost), `rescheduler` (the policy,
the decisions, and the execution that carries both).
"""

from apples.agent.rescheduling.evaluation import Move, as_measured, evaluate_move
from apples.agent.rescheduling.monitor import (
    IterationRate,
    PerformanceContract,
    PerformanceMonitor,
)
from apples.agent.rescheduling.rescheduler import (
    AdaptiveExecution,
    Rescheduler,
    ReschedulingDecision,
    ReschedulingPolicy,
)

__all__ = [
    "AdaptiveExecution",
    "IterationRate",
    "Move",
    "PerformanceContract",
    "PerformanceMonitor",
    "Rescheduler",
    "ReschedulingDecision",
    "ReschedulingPolicy",
    "as_measured",
    "evaluate_move",
]
