"""The learned state of an application: local to its folder, durable, and never in the way of a start."""

import json
import math
import multiprocessing
from dataclasses import replace

import pytest
from drawn import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apples import Host, Link, SpeedFunction
from apples.agent import (
    KEPT_RUNS,
    KINDS,
    SHARE_HALF_LIFE,
    Learned,
    LearnedKey,
    MeasuredBorder,
    PastRun,
    RunObservation,
    ShareMeasurement,
    WaitMeasurement,
    by_threads,
    described_all,
    learn,
    learn_starts,
    recall,
    set_key,
    store_speeds,
    taught,
)
from apples.io import state

APP = LearnedKey("heat", "1", "/home/ada/heat")
QUIET = settings(
    max_examples=examples(40),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.fixture(autouse=True)
def own_state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def path():
    return state.directory() / f"{APP.document}.json"


def after(*runs, now=0.0):
    learned = Learned()
    for run in runs:
        learned = taught(learned, run, now)
    return learned


def slowed(factor, host="ada"):
    return RunObservation(slowdown={host: factor})


def test_nothing_remembered_is_nothing_learned():
    assert recall(APP) == Learned()


def test_speeds_come_back_as_they_were_stored():
    curve = SpeedFunction((10.0, 100.0), (1e-9, 2e-9), 0.05, columns=60, points=3600.0)
    store_speeds(APP, "ada", {"numpy": curve})
    assert recall(APP).speed("ada", "numpy") == curve
    assert recall(APP).speed("bob", "numpy") is None


@pytest.mark.parametrize(
    "other",
    [
        LearnedKey("heat", "2", APP.folder),
        LearnedKey("heat", "1", "/home/bob/heat"),
        LearnedKey("heat_1", "", APP.folder),
    ],
)
def test_another_version_folder_or_name_inherits_nothing(other):
    store_speeds(APP, "ada", {"numpy": SpeedFunction.constant(1e-9)})
    learn(APP, slowed(2.0))
    assert recall(other) == Learned()


def test_measured_points_hold_on_rows_of_another_length():
    wide = SpeedFunction.measured([(100, 1e-9, 0.0), (300, 2e-9, 0.0)], columns=6000)
    store_speeds(APP, "ada", {"numpy": wide})
    again = recall(APP).speed("ada", "numpy")
    assert again.on(3000).at(200.0) == pytest.approx(wide.at(100.0))
    assert again.on(3000).on(6000) == wide


def test_a_new_calibration_forgets_the_corrections_of_the_old_one():
    for _ in range(3):
        learn(APP, RunObservation(slowdown={"ada": 2.0, "bob": 3.0, by_threads("ada"): 2.0}))
    store_speeds(APP, "ada", {"numpy": SpeedFunction.constant(1e-9)})
    learned = recall(APP)
    assert learned.factor("slowdown", "ada") == 1.0
    assert learned.factor("slowdown", by_threads("ada")) == 1.0
    assert learned.factor("slowdown", "bob") == pytest.approx(3.0, rel=0.05)


def test_a_speed_that_a_run_measured_never_replaces_a_calibrated_one():
    curve = SpeedFunction((10.0, 100.0), (1e-9, 2e-9))
    store_speeds(APP, "ada", {"numpy": curve})
    learn(APP, RunObservation(speeds={"ada": ("numpy", SpeedFunction.constant(7e-9))}))
    assert recall(APP).speed("ada", "numpy") == curve


def test_a_slowdown_in_use_scales_the_speed_and_widens_its_error():
    store_speeds(APP, "ada", {"numpy": SpeedFunction.constant(1e-9)})
    learn(APP, slowed(1.5))
    assert recall(APP).speed("ada", "numpy").error == 0.0
    learn(APP, slowed(1.4))
    learn(APP, slowed(1.45))
    speed = recall(APP).speed("ada", "numpy")
    assert speed.at(1.0) == pytest.approx(1.45e-9, rel=0.05)
    assert speed.error > 0.05


def test_a_set_that_was_tested_has_its_own_straggler_factor():
    hosts = [Host("ada"), Host("bob"), Host("cid")]
    late, calm = (
        RunObservation(names, straggler_factor=factor)
        for names, factor in ((["ada", "bob"], 1.5), (["bob", "cid"], 1.0))
    )
    learned = after(late, late, late, calm, calm, calm, late, late)
    assert learned.straggler_factor_of(hosts[:2]) == pytest.approx(1.5, rel=0.05)
    assert learned.straggler_factor_of(hosts[1:]) == 1.0
    assert learned.straggler_factor_of(hosts[:1]) == 1.0
    assert 1.0 <= learned.straggler_factor_of((hosts[0], hosts[2])) < 1.5


def test_a_straggler_factor_of_any_set_is_used_once_two_different_sets_taught_it():
    """The factor of one set of two moved plans to a single host."""
    late = RunObservation(["ada", "bob"], straggler_factor=1.5)
    other = RunObservation(["bob", "cyd"], straggler_factor=1.5)
    hosts = [Host("ada"), Host("cyd")]
    learned = after(late, late, late, late)
    assert learned.straggler_factor_of([Host("bob"), Host("ada")]) > 1.4
    assert learned.straggler_factor_of(hosts) == 1.0
    assert taught(learned, other, 0.0).straggler_factor_of(hosts) > 1.4


def test_another_host_list_inherits_no_straggler_factor_of_any_set():
    late = RunObservation(["ada", "bob"], straggler_factor=1.5)
    again = RunObservation(["ada", "cyd"], straggler_factor=1.5)
    learned = after(late, again, late)
    others = [Host("xan"), Host("yve")]
    assert learned.among([Host("ada"), *others]).straggler_factor_of(others) > 1.4
    assert learned.among(others).straggler_factor_of(others) == 1.0
    foreign = RunObservation(["xan", "yve"], straggler_factor=1.1)
    again = taught(learned, foreign, 0.0).corrections["straggler_factor", ()]
    assert (again.evidence.runs, again.evidence.hosts) == (1, ("xan", "yve"))
    listed = replace(foreign, listed=["ada", "xan", "yve"])
    assert taught(learned, listed, 0.0).corrections["straggler_factor", ()].evidence.runs == 4


def test_a_straggler_factor_beside_another_error_of_the_model_is_not_used():
    """Two hosts that waited for a busy CPU by turns: the share was forecast too low, and the run as predicted."""
    late = RunObservation(["ada", "bob"], straggler_factor=2.0, iteration=1.05)
    learned = after(late, late, late)
    assert learned.straggler_factor_of([Host("ada"), Host("bob")]) == 1.0
    learned = after(late, *[replace(late, iteration=1.9)] * 4)
    assert learned.straggler_factor_of([Host("ada"), Host("bob")]) > 1.8


def test_ranks_of_a_single_host_teach_no_other_set():
    alone = RunObservation(["ada"], straggler_factor=1.5)
    learned = after(alone, alone, alone)
    assert learned.straggler_factor_of([Host("ada")]) > 1.4
    assert learned.straggler_factor_of([Host("bob"), Host("cid")]) == 1.0


def test_a_border_wait_is_seconds_of_its_host():
    wait = RunObservation(waits={"ada": WaitMeasurement(2e-3, 0.1, 0.8)})
    learned = after(wait, wait, wait)
    assert learned.border_waits_of([Host("ada"), Host("bob")]) == {
        "ada": pytest.approx(2e-3, rel=0.05)
    }


def test_a_share_bias_restarts_with_another_load():
    def beside(ratio, forecast):
        return RunObservation(shares={"ada": ShareMeasurement(ratio, forecast)})

    learned = after(*[beside(1.4, 0.5)] * 3)
    known = learned.corrections["share_bias", ("ada",)]
    assert known.factor == pytest.approx(1.4, rel=0.07)
    moved = taught(learned, beside(0.8, 0.9), 0.0).corrections["share_bias", ("ada",)]
    assert (moved.factor, moved.evidence.runs) == (1.0, 1)


def test_a_correction_ages_from_run_to_recall():
    for _ in range(3):
        learn(APP, RunObservation(shares={"ada": ShareMeasurement(1.4, 0.5)}), lambda: 100.0)
    fresh, later = (recall(APP, lambda at=at: at) for at in (100.0, 100.0 + SHARE_HALF_LIFE))
    factors = [known.corrections["share_bias", ("ada",)].factor for known in (fresh, later)]
    assert math.log(factors[1]) == pytest.approx(math.log(factors[0]) / 2)


@pytest.mark.parametrize("ratio", [0.0, -1.0, float("nan"), float("inf")])
def test_a_ratio_out_of_range_teaches_nothing(ratio):
    learn(APP, RunObservation(slowdown={"ada": ratio}, shares={"a": ShareMeasurement(ratio, 0.5)}))
    assert recall(APP) == Learned()


def past_run(k):
    """Return the k-th run: three of four ended inside."""
    return PastRun("site", 1.0 + k, 0.1, (0.9, 2.0 + k), 1.0 if k % 4 else 0.5)


def test_only_the_newest_runs_are_kept():
    learned = after(*(RunObservation(past=past_run(k)) for k in range(KEPT_RUNS + 6)))
    assert list(learned.runs) == [past_run(k) for k in range(6, KEPT_RUNS + 6)]
    assert learned.coverage == pytest.approx(0.75, abs=0.01)


FULL = RunObservation(
    ["ada", "bob"],
    slowdown={"ada": 1.5},
    co_run_slowdown={"bob": 1.2},
    speeds={"bob": ("numpy", SpeedFunction.constant(1e-9))},
    shares={"ada": ShareMeasurement(1.1, 0.5)},
    borders=[
        MeasuredBorder(
            (Host("ada", site="e"), Host("bob", site="w")), 0.02, 1e-4, 1e4, Link(1e-3, 1e6), 0.1
        )
    ],
    waits={"ada": WaitMeasurement(1e-3, 0.1, 0.2)},
    straggler_factor=1.2,
    past=past_run(1),
)


def test_a_document_keeps_everything():
    learn(APP, FULL, lambda: 5.0)
    learn(APP, FULL, lambda: 6.0)
    learn_starts(APP, "ssh", [Host("ada")], 0.5, lambda: 7.0)
    learned = recall(APP, lambda: 7.0)
    kinds = {kind for kind, _ in learned.corrections}
    assert kinds == KINDS.keys() - {"link"}
    assert set(learned.links.hosts) == {("ada", "bob")}
    assert set(learned.links.sites) == {("e", "w")}
    assert learned.links.hosts["ada", "bob"].evidence.first == 5.0
    assert learned.corrections["straggler_factor", set_key(("bob", "ada"))].evidence.tested == 1
    assert learned.identities == ["ada", "bob"]


def test_a_document_of_an_earlier_version_is_ignored():
    path().write_text(
        json.dumps(
            {
                "speeds": {"ada": {"x": {"rows": [1], "seconds_per_point": [1]}}},
                "pace": {"ada": 2.0},
                "overlap": [[1.0, 18.0]],
                "drag": 1.3,
            }
        )
    )
    assert recall(APP) == Learned()


DAMAGED = {
    "empty": b"",
    "cut": b'{"speeds": {"ada": 1.',
    "no text": b"\xff\xfe\x00",
    "a list": b"[]",
    "too deep": b"[" * 100_000,
    "endless digits": b'{"speeds": {"ada": ' + b"9" * 5000 + b"}}",
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_document_is_set_aside_and_reported(damage, capsys):
    path().write_bytes(DAMAGED[damage])
    assert recall(APP) == Learned()
    assert path().with_suffix(".damaged").read_bytes() == DAMAGED[damage]
    line = capsys.readouterr().err
    assert line.startswith(f"warning: {path()}: ")
    assert line.endswith(f"{path().with_suffix('.damaged')}\n")
    learn(APP, slowed(2.0))
    assert ("slowdown", ("ada",)) in recall(APP).corrections


@pytest.mark.parametrize("moment", [1e15, -1.0, 253402300800.0])
def test_an_entry_with_an_impossible_date_is_left_out(moment):
    """A date of the year 31690708 ended `apples plan` and `apples run` in an internal error."""
    learn(APP, FULL, lambda: 5.0)
    document = json.loads(path().read_text())
    for entry in (document["corrections"][0], document["host_links"][0]):
        entry["evidence"]["last"] = moment
    path().write_text(json.dumps(document))
    learned = recall(APP)
    assert len(learned.corrections) == len(document["corrections"]) - 1
    assert not learned.links.hosts
    assert len(described_all(learned)) == len(learned.corrections) + 1


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.just(10**400) | st.text(max_size=3)
    | st.sampled_from(["slowdown", "share_bias", "start", "site"]),
    lambda below: st.lists(below, max_size=3)
    | st.dictionaries(st.sampled_from(
        ["ada", "numpy", "rows", "seconds_per_point", "error", "kind", "key", "value", "spread", "evidence",
         "runs", "tested", "error_with", "set_class", "predicted", "measured", "promised", "between",
         "latency", "bandwidth"]
    ), below, max_size=5),
    max_leaves=12,
)  # fmt: skip


@pytest.mark.more
@QUIET
@given(
    st.dictionaries(
        st.sampled_from(["speeds", "corrections", "host_links", "site_links", "runs"]),
        JSON | st.lists(JSON, max_size=3),
        max_size=5,
    )
)
def test_a_hostile_document_never_stops_a_start_or_a_run(document):
    path().write_text(json.dumps({**document, "format": 1}))
    learned = recall(APP)
    for speeds in learned.speeds.values():
        for name, curve in speeds.items():
            assert curve.rows == tuple(sorted(curve.rows))
            assert learned.speed("ada", name) is None or curve.at(10.0) > 0
    for known in learned.corrections.values():
        if not KINDS[known.kind].in_seconds:
            assert 1 / KINDS[known.kind].bound <= known.factor * (1 + 1e-9) <= 100
    learn(APP, FULL)
    store_speeds(APP, "bob", {"numpy": SpeedFunction.constant(1e-9)})
    assert ("slowdown", ("ada",)) in recall(APP).corrections
    assert recall(APP).speed("bob", "numpy") is not None


def runs(host, times):
    for _ in range(times):
        learn(APP, RunObservation(slowdown={host: 2.0}, past=past_run(1)))


def test_runs_that_end_at_once_lose_nothing_of_each_other():
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=runs, args=(f"h{i}", 8)) for i in range(6)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    learned = recall(APP)
    assert {known.evidence.runs for known in learned.corrections.values()} == {8}
    assert len(learned.corrections) == 6
    assert len(learned.runs) == 48
