"""Pipelines of tasks: which hosts do which task of an application, and how much passes between two at a time.

Reading order: `document` (tasks, implementations and interfaces as their author describes them), `estimate` (what
each takes on each host, how long a mapping takes, pipelined or alternating, and its best unit), `mapping` (the
best mapping), `planning` (from files to a plan), `running` (a run). Berman et al. 1996, section 4.3.2 (3D-REACT).
"""
