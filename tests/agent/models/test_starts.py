"""How long hosts take to start, learned from runs that say only when the slowest of them was ready."""

from dataclasses import replace

import pytest
from worlds import pool

from apples import Host
from apples.agent import learn_starts, recall, start_seconds

NEAR, FAR, NEW = Host("near"), Host("far", site="s"), Host("new")


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def learned(*runs):
    """Return the starts after some runs, each (hosts, seconds), through one launcher."""
    for hosts, seconds in runs:
        learn_starts("heat", "1", "ssh", hosts, seconds)
    return recall("heat", "1").starts["ssh"]


def test_the_first_start_of_a_host_is_believed_as_it_is():
    assert learned(([NEAR], 0.5)) == {"near": 0.5}


def test_a_start_is_forgotten_as_the_slowdown_is():
    assert learned(([NEAR], 1.0), ([NEAR], 2.0))["near"] == pytest.approx(1.3)
    assert learned(([NEAR], 1.3))["near"] == pytest.approx(1.3)


def test_a_run_without_the_late_host_says_that_the_other_was_not_late():
    starts = learned(([NEAR, FAR], 4.0), *[([NEAR], 0.5)] * 12, ([NEAR, FAR], 4.0))
    assert starts["near"] < 0.6
    assert starts["far"] == pytest.approx(4.0)


def test_only_the_slowest_is_blamed_for_a_late_start():
    starts = learned(([NEAR], 0.5), ([FAR], 4.0), ([NEAR, FAR], 6.0))
    assert starts == {"near": 0.5, "far": pytest.approx(4.6)}


def test_a_start_that_is_no_time_teaches_nothing():
    assert learned(([NEAR], 0.5), ([NEAR], float("nan")), ([NEAR], -1.0)) == {"near": 0.5}


def test_what_was_learned_stands_above_the_list_and_an_unseen_host_is_taken_as_typical():
    learned(([NEAR], 0.5), ([FAR], 4.0), ([Host("mid")], 1.0))
    listed = Host("listed", start_seconds=9.0)
    near = replace(NEAR, start_seconds=7.0)
    information = pool([near, FAR, NEW, listed], learned=recall("heat", "1"), launcher="ssh")
    starts = [start_seconds(information, [host]) for host in information.hosts]
    assert starts == [0.5, 4.0, 1.0, 9.0]
    assert start_seconds(information, information.hosts) == 9.0


def test_launchers_do_not_learn_from_one_another_and_static_plans_from_none():
    learned(([NEAR], 0.5))
    information = pool([NEAR], learned=recall("heat", "1"), launcher="local")
    assert start_seconds(information, [NEAR]) == 0.0
    through = replace(information, launcher="ssh")
    assert start_seconds(through, [NEAR]) == 0.5
    assert start_seconds(through.with_weather(None), [NEAR]) == 0.0


@pytest.mark.parametrize("seconds", ['"soon"', "-1.0", "nan", "null", "[]"])
def test_a_stored_start_that_makes_no_sense_is_left_out(tmp_path, seconds):
    folder = tmp_path / "apples"
    folder.mkdir()
    text = f'{{"starts": {{"ssh": {{"near": {seconds}, "far": 2.0}}, "odd": 3}}}}'
    (folder / "learned-heat-1.json").write_text(text.replace("nan", "NaN"))
    assert recall("heat", "1").starts.get("ssh", {}).get("near") is None
