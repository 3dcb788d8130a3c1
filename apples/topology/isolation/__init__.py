"""The ladder of means to keep a job on its CPUs, strongest first.

1. `hierarchies`: which control groups this process is in.
2. `signals`: kills and moves processes, never the wrong one.
3. `brakes`: stop or kill a whole group at one instant, beside a version 1 cpuset.
4. `cpusets`, what `cpuset_v1` and `cpuset_v2` share; they,
   `systemd_scope`, `affinity`, `dry_run`: the rungs.
5. `probe`: tries which rung holds here.
"""
