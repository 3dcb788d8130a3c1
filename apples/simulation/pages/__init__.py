"""Pages of a simulation and of a sweep: figures, charts and report."""
