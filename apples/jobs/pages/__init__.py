"""Pages of runs, jobs and plans."""
