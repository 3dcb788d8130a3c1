"""The job manager, one process for each job.

`job_manager` is its loop, `engine` the state machine that carries out commands, `hosts` its connections to the
node supervisors and their ranks.
"""
