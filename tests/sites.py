"""A live scheduler as a process, and its user's commands."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from waiting import until

from apples.jobs import SchedulerClient, store
from apples.launch import all_processes, kill_marked, marked
from apples.topology import CpuSet

SAMPLE = Path(__file__).parent / "jobs" / "sample"
SHORT = ("--weather", "static", "--no-verify", "--set", "iterations=20")
LONG = ("--weather", "static", "--no-verify", "--set", "iterations=100000", "--set", "pause=0.01")

UNITS_FILE = """
name = "squares"
units = "count"
work = 200
every = 0.5
[parameters]
count = 200
gate = "none"
"""
UNITS_PROGRAM = """
import time
from pathlib import Path

GATE = "none"

def units(parameters):
    for n in range(parameters["count"]):
        yield [n, parameters["gate"]]

def work(unit):
    number, gate = unit
    while gate != "none" and number >= 20 and not Path(gate).exists():
        time.sleep(0.01)
    time.sleep(0.02)
    return number * number

def combine(total, result):
    return (total or 0) + result
"""
"""A master/worker program whose units wait for a file from the twentieth on, where one is named."""


class Site:
    """A scheduler as a process, and its user's commands."""

    def __init__(self, folder, policy, *options):
        self.folder, self.policy, self.options = folder, policy, options
        self.environment = {
            **{k: v for k, v in os.environ.items() if k != "APPLES_SCHEDULER"},
            "XDG_STATE_HOME": str(folder),
        }
        self.process = None

    def start(self, *before):
        """Start it; say first what it says before it is ready."""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "apples", "scheduler", "--policy", self.policy, *self.options],
            cwd=SAMPLE, env=self.environment, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            for text in (*before, "ready at"):
                self._hear(text)
        except BaseException:
            self.kill()
            raise

    def _hear(self, text):
        said = self.process.stderr.readline()
        if text not in said:
            self.process.kill()  # or it goes on, and what it says has no end
        assert text in said, said + self.process.stderr.read()

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        self.process.wait(30)
        self.process.stderr.close()

    def run(self, *words, stderr=subprocess.PIPE):
        return subprocess.run(
            [sys.executable, "-m", "apples", *words], cwd=SAMPLE, env=self.environment,
            stdout=subprocess.PIPE, stderr=stderr, text=True, timeout=120, check=False,
        )  # fmt: skip

    def begin(self, *words):
        return subprocess.Popen(
            [sys.executable, "-m", "apples", *words], cwd=SAMPLE, env=self.environment,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def ask(self, *words):
        done = self.run(*words, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def refused(self, *words):
        """Run a command that prints one error line; return its exit code, its code and the line."""
        done = self.run(*words)
        (line,) = done.stderr.splitlines()
        return done.returncode, line.rpartition("[")[2].rstrip("]"), line

    def submit(self, *words):
        return self.ask("submit", *words)["job"]

    def queue(self):
        """Return what `apples queue --json` shows, without a process for it."""
        place = self.folder / "apples" / "schedulers" / "local"
        return SchedulerClient(place).ask("GET", "/v1/queue")

    def job(self, name):
        return next(one for one in self.queue()["jobs"] if one["job"] == name)

    def until(self, name, state, seconds=90):
        until(lambda: self.job(name)["state"] == state, seconds)
        return self.job(name)

    def host(self, name):
        return next(one for one in self.queue()["hosts"] if one["host"] == name)

    def close(self):
        """Cancel all jobs and stop, unless it was stopped or never started; where that fails kill it and them."""
        if self.process is None or self.process.poll() is not None:
            return
        try:
            for job in self.queue()["jobs"]:
                self.run("cancel", job["job"])
            self.stop()
        finally:
            if self.process.poll() is None:
                self.kill()

    def kill(self):
        """Kill it, and what is left of its jobs on this machine."""
        self.process.kill()
        self.process.wait(30)
        self.process.stderr.close()
        for record in (self.folder / "apples" / "jobs").glob("*/"):
            kill_marked(record.name, 10.0)


def assert_no_job_is_left():
    """Fail if jobs of this state directory have processes here, and kill those."""
    left = [job.id for job in store.jobs() if marked(job.id)]
    for job in left:
        kill_marked(job, 10.0)
    assert left == []


def masters(folder):
    """Return the processes of ssh that keep a shared login open, whose sockets are below `folder`."""
    found = []
    for pid in all_processes():
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
            if words.startswith(b"ssh: ") and str(folder).encode() in words:
                found.append(pid)
    return found


def allowed(job):
    """Return the CPUs that the ranks of a job may run on."""
    found = set()
    for pid in marked(job):
        with contextlib.suppress(OSError):
            if b"PMI_RANK=" in Path(f"/proc/{pid}/environ").read_bytes():
                found.add(str(CpuSet.of(os.sched_getaffinity(pid))))
    return found
