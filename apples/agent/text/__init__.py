"""Text of plans and calibrations."""
