"""The job manager, one process a job.

`job_manager` is its loop, `engine` the state machine that carries out commands, `process_groups` its end of the
node supervisors and their ranks.
"""
