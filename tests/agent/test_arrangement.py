"""Hosts in the order of their ranks' messages: what is kept, what is gained, and a run that sends less afar."""

import json
import os
import shutil
from itertools import permutations

import numpy as np
import pytest
from commands import command, refused
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import ROOMY, pool, symmetric

from apples import Coordinator, Host, Link
from apples.agent import (
    PLANNERS,
    TOLERANCE,
    arranged,
    distances,
    equal_strips,
    launch_plan,
    rectangles,
)
from apples.errors import UsageError
from apples.resources import between
from apples.topology import CountedRank, MessageMatrix

NEAR, FAR = Link(1e-4, 1e8), Link(1e-2, 1e6)
SITES = symmetric({("east", "east"): NEAR, ("west", "west"): NEAR, ("east", "west"): FAR})


def hosts(places, slots=1, speed=1e-9):
    """Hosts named by letters; `places` has the first letter of the site of each."""
    site = {"e": "east", "w": "west"}
    many = slots if isinstance(slots, list) else [slots] * len(places)
    return [
        Host(
            chr(97 + i), seconds_per_point=speed, free_memory=ROOMY, site=site[one], slots=many[i]
        )
        for i, one in enumerate(places)
    ]


def matrix(size, pairs):
    """Bytes both ways between pairs of ranks."""
    rows = [[0] * size for _ in range(size)]
    for one, other in pairs:
        rows[one][other] += 1000
        rows[other][one] += 1000
    ranks = tuple(CountedRank("x", 0, rank) for rank in range(size))
    return MessageMatrix(ranks, tuple(map(tuple, rows)), tuple(map(tuple, rows)))


def schedule_of(listed):
    information = pool(listed, SITES)
    return equal_strips(tuple(information.hosts), information), information


def test_hosts_whose_ranks_talk_are_of_one_site_and_keep_their_rows():
    schedule, information = schedule_of(hosts("eeww"))
    found = arranged(schedule, information, matrix(4, [(0, 2), (1, 3)]))
    sites = [host.site for host in found.schedule.resources]
    assert sites[0] == sites[2] != sites[1] == sites[3]
    assert found.after < 0.05 * found.before
    kept = {one.host.name: one.rows for one in schedule.allocations}
    assert {one.host.name: one.rows for one in found.schedule.allocations} == kept


def test_a_chain_stays_the_chain():
    schedule, information = schedule_of(hosts("eeww"))
    found = arranged(schedule, information, matrix(4, [(0, 1), (1, 2), (2, 3)]))
    assert found.schedule is schedule
    assert found.after == found.before


def test_of_another_number_of_ranks_nothing_is_known():
    schedule, information = schedule_of(hosts("eeww"))
    found = arranged(schedule, information, matrix(5, [(0, 4)]))
    assert (found.schedule, found.ranks, found.after) == (schedule, 5, None)


def test_hosts_that_are_all_as_near_stay_as_they_are_and_strips_without_messages_too():
    schedule, information = schedule_of(hosts("eeee"))
    assert arranged(schedule, information, matrix(4, [(0, 2)])).schedule is schedule
    schedule, information = schedule_of(hosts("eeww"))
    assert arranged(schedule, information) is None


@settings(max_examples=examples(40), deadline=None)
@given(st.data())
def test_no_order_is_much_better_and_hosts_keep_rows_and_ranks(data):
    count = data.draw(st.integers(3, 5))
    slots = data.draw(st.lists(st.integers(1, 3), min_size=count, max_size=count))
    places = data.draw(st.lists(st.sampled_from("ew"), min_size=count, max_size=count))
    schedule, information = schedule_of(hosts(places, slots))
    size = sum(slots)
    rank = st.integers(0, size - 1)
    pairs = data.draw(st.lists(st.tuples(rank, rank).filter(lambda p: p[0] != p[1]), max_size=12))
    counted = matrix(size, pairs)
    found = arranged(schedule, information, counted)
    old, new = schedule.allocations, found.schedule.allocations
    assert sorted(one.host.name for one in new) == sorted(one.host.name for one in old)
    assert [one.ranks for one in new] == [one.ranks for one in old]
    assert {one.host.name: one.rows for one in new} == {one.host.name: one.rows for one in old}

    def talk(allocations):
        of = [one.host.name for one in allocations for _ in range(one.ranks)]
        far = between(of, distances([one.host for one in old], information))
        inside = [[a == b for b in of] for a in of]
        return sum(
            bytes_ * far[i][j]
            for i, row in enumerate(counted.bytes)
            for j, bytes_ in enumerate(row)
            if not inside[i][j]
        )

    every = (
        [old[i] for i in order]
        for order in permutations(range(count))
        if [old[i].ranks for i in order] == [one.ranks for one in old]
    )
    assert talk(new) <= talk(old)
    assert talk(new) * 0.95 <= min(map(talk, every)) + 0.02 * talk(old)


def test_rectangles_that_touch_are_near_and_each_host_has_as_much_to_do_as_before():
    """The blocks are squares whose sites alternate as the fields of a chessboard do."""
    information = pool(hosts("ewewewewe"), SITES, grid=900)
    schedule = PLANNERS["square_blocks"](tuple(information.hosts), information)
    found = arranged(schedule, information)
    assert found.after < 0.75 * found.before
    assert found.schedule.rectangles == schedule.rectangles
    points = {one.host.name: one.rectangle.points for one in schedule.allocations}
    for one in found.schedule.allocations:
        assert one.rectangle.points <= TOLERANCE * points[one.host.name]
        assert one.rows == one.rectangle.points / 900


@pytest.mark.more
def test_declared_messages_change_a_plan_of_rectangles_only_where_the_model_gains_by_it():
    chance, gains = np.random.default_rng(0), []
    for _ in range(20):
        places = chance.choice([*"ew"], int(chance.integers(5, 12)))
        listed = hosts(places, speed=1e-9)
        between_ = Link(10 ** chance.uniform(-3.5, -2), 10 ** chance.uniform(6, 7.5))
        links = {**SITES, **symmetric({("east", "west"): between_})}
        coordinator = Coordinator(pool(listed, links, grid=4000))
        schedule = coordinator.plan(tuple(listed), rectangles)
        planned = coordinator.estimate(schedule)
        best, found = coordinator.best([planned]), coordinator.decision_log.arrangement
        assert (found is None) == (best.schedule == schedule)
        assert best.value <= planned.value
        gains.append(best.value / planned.value)
    assert min(gains) < 0.9


def test_what_looks_after_a_run_orders_by_the_same_messages():
    information = pool(hosts("eeww"), SITES)
    one = Coordinator(information, messages=matrix(4, [(0, 2), (1, 3)]))
    assert one.under(information).messages is one.messages


# ----------------------------------------------------------------- the document of a run
def document(**changes):
    ranks = [{"host": "a", "world": 0, "rank": 0}, {"host": "b", "world": 0, "rank": 1}]
    found = {"ranks": ranks, "rank_bytes": [[0, 1], [2, 0]], "rank_messages": [[0, 1], [1, 0]]}
    return {"execution": {"moved": False, "messages": {"source": "counted", **found, **changes}}}


def test_the_messages_of_a_run_are_read_as_they_were_written(tmp_path):
    place = tmp_path / "run.json"
    place.write_text(json.dumps(document()))
    found = MessageMatrix.of_run(place)
    assert found.bytes == ((0, 1), (2, 0))
    assert found.ranks == (CountedRank("a", 0, 0), CountedRank("b", 0, 1))
    place.write_text(json.dumps({"execution": {"messages": found.document()}}))
    assert MessageMatrix.of_run(place) == found


MESSAGES = "execution.messages"


@pytest.mark.parametrize(
    ("text", "code", "field"),
    [
        ("", "file-invalid", None),
        ("[" * 100_000, "file-invalid", None),
        ('{"execution": 3}', "file-invalid", None),
        ('{"execution": {"moved": true}}', "run-moved", None),
        ('{"execution": {"messages": null}}', "field-missing", f"{MESSAGES}.ranks"),
        (document(ranks=None), "field-missing", f"{MESSAGES}.ranks"),
        (document(ranks=[]), "value-range", f"{MESSAGES}.ranks"),
        (document(ranks=[{}] * 300), "value-range", f"{MESSAGES}.ranks"),
        (document(ranks=[{}, {}]), "value-invalid", f"{MESSAGES}.ranks"),
        (
            document(ranks=[{"host": "a", "world": 1e999, "rank": 0}] * 2),
            "value-invalid",
            f"{MESSAGES}.ranks",
        ),
        (document(rank_bytes=[[0, 1]]), "matrix-size-invalid", f"{MESSAGES}.rank_bytes"),
        (document(rank_bytes=[[0, 1], [True, 0]]), "value-invalid", f"{MESSAGES}.rank_bytes"),
        (document(rank_bytes=[[0, 1], [-1, 0]]), "value-invalid", f"{MESSAGES}.rank_bytes"),
        (document(rank_messages={"a": 1}), "matrix-size-invalid", f"{MESSAGES}.rank_messages"),
    ],
)
def test_a_file_without_a_matrix_of_a_run_is_refused_with_its_field(tmp_path, text, code, field):
    place = tmp_path / "run.json"
    place.write_text(text if isinstance(text, str) else json.dumps(text))
    with pytest.raises(UsageError) as refused:
        MessageMatrix.of_run(place)
    assert refused.value.code == code
    assert refused.value.fields["file"] == str(place)
    assert refused.value.fields.get("field") == field
    assert "\n" not in str(refused.value)


def test_a_document_that_is_missing_or_too_large_is_refused(tmp_path):
    with pytest.raises(UsageError) as raised:
        MessageMatrix.of_run(tmp_path / "none")
    assert raised.value.code == "file-missing"
    long = tmp_path / "long"
    with long.open("wb") as file:
        file.truncate((1 << 23) + 1)
    with pytest.raises(UsageError) as raised:
        MessageMatrix.of_run(long)
    assert (raised.value.code, raised.value.fields["bound"]) == ("file-too-large", 1 << 23)


# ----------------------------------------------------------------- real runs
CROSSWISE = """
import numpy as np
from apples.program import Task

with Task(defaults={"grid": 40, "iterations": 30}) as task:
    u = np.zeros((len(task.strip), task.parameters["grid"]))
    there = (task.rank + task.size // 2) % task.size
    got = np.zeros(2000)
    for _ in task.iterations():
        task.comm.Sendrecv(np.ones(2000), there, recvbuf=got, source=there)
    task.result(u)
"""
TEMPLATE = """
name = "crosswise"
program = ["{python}", "crosswise.py"]
[parameters.grid]
default = 40
[parameters.iterations]
default = 30
[structure]
kind = "regular_grid"
rows = "grid"
iterations = "iterations"
[[data]]
name = "u"
elements = "grid*grid"
"""
LIST = "".join(
    f'[[host]]\nname = "{name}"\nsite = "{site}"\nseconds_per_point = 1e-8\n'
    for name, site in {"e1": "east", "e2": "east", "w1": "west", "w2": "west"}.items()
)


@pytest.fixture
def crosswise(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", os.environ.get("XDG_CACHE_HOME", str(tmp_path / "cache")))
    (tmp_path / "crosswise.py").write_text(CROSSWISE)
    (tmp_path / "template.toml").write_text(TEMPLATE)
    (tmp_path / "hosts.toml").write_text(LIST)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words):
    options = ["--weather", "static", "--no-verify", "--blueprint", "blocked", "--json"]
    done = command("apples", "run", "--count-messages", *options, *words)
    assert done.code == 0, done.err
    return done.document


def between_sites(found):
    """Bytes between hosts of which one is of the east and one of the west."""
    messages = found["execution"]["messages"]
    return sum(
        bytes_
        for one, row in zip(messages["hosts"], messages["bytes"], strict=True)
        for other, bytes_ in zip(messages["hosts"], row, strict=True)
        if one[0] != other[0]
    )


@pytest.mark.more
@pytest.mark.mpi
@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")
def test_a_run_by_the_messages_of_one_before_sends_less_between_sites(crosswise):
    first = run()
    assert "arrangement" not in first["plan"]
    again = run("--messages", first["record"])
    assert between_sites(again) < 0.2 * between_sites(first)
    told = again["plan"]["arrangement"]
    assert (told["source"], told["ranks"]) == ("counted", 4)
    assert told["bytes_times_distance"] < 0.5 * told["bytes_times_distance_before"]
    saved = crosswise / "run.json"
    saved.write_text(json.dumps(first))
    words = ["--weather", "static", "--messages", saved, "--blueprint"]
    shown = command("apples", "plan", *words, "blocked")
    assert "(counted)" in shown.out
    assert f"--messages {saved}" in shown.out.splitlines()[-1]
    other = command("apples", "plan", *words, "single_host", "--json")
    assert other.code == 0
    arrangement = other.document["arrangement"]
    assert (arrangement["ranks"], arrangement["bytes_times_distance"]) == (4, None)


def test_a_run_that_nobody_knows_is_refused(crosswise):
    del crosswise
    for name, code in (("0badc0de", "run-unknown"), ("0badc0de" * 64, "file-unreadable")):
        failure = refused("apples", "plan", "--weather", "static", "--messages", name)
        assert (failure["exit_code"], failure["code"]) == (2, code)
        assert failure["fields"]["option"] == "--messages"
        assert name[:200] in failure["message"]


def test_an_actuator_is_told_what_the_ranks_of_each_host_send_each_other():
    schedule, information = schedule_of(hosts("eww", [2, 1, 3]))
    counted = matrix(6, [(0, 1), (1, 2), (3, 5)])
    strips = launch_plan(schedule, information, counted).strips
    assert [one.messages for one in strips] == [
        ((0, 1000), (1000, 0)), ((0,),), ((0, 0, 1000), (0, 0, 0), (1000, 0, 0)),
    ]  # fmt: skip
    for other in (None, matrix(5, [(0, 1)])):
        assert not any(one.messages for one in launch_plan(schedule, information, other).strips)
