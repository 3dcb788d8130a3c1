"""Commits survive what they must: other rank counts, damage, the death of hosts."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from apples.launch import hydra
from apples.malleable import HostShare, JobEnded, LimitsRequested, RolledBack, commits, rehearse

PROGRAMS = Path(__file__).parent / "programs_mpi"


def commit(folder, number):
    commits.data_path(folder, number, 0).write_bytes(b"x")
    commits.publish(folder, number, {"images": []})
    commits.prune(folder, number)


def found(folder):
    return [one["commit"] for one in commits.whole_manifests(folder)]


def test_a_manifest_is_whole_or_not_there_and_two_commits_are_kept(tmp_path):
    for number in (1, 2, 3):
        commit(tmp_path, number)
    assert found(tmp_path) == [3, 2]
    commits.manifest_path(tmp_path, 3).write_text('{"schema": "apples.commit/1"}')
    assert found(tmp_path) == [2]
    assert commits.highest_commit(tmp_path) == 3
    assert not list(tmp_path.glob("*.part"))


def test_a_damaged_manifest_evicts_no_commit(tmp_path):
    for number in (1, 2):
        commit(tmp_path, number)
    commits.manifest_path(tmp_path, 2).write_text('{"schema": "apples.commit/1"}')
    commit(tmp_path, 3)
    assert found(tmp_path) == [3, 1]


def test_an_attempt_before_neither_overwrites_nor_outlives_the_commits_of_the_next(tmp_path):
    commit(tmp_path, 98)
    commit(tmp_path, 99)
    second = commits.ATTEMPT_COMMITS
    commit(tmp_path, second + 1)
    assert found(tmp_path) == [second + 1, 99]
    commit(tmp_path, 100)  # by a rank of the first attempt that nobody could reach
    assert found(tmp_path) == [second + 1, 100, 99]
    commit(tmp_path, second + 2)
    assert found(tmp_path) == [second + 2, second + 1]
    assert {path.suffix for path in tmp_path.iterdir()} == {".json", ".data"}
    assert len(list(tmp_path.iterdir())) == 4


def test_copies_of_constant_arrays_stay_while_a_kept_commit_refers_to_them(tmp_path):
    for number, copy in ((1, 1), (2, 2), (3, 1), (4, 2), (5, 5)):
        if copy == number:
            commits.data_path(tmp_path, copy, 0, "constant").write_bytes(b"x")
            commits.publish(tmp_path, copy, {"images": []}, "constant")
        commits.data_path(tmp_path, number, 0).write_bytes(b"x")
        commits.publish(tmp_path, number, {"constant": copy})
        commits.prune(tmp_path, number)
    manifests = list(commits.whole_manifests(tmp_path))
    assert [one["commit"] for one in manifests] == [5, 4]
    assert [commits.constant_manifest(tmp_path, one)["commit"] for one in manifests] == [5, 2]
    there = sorted(path.name for path in tmp_path.glob("constant-*.data"))
    assert there == ["constant-00000002.0.data", "constant-00000005.0.data"]
    commits.remove(tmp_path, 5)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"{kind}.{end}"
        for kind in ("commit-00000004", "constant-00000002")
        for end in ("0.data", "json")
    ]


@pytest.mark.mpi
def test_a_commit_is_read_on_another_rank_count_and_a_damaged_one_falls_back(tmp_path):
    argv = [
        hydra.mpiexec(),
        *hydra.OPTIONS,
        "-n",
        "3",
        sys.executable,
        str(PROGRAMS / "commit_and_restore.py"),
    ]
    environment = hydra.environment({**hydra.LOOPBACK, **hydra.ONE_THREAD})
    run = subprocess.run(
        [*argv, str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    lines = [line for line in run.stdout.splitlines() if not line.startswith("[mpiexec")]
    found = {one["step"]: one["found"] for one in map(json.loads, lines)}
    assert found == {
        "whole": [3, True, 30],
        "two copies": True,
        "newest": [4, True, 40],
        "the constants it refers to are damaged": [3, True, 30],
        "and mended": [4, True, 40],
        "a bit of the newest is wrong": [3, True, 30],
        "and mended too": [4, True, 40],
        "an image is cut": [3, True, 30],
        "its manifest is cut": [3, True, 30],
        "its data is missing": [3, True, 30],
        "all constants are missing": [0, True, -1],
        "both are missing": [0, True, -1],
        "nowhere to write": True,
    }


class Killer:
    """Kills a rank of a host once its job has committed so often."""

    def __init__(self, host, commits_before, stop):
        self.host, self.before, self.stop, self.killed = host, commits_before, stop, False

    def __call__(self, anchor):
        engine, self.seen, on_message = anchor.engine, 0, anchor.engine.groups.on_message
        pids = {}

        def listen(group, rank, message):
            if message["event"] == "hello":
                pids[group.host] = message["pid"]
            self.seen += message["event"] == "committed"
            on_message(group, rank, message)
            if self.seen >= self.before and not self.killed:
                self.killed = True
                os.kill(pids[self.host], signal.SIGKILL)
            elif self.killed and engine.state == "running" and engine.stage == "idle":
                self.stop.touch()

        engine.groups.on_message = listen
        for group in engine.groups:
            group.on_message = listen


@pytest.mark.mpi
@pytest.mark.slow
@pytest.mark.parametrize("on_disk", [True, False], ids=["disk and memory", "memory alone"])
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("counting.py", ["constant"]),
        pytest.param("counting.py", [], marks=pytest.mark.more),
        pytest.param("shapes.py", [], marks=pytest.mark.more),
    ],
    ids=["rows that change and rows that do not", "rows", "shapes"],
)
def test_after_the_death_of_a_host_the_job_goes_on_from_its_last_commit(
    tmp_path, name, words, on_disk
):
    """Three worlds start and two of them again."""
    stop, folder = tmp_path / "stop", tmp_path / "commits"
    folder.mkdir()
    program = (sys.executable, str(PROGRAMS / name), "80", "0.005", str(stop), *words)
    run = rehearse(
        program, {"ada": 1, "bob": 1, "eve": 1}, [HostShare("ada"), HostShare("bob"), HostShare("eve")],
        commits=folder if on_disk else None, commit_seconds=0.1, watch=Killer("ada", 2, stop),
    )  # fmt: skip
    assert run.ended.state == "finished", run.ended
    (rolled,) = [notice for notice in run.notices if isinstance(notice, RolledBack)]
    assert rolled.lost == ("ada",)
    assert rolled.iteration > 0
    assert run.lines == ["total right on bob,eve"]


def unasked(tmp_path, name="counting.py", pace=1e-3, **limits):
    """Return a program that nobody asks for commits, which makes them whenever it may, of many pieces."""
    source = (
        "from apples.malleable import job, memory_checkpoint\n"
        f"job.PACE_SECONDS, job.COMMITTED_SHARE = {pace}, 1.0\n"
    )
    limits = {"FIRST_PIECE": 500, **limits}
    source += "".join(f"memory_checkpoint.{name} = {value}\n" for name, value in limits.items())
    path = tmp_path / name
    path.write_text(source + (PROGRAMS / name).read_text())
    return (sys.executable, str(path), "80", "0.005", str(tmp_path / "stop"))


class Listener:
    """Lets a job go on until a message has come so often, and keeps what its ranks say."""

    def __init__(self, stop, until, times=1):
        self.stop, self.until, self.times, self.heard = stop, until, times, []

    def __call__(self, manager):
        take = manager.engine.groups.on_message

        def listen(group, rank, message):
            take(group, rank, message)
            self.heard.append(message)
            if len(self.said(self.until)) == self.times:
                self.stop.touch()

        manager.engine.groups.on_message = listen
        for group in manager.engine.groups:
            group.on_message = listen

    def said(self, event):
        return [one for one in self.heard if one["event"] == event]


@pytest.mark.mpi
@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["counting.py", pytest.param("shapes.py", marks=pytest.mark.more)],
    ids=["rows", "shapes"],
)
def test_a_job_commits_in_memory_though_nobody_asked_for_it(tmp_path, name):
    folder = tmp_path / "commits"
    folder.mkdir()
    run = rehearse(
        unasked(tmp_path, name), {"ada": 1, "bob": 1}, [HostShare("ada"), HostShare("bob")],
        commits=folder, commit_seconds=None, watch=Killer("ada", 1, tmp_path / "stop"),
    )  # fmt: skip
    assert run.ended.state == "finished", run.ended
    (rolled,) = [notice for notice in run.notices if isinstance(notice, RolledBack)]
    assert rolled.lost == ("ada",)
    assert rolled.iteration > 0
    assert run.lines == ["total right on bob"]
    assert not list(folder.iterdir())


@pytest.mark.more
@pytest.mark.mpi
@pytest.mark.slow
def test_when_a_host_has_left_with_its_copies_there_are_two_of_everything_again(tmp_path):
    """No other commit is made; ada and bob have one copy each of what they need until then."""
    hosts = ["ada", "bob", "eve"]
    run = rehearse(
        unasked(tmp_path, pace=1e9, FIRST_PIECE=1 << 18),  # in one piece: no speed is asked of the one commit
        dict.fromkeys(hosts, 1), [HostShare(host) for host in hosts],
        [[HostShare("ada"), HostShare("bob")]],
        commit_seconds=None, watch=Killer("bob", 1, tmp_path / "stop"),
    )  # fmt: skip
    assert run.ended.state == "finished", run.ended
    (rolled,) = [notice for notice in run.notices if isinstance(notice, RolledBack)]
    assert rolled.iteration > 0


@pytest.mark.more
@pytest.mark.mpi
@pytest.mark.slow
@pytest.mark.parametrize(
    ("limits", "late"),
    [
        ({"HEADROOM": 10**12}, False),
        ({"COPY_RATE": 1}, True),
        ({"MAX_SECONDS": 1e-9, "COPY_RATE": 1e18}, True),
    ],
    ids=["memory", "copying", "a link"],
)
def test_a_job_that_cannot_spare_the_memory_or_the_time_says_once_that_it_does_not_commit(
    tmp_path, capfd, limits, late
):
    listener = Listener(tmp_path / "stop", "uncommitted", 3)
    run = rehearse(
        unasked(tmp_path, **limits), {"ada": 1, "bob": 1}, [HostShare("ada"), HostShare("bob")],
        commit_seconds=None, watch=listener,
    )  # fmt: skip
    assert run.lines == ["total right on ada,bob"]
    assert not listener.said("committed")
    assert len(listener.said("uncommitted")) >= 3
    (reason,) = {one["reason"] for one in listener.said("uncommitted")}
    assert ("10 s" in reason) == late
    assert capfd.readouterr().err.count(reason) == 1


@pytest.mark.more
@pytest.mark.mpi
@pytest.mark.slow
def test_no_copy_is_made_unasked_that_would_go_with_what_is_lost(tmp_path):
    listener = Listener(tmp_path / "stop", "progress")
    run = rehearse(
        unasked(tmp_path), {"ada": 1}, [HostShare("ada")], commit_seconds=None, watch=listener,
    )  # fmt: skip
    assert run.lines == ["total right on ada"]
    assert not listener.said("committed")
    assert not listener.said("uncommitted")


@pytest.mark.mpi
@pytest.mark.slow
@pytest.mark.more
def test_constant_arrays_are_written_twice_in_the_life_of_a_job_whatever_its_hosts(tmp_path):
    stop, folder, copies = tmp_path / "stop", tmp_path / "commits", []
    folder.mkdir()

    def maps():
        for host in ("eve", "bob", "ada"):
            before = commits.highest_commit(folder)
            while commits.highest_commit(folder) < before + 3:
                yield [HostShare(one.host) for one in managers[0].engine.members]
            copies.append(sorted(folder.glob("constant-*.json")))
            yield [HostShare(host)]
        stop.touch()

    managers = []
    program = (sys.executable, str(PROGRAMS / "counting.py"), "80", "0.005", str(stop), "constant")
    run = rehearse(
        program, {"ada": 1, "bob": 2, "eve": 1}, [HostShare("ada")], maps(),
        commits=folder, commit_seconds=0.02, watch=managers.append,
    )  # fmt: skip
    assert run.lines == ["total right on ada"], run.notices
    assert [len(names) for names in copies] == [2, 2, 2]
    assert len({tuple(names) for names in copies}) == 1


@pytest.mark.more
@pytest.mark.mpi
@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "fit", "lost", "then"),
    [
        (["ada"], True, ("ada",), "eve"),
        (["ada", "bob"], False, ("ada", "eve"), "bob"),
    ],
    ids=["its only host", "and the spare does not see its commits"],
)
def test_a_spare_takes_the_place_of_a_host_that_is_lost(tmp_path, first, fit, lost, then):
    stop, folder = tmp_path / "stop", tmp_path / "commits"
    folder.mkdir()
    program = (sys.executable, str(PROGRAMS / "counting.py"), "80", "0.005", str(stop))
    kill = Killer("ada", 2, stop)

    def watch(manager):
        kill(manager)
        unfit = manager.engine.groups.unfit
        manager.engine.groups.unfit = lambda joining: (
            unfit(joining) if fit or "eve" not in joining else ("eve", "it sees nothing")
        )

    run = rehearse(
        program, {"ada": 1, "bob": 1, "eve": 2} if len(first) > 1 else {"ada": 1, "eve": 2},
        [HostShare(host) for host in first], commits=folder, commit_seconds=0.1, watch=watch,
    )  # fmt: skip
    assert run.ended.state == "finished", run.ended
    (rolled,) = [notice for notice in run.notices if isinstance(notice, RolledBack)]
    assert rolled.lost == lost
    assert rolled.iteration > 0
    assert run.lines == [f"total right on {then}"]


@pytest.mark.mpi
def test_a_job_may_ask_for_other_limits_itself(tmp_path):
    path = tmp_path / "evolving.py"
    path.write_text(
        "from apples import malleable\n"
        "with malleable.Job() as job:\n"
        "    state = job.state(iteration=0)\n"
        "    while state.iteration < 3:\n"
        "        job.safepoint()\n"
        "        if state.iteration == 1:\n"
        "            job.request(2, 5)\n"
        "        state.iteration += 1\n"
    )
    run = rehearse((sys.executable, str(path)), {"ada": 1}, [HostShare("ada")])
    assert LimitsRequested(2, 5) in run.notices


@pytest.mark.mpi
def test_an_error_of_one_rank_ends_the_job_with_its_message(tmp_path):
    path = tmp_path / "failing.py"
    path.write_text(
        "from apples import malleable\n"
        "with malleable.Job() as job:\n"
        "    step = 0\n"
        "    while step < 3:\n"
        "        job.safepoint()\n"
        "        step += 1\n"
    )
    run = rehearse((sys.executable, str(path)), {"ada": 1}, [HostShare("ada")])
    assert run.ended.state == "failed"
    assert "step (line 6)" in run.ended.reason


ABORTS = """
import os, signal, sys, time
from pathlib import Path
from apples import malleable

folder, cause, aborts = Path(sys.argv[1]), sys.argv[2], sys.argv[3] == "aborts"
host = os.environ["APPLES_HOST"]
first = folder / host
with malleable.Job() as job:
    u = job.array("u", (60, 5), halo=1)
    state = job.state(iteration=0)
    while state.iteration < 60:
        job.safepoint()
        if state.iteration == 40 and not first.exists():
            first.touch()
            if host == "ada":
                os._exit(15)
            time.sleep(0.5)
            if cause == "bob":
                os.kill(os.getpid(), signal.SIGKILL)
            elif aborts:
                os._exit(15)
        time.sleep(0.01)
        state.iteration += 1
        job.allreduce(1.0)
    if job.rank == 0:
        os.write(1, f"over on {','.join(member.host for member in job.members)}\\n".encode())
"""


@pytest.mark.mpi
@pytest.mark.slow
@pytest.mark.parametrize(
    ("cause", "bob", "left"),
    [("bob", "killed", "ada"), ("ada", "waits", "bob"), ("ada", "aborts", "bob")],
)
def test_a_host_whose_rank_aborts_before_another_is_killed_is_not_the_one_that_was_lost(
    tmp_path, cause, bob, left
):
    """A rank that exits may be the first sign that a rank elsewhere was killed; otherwise it is the loss."""
    (tmp_path / "commits").mkdir()
    argv = (sys.executable, "-c", ABORTS, str(tmp_path), cause, bob)
    run = rehearse(
        argv, {"ada": 1, "bob": 1}, [HostShare("ada"), HostShare("bob")],
        commits=tmp_path / "commits", commit_seconds=0.05,
    )  # fmt: skip
    assert run.ended == JobEnded("finished"), run.notices
    (lost,) = [notice for notice in run.notices if isinstance(notice, RolledBack)]
    assert (lost.lost, lost.code) == ((cause,), "host-lost")
    assert run.lines == [f"over on {left}"]
