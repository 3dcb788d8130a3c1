"""Whatever happens to its hosts, a job's data is what the rigid run has, and hosts it left are empty."""

import os
import re
import signal
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

import pytest

from apples.launch import all_processes, read
from apples.malleable import HostShare, JobEnded, ResizeDone, ResizeRefused, rehearse

pytestmark = [pytest.mark.mpi, pytest.mark.slow]

HERE = Path(__file__).parent
COUNTING = (sys.executable, str(HERE / "programs_mpi" / "counting.py"))
SLOTS = {"ada": 1, "bob": 2, "eve": 1, "far": 1}


def shares(*hosts, weights=()):
    return [HostShare(h, w) for h, w in zip(hosts, weights or [1.0] * len(hosts), strict=True)]


def counting(rows, tmp_path):
    return (*COUNTING, str(rows), "0.002", str(tmp_path / "stop"))


def then_stop(maps, tmp_path):
    yield from maps
    (tmp_path / "stop").touch()


@pytest.mark.more
def test_a_random_walk_over_hosts_keeps_the_grid_bit_for_bit_and_leaves_hosts_empty():
    argv = [sys.executable, str(HERE / "walk.py"), "8", "--seed", "5"]
    run = subprocess.run(argv, capture_output=True, text=True, timeout=600, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.more
def test_a_released_host_has_no_process_of_the_job(tmp_path):
    maps = [shares("bob"), shares("ada", "bob"), shares("eve"), shares("eve", "ada")]
    run = rehearse(counting(300, tmp_path), SLOTS, shares("ada", "bob"), then_stop(maps, tmp_path))
    assert run.ended.state == "finished", run.ended
    assert run.residents == [[], [], [], []]
    assert run.lines[0] in {"total right on eve,ada", "total right on ada,eve"}


@pytest.mark.more
def test_many_hosts_join_at_once_and_leave_at_once(tmp_path):
    slots = {"ada": 1, "bob": 2, "eve": 1, "far": 1, "gus": 1, "hal": 2}
    every = list(slots)
    maps = [shares(*every), shares("ada"), shares(*reversed(every)), shares("gus")]
    program = counting(300, tmp_path)
    run = rehearse(program, slots, shares("ada"), then_stop(maps, tmp_path), warm=["far", "hal"])
    assert run.ended.state == "finished", run.ended
    assert [type(notice) for notice in run.notices] == [*4 * [ResizeDone], JobEnded]
    assert run.lines == ["total right on gus"]


def test_a_rank_that_leaves_runs_its_exit_handlers_and_flushes_its_files(tmp_path, capfd):
    program = (
        sys.executable,
        str(HERE / "programs_mpi" / "leaving.py"),
        str(tmp_path / "stop"),
        str(tmp_path),
    )
    run = rehearse(program, SLOTS, shares("ada", "eve"), then_stop([shares("ada")], tmp_path))
    assert run.ended.state == "finished", run.ended
    assert run.residents == [[]]
    assert (tmp_path / "eve").read_text() == "not flushed"
    assert (tmp_path / "eve-ended").exists()
    assert "Traceback" not in capfd.readouterr().err


def test_job_in_a_folder_with_a_long_path_grows_and_shrinks(tmp_path, monkeypatch):
    """A UNIX socket's address has at most 107 bytes."""
    folder = tmp_path / ("long" * 40)
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    maps = [shares("ada", "eve"), shares("eve")]
    run = rehearse(counting(300, tmp_path), SLOTS, shares("ada"), then_stop(maps, tmp_path))
    assert run.ended.state == "finished", run.ended
    assert [type(notice) for notice in run.notices] == [ResizeDone, ResizeDone, JobEnded]


def test_a_host_that_joins_has_memory_for_its_rows_before_the_job_stands_still(tmp_path):
    program = (sys.executable, str(HERE / "programs_mpi" / "room.py"), str(tmp_path / "stop"))
    maps = then_stop([shares("ada", "eve", "far"), shares("far")], tmp_path)
    run = rehearse(program, SLOTS, shares("ada"), maps)
    assert run.ended.state == "finished", run.ended
    assert sorted(run.lines) == ["ada started []", "eve resized its rows", "far resized its rows"]


@pytest.mark.more
def test_a_job_that_finishes_while_hosts_leave_says_that_they_left_once_they_are_empty(tmp_path):
    program = str(HERE / "programs_mpi" / "leaving.py")
    argv = (sys.executable, program, str(tmp_path / "stop"), str(tmp_path), "1.5")
    come_to = []

    def stop_as_soon_as_the_map_holds(manager):
        engine, tick = manager.engine, manager.engine.tick

        def looking():
            if [one.host for one in engine.members] == ["ada"]:
                come_to.append(engine.stage)
                (tmp_path / "stop").touch()
            tick()

        manager.engine.tick = looking

    maps = [shares("ada")]
    run = rehearse(argv, SLOTS, shares("ada", "eve"), maps, watch=stop_as_soon_as_the_map_holds)
    assert [type(notice) for notice in run.notices] == [ResizeDone, JobEnded], run.notices
    assert run.residents == [[]]
    assert set(come_to) == {"leave", "finish"}


@pytest.mark.parametrize(
    "names",
    [
        ["eve", "bob,ada"],
        pytest.param(["ada,bob,eve", "eve", "far,eve", "bob"], marks=pytest.mark.more),
    ],
    ids=["some", "more"],
)
def test_constant_arrays_are_in_their_new_places_before_the_change(tmp_path, names):
    fetched = []

    def watch(manager):
        plan = manager.engine.plan_document

        def see():
            found = plan()
            change = manager.engine.change
            if change.safe and change.origin == "live":
                fetched.append((len(found["prefetched"]), change.secret != ""))
            return found

        manager.engine.plan_document = see

    maps = [shares(*one.split(",")) for one in names]
    program = (*counting(300, tmp_path), "prefetch")
    run = rehearse(program, SLOTS, shares("ada"), then_stop(maps, tmp_path), watch=watch)
    assert run.ended.state == "finished", run.ended
    changes = [notice for notice in run.notices if isinstance(notice, ResizeDone)]
    assert all(one.phases["prefetch"] > 0 for one in changes), changes
    ranks = [len({*a, *b}) for a, b in pairwise(map(ranks_on, ["ada", *names]))]
    assert fetched == [(count, True) for count in ranks]
    assert [line.split(" on ")[0] for line in run.lines] == ["total right"]


def ranks_on(names):
    """Return every rank of these hosts."""
    return [(host, rank) for host in names.split(",") for rank in range(SLOTS[host])]


def test_a_map_the_rows_do_not_suffice_for_is_refused_and_the_job_goes_on(tmp_path):
    maps = then_stop([shares("ada", "bob", "eve")], tmp_path)
    run = rehearse(counting(3, tmp_path), SLOTS, shares("ada"), maps)
    (refused,) = [notice for notice in run.notices if isinstance(notice, ResizeRefused)]
    assert refused.code == "rows-too-few"
    assert [word for word in refused.reason.split() if word.isdigit()] == ["3", "4"]
    assert run.lines == ["total right on ada"]


def test_a_host_that_cannot_start_is_refused_and_the_job_goes_on(tmp_path):
    program = counting(100, tmp_path)

    def break_host(anchor):
        place = anchor.engine.job.place("eve")
        object.__setattr__(place, "program", ("/nowhere/python", "x.py"))

    maps = then_stop([shares("ada", "eve"), shares("ada", "bob")], tmp_path)
    run = rehearse(program, SLOTS, shares("ada"), maps, watch=break_host)
    refused, done, _ = run.notices
    assert isinstance(refused, ResizeRefused)
    assert refused.reason.startswith("eve: "), refused
    assert isinstance(done, ResizeDone)
    assert [line.split(" on ")[0] for line in run.lines] == ["total right"]


def test_a_loss_says_which_rank_was_killed_and_by_what(tmp_path):
    def killing():
        pid = next(p for p in all_processes() if counts_on(p, "bob", tmp_path))
        os.kill(pid, signal.SIGKILL)
        return
        yield

    two = {"ada": 1, "bob": 2}  # and no host that could take bob's place
    run = rehearse(counting(30, tmp_path), two, shares("ada", "bob"), killing(), minimum=2)
    assert (run.ended.state, run.ended.code) == ("failed", "too-few-hosts-left")
    assert re.match(r"bob .*\brank [01]\b.*\bSIGKILL\b.*\b1\b.*\b2\b", run.ended.reason)


def counts_on(pid, host, tmp_path):
    """Whether a process is a rank of this test's program on a host: other tests run the same one."""
    words = read(f"/proc/{pid}/cmdline").split(b"\0")
    mine = words[1:2] == [COUNTING[1].encode()] and str(tmp_path / "stop").encode() in words
    environment = read(f"/proc/{pid}/environ").split(b"\0")
    return mine and f"APPLES_HOST={host}".encode() in environment
