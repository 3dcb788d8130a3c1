"""Imported once, by the fork server of `apples.jobs.children`: loads what supervisors and plans of moves need.

The first plan of a process loads more modules, makes validators, and has Python rewrite the code that runs often.
Therefore the sample that comes with the package is planned here once, from the values of its files alone, and all
forks share the pages. No file of a user is read, and no process is started.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import shutil
import time

from apples.jobs.children import SOCKET_FOLDER

MODULES = (
    *("numpy.random", "encodings.idna", "encodings.ascii", "psutil", "email.parser"),
    *("apples.launch.actuators.ssh", "apples.jobs.resizing", "apples.jobs.supervisor", "apples.jobs.units"),
)  # fmt: skip
"""Modules that these import only when they need them, and they always do."""
END_SECONDS = 5.0
"""Limit of the time in which a killed parent is gone after its files are closed."""
ONE_THREAD = "OPENBLAS_NUM_THREADS"


def _load() -> None:
    """Import the modules. A process with threads must not be forked, and a plan has no use for them."""
    before = os.environ.get(ONE_THREAD)
    os.environ[ONE_THREAD] = "1"
    for module in MODULES:
        importlib.import_module(module)
    del os.environ[ONE_THREAD]
    if before is not None:
        os.environ[ONE_THREAD] = before


def _plan_sample() -> None:
    """Plan the sample, and forget the plan."""
    from apples.agent.session.running import prepare  # noqa: PLC0415 - loaded while nothing is collected
    from apples.agent.session.spec import RunSpec  # noqa: PLC0415 - likewise
    from apples.launch.sample import example_folder  # noqa: PLC0415 - likewise

    sample = example_folder()
    hosts, template, user = (sample / f"{name}.toml" for name in ("hosts", "template", "user"))
    prepared = prepare(RunSpec(hosts=hosts, template=template, user=user, weather="static"))
    prepared.plan()
    prepared.close()


def _remove_folder(folder: str, parent: int) -> None:
    """Remove the folder of this fork server's socket if the process that made the folder was killed.

    The kernel closes the files of a killed process, which ends this one, before it gives its children another
    parent: look for END_SECONDS. A parent that lives needs the folder for its next fork server.
    """
    deadline = time.monotonic() + END_SECONDS
    while folder and os.getppid() == parent:
        if time.monotonic() > deadline:
            return
        time.sleep(0.01)
    if folder:
        shutil.rmtree(folder, ignore_errors=True)


def _seed() -> None:
    """Seed NumPy's generator in a fork: no two draw the same numbers."""
    import numpy as np  # noqa: PLC0415 - after its number of threads is set

    np.random.seed()  # noqa: NPY002 - the generator that a user's code may use


atexit.register(_remove_folder, os.environ.pop(SOCKET_FOLDER, ""), os.getppid())
gc.disable()  # what is loaded stays: a collection would copy its pages in every fork
_load()
_plan_sample()
os.register_at_fork(after_in_child=_seed)
gc.collect()
gc.freeze()
gc.enable()
