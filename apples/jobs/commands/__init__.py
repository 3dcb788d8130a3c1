"""The commands that start, show and change runs and jobs."""
