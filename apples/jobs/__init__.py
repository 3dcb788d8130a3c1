"""Jobs: runs that outlive the command that submitted them, and can be resized while they run.

Read `spec` (what a job is to do), `service` (the verbs), `store` (the folder of a run's record), `recording` (how
it is filled, of jobs and of runs that their commands wait for), `records` (what is known of a run),
`comparing` (runs side by side), then `parked` (how verbs have things done by forks of an `interpreter` that
has loaded all), `resizing` (plans of moves), `supervisor` (the process that owns one job) and `programs` (jobs of
unmodified programs).

    from apples import RunSpec, jobs

    job = jobs.submit(RunSpec("hosts.toml", "template.toml", "user.toml"))
    jobs.resize(job.id, {"ada": 1, "bob": 0.5})
    print(jobs.wait(job.id).measured_seconds)
"""

from apples import lazy

__getattr__, __dir__, __all__ = lazy(__name__, __file__)
