"""Pages of a simulation and of a sweep: what is shown, its charts and its report."""
