"""The Model pool (Berman et al. 1996, section 4.3.4). The contract is `apples.agent.models.model`.

Read `model` (the contract, and `check_model`, which tests an implementation against it), `strip` (T_i = A_i P_i
+ C_i), `corrections` (corrections learned from runs, each tested against the model without it), `links`
(measured links), `learned` (the learned state of an application, and its document).
"""

from apples.agent.models.learned import (
    Learned,
    LearnedKey,
    RunObservation,
    learn,
    learn_starts,
    recall,
    store_speeds,
)
from apples.agent.models.strip import StripModel

__all__ = [
    "Learned",
    "LearnedKey",
    "RunObservation",
    "StripModel",
    "learn",
    "learn_starts",
    "recall",
    "store_speeds",
]
