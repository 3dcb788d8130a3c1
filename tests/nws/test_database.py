"""A database is the same after any end of its process."""

import asyncio
import random
import sqlite3
import time
from contextlib import closing

import pytest

from nws import (
    DirectoryLockedError,
    ForecastDatabase,
    InputError,
    Measurement,
    RequestHandler,
    Retention,
    ScoredForecaster,
    SeriesName,
    Slot,
    StorageError,
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
        database.submit(rows).result(timeout=120)


def forecasts(database):
    """Return what is forecast one step ahead and over frames, by both criteria, with intervals."""
    frames = [(None, "absolute"), (12.0, "absolute"), (60.0, "squared")]
    return [
        database.forecast(name, over=over, criterion=criterion)[0]
        for name in NAMES
        for over, criterion in frames
    ]


def kept(database):
    return {each.text: database.memory.samples(each.text) for each in database.summaries()}


def changed(directory, statement, *values):
    """Change the database of a service that has ended."""
    with closing(sqlite3.connect(directory / "weather.db")) as connection, connection:
        assert connection.execute(statement, values).rowcount > 0


@pytest.mark.more
@pytest.mark.parametrize("asked_between", [False, True])
@pytest.mark.parametrize("saved", [False, True])
def test_forecasts_after_a_restart_are_the_same_to_the_bit(quick_disk, asked_between, saved):
    database = ForecastDatabase(quick_disk)
    feed(database, 1, 0, 150)
    if asked_between:
        forecasts(database)
    if saved:
        database.save(after=1)
    feed(database, 2, 150, 250)
    before = forecasts(database)
    there = kept(database)
    database.close(save=False)  # as after a kill: nothing more is written
    again = ForecastDatabase(quick_disk)
    assert forecasts(again) == before
    assert kept(again) == there
    assert again.problems() == []
    again.close()


@pytest.mark.parametrize("asked", [False, True])
def test_a_state_has_taken_in_measurements_that_have_left(quick_disk, asked):
    small = Retention(capacity=20)
    database = ForecastDatabase(quick_disk, small)
    for part in range(4):
        feed(database, part, 50 * part, 50 * part + 50)
        if asked:
            forecasts(database)
        database.save(after=1)
        database.tidy()
    before = forecasts(database)
    database.save(after=1)
    database.tidy()
    there = kept(database)
    assert all(20 <= len(samples) <= 36 for samples in there.values())
    database.close(save=False)
    again = ForecastDatabase(quick_disk, small)
    assert forecasts(again) == before
    assert kept(again) == there
    again.close()


def test_measurements_that_no_saved_state_has_taken_in_stay(quick_disk):
    database = ForecastDatabase(quick_disk, Retention(capacity=20))
    feed(database, 1, 0, 100)
    forecasts(database)
    database.tidy()
    before = forecasts(database)
    assert all(len(samples) > 60 for samples in kept(database).values())
    database.close(save=False)
    again = ForecastDatabase(quick_disk, Retention(capacity=20))
    assert forecasts(again) == before
    again.close()


def test_only_states_that_changed_are_written_again(quick_disk):
    database = ForecastDatabase(quick_disk, profile="classic")
    feed(database, 1, 0, 60)
    forecasts = [database.forecast(name)[0] for name in NAMES]
    assert None not in forecasts
    assert database.save() == 0  # fewer than are taken in again after a restart
    assert database.save(after=1) == len(NAMES)
    assert database.save(after=1) == 0
    database.store(Measurement(SeriesName.parse(NAMES[0]), time.time(), 0.5))
    database.forecast(NAMES[0])
    assert database.save(after=1) == 1
    database.close()


@pytest.mark.parametrize("state", [b"", b"{", b"[]", b'{"order":{},"forecaster":{}}', b"\xff"])
def test_a_damaged_state_costs_its_series_the_state_and_is_named(quick_disk, state):
    database = ForecastDatabase(quick_disk, profile="classic")
    feed(database, 1, 0, 50)
    before = [database.forecast(name)[0] for name in NAMES]
    database.close()
    changed(
        quick_disk,
        "UPDATE states SET state = ? WHERE series = (SELECT id FROM series WHERE name = ?)",
        state, NAMES[2],
    )  # fmt: skip
    again = ForecastDatabase(quick_disk, profile="classic")
    # All measurements are still kept, so it begins again with them.
    assert [again.forecast(name)[0] for name in NAMES] == before
    (problem,) = again.problems()
    assert problem.startswith(f"{NAMES[2]}: ")
    again.save()  # it begins with few measurements: its state is saved at once
    assert again.problems() == []
    again.close(save=False)
    once_more = ForecastDatabase(quick_disk, profile="classic")
    assert [once_more.forecast(name)[0] for name in NAMES] == before
    assert once_more.problems() == []
    once_more.close()


def test_another_profile_begins_with_the_measurements_that_are_kept(quick_disk):
    small = Retention(capacity=30)
    database = ForecastDatabase(quick_disk, small, profile="classic")
    feed(database, 1, 0, 150)
    for name in NAMES:
        database.forecast(name)
    database.save(after=1)
    database.tidy()
    there = {name: len(samples) for name, samples in kept(database).items()}
    database.close()
    again = ForecastDatabase(quick_disk, small, profile="default")
    (line,) = again.mended
    assert "classic" in line
    assert "default" in line
    for name, count in there.items():
        forecast, _ = again.forecast(name)
        assert forecast.samples + again.forecasting.order(name).late == count
    before = [again.forecast(name)[0] for name in NAMES]
    again.close()
    once_more = ForecastDatabase(quick_disk, small, profile="default")
    assert [once_more.forecast(name)[0] for name in NAMES] == before
    assert (once_more.problems(), once_more.mended) == ([], [])
    once_more.close()


def test_a_state_of_other_forecasters_under_the_same_name_is_begun_again_and_named(quick_disk):
    database = ForecastDatabase(
        quick_disk, profile="mine", make=lambda _: ScoredForecaster(classic())
    )
    feed(database, 1, 0, 30)
    for name in NAMES:
        database.forecast(name)
    database.close()
    again = ForecastDatabase(quick_disk, profile="mine", make=makes("default"))
    for name in NAMES:
        forecast, _ = again.forecast(name)
        late = again.forecasting.order(name).late
        assert forecast.samples + late == again.memory.summary(name).count
    problems = "\n".join(again.problems())
    assert [name for name in NAMES if name not in problems] == []
    again.close()


def test_a_profile_that_is_none_is_refused(quick_disk):
    with pytest.raises(InputError) as raised:
        ForecastDatabase(quick_disk, profile="defualt")
    assert (raised.value.code, raised.value.fields["value"]) == ("profile-unknown", "defualt")
    ForecastDatabase(quick_disk).close()  # which is not locked


def test_a_series_leaves_with_its_last_measurement_and_frees_its_place(quick_disk):
    now = [1000.0]
    database = ForecastDatabase(
        quick_disk, Retention(age=100.0, most_series=3), profile="classic", clock=lambda: now[0]
    )
    for host in ("ada", "bob", "cyd"):
        database.store(Measurement(SeriesName("availableCpu", host), now[0], 0.5))
        database.forecast(f"availableCpu/{host}")
    now[0] = 1101.0
    database.store(Measurement(ADA, now[0], 0.5))
    database.save(after=1)
    database.tidy()
    assert database.series() == (ADA,)
    assert database.store(Measurement(SeriesName("availableCpu", "dan"), now[0], 0.25))
    assert database.forecast("availableCpu/bob") == (None, database.freshness("availableCpu/bob"))
    assert database.freshness("availableCpu/bob").state == "unknown"
    now[0] = 1110.0
    assert database.store(Measurement(SeriesName("availableCpu", "bob"), now[0], 0.75))
    assert database.forecast("availableCpu/bob")[0].samples == 1  # its forecaster is a new one
    database.close()
    again = ForecastDatabase(quick_disk, Retention(age=100.0), clock=lambda: now[0])
    assert [name.host for name in again.series()] == ["ada", "bob", "dan"]
    again.close()


def test_a_series_that_stops_leaves_with_measurements_that_no_state_has(quick_disk):
    now = [1000.0]
    database = ForecastDatabase(
        quick_disk, Retention(age=100.0), profile="classic", clock=lambda: now[0]
    )
    database.store(Measurement(ADA, now[0], 0.5))
    database.forecast(str(ADA))
    now[0] = 1101.0
    assert database.save() == 0
    database.tidy()
    assert database.series() == ()
    assert database.forecast(str(ADA))[0] is None
    database.close()


@pytest.mark.parametrize("saving", [False, True])
def test_a_series_that_begins_again_while_the_old_one_leaves_is_followed_anew(
    quick_disk, monkeypatch, saving
):
    now = [1000.0]
    database = ForecastDatabase(
        quick_disk, Retention(age=100.0), profile="classic", clock=lambda: now[0]
    )
    for step in range(20):
        database.store(Measurement(ADA, now[0] + step, 0.5))
    database.forecast(str(ADA))
    now[0] = 2000.0
    write, tidy = database.memory.write_states, database.memory.tidy

    def begun_again(needed):
        left = tidy(needed)
        database.store(Measurement(ADA, now[0], 0.75))
        return left

    def leaving(states):
        begun_again(database.forecasting.needed)
        write(states)

    if saving:
        monkeypatch.setattr(database.memory, "write_states", leaving)
        database.save(after=1)
    else:
        monkeypatch.setattr(database.memory, "tidy", begun_again)
        database.tidy()
    monkeypatch.undo()
    live = database.forecast(str(ADA))[0]
    assert live.samples == 1
    database.close(save=False)
    again = ForecastDatabase(
        quick_disk, Retention(age=100.0), profile="classic", clock=lambda: 2e3
    )
    assert again.forecast(str(ADA))[0] == live
    again.close()


def test_a_directory_has_one_keeper(tmp_path):
    database = ForecastDatabase(tmp_path)
    with pytest.raises(DirectoryLockedError) as raised:
        ForecastDatabase(tmp_path)
    assert raised.value.code == "directory-locked"
    assert raised.value.fields["directory"] == str(tmp_path)
    database.close()
    database.close()  # nothing is left to close
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
    refused = database.submit(rows).result(timeout=120).refused
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
    database.submit([(f"availableCpu/h{i}", 1e9, 0.5) for i in range(50)]).result(timeout=120)
    assert database.store(Measurement(ADA, 50.0, 0.5))
    assert database.store(Measurement(SeriesName("availableCpu", "bob"), 50.0, 0.5))
    refused = database.submit([("availableCpu/cyd", 50.0, 0.5)]).result(timeout=120).refused
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
    database.forecast(str(ADA))
    database.save(after=1)
    database.tidy()
    assert database.summaries()[0].oldest == 90.0
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


def test_a_disk_that_hangs_is_reported_to_the_sender_and_not_waited_for_for_ever(tmp_path):
    database = ForecastDatabase(tmp_path)
    handler = RequestHandler(database, "secret", disk_seconds=0.2)
    rows = [("availableCpu/ada", time.time(), 0.5)]
    with closing(sqlite3.connect(tmp_path / "weather.db")) as other:
        other.execute("BEGIN IMMEDIATE")  # the writer waits as for a disk that does not answer
        with pytest.raises(StorageError) as raised:
            asyncio.run(handler.store(rows))
        other.rollback()
    assert (raised.value.code, raised.value.fields["seconds"]) == ("disk-failed", 0.2)
    handler.disk_seconds = 60.0
    again = asyncio.run(handler.store(rows))
    assert again.stored + again.duplicates == 1
    database.close()
