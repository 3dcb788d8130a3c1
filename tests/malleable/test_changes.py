"""Whoever is lost while hosts change: a newcomer is a refusal with a reason, a member a rollback, in every stage.

A case whose strike meets nobody fails.
"""

import sys
from collections import Counter
from pathlib import Path
from typing import get_args

import pytest
from strikes import Strike, strike_in_loop

from apples.launch import SHARED_MEMORY, noted_processes, state_of
from apples.malleable import (
    HostShare,
    JobEnded,
    ResizeDone,
    ResizeRefused,
    RolledBack,
    Stage,
    highest_commit,
    rehearse,
)

pytestmark = [pytest.mark.mpi, pytest.mark.slow]

COUNTING = Path(__file__).parent / "programs_mpi" / "counting.py"
SHAPES = COUNTING.with_name("shapes.py")
SLOTS = {"ada": 1, "bob": 2, "eve": 1}
KILLED = ("rank", "launcher", "supervisor")
NEWCOMERS = [
    *(
        (stage, victim, "KILL")
        for stage in ("start", "merge", "wait", "prefetch", "change")
        for victim in KILLED
    ),
    *(
        ("wait", "connection", "KILL"),
        ("prefetch", "connection", "KILL"),
        ("prefetch", "rank", "STOP"),
        ("change", "connection", "KILL"),
        ("change", "rank", "STOP"),
    ),
    *(("wait", "supervisor", "STOP"), ("change", "proxy", "KILL")),
]
"""Stage, victim and how it is struck, on a host that is to join."""
MEMBERS = [
    *(
        ("start", "rank", "KILL"),
        ("merge", "rank", "KILL"),
        ("wait", "supervisor", "KILL"),
        ("change", "rank", "KILL"),
        ("prefetch", "rank", "KILL"),
    ),
    *(("change", "supervisor", "KILL"), ("save", "supervisor", "KILL")),
    *(("clear", "supervisor", "KILL"), ("launch", "rank", "KILL"), ("launch", "rank", "STOP")),
    ("leave", "launcher", "KILL"),
]
"""Stage, victim and how it is struck, on a host that is a member."""
NO_CHANGE = ["idle", "finish", "over"]
"""Stages in which no change is under way."""


def shares(*hosts):
    return [HostShare(host) for host in hosts]


def rehearsed(
    tmp_path,
    strikes,
    first,
    maps,
    *,
    program=COUNTING,
    words=(),
    before_tick=lambda _: None,
    **more,
):
    """Run a job whose commands meet strikes, and then one to be on ada alone; return the notices.

    Nothing of any of its ranks is left in shared memory then.
    """
    struck, managers, ranks = [], [], set()

    def commands():
        yield from (shares(*one) for one in maps)
        yield shares("ada")
        while [one.host for one in managers[0].engine.members] != ["ada"]:
            yield shares("ada")
        (tmp_path / "stop").touch()

    def look(engine):
        ranks.update(noted_processes(str(engine.groups.folder)))
        before_tick(engine)

    def watch(manager):
        managers.append(manager)
        strike_in_loop(manager, strikes, struck.append, look)

    argv = (sys.executable, str(program), "60", "0.01", str(tmp_path / "stop"), *words)
    run = rehearse(
        argv, SLOTS, shares(*first), commands(),
        watch=watch, **more,
    )  # fmt: skip
    assert struck == strikes, (
        f"met nobody: {[str(one) for one in strikes if not one.struck]}",
        run.notices,
    )
    assert run.ended == JobEnded("finished"), run.notices
    totals = [line for line in run.lines if line.startswith("total")]
    assert totals == ["total right on ada"], run.lines
    assert ranks
    assert left_by(ranks) == []
    return run.notices


def left_by(ranks):
    """Return the files of shared memory that processes have left which were ranks and are gone."""
    there = [(one.name, one.name.partition(":")[0]) for one in Path(SHARED_MEMORY).iterdir()]
    numbered = [(name, int(number)) for name, number in there if number.isdecimal()]
    return [name for name, pid in numbered if pid in ranks and state_of(pid) in "ZX"]


def test_a_sample_of_losses_that_comes_to_every_stage(tmp_path):
    grown = ["ada", "bob", "eve"]
    strikes = [
        Strike("start", "bob", "rank"),
        Strike("merge", "bob", "rank", first=True),
        Strike("wait", "bob", "launcher", first=True),
        Strike("prefetch", "bob", "rank", first=True),
        Strike("change", "bob", "supervisor", first=True),
        *(Strike("change", "bob", "rank"), Strike("launch", "eve", "rank")),
        Strike("leave", "bob", "rank"),
    ]
    refused = 5 * [ResizeRefused]
    come_to = Counter()

    def count(engine):
        come_to[engine.stage] += 1

    maps = [grown] * 6 + [["ada", "bob"]]
    notices = rehearsed(
        tmp_path, strikes, ["ada", "eve"], maps, words=["prefetch"], before_tick=count
    )
    assert [type(one) for one in notices[: len(refused)]] == refused
    assert all(one.reason.startswith("bob: ") for one in notices[: len(refused)]), notices
    rolled = [one for one in notices if isinstance(one, RolledBack)]
    assert [(one.lost, one.iteration) for one in rolled] == [(("eve",), 0), (("bob",), 0)]
    assert set(come_to) >= set(get_args(Stage)) - {"over"}


@pytest.mark.more
@pytest.mark.parametrize(("stage", "victim", "how"), NEWCOMERS)
def test_the_loss_of_a_newcomer_refuses_the_command_and_costs_the_job_nothing(
    stage, victim, how, tmp_path
):
    strikes = [Strike(stage, "bob", victim, how, first=how == "KILL")]
    words = ["prefetch"] if stage == "prefetch" else []
    refused, done, _ = rehearsed(
        tmp_path, strikes, ["ada", "eve"], [["ada", "bob", "eve"]], words=words
    )
    assert isinstance(refused, ResizeRefused), refused
    assert refused.reason.startswith("bob: "), refused
    assert isinstance(done, ResizeDone), done


@pytest.mark.more
@pytest.mark.parametrize("lost", ["bob", "eve"])
@pytest.mark.parametrize("stage", ["start", "merge", "wait", "change"])
def test_the_loss_of_one_of_several_newcomers_refuses_the_command_and_costs_nothing(
    stage, lost, tmp_path
):
    grown = ["ada", "bob", "eve"]
    strikes = [Strike(stage, lost, "rank")]
    warm = [] if stage == "start" else ["bob", "eve"]  # who is parked already has no such stage
    refused, grew, done, _ = rehearsed(tmp_path, strikes, ["ada"], [grown, grown], warm=warm)
    assert isinstance(refused, ResizeRefused), refused
    assert refused.reason.startswith(f"{lost}: "), refused
    assert [type(one) for one in (grew, done)] == [ResizeDone, ResizeDone]


@pytest.mark.more
@pytest.mark.parametrize(("stage", "victim", "how"), MEMBERS)
def test_the_loss_of_a_member_rolls_the_job_back_and_says_so(stage, victim, how, tmp_path):
    strikes, words = (
        [Strike(stage, "bob", victim, how)],
        ["prefetch"] if stage == "prefetch" else [],
    )
    if stage in ("save", "clear", "launch"):  # these come where a change was taken back
        strikes.insert(0, Strike("change", "eve", "rank"))
    notices = rehearsed(tmp_path, strikes, ["ada", "bob"], [["ada", "bob", "eve"]], words=words)
    if stage == "leave" and isinstance(notices[0], ResizeDone):  # nobody had heard of the loss yet
        notices = notices[1:]
    rolled, done, _ = notices
    assert isinstance(rolled, RolledBack), rolled
    # A supervisor that is lost while its ranks end takes along what they saved, but not its host.
    lost = {("bob",)} if stage not in ("save", "clear") else {("bob",), ()}
    assert rolled.lost in lost, rolled
    assert rolled.iteration == 0
    assert isinstance(done, ResizeDone), done


@pytest.mark.more
def test_a_job_whose_constant_arrays_come_too_late_moves_them_in_the_change(tmp_path):
    got = []

    def no_time(engine):
        engine.on_given = lambda _: None  # no newcomer is told to fetch anything
        change = engine.change
        if engine.stage == "prefetch":
            change.seconds = -1.0
        elif change.secret:
            change.seconds = 60.0
            got.extend(change.fetched if "bob" in change.joining else ())

    grown = ["ada", "bob", "eve"]
    done, *_ = rehearsed(
        tmp_path, [], ["ada", "eve"], [grown], words=["prefetch"], before_tick=no_time
    )
    assert isinstance(done, ResizeDone), done
    assert done.phases["prefetch"] > 0
    assert {host for host, _ in got} <= {"ada", "eve"}


@pytest.mark.more
def test_a_job_may_finish_while_constant_arrays_travel(tmp_path):
    strikes, stop = [Strike("prefetch", "bob", "rank", "STOP")], tmp_path / "stop"

    def finish(engine):
        if strikes[0].struck and engine.stage == "prefetch":
            stop.touch()

    managers = []

    def watch(manager):
        managers.append(manager)
        strike_in_loop(manager, strikes, before_tick=finish)

    argv = (sys.executable, str(COUNTING), "60", "0.01", str(stop), "prefetch")
    run = rehearse(argv, SLOTS, shares("ada", "eve"), [shares("ada", "bob", "eve")], watch=watch)
    refused, ended = run.notices
    assert isinstance(refused, ResizeRefused), refused
    assert ended == JobEnded("finished")
    assert run.lines in (["total right on ada,eve"], ["total right on eve,ada"])


@pytest.mark.more
def test_tiles_and_sparse_matrices_are_as_they_were_after_a_change_that_was_taken_back(tmp_path):
    strikes = [Strike("change", "bob", "rank"), Strike("change", "bob", "rank")]
    program, maps = SHAPES, [["ada", "bob", "eve"]] * 3
    *refused, done, _, _ = rehearsed(tmp_path, strikes, ["ada", "eve"], maps, program=program)
    assert [type(one) for one in refused] == [ResizeRefused, ResizeRefused]
    assert isinstance(done, ResizeDone), done


@pytest.mark.more
@pytest.mark.parametrize("then", [["ada", "bob", "eve"], ["ada"], ["bob"]])
def test_a_change_that_takes_too_long_is_refused_and_the_job_is_as_it_was(then, tmp_path):
    late = []

    def no_time(engine):
        if engine.stage == "change" and engine.members and not late:
            engine.change.seconds = -1.0
            late.append(engine.members)

    refused, *_ = rehearsed(tmp_path, [], ["ada", "bob"], [then], before_tick=no_time)
    assert isinstance(refused, ResizeRefused), refused
    assert refused.code == "change-timeout"
    assert [one.host for one in late[0]] == ["ada", "bob"]


def test_command_is_refused_if_no_safe_point_comes(tmp_path):
    late = []

    def an_hour_passes(engine):
        if engine.stage == "wait" and not late:
            engine.change.phase_started -= 3600.0
            late.append(engine.members)

    grown = ["ada", "bob", "eve"]
    refused, done, *_ = rehearsed(
        tmp_path, [], ["ada", "eve"], [grown] * 2, before_tick=an_hour_passes
    )
    assert isinstance(refused, ResizeRefused), refused
    assert refused.code == "safe-point-late"
    assert isinstance(done, ResizeDone), done


def test_job_ends_if_its_ranks_cannot_be_ended(tmp_path):
    """For example, because they wait for a file system that does not answer."""
    strikes = [Strike("change", "bob", "supervisor")]

    def an_hour_passes(engine):
        if engine.stage == "clear":
            engine.change.phase_started -= 3600.0

    argv = (sys.executable, str(COUNTING), "60", "0.01", str(tmp_path / "stop"))
    run = rehearse(
        argv, SLOTS, shares("ada", "bob"), [shares("eve", "bob")],
        watch=lambda manager: strike_in_loop(manager, strikes, before_tick=an_hour_passes),
    )  # fmt: skip
    assert (run.ended.state, run.ended.code) == ("failed", "processes-left"), run.notices


@pytest.mark.more
def test_commits_after_a_change_was_taken_back_have_numbers_of_their_own(tmp_path):
    folder, numbers = tmp_path / "commits", []
    folder.mkdir()

    def maps():
        while highest_commit(folder) < 3:
            yield ["ada", "eve"]
        numbers.append(highest_commit(folder))
        yield ["ada", "bob", "eve"]
        there = commits()
        while commits() == there:
            yield ["ada", "eve"]
        numbers.append(highest_commit(folder))

    def commits():
        return {one.name: one.stat().st_mtime_ns for one in folder.glob("*.json")}

    strikes = [Strike("change", "bob", "rank")]
    more = {"commits": folder, "commit_seconds": 0.02, "words": ["constant"]}
    notices = rehearsed(tmp_path, strikes, ["ada", "eve"], maps(), **more)
    assert [type(one) for one in notices].count(ResizeRefused) == 1
    assert numbers[1] > numbers[0]
    assert len(list(folder.glob("constant-*.json"))) == 2  # who started again knows them


def test_every_stage_of_a_change_is_struck():
    struck = {stage for stage, *_ in (*NEWCOMERS, *MEMBERS)}
    assert struck | set(NO_CHANGE) == set(get_args(Stage))
