"""Runs scheduling policies over workload logs.

Read in this order: `swf` (logs), `workload` (jobs as arrays, cleaning, transformations), `config`
(machine, models, costs), `run` (the one verb), `engine` (the general event loop), `fast` with
`backfill_core`, `conservative_core`, `equipartition_core` and `sd_core` (the same for the built-in
policies, over arrays), `metrics` (what a schedule is judged by), `generators` (model workloads).
"""
