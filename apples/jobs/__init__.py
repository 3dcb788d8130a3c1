"""Runs of any application: their records, in the foreground or detached, and the changes of a running job.

Read `spec` (the specification of a job), `service` (the verbs), `store` (the folder of a run's record), `recorder`
(fills it for detached jobs and for runs that their commands wait for), `records` (the contents of a record),
`comparison` (runs side by side), then `supervisor` (the process that owns one job), `resizing` and
`move_planner` (the plan of a move, which a verb requests from the supervisor), `children` (child processes of a
scheduler, from a fork server that imports `preload`), `programs` (jobs of unmodified programs), `units` (a
master with its workers as a job) and `scheduler_client` (requests to a scheduler). `demo` is ``apples demo``.
Front end: `commands`, `text`, `pages` and `routes`.

    from apples import RunSpec, jobs

    job = jobs.submit(RunSpec("hosts.toml", "template.toml", "user.toml"))
    jobs.resize(job.id, {"ada": 1, "bob": 0.5})
    print(jobs.wait(job.id).measured_seconds)
"""

from apples import lazy

__getattr__, __dir__, __all__ = lazy(__name__, __file__)
