"""Text of runs and jobs."""
