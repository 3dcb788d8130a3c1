"""The Model pool (Berman et al. 1996, section 4.3.4). The contract is `apples.agent.models.model`.

Read `model` (the contract, and `check_model`, which holds an implementation to it), `strip` (T_i = A_i P_i +
C_i), `calibration` (measured speed functions, and factors learned from runs), `corrections` (how a factor
moves from run to run, and the overlap of borders with computing), `links` (what runs measured of links).
"""

from apples.agent.models.calibration import (
    Learned,
    RunObservation,
    learn,
    learn_starts,
    recall,
    store_speeds,
)
from apples.agent.models.strip import StripModel

__all__ = [
    "Learned",
    "RunObservation",
    "StripModel",
    "learn",
    "learn_starts",
    "recall",
    "store_speeds",
]
