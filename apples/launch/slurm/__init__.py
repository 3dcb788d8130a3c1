"""Runs under Slurm, from a plan to the end of its job.

Pure modules: `nodes` parses Slurm's node lists and builds a host list, `script` builds the job script, `replies`
parses the output of Slurm's commands. `client` runs these commands. During a run, `follow` submits the job, passes
its output on, and reports whether its time limit ended it; `cancel` ends the job; `placing` chooses the CPUs of
the ranks.
"""
