"""kill -9 of any process at any moment of a migration: the program goes on in one piece, or the job fails."""

import contextlib
import json
import os
import random
import signal
import threading
import time

import pytest
from waiting import until

from apples.malleable import HostShare, JobEnded, ResizeCommand, inspection

pytestmark = [pytest.mark.criu, pytest.mark.usefixtures("criu")]
TRIALS = int(os.environ.get("APPLES_KILLS", "3"))
COUNTING = """
import os, sys, time
n = 0
while not os.path.exists("enough"):
    n += 1
    os.write(1, f"{n}\\n".encode())
    time.sleep(0.005)
"""


def below(pid, others=frozenset()):
    """Return all processes below one, but `others` and those that are dead."""
    found = set(inspection.tree(pid)[1:]) - others
    return sorted(one for one in found if inspection.state(one) not in {"", "Z"})


class Killer(threading.Thread):
    """Kills one process below this one, some time after it was started."""

    def __init__(self, seed):
        super().__init__(daemon=True)
        self.dice = random.Random(seed)
        self.seen, self.killed = set(), ""
        self.others = frozenset(below(os.getpid()))  # of fixtures that several tests share
        self.moving, self.over = threading.Event(), threading.Event()

    def run(self):
        self.moving.wait(120)
        until = time.monotonic() + self.dice.uniform(0, 0.6)
        while time.monotonic() < until:
            self.seen.update(below(os.getpid(), self.others))
        victims = below(os.getpid(), self.others)
        if victims:
            victim = self.dice.choice(victims)
            with contextlib.suppress(OSError):
                with open(f"/proc/{victim}/cmdline") as stream:  # noqa: PTH123
                    self.killed = stream.read().replace("\0", " ")[-60:]
                os.kill(victim, signal.SIGKILL)
        while not self.over.wait(0.01):
            self.seen.update(below(os.getpid(), self.others))


@pytest.mark.parametrize("seed", range(TRIALS))
def test_a_kill_in_a_migration_leaves_one_whole_program_or_a_failure(stage, seed):
    on = stage(COUNTING)
    killer = Killer(seed)
    killer.start()

    def move():
        killer.moving.set()
        return True

    def settled():
        return on.script.done or on.script.refused

    code, script = on.run(
        (lambda: on.written("3\n")() and move(), ResizeCommand(1, (HostShare("b"),))),
        (settled, (on.folder / "enough").touch),
    )
    killer.over.set()
    killer.join(120)
    assert isinstance(script.notices[-1], JobEnded)
    lines = [int(line) for line in (on.folder / "job/output").read_text().splitlines()]
    assert lines == list(range(1, len(lines) + 1)), killer.killed
    last = json.loads(on.said[-1])["event"]
    assert (code, script.ended.state, last) in {(0, "finished", "done"), (1, "failed", "error")}
    until(lambda: all(inspection.state(pid) in {"", "Z"} for pid in killer.seen))
    assert not list((on.folder / "job").glob("checkpoint")) or script.ended.state == "failed"
