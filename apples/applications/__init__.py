"""Parameter sweeps, master/worker programs and pipelines, and the files that users write.

Read `parameter_sweep`, `master_worker` and `pipeline`: each plans and runs one kind of application. `worker` is
the program on each host, `workers` the connections to it, and `dask_hosts` the workers of a Dask cluster.
`host_inputs` checks the host names of a file and takes the speeds and the recorded weather of its hosts.

`files` finds the kind of a file and checks it, `scaffold` writes the files of a new application, `documents`
holds the JSON schemas. Front end: `commands` (``hat ..``, ``apples check``), `forms`, `folder` and
`routes`.
"""

from apples import lazy

__getattr__, __dir__, __all__ = lazy(__name__, __file__)
