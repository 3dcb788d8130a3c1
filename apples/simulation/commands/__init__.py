"""The commands `simulate`, `sweep` and `workloads`, and the report of a simulation."""
