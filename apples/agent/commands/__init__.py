"""The commands `calibrate` and `doctor`, and the options of an agent."""
