"""How long hosts take to start, learned from runs that report only when the slowest of them was ready."""

from dataclasses import replace

import pytest
from worlds import pool

from apples import Host
from apples.agent import LearnedKey, learn_starts, recall, start_seconds

APP = LearnedKey("heat", "1", "/home/ada/heat")
NEAR, FAR, NEW = Host("near"), Host("far", site="s"), Host("new")


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def learned(*runs):
    """Return the starts in use after some runs, each (hosts, seconds), through one launcher."""
    for hosts, seconds in runs:
        learn_starts(APP, "ssh", hosts, seconds)
    return {identity: seconds for (identity, _), seconds in recall(APP).starts("ssh").items()}


def test_a_start_is_used_once_a_later_run_agreed():
    assert learned(([NEAR], 0.5)) == {}
    assert learned(([NEAR], 0.5)) == {"near": pytest.approx(0.5, rel=0.02)}


def test_a_start_that_the_list_predicts_better_is_not_used():
    listed = replace(NEAR, start_seconds=1.0)
    assert learned(([listed], 9.0), ([listed], 1.0), ([listed], 1.1)) == {}


def test_a_learned_start_ages_towards_the_host_lists():
    listed = replace(NEAR, start_seconds=2.0)
    for _ in range(3):
        learn_starts(APP, "ssh", [listed], 4.0, lambda: 0.0)
    seconds = []
    for months in (0, 2, 60):
        known = recall(APP, lambda months=months: months * 30 * 86400.0)
        information = pool([listed], learned=known, launcher="ssh")
        seconds.append(start_seconds(information, [listed]))
    assert seconds == pytest.approx([4.0, 2.5, 2.0], rel=0.03)


def test_a_start_that_is_shorter_than_the_list_says_is_never_below_zero():
    listed = replace(NEAR, start_seconds=2.0)
    starts = learned(*[([listed], 0.1)] * 4)
    assert 0.0 <= starts["near"] < 0.2


def test_the_error_of_a_start_is_of_the_seconds_that_a_plan_takes():
    listed = replace(NEAR, start_seconds=2.0)
    for seconds in (2.0, 4.0, 2.0, 4.0, 3.0):
        before = recall(APP).corrections.get(("start", ("ssh", "near")))
        learn_starts(APP, "ssh", [listed], seconds)
    known = recall(APP).corrections["start", ("ssh", "near")]
    used = abs(2.0 + before.candidate - 3.0)
    old = before.evidence.error_with
    weight = max(0.3, 1 / (before.evidence.tested + 1))
    assert known.evidence.error_with == pytest.approx(old + weight * (used - old))


def test_a_start_begins_anew_when_the_host_list_has_other_seconds():
    learned(*[([replace(NEAR, start_seconds=2.0)], 4.0)] * 3)
    corrected = replace(NEAR, start_seconds=4.0)
    information = pool([corrected], learned=recall(APP), launcher="ssh")
    assert start_seconds(information, [corrected]) == 4.0
    learn_starts(APP, "ssh", [corrected], 5.0)
    assert recall(APP).corrections["start", ("ssh", "near")].evidence.runs == 1


def test_the_newest_starts_weigh_most():
    starts = learned(*[([NEAR], 1.0)] * 4, *[([NEAR], 2.0)] * 8)
    assert starts["near"] == pytest.approx(2.0, rel=0.1)


def test_a_run_without_the_late_host_shows_that_the_other_was_not_late():
    starts = learned(([NEAR, FAR], 4.0), *[([NEAR], 0.5)] * 16, *[([NEAR, FAR], 4.0)] * 2)
    assert starts["near"] < 0.8
    assert starts["far"] == pytest.approx(4.0, rel=0.02)


def test_only_the_slowest_is_blamed_for_a_late_start():
    starts = learned(*[([NEAR], 0.5)] * 3, *[([FAR], 4.0)] * 3, ([NEAR, FAR], 6.0))
    assert starts["near"] == pytest.approx(0.5, rel=0.02)
    assert 4.0 < starts["far"] < 5.0


@pytest.mark.parametrize("seconds", [float("nan"), -1.0, float("inf")])
def test_a_start_that_is_no_time_teaches_nothing(seconds):
    assert learned(([NEAR], seconds), ([NEAR], seconds)) == {}


def test_an_unlisted_host_that_never_ran_is_taken_to_start_as_the_others():
    learned(*[([NEAR], 0.5), ([FAR], 4.0), ([Host("mid")], 1.0)] * 3)
    listed = Host("listed", start_seconds=9.0)
    information = pool([NEAR, FAR, NEW, listed], learned=recall(APP), launcher="ssh")
    starts = [start_seconds(information, [host]) for host in information.hosts]
    assert starts == pytest.approx([0.5, 4.0, 1.0, 9.0], rel=0.02)
    assert start_seconds(information, information.hosts) == 9.0


def test_launchers_do_not_learn_from_one_another_and_static_plans_from_none():
    learned(*[([NEAR], 0.5)] * 3)
    information = pool([NEAR], learned=recall(APP), launcher="local")
    assert start_seconds(information, [NEAR]) == 0.0
    through = replace(information, launcher="ssh")
    assert start_seconds(through, [NEAR]) == pytest.approx(0.5, rel=0.02)
    assert start_seconds(through.with_weather(None), [NEAR]) == 0.0
