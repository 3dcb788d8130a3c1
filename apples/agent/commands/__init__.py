"""The commands `plan`, `calibrate` and `doctor`, and the options of an agent."""
