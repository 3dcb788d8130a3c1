"""Runs under Slurm: everything between a plan and a job that has ended.

Read `names` (lists of hosts as Slurm writes them), `script` (the job script: pure), `replies` (what Slurm's
commands print: pure), `client` (the one place they are run). In the run itself: `follow` submits the job,
passes on its files (`tail`) and ends it; `deadline` tells whether its time limit was the reason; `rank` becomes
one rank.
"""
