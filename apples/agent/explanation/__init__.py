"""Why the decision is what it is, why the other hosts are not in it, and when it would change.

Read `left_out` (the price of adding a host), `thresholds` (bisection on the model), `remedy` (what would
help where there is no plan).
"""

from apples.agent.explanation.left_out import LeftOut, left_out
from apples.agent.explanation.remedy import remedy
from apples.agent.explanation.thresholds import SLOWEST, Threshold, thresholds

__all__ = ["SLOWEST", "LeftOut", "Threshold", "left_out", "remedy", "thresholds"]
