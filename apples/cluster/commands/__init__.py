"""The commands that start a scheduler, and submit, show and change its jobs."""
