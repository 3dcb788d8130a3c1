"""The Model pool (Berman et al. 1996, section 4.3.4). The contract is `apples.agent.model`.

Read `strip` (T_i = A_i P_i + C_i), then `calibration` (measured speed functions and what runs teach).
"""

from apples.agent.models.calibration import Learned, learn, recall, store_speeds
from apples.agent.models.strip import StripModel

__all__ = ["Learned", "StripModel", "learn", "recall", "store_speeds"]
