"""Two daemons on one tree of control groups: whatever their directories are called, neither touches the other's.

`tests/soak_topologyd.py pairs` does the same a thousand times over, and on the kernel's cpusets where it may.
"""

import asyncio
import hashlib
import json
import os
import random
import shutil
import subprocess
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from adversaries.faulty_folder import FolderFaults
from daemons import CPUSETS, FakeCpusets, fake_fence, let_go, needs_cpusets, quick_folder

from apples.errors import ApplesError, UsageError
from apples.io import Folder, identity_of
from apples.topology import (
    Caller,
    CpuContainer,
    CpuSet,
    CpusetV1,
    DaemonOptions,
    NodeLedger,
    TopologyRequestHandler,
    parse_request,
    synthetic,
)

OPERATOR = Caller("uid:0", operator=True)
OPTIONS = DaemonOptions(kill_seconds=0.5, claim_seconds=86_400.0)
STARTS = ("relative", "absolute", "moved", "restored", "copied")
"""How a daemon is started anew; a copy beside its original is refused."""
STRANGERS = ("topologyd-00000000-theirs-1", "slurm")
"""Groups of nobody here: of a third daemon, and of another program."""


class RecordingFolder(FakeCpusets):
    """A tree of groups that remembers which of those at its top were made, written to or removed."""

    def __init__(self, folder, touched, *, real, inside=""):
        super().__init__(folder, FolderFaults())
        self.touched, self.real, self.inside = touched, real, inside

    def note(self, name):
        self.touched.add(f"{self.inside}{name}".partition("/")[0])

    def below(self, name):
        inside = f"{self.inside}{name}/"
        below = Folder.below(self, name)
        return RecordingFolder(below, self.touched, real=self.real, inside=inside)

    def open_file(self, name, flags, mode=0o600):
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            self.note(name)
        return super().open_file(name, flags, mode)

    def make(self, name):
        self.note(name)
        (Folder if self.real else FakeCpusets).make(self, name)

    def drop(self, name):
        self.note(name)
        (Folder if self.real else FakeCpusets).drop(self, name)


@dataclass
class Owner:
    """One daemon with what it wrote to; `directory` is where its state is now, `jobs` what it answered for."""

    directory: Path
    identity: str = ""
    touched: set = field(default_factory=set)
    handler: TopologyRequestHandler | None = None
    asked: int = 0


class TwoDaemons:
    """Two daemons in `home`, whose groups are in a directory there or, if `real`, in the kernel's cpusets."""

    def __init__(self, home, *, real=False):
        self.home, self.real = home, real
        self.before = Path.cwd()
        self.runner = asyncio.Runner()
        self.tree = CPUSETS if real else home / "cpusets"
        self.processes = []
        self.met = 0  # cycles in which both had jobs
        self.owners = []
        for name in "ab":
            (home / name / "daemon").mkdir(parents=True, mode=0o700)
            (home / name / "daemon").chmod(0o700)
            self.owners.append(Owner(home / name / "daemon"))
        cpus = synthetic("core:8 pu:1").cpus if not real else CpuSet.of(os.sched_getaffinity(0))
        self.machine = synthetic(f"core:{max(cpus) + 1} pu:1")
        if not real:
            fake_fence(self.tree, str(cpus))
            for name in STRANGERS:
                isolation(self.tree, set(), real=False).fit(
                    CpuContainer(name, CpuSet.of([7]), CpuSet.of([0]))
                )
        for owner in self.owners:
            self.start(owner, "absolute")

    def open(self, owner, path, *, restored=False):
        """A request handler of `owner` on the directory as it is spelt in `path`."""
        state = Folder.open(path)
        held = isolation(self.tree, owner.touched, real=self.real)
        owner.identity = identity_of(state, restored=restored)
        # In the kernel's tree others have sets too, labs for one, which would leave nothing to give.
        options = replace(OPTIONS, ignored=("*",)) if self.real else OPTIONS
        ledger = NodeLedger(self.machine, held, state, owner.identity, options)
        return TopologyRequestHandler(ledger)

    def start(self, owner, how):
        """End a daemon without a word, and start it on its directory, which may have moved meanwhile."""
        here, path = owner.directory, owner.directory
        options = {}
        if owner.handler is not None:
            owner.handler = None
            let_go(here)
        if how == "relative":
            os.chdir(here.parent)
            path = Path(here.name)
        elif how == "moved":
            path = here.rename(here.with_name(f"daemon{owner.asked}"))
        elif how in {"restored", "copied"}:
            path = shutil.copytree(here, here.with_name(f"copy{owner.asked}"))
            kept = owner.identity
            with pytest.raises(UsageError) as raised:
                self.open(owner, path)
            assert raised.value.code == "directory-copied"
            del raised  # it holds the frames of the ledger, and so the directory
            let_go(path)
            assert owner.identity == kept
            if how == "restored":
                shutil.rmtree(here)
                options = {"restored": True}
            else:
                shutil.rmtree(path)
                path = here
        owner.asked += 1
        owner.directory = path.absolute()
        owner.handler = self.open(owner, path, **options)

        async def begin():
            owner.handler.start()
            await self.settle(owner)

        self.runner.run(begin())

    async def settle(self, owner):
        """Return when what a daemon does by itself is done."""
        while owner.handler.releasing.tasks:
            await asyncio.wait(owner.handler.releasing.tasks.values())
        owner.handler.watch()

    def live(self, owner, chance):
        """Ask a daemon for a few things, some of which it refuses; a job may get a process."""

        async def run():
            for _ in range(chance.randint(1, 5)):
                owner.asked += 1
                await self.ask(owner, chance)
            await self.settle(owner)

        self.runner.run(run())

    async def ask(self, owner, chance):
        verb = chance.choice(["allocate", "allocate", "resize", "deallocate", "suspend", "resume"])
        job = f"j{chance.randrange(3)}"  # the same names on both sides
        fields = {"verb": verb, "job": job}
        if verb == "allocate":
            fields |= {"count": chance.randint(1, 2), "least": 1, "until": "told"}
        elif verb == "resize":
            fields |= {"count": chance.randint(1, 2)}
        try:
            await owner.handler.answer(OPERATOR, parse_request(json.dumps(fields).encode()))
        except ApplesError:
            return
        if self.real and verb == "allocate":
            process = subprocess.Popen(["/bin/sleep", "1000"])
            node = owner.handler.node
            name = node.state.jobs[job].name(node.mark)
            self.processes.append((owner, name, process))
            node.isolation.admit(name, process.pid)

    def groups(self, owner=None):
        """Name -> what can be seen of each group that is not `owner`'s."""
        ours = f"topologyd-{owner.handler.node.mark}-" if owner else "/"
        found = {}
        for group in self.tree.iterdir():
            mine = group.name.startswith("topologyd-") or group.name in STRANGERS
            if group.is_dir() and mine and not group.name.startswith(ours):
                files = ("cpuset.cpus", "cpuset.mems", "cgroup.procs")
                found[group.name] = (
                    group.stat().st_ino,
                    *((group / file).read_text() for file in files),
                )
        return found

    def ended(self):
        """Whether each process that should live does, and each that should not does not."""
        for owner, name, process in self.processes:
            node = owner.handler.node
            runs = name in {job.name(node.mark) for job in node.state.jobs.values()}
            if not runs:
                process.wait(60)
            assert (process.poll() is None) == runs, f"{name} of {owner.directory}"
        self.processes = [each for each in self.processes if each[2].poll() is None]

    def cycle(self, seed):
        """Start one of them anew, have it work, and look whether anything of anybody else is other than before."""
        chance = random.Random(seed)
        owner = chance.choice(self.owners)
        held = essence(owner)
        elsewhere = self.groups(owner) if not self.real else None
        neighbour = next(each for each in self.owners if each is not owner)
        theirs = essence(neighbour), containers(neighbour)
        self.met += bool(held and theirs[0])
        owner.touched.clear()
        self.start(owner, chance.choice(STARTS))
        assert essence(owner) == held, "a job was lost in a start"
        self.live(owner, chance)
        ours = f"topologyd-{owner.handler.node.mark}-"
        foreign = {name for name in owner.touched if not name.startswith(ours)}
        assert not foreign, f"touched {foreign}"
        assert (essence(neighbour), containers(neighbour)) == theirs
        if elsewhere is not None:
            assert self.groups(owner) == elsewhere
        self.ended()

    def end(self):
        """Let all jobs go; nothing of either is left."""
        for owner in self.owners:

            async def empty(owner=owner):
                for job in list(owner.handler.node.state.jobs):
                    owner.asked += 1
                    fields = {"verb": "deallocate", "job": job}
                    await owner.handler.answer(
                        OPERATOR, parse_request(json.dumps(fields).encode())
                    )

            self.runner.run(empty())
            assert not owner.handler.node.containers()
        self.ended()
        assert not self.processes

    def close(self):
        """Leave nothing behind, whatever went wrong."""
        os.chdir(self.before)
        self.runner.close()
        for _, _, process in self.processes:
            process.kill()
            process.wait()
        if self.real:
            for owner in self.owners:
                for name in owner.handler.node.containers() if owner.handler else ():
                    owner.handler.node.isolation.remove(name)
        let_go(self.home)
        shutil.rmtree(self.home, ignore_errors=True)


def isolation(tree, touched, *, real):
    """A version 1 backend on `tree` that notes which groups it touches."""
    point, own = (RecordingFolder(Folder.open(tree), touched, real=real) for _ in range(2))
    return CpusetV1(point, own, mine=None if real else CpuSet.of(range(1024)))


def essence(owner):
    jobs = owner.handler.node.state.jobs
    return {name: (job.state.value, str(job.owns), str(job.holds)) for name, job in jobs.items()}


def containers(owner):
    node = owner.handler.node
    found = node.containers()
    return {
        name: (str(node.isolation.cpus(name)), node.isolation.processes(name)) for name in found
    }


def pairs(count, first=0, *, real=False):
    """Run cycles from a seed on; return what was done."""
    world = TwoDaemons(quick_folder(), real=real)
    try:
        for seed in range(first, first + count):
            world.cycle(seed)
        world.end()
    finally:
        world.close()
    return {"requests": sum(owner.asked for owner in world.owners), "both_had_jobs": world.met}


def test_neither_of_two_daemons_touches_a_group_of_the_other_however_it_is_started():
    assert pairs(25)["both_had_jobs"] > 5


@pytest.mark.cgroup
def test_the_same_on_the_kernels_cpusets_with_processes():
    needs_cpusets()
    assert pairs(10, real=True)["both_had_jobs"] > 1


def test_a_daemon_that_takes_its_mark_from_its_path_is_caught(monkeypatch):
    def of_the_path(folder, *, restored=False):
        if "copy" in folder.name and not restored:
            raise UsageError(f"{folder.name} is a copy")
        return hashlib.sha256(folder.name.encode()).hexdigest()

    monkeypatch.setitem(globals(), "identity_of", of_the_path)
    with pytest.raises(AssertionError):
        pairs(10)
