import secrets
import sys
import tempfile
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from apples.launch import RankGroup, Run, command, job_processes

collect_ignore_glob = ["programs/*"]  # programs, not modules: importing them runs them

PROGRAMS = Path(__file__).with_name("programs")


class Job:
    """Starts runs of the test programs, all under one mark that can be searched for.

    Attributes
    ----------
    patience
        What has not come after so many seconds never will: this machine may have little time for a test.
    """

    patience = 300.0

    def __init__(self):
        self.name = secrets.token_hex(8)
        self.talk = []

    def task(self, rank_groups, **parameters):
        row, partition = 0, []
        for rank_group in rank_groups:
            partition.append(
                {"host": rank_group.host, "address": "127.0.0.1", "ranks": rank_group.ranks}
                | {"first_row": row, "rows": rank_group.ranks}
            )
            row += rank_group.ranks
        return {
            "schema": "apples.task/1",
            "mode": "run",
            "parameters": {"iterations": 5, **parameters},
            "implementations": {rank_group.host: "plain" for rank_group in rank_groups},
            "partition": partition,
            "output": None,
            "progress_seconds": 0.0,
            "save": False,
        }

    def run(
        self,
        program="fake.py",
        *,
        silence_seconds=patience,
        startup_seconds=patience,
        deadlines=None,
        **parameters,
    ):
        # mpi4py's own main program aborts on exceptions.
        options = ("-S",) if program == "fake.py" else ("-m", "mpi4py")
        argv = (sys.executable, *options, str(PROGRAMS / program))
        rank_groups = [RankGroup("ada", 2, argv), RankGroup("bob", 1, argv)]
        return Run(
            command(rank_groups, self.task(rank_groups, **parameters)),
            rank_groups,
            job=self.name,
            talk=self.talk.append,
            silence_seconds=silence_seconds,
            startup_seconds=startup_seconds,
            **(deadlines or {}),
        )

    @staticmethod
    def with_a_stillborn(order, rank, end):
        """The command, whose rank of this number ends by a line of shell before it can say that it is there."""
        lines = f'[ "$PMI_RANK" = {rank} ] && {end}; exec "$@"'
        argv = []
        for word, after in pairwise((*order.argv, "")):
            starts = after == "-I" and word.rpartition("/")[2].startswith("python")
            argv += ["/bin/sh", "-c", lines, "sh", word] if starts else [word]
        return replace(order, argv=tuple(argv))

    def processes(self):
        """Name -> process ids of what runs now."""
        found = {}
        for pid in job_processes.marked(self.name):
            found.setdefault(kind(pid), []).append(pid)
        return found

    def is_gone(self):
        """Whether every process ended by itself."""
        return self.eventually(lambda: not job_processes.marked(self.name))

    def eventually(self, condition):
        """Whether a condition came to hold."""
        deadline = time.monotonic() + self.patience
        while not condition():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)  # between looks at the condition
        return True


def kind(pid):
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return "gone"
    names = {b"host_agent.py": "supervisor", b"hydra_pmi_proxy": "proxy", b"/mpiexec\0": "mpiexec"}
    return next((name for part, name in names.items() if part in line), "rank")


@pytest.fixture
def job(tmp_path, monkeypatch):
    """A job whose temporary directories are its own, and of which nothing is left afterwards."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    started = Job()
    yield started
    left = job_processes.marked(started.name)
    job_processes.kill_marked(started.name, started.patience)
    assert not left, f"left behind: {[kind(pid) for pid in left]}"
    assert not list(tmp_path.glob("apples-*"))
