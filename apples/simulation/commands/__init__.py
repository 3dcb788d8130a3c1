"""The commands `simulate`, and the report of a simulation."""
