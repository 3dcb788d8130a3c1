"""Imported once, by the fork server of `apples.jobs.children`: loads the modules of supervisors and move planning.

The first plan of a process loads more modules, creates validators, and lets Python specialise frequently executed
code. Therefore this module plans the package's sample once, only from its files' values, so that all forks share
these memory pages. It reads no file of a user and starts no process.
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
"""Modules that each supervisor needs, also those that others import lazily."""
END_SECONDS = 5.0
"""Time limit for the end of a killed parent after the kernel closed its files."""
ONE_THREAD = "OPENBLAS_NUM_THREADS"


def _load() -> None:
    """Import the modules without threads of numeric libraries: a process with threads must not be forked."""
    before = os.environ.get(ONE_THREAD)
    os.environ[ONE_THREAD] = "1"
    for module in MODULES:
        importlib.import_module(module)
    del os.environ[ONE_THREAD]
    if before is not None:
        os.environ[ONE_THREAD] = before


def _plan_sample() -> None:
    """Plan the sample and discard the plan."""
    from apples.agent.session.running import prepare  # noqa: PLC0415 - imported with garbage collection disabled
    from apples.agent.session.spec import RunSpec  # noqa: PLC0415 - likewise
    from apples.launch.sample import example_folder  # noqa: PLC0415 - likewise

    sample = example_folder()
    hosts, template, user = (sample / f"{name}.toml" for name in ("hosts", "template", "user"))
    prepared = prepare(RunSpec(hosts=hosts, template=template, user=user, weather="static"))
    prepared.plan()
    prepared.close()


def _remove_folder(folder: str, parent: int) -> None:
    """Remove the folder of this fork server's socket if the process that created it was killed.

    The kernel first closes the files of a killed process, which ends this fork server, and later gives its
    children another parent. Therefore poll the parent for END_SECONDS. A living parent needs the folder for its
    next server.
    """
    deadline = time.monotonic() + END_SECONDS
    while folder and os.getppid() == parent:
        if time.monotonic() > deadline:
            return
        time.sleep(0.01)
    if folder:
        shutil.rmtree(folder, ignore_errors=True)


def _seed() -> None:
    """Seed NumPy's generator in each fork, so that no two forks draw the same numbers."""
    import numpy as np  # noqa: PLC0415 - after its number of threads is set

    np.random.seed()  # noqa: NPY002 - the generator that a user's code may use


atexit.register(_remove_folder, os.environ.pop(SOCKET_FOLDER, ""), os.getppid())
gc.disable()  # a collection writes to object headers, so each fork would copy the shared pages
_load()
_plan_sample()
os.register_at_fork(after_in_child=_seed)
gc.collect()
gc.freeze()
gc.enable()
