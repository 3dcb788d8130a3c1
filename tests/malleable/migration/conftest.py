"""Real programs under real keepers, and what commands them here."""

import contextlib
import os
import selectors
import sys
import time
from collections import deque
from pathlib import Path

import pytest

from apples.launch import HostSpec
from apples.malleable import (
    CommandSource,
    HostShare,
    JobEnded,
    JobFile,
    ProgramManager,
    ResizeCommand,
    ResizeDone,
    ResizeRefused,
    working_criu,
)

WAIT_SECONDS = 120.0


@pytest.fixture(scope="session")
def criu():
    found, missing = working_criu()
    if found is None:
        pytest.skip(missing)
    return found


class Script(CommandSource):
    """Commands that a test gives one after the other, each when its condition holds."""

    def __init__(self, *acts):
        self.acts = deque(acts)
        self.notices = []
        self.waited = None
        self.stop = False
        self.each = lambda: None
        self.until = time.monotonic() + WAIT_SECONDS

    def attach(self, selector, status):
        self.status = status

    def poll(self):
        if not self.acts:
            return None
        ready, act = self.acts[0]
        if not ready():
            return None
        self.acts.popleft()
        if isinstance(act, ResizeCommand):
            return act
        act()
        return None

    def cancelled(self):
        self.each()
        return self.stop or time.monotonic() > self.until

    def notify(self, notice):
        self.notices.append(notice)

    def deadline(self):
        return None

    def tick(self):
        raise AssertionError("no deadline was set")

    def close(self):
        self.closed = True

    @property
    def ended(self):
        (ended,) = [one for one in self.notices if isinstance(one, JobEnded)]
        assert self.notices[-1] is ended
        return ended

    @property
    def done(self):
        return [one for one in self.notices if isinstance(one, ResizeDone)]

    @property
    def refused(self):
        return [one.reason for one in self.notices if isinstance(one, ResizeRefused)]

    @property
    def codes(self):
        """The code of each refusal."""
        return [one.code for one in self.notices if isinstance(one, ResizeRefused)]


class Stage:
    """Hosts a and b of this machine, and a program on a; more of them where ranks are on the first ones."""

    def __init__(self, folder, program, ranks=1, hosts="ab", **task):
        self.folder, self.first = folder, hosts[:ranks]
        cpus = sorted(os.sched_getaffinity(0))
        self.cpus = {name: (cpus[-(n % len(cpus))],) for n, name in enumerate(hosts)}
        self.said, self.copied = [], []
        self.places = {
            name: HostSpec(name, 1, tuple(program), sys.executable, "", "", cpus=self.cpus[name])
            for name in hosts
        }
        if ranks > 1:
            task["addresses"] = dict.fromkeys(hosts, "127.0.0.1")
        self.task = {"program": task}

    def run(self, *acts, places=None, each=None):
        hosts = tuple((places or self.places).values())
        job = JobFile(
            "test",
            str(self.folder),
            hosts,
            tuple(map(HostShare, self.first)),
            self.task,
            commits=str(self.folder / "job"),
        )
        self.script = Script(*acts)
        self.script.each = each or self.script.each
        with selectors.DefaultSelector() as selector:
            self.anchor = ProgramManager(
                job, self.script, selector, self.said.append, self.copied.append
            )
            code = self.anchor.run()
        return code, self.script

    def written(self, text, name="output", count=1):
        """Return a condition: the program wrote a text so often."""

        def holds():
            with contextlib.suppress(OSError):
                return (self.folder / "job" / name).read_text().count(text) >= count
            return False

        return holds


@pytest.fixture
def stage_of():
    """Return what makes a stage of any program."""
    return Stage


@pytest.fixture
def stage(tmp_path):
    """Return what makes a stage for a Python program given as text."""

    def make(source, **task):
        path = Path(tmp_path, "program.py")
        path.write_text(source)
        return Stage(tmp_path, [sys.executable, "-u", str(path)], **task)

    return make


def to(host, epoch=1):
    return ResizeCommand(epoch, (HostShare(host),))
