"""A database is the same after any end of its process."""

import asyncio
import random
import time
from threading import Event

import pytest

from nws import (
    DirectoryLockedError,
    Files,
    ForecastDatabase,
    InputError,
    LogError,
    Measurement,
    RequestHandler,
    Retention,
    ScoredForecaster,
    SeriesName,
    Slot,
    classic,
    makes,
    on_grid,
)

ADA = SeriesName("availableCpu", "ada")
NAMES = [f"availableCpu/h{i}" for i in range(5)]


def feed(database, seed, first, last):
    """Store rows of several series, some late, some twice; wait for the disk."""
    chance, start = random.Random(seed), time.time() - 10_000
    for step in range(first, last):
        rows = [
            (name, start + step - 40 * (chance.random() < 0.1), chance.random())
            for name in NAMES
            if chance.random() < 0.9
        ]
        for future in database.submit(rows).futures:
            future.result(timeout=120)


def forecasts(database):
    """Return what is forecast one step ahead and over frames, by both criteria, with intervals."""
    frames = [(None, "absolute"), (12.0, "absolute"), (60.0, "squared")]
    return [
        database.forecast(name, over=over, criterion=criterion)[0]
        for name in NAMES
        for over, criterion in frames
    ]


@pytest.mark.more
@pytest.mark.parametrize("asked_between", [False, True])
@pytest.mark.parametrize("saved", [False, True])
def test_forecasts_after_a_restart_are_the_same_to_the_bit(quick_disk, asked_between, saved):
    database = ForecastDatabase(quick_disk)
    feed(database, 1, 0, 150)
    if asked_between:
        forecasts(database)
        database.forecasting.catch_up(0.01)
    if saved:
        database.save()
    feed(database, 2, 150, 250)
    before = forecasts(database)
    kept = {c.text: c.slice() for c in database.columns()}
    database.close(save=False)  # as after a kill: nothing more is written
    again = ForecastDatabase(quick_disk)
    assert forecasts(again) == before
    assert {c.text: c.slice() for c in again.columns()} == kept
    assert again.problems() == []
    again.close()


def test_states_carry_what_the_rings_no_longer_hold(quick_disk):
    small = Retention(capacity=20)
    database = ForecastDatabase(quick_disk, small)
    feed(database, 1, 0, 200)
    before = forecasts(database)
    database.close()
    for path in quick_disk.glob("shard-*/*.log"):
        assert path.stat().st_size > 20 * 32
    again = ForecastDatabase(quick_disk, small)
    assert forecasts(again) == before
    again.close()


def test_a_damaged_state_costs_its_series_the_state_and_is_named(quick_disk):
    database = ForecastDatabase(quick_disk)
    feed(database, 1, 0, 50)
    before = forecasts(database)
    database.close()
    path = quick_disk / "states"
    whole = path.read_bytes()
    data = bytearray(whole)
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    again = ForecastDatabase(quick_disk)
    lines = bytes(data).split(b"\n")
    damaged = next(k for k, line in enumerate(lines, 1) if line not in whole.split(b"\n"))
    (problem,) = again.problems()
    assert problem.split(": ")[0] == f"states:{damaged}"
    assert forecasts(again) == before  # the log still holds everything
    again.close()


def test_a_state_of_other_forecasters_under_the_same_name_is_begun_again_and_named(quick_disk):
    database = ForecastDatabase(
        quick_disk, profile="mine", make=lambda _: ScoredForecaster(classic())
    )
    feed(database, 1, 0, 30)
    database.forecasting.catch_up(10)
    database.close()
    again = ForecastDatabase(quick_disk, profile="mine", make=makes("default"))
    fresh = [again.forecast(name)[0].samples for name in NAMES]
    assert fresh == [len(again.memory.column(name)) for name in NAMES]
    problems = "\n".join(again.problems())
    assert [name for name in NAMES if name not in problems] == []
    again.close()


def test_a_profile_that_is_none_is_refused(quick_disk):
    with pytest.raises(InputError) as raised:
        ForecastDatabase(quick_disk, profile="defualt")
    assert (raised.value.code, raised.value.fields["value"]) == ("profile-unknown", "defualt")


def test_any_byte_of_the_states_may_be_bad(quick_disk):
    database = ForecastDatabase(quick_disk)
    feed(database, 1, 0, 12)
    before = forecasts(database)
    database.close()
    path = quick_disk / "states"
    whole = path.read_bytes()
    for place in range(0, len(whole), max(1, len(whole) // 40)):
        path.write_bytes(whole[:place] + b"\xff" + whole[place + 1 :])
        again = ForecastDatabase(quick_disk)
        assert forecasts(again) == before
        again.close(save=False)


@pytest.mark.more
def test_compaction_keeps_what_is_kept_and_the_forecasts(quick_disk):
    database = ForecastDatabase(
        quick_disk, Retention(capacity=30), segment_bytes=2000, log_slack=0
    )
    feed(database, 1, 0, 300)
    forecasts(database)
    database.save()
    shards = [partition.shard for partition in database.memory.partitions]
    before = sum(len(shard.segments()) for shard in shards)
    assert database.tidy() > 0
    assert sum(len(shard.segments()) for shard in shards) < before
    kept = {c.text: c.slice() for c in database.columns()}
    expected = forecasts(database)
    database.close(save=False)
    again = ForecastDatabase(quick_disk, Retention(capacity=30))
    assert {c.text: c.slice() for c in again.columns()} == kept
    assert forecasts(again) == expected
    again.close()


@pytest.mark.parametrize("change", ["profile", "damage", "no states"])
def test_whoever_has_no_state_begins_with_all_that_is_kept_though_the_log_was_compacted(
    quick_disk, change
):
    small = Retention(capacity=30)
    limits = {"segment_bytes": 2000, "log_slack": 0}
    database = ForecastDatabase(quick_disk, small, profile="classic", **limits)
    feed(database, 1, 0, 60)
    database.store(Measurement(SeriesName("availableCpu", "rare"), time.time() - 9000, 0.5))
    feed(database, 2, 60, 160)  # what was measured of it is long compacted
    for column in database.columns():
        database.forecast(column.text)
    database.save()
    assert database.tidy() > 0
    kept = {column.text: len(column) for column in database.columns()}
    database.close()
    states = quick_disk / "states"
    if change == "no states":
        states.unlink()
    elif change == "damage":
        states.write_bytes(states.read_bytes().replace(b"rare", b"rear", 1))
    profile = "dynamite" if change == "profile" else "classic"
    again = ForecastDatabase(quick_disk, small, profile=profile)
    if change == "profile":
        assert again.problems() == []
        assert "'nws.snapshot/2 classic'" in again.mended()[0]
        assert "'nws.snapshot/2 dynamite'" in again.mended()[0]
    rare, _ = again.forecast("availableCpu/rare")
    assert (rare.samples, rare.value) == (1, 0.5)
    if change != "damage":
        for text, count in kept.items():
            assert again.forecast(text)[0].samples + again.forecasting.order(text).late >= count
    before = {text: again.forecast(text)[0] for text in kept}
    again.close()
    once_more = ForecastDatabase(quick_disk, small, profile=profile)
    assert {text: once_more.forecast(text)[0] for text in kept} == before
    assert once_more.mended() == []
    once_more.close()


def test_a_state_saved_in_the_middle_of_a_beginning_from_memory_leaves_no_gap(quick_disk):
    small = Retention(capacity=30)
    limits = {"segment_bytes": 2000, "log_slack": -(1 << 40)}
    database = ForecastDatabase(quick_disk, small, profile="classic", **limits)
    feed(database, 1, 0, 80)
    for name in NAMES:
        database.forecast(name)
    database.save()
    while database.tidy():  # all that is kept is written again
        pass
    database.close()
    (quick_disk / "states").unlink()
    again = ForecastDatabase(quick_disk, small, profile="classic")
    again.forecasting.catch_up(1.0, timer=iter([0.0, 0.5, 2.0]).__next__)
    assert 0 < again.forecasting.backlog < 30 * len(NAMES)
    again.save()
    again.close(save=False)
    last = ForecastDatabase(quick_disk, small, profile="classic")
    assert [last.forecast(name)[0].samples for name in NAMES] == [30] * len(NAMES)
    last.close()


def test_what_no_state_has_taken_in_is_not_compacted(quick_disk):
    database = ForecastDatabase(quick_disk, Retention(capacity=30), segment_bytes=2000)
    feed(database, 1, 0, 100)
    for partition in database.memory.partitions:
        assert partition.compact(lambda _: -1) is False
    database.close()


def test_a_directory_has_one_keeper(tmp_path):
    database = ForecastDatabase(tmp_path)
    with pytest.raises(DirectoryLockedError) as raised:
        ForecastDatabase(tmp_path)
    assert raised.value.code == "directory-locked"
    assert raised.value.fields["directory"] == str(tmp_path)
    database.close()
    ForecastDatabase(tmp_path).close()


def test_what_is_too_late_or_too_early_is_refused_with_the_numbers(tmp_path):
    database = ForecastDatabase(
        tmp_path, Retention(window=100.0, skew=60.0, age=1000.0), clock=lambda: 5e3
    )
    assert database.store(Measurement(ADA, 5000.0, 0.5))
    assert database.store(Measurement(ADA, 4901.0, 0.5))  # late, within the window
    rows = [
        ("availableCpu/ada", 4899.0, 0.5),
        ("availableCpu/ada", 5061.0, 0.5),
        ("availableCpu/bob", 3999.0, 0.5),
    ]
    refused = database.submit(rows).refused
    assert [place for place, _ in refused] == [0, 1, 2]
    found = [(error.code, error.fields["seconds"], error.fields["bound"]) for _, error in refused]
    assert found == [
        ("measurement-late", 101.0, 100.0),
        ("measurement-in-future", 61.0, 60.0),
        ("measurement-too-old", 1001.0, 1000.0),
    ]
    database.close()


def test_a_series_in_vain_takes_no_place(tmp_path):
    database = ForecastDatabase(tmp_path, Retention(most_series=2), clock=lambda: 100.0)
    database.submit([(f"availableCpu/h{i}", 1e9, 0.5) for i in range(50)])
    assert database.store(Measurement(ADA, 50.0, 0.5))
    assert database.store(Measurement(SeriesName("availableCpu", "bob"), 50.0, 0.5))
    refused = database.submit([("availableCpu/cyd", 50.0, 0.5)]).refused
    (_, error) = refused[0]
    assert (error.code, error.fields) == (
        "too-many-series",
        {"series": "availableCpu/cyd", "bound": 2},
    )
    database.close()


def test_freshness_is_judged_by_the_series_own_period(tmp_path):
    now = [0.0]
    database = ForecastDatabase(tmp_path, clock=lambda: now[0])
    assert database.freshness("availableCpu/ada").state == "unknown"
    for at in range(0, 100, 10):
        now[0] = float(at)
        database.store(Measurement(ADA, float(at), 0.5))
    assert database.freshness("availableCpu/ada").state == "current"
    now[0] = 90 + 31.0
    assert database.freshness("availableCpu/ada").state == "stale"
    database.close()


def test_what_is_older_than_the_age_is_not_given_out(tmp_path):
    now = [100.0]
    database = ForecastDatabase(tmp_path, Retention(age=50.0), clock=lambda: now[0])
    database.store(Measurement(ADA, 60.0, 0.1))
    database.store(Measurement(ADA, 90.0, 0.2))
    now[0] = 120.0
    assert [m.value for m in database.memory.fetch(ADA)] == [0.2]
    database.tidy()
    assert database.columns()[0].oldest == 90.0
    database.close()


def test_a_gap_on_a_grid_is_a_gap():
    samples = [(0.0, 1.0), (10.0, 3.0), (12.0, 5.0), (50.0, 7.0)]
    slots = [Slot(at, 0.0, 1, value, value, value) for at, value in samples]
    grid = on_grid(slots, 10.0)
    assert grid.means == [1.0, 4.0, None, None, None, 7.0]
    assert grid.counts == [1, 2, 0, 0, 0, 1]
    with pytest.raises(InputError) as raised:
        on_grid(slots, 1e-6)
    assert (raised.value.code, raised.value.fields["bound"]) == ("value-range", 100_000)


class StuckFiles(Files):
    """A disk that does not come back from a sync until it is let go."""

    def __init__(self):
        self.stuck, self.go = False, Event()

    def datasync(self, descriptor):
        if self.stuck:
            self.go.wait(120)
        super().datasync(descriptor)


def test_a_disk_that_hangs_is_told_to_the_sender_and_not_waited_for_for_ever(tmp_path):
    files = StuckFiles()
    database = ForecastDatabase(tmp_path, files=files)
    handler = RequestHandler(database, "secret", disk_seconds=0.2)
    rows = [("availableCpu/ada", time.time(), 0.5)]
    files.stuck = True
    with pytest.raises(LogError) as raised:
        asyncio.run(handler.store(rows))
    assert (raised.value.code, raised.value.fields["seconds"]) == ("disk-failed", 0.2)
    files.go.set()
    handler.disk_seconds = 60.0
    again = asyncio.run(handler.store(rows))
    assert again.stored + again.duplicates == 1
    database.close()
