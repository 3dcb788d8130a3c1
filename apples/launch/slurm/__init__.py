"""Runs under Slurm: everything between a plan and a job that has ended.

Read `nodes` (what Slurm says of its nodes, lists of hosts as it writes them, and a host list made of them),
`script` (the job script: pure), `replies` (what Slurm's commands print: pure), `client` (the one place they are
run). In the run itself: `follow` submits the job, passes on its files, and tells whether its time limit ended it;
`cancel` ends it; `placing` decides which CPUs the ranks get.
"""
