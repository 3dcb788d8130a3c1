"""The web face: pages of this user's runs, jobs, hosts and files, made here and complete without a script.

Read `gate` (who is admitted: Host, session, origin), `run_list` (search, order and pages over the records),
`folder` (the files under the folder that was named at the start), `weather` (what is remembered of hosts, and what
is measured when somebody asks), `app` (the site, to which each room adds its routes), `job_routes`,
`cluster_routes` and `application_routes` (they call the same functions as the commands) and `serve` (the command).
The pages are made in `served_jobs`, `served_cluster`, `served_files` and `served_weather` of `apples.views`, from
the templates beside them.

Needs ``apples[service]``: FastAPI and uvicorn. Nothing imports this package: ``apples serve`` is found by name.
"""

from apples import lazy

__getattr__, __dir__, __all__ = lazy(__name__, __file__)
