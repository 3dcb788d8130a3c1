"""Topology daemons under test: on a backend that only remembers, on directories that act as control groups."""

import asyncio
import contextlib
import os
import shutil
import tempfile
import threading
from pathlib import Path

import pytest
from adversaries.faulty_folder import FaultyFolder, FolderFaults

from apples.io import Folder, identity_of
from apples.topology import (
    CpuSet,
    CpusetV1,
    DaemonOptions,
    DryRun,
    NodeLedger,
    Server,
    TopologyClient,
    synthetic,
)

QUICK = DaemonOptions(kill_seconds=120.0, claim_seconds=300.0, watch_seconds=0.05, ignored=("*",))
CONTROL_FILES = (
    "cpuset.cpus",
    "cpuset.mems",
    "cpuset.cpu_exclusive",
    "cpuset.memory_migrate",
    "cgroup.procs",
)
CPUSETS = Path("/sys/fs/cgroup/cpuset")


def needs_cpusets():
    """Skip where no version 1 cpuset can be made, with the reason."""
    if os.geteuid() != 0 or not os.access(CPUSETS / "cgroup.procs", os.W_OK):
        pytest.skip("needs root and a writable cpuset tree of version 1")


def quick_folder():
    """Return a private directory, in memory where the machine has such a place."""
    memory = Path("/dev/shm")  # noqa: S108 - a test's own directory
    return Path(tempfile.mkdtemp(prefix="topologyd-", dir=memory if memory.is_dir() else None))


def let_go(*places):
    """Close what is still open below some directories: a daemon's files are its process' until that ends."""
    for entry in list(Path("/proc/self/fd").iterdir()):
        with contextlib.suppress(OSError):
            if str(entry.readlink()).startswith(tuple(map(str, places))):
                os.close(int(entry.name))


class FakeCpusets(FaultyFolder):
    """A plain directory whose folders have the files of a cpuset; they stay when the process is killed."""

    def make(self, name):
        super().make(name)
        for file in CONTROL_FILES:
            os.close(self.open_file(f"{name}/{file}", os.O_WRONLY | os.O_CREAT))

    def drop(self, name):
        for file in CONTROL_FILES:
            Path(self.name, name, file).unlink(missing_ok=True)
        super().drop(name)

    def below(self, name):
        return FakeCpusets(Folder.below(self, name), self.faults)


def fake_fence(directory, cpus, faults=None):
    """Return a cpuset isolation backend on a plain directory that has `cpus`."""
    directory.mkdir(exist_ok=True)
    for file, text in {
        "cpuset.cpus": cpus,
        "cpuset.effective_cpus": cpus,
        "cpuset.effective_mems": "0",
        "cgroup.procs": "",
    }.items():
        (directory / file).write_text(str(text))
    faults = faults or FolderFaults()
    tree = FakeCpusets(Folder.open(directory), faults)
    own = FakeCpusets(Folder.open(directory), faults)
    return CpusetV1(tree, own, mine=CpuSet.of(range(1024)))


class Daemon:
    """A daemon in a thread of its own, on a machine that need not exist.

    Parameters
    ----------
    machine
        Synthetic topology.
    ledger
        More arguments of its `NodeLedger`.
    """

    def __init__(
        self,
        machine="package:2 core:4 pu:1",
        isolation=None,
        options=QUICK,
        home=None,
        **ledger,
    ):
        self.home = home or quick_folder()
        for name in ("state", "run"):
            (self.home / name).mkdir(mode=0o700, exist_ok=True)
        topology = synthetic(machine) if isinstance(machine, str) else machine
        self.isolation = isolation or DryRun(topology.cpus)
        self.state = Folder.open(self.home / "state")
        self.node = NodeLedger(
            topology, self.isolation, self.state, identity_of(self.state), options, **ledger
        )
        self.socket = self.home / "run/topologyd.sock"
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.problem = None

    def _run(self):
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - shown by the test that waits
            self.problem = error
        self._started.set()

    async def _serve(self):
        self.loop = asyncio.get_running_loop()
        self.server = Server(self.node, Folder.open(self.home / "run"), self.state)
        serving = asyncio.create_task(self.server.serve())
        ready = asyncio.create_task(self.server.ready.wait())
        await asyncio.wait({serving, ready}, return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        self._started.set()
        await serving

    def __enter__(self):
        self._thread.start()
        assert self._started.wait(120)
        if self.problem:
            raise self.problem
        return self

    def __exit__(self, *_):
        try:
            self.stop()
        finally:
            let_go(self.home)
            shutil.rmtree(self.home, ignore_errors=True)

    def stop(self):
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self.server.stop)
            self._thread.join(120)
        assert not self._thread.is_alive()
        if self.problem:
            raise self.problem

    def client(self, seconds=120.0):
        return TopologyClient(self.socket, seconds=seconds)

    def ask(self, verb, **fields):
        with self.client() as client:
            return client.ask(verb, **fields)

    @property
    def jobs(self):
        """Name -> what anybody may know of each job."""
        return {job["job"]: job for job in self.ask("jobs")["jobs"]}
