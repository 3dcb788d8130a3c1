"""Pipelines of tasks: the hosts of each task of an application, and the number of items sent at a time.

Reading order: `document` (tasks, implementations and interfaces as their author describes them), `estimate` (the
time of each task on each host, the time of a mapping, pipelined or alternating, and its best unit), `mapping`
(the best mapping), `planning` (from files to a plan), `running` (a run). Berman et al. 1996, section 4.3.2
(3D-REACT).
"""
