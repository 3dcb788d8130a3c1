"""What is remembered between runs: never in the way, never lost, bounded, and soon right again."""

import json
import multiprocessing

import pytest
from drawn import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apples import SpeedFunction
from apples.agent import (
    KEPT_RUNS,
    LARGEST_FACTOR,
    Learned,
    PastRun,
    RunObservation,
    ShareMeasurement,
    document_name,
    learn,
    recall,
    store_speeds,
)
from apples.io import state

APP = ("heat", "1")
QUIET = settings(
    max_examples=examples(40),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.fixture(autouse=True)
def own_state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def path():
    return state.directory() / f"{document_name(*APP)}.json"


def test_nothing_remembered_is_nothing_learned():
    assert recall(*APP) == Learned()


def test_speeds_come_back_as_they_were_stored():
    curve = SpeedFunction((10.0, 100.0), (1e-9, 2e-9), 0.05)
    store_speeds(*APP, "ada", {"numpy": curve})
    assert recall(*APP).speed("ada", "numpy") == curve
    assert recall(*APP).speed("bob", "numpy") is None
    assert recall("heat", "2") == Learned()


def test_what_was_measured_on_long_rows_holds_for_as_many_points_in_short_ones():
    wide = SpeedFunction.measured([(100, 1e-9, 0.0), (300, 2e-9, 0.0)], columns=6000)
    store_speeds(*APP, "ada", {"numpy": wide})
    again = recall(*APP).speed("ada", "numpy")
    assert again == wide
    assert again.on(3000).at(200.0) == pytest.approx(wide.at(100.0))
    assert again.on(3000).at(400.0) == pytest.approx(wide.at(200.0))
    assert again.on(3000).on(6000) == wide


def test_a_new_calibration_forgets_what_runs_taught_about_the_old_one():
    learn(*APP, RunObservation(slowdown={"ada": 2.0, "bob": 3.0}))
    store_speeds(*APP, "ada", {"numpy": SpeedFunction.constant(1e-9)})
    assert recall(*APP).slowdown == {"bob": 3.0}


@pytest.mark.parametrize("truth", [0.2, 1.0, 7.0])
def test_the_pace_comes_to_the_truth_and_follows_it_when_it_changes(truth):
    believed = 1.0
    for times in (1.0, 3.0):  # then the machine becomes three times slower
        for _ in range(12):
            learn(*APP, RunObservation(slowdown={"ada": times * truth / believed}))
            believed = recall(*APP).slowdown["ada"]
        assert believed == pytest.approx(times * truth, rel=0.03)


def test_the_tenth_last_run_still_counts_a_few_percent():
    learn(*APP, RunObservation(slowdown={"ada": 1.0}))
    learn(*APP, RunObservation(slowdown={"ada": 2.0}))
    once = recall(*APP).slowdown["ada"]
    assert once == pytest.approx(2**0.3)


def test_a_single_run_cannot_carry_a_factor_away():
    for ratio in (1e12, 1e-12):
        learn(*APP, RunObservation(slowdown={"ada": ratio}, overlap=ratio))
        assert 0.01 <= recall(*APP).slowdown["ada"] <= 100
    for _ in range(80):
        learn(*APP, RunObservation(slowdown={"ada": 1e9}, overlap=1e9, straggler_factor=1e9))
    learned = recall(*APP)
    assert (
        max(learned.slowdown["ada"], learned.overlap.factor(1.0), learned.straggler_factor)
        <= LARGEST_FACTOR
    )


@pytest.mark.parametrize("ratio", [0.0, -1.0, float("nan"), float("inf")])
def test_a_measurement_that_is_none_teaches_nothing(ratio):
    learn(*APP, RunObservation(slowdown={"ada": ratio}, overlap=ratio))
    assert recall(*APP) == Learned()


def past_run(k):
    """Return the k-th run: three of four ended inside."""
    return PastRun("site", 1.0 + k, 0.1, (0.9, 2.0 + k), 1.0 if k % 4 else 0.5)


def test_only_the_newest_runs_are_kept():
    stored = [past_run(k).stored() for k in range(KEPT_RUNS - 2)]
    path().write_text(json.dumps({"runs": stored}))
    for k in range(KEPT_RUNS - 2, KEPT_RUNS + 6):
        learn(*APP, RunObservation(past=past_run(k)))
    learned = recall(*APP)
    assert list(learned.runs) == [past_run(k) for k in range(6, KEPT_RUNS + 6)]
    assert learned.coverage == pytest.approx(0.75, abs=0.01)


DAMAGED = {
    "empty": b"",
    "cut": b'{"pace": {"ada": 1.',
    "no text": b"\xff\xfe\x00",
    "a list": b"[]",
    "too deep": b"[" * 100_000,
    "endless digits": b'{"pace": {"ada": ' + b"9" * 5000 + b"}}",
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_document_is_set_aside_and_reported(damage, capsys):
    path().write_bytes(DAMAGED[damage])
    assert recall(*APP) == Learned()
    assert path().with_suffix(".damaged").read_bytes() == DAMAGED[damage]
    line = capsys.readouterr().err
    assert line.startswith(f"warning: {path()}: ")
    assert line.endswith(f"{path().with_suffix('.damaged')}\n")
    learn(*APP, RunObservation(slowdown={"ada": 2.0}))
    assert recall(*APP).slowdown == {"ada": 2.0}


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.just(10**400) | st.text(max_size=3),
    lambda below: st.lists(below, max_size=3)
    | st.dictionaries(st.sampled_from(
        ["ada", "numpy", "rows", "seconds_per_point", "error", "class", "predicted", "measured", "promised",
         "factor", "forecast", "time"]
    ), below, max_size=3),
    max_leaves=8,
)  # fmt: skip


@pytest.mark.more
@QUIET
@given(
    st.dictionaries(
        st.sampled_from(
            ["speeds", "pace", "overlap", "drag", "spread", "overlap_spread", "runs", "share"]
        ),
        JSON,
        max_size=5,
    )
)
def test_a_hostile_document_never_stops_a_start_or_a_run(document):
    path().write_text(json.dumps(document))
    learned = recall(*APP)
    for speeds in learned.speeds.values():
        for name, curve in speeds.items():
            assert curve.rows == tuple(sorted(curve.rows))
            assert learned.speed("ada", name) is None or curve.at(10.0) > 0
    assert all(0 < factor <= LARGEST_FACTOR for factor in learned.slowdown.values())
    observed = RunObservation(
        slowdown={"ada": 1.5},
        shares={"ada": ShareMeasurement(1.1, 0.5)},
        overlap=1.1,
        straggler_factor=1.2,
        past=past_run(1),
    )
    learn(*APP, observed)
    store_speeds(*APP, "bob", {"numpy": SpeedFunction.constant(1e-9)})
    assert recall(*APP).slowdown["ada"] > 0
    assert recall(*APP).speed("bob", "numpy") is not None


def runs(host, times):
    for _ in range(times):
        learn(*APP, RunObservation(slowdown={host: 2.0}, past=past_run(1)))


def test_runs_that_end_at_once_lose_nothing_of_each_other():
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=runs, args=(f"h{i}", 8)) for i in range(6)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    learned = recall(*APP)
    assert len(learned.slowdown) == 6
    assert len(learned.runs) == 48
