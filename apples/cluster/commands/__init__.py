"""The commands that submit, show and change the jobs of a scheduler, and start one."""
