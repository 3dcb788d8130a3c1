"""What Kale's live experiment reads in a scheduler's log: decisions that are made again, and what resizes took."""

import contextlib
import heapq
import importlib.util
import itertools
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import until

from apples.cluster import (
    LAST,
    AttemptPhase,
    HostLeft,
    HostPreference,
    JobReport,
    JobSubmission,
    LiveScheduler,
    ResizeOrder,
    SchedulerLog,
    StartOrder,
)
from apples.launch import all_processes, read
from apples.resources import read_host_list
from apples.scheduling import Equipartition, JobKind

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def kale():
    spec = importlib.util.spec_from_file_location("kale_live", ROOT / "experiments/kale_live.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["kale_live"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["kale_live"]


class Played:
    """A live scheduler whose jobs start in 1.3 s, run for 20, and are resized in .7: its log."""

    def __init__(self, folder, hosts, arrivals):
        self.events, self.count = [], itertools.count()
        tokens = (f"{n:08x}" for n in itertools.count())
        names = [f"h{n + 1}" for n in range(4)]
        log = SchedulerLog.open(folder / "apples/schedulers/local")
        (folder / "hosts.toml").write_text(hosts)
        prefer = HostPreference.of(read_host_list(folder / "hosts.toml"))
        self.one = LiveScheduler(
            log, Equipartition(), names, 0.0, 0.0, lambda: next(tokens), prefer=prefer
        )  # fmt: skip
        for at in arrivals:
            job = JobSubmission(1, 4, JobKind.MALLEABLE, 20.0)
            self.at(at, lambda now, job=job: self.one.submit(now, job))
        self.where = {}
        while self.events:
            self.step()
        log.close()

    def at(self, time, act):
        heapq.heappush(self.events, (time, next(self.count), act))

    def step(self):
        due = self.one.now + self.one.next_time()
        if self.events[0][0] <= due:
            now, _, act = heapq.heappop(self.events)
            act(now)
        else:
            now = due
            self.one.tick(now)
        for order in self.one.turn():
            self.obey(now, order)

    def obey(self, now, order):
        def say(time, report):
            self.at(time, lambda then: self.one.report(then, report))

        key = order.job, order.attempt
        if isinstance(order, StartOrder):
            self.where[key] = order.hosts
            say(now + 1.3, JobReport(*key, AttemptPhase.RUNNING))
            self.at(now + 20.0, lambda then: self.end(then, key))
        elif isinstance(order, ResizeOrder) and key in self.where:
            gone = set(self.where[key]) - set(order.hosts)
            self.where[key] = order.hosts
            say(now + 0.7, JobReport(*key, AttemptPhase.RUNNING, order.epoch))
            for host in gone:
                say(now + 0.9, HostLeft(*key, host, order.epoch))

    def end(self, now, key):
        hosts = self.where.pop(key)
        self.one.report(
            now, JobReport(*key, AttemptPhase.ENDED, state="finished", exit_code=0)
        )  # fmt: skip
        for host in hosts:
            self.one.report(now, HostLeft(*key, host, LAST))


def test_a_log_is_replayed_to_its_decisions_and_not_by_another_policy(kale, tmp_path):
    Played(tmp_path, kale.here(4), [0.0, 4.0, 4.01, 9.0, 31.0, 31.5, 60.0])
    decisions, alike = kale.decided_again(tmp_path, "equipartition")
    assert decisions == alike >= 12
    decisions, alike = kale.decided_again(tmp_path, "first_fit")
    assert alike < decisions


def test_the_costs_of_a_log_are_what_its_jobs_took(kale, tmp_path):
    Played(tmp_path, kale.here(4), [0.0, 5.0])
    start, cost = kale.costs(kale.records_of(tmp_path))
    assert start == pytest.approx(1.3)
    assert (cost.shrink, cost.expand) == pytest.approx((0.7, 0.7))


def of_folder(folder):
    """Return the processes that keep their state below a folder."""
    mark = f"XDG_STATE_HOME={folder}".encode()
    return [
        pid
        for pid in all_processes()
        if any(word.startswith(mark) for word in read(f"/proc/{pid}/environ").split(b"\0"))
    ]


@pytest.mark.more
def test_an_experiment_that_is_told_to_end_leaves_no_scheduler(tmp_path):
    folder = tmp_path / "0.5-1"
    # The one job outlasts the test on any machine, so the experiment cannot end by itself first.
    command = [sys.executable, ROOT / "experiments/kale_live.py", "--hosts", "1", "--jobs", "1"]
    one = subprocess.Popen([*command, "--seconds", "100000", "--keep", tmp_path])

    def both_run_or_it_ended():
        sockets = [*folder.glob("*/apples/schedulers/local/socket")]
        return len(sockets) == 2 or one.poll() is not None

    try:
        until(both_run_or_it_ended)
        assert one.poll() is None
        one.send_signal(signal.SIGTERM)
        assert one.wait(300) == 143
        until(lambda: of_folder(tmp_path) == [])
    finally:
        one.kill()
        for pid in of_folder(tmp_path):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
