"""What is too old to be kept one by one: means, lows and highs of slots."""

import asyncio
import errno
import math

import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from nws import (
    DAY,
    ROW,
    Archive,
    FaultyFiles,
    ForecastDatabase,
    RequestHandler,
    Retention,
    SeriesColumn,
    SeriesName,
    Slot,
    Tier,
    on_grid,
)

NAME = SeriesName("availableCpu", "ada")
SMALL = (Tier(300.0, 2 * DAY, DAY), Tier(3600.0, 20 * DAY, 4 * DAY))


def column(times, values, capacity=2000):
    found = SeriesColumn(NAME, capacity)
    found.extend(times, values)
    return found


def regular(start, stop, period=60.0):
    count = int((stop - start) / period)
    times = [start + period * step for step in range(count)]
    return times, [0.5 + 0.4 * math.sin(step) for step in range(count)]


@given(
    st.lists(st.tuples(st.integers(0, 6000), st.floats(0, 1)), min_size=1, max_size=60),
)
@settings(max_examples=examples(25))
def test_a_slot_is_count_mean_low_and_high_of_what_was_measured_in_it(tmp_path_factory, rows):
    rows = sorted(dict(rows).items())
    archive = Archive(tmp_path_factory.mktemp("archive"), SMALL)
    archive.add([column(*map(list, zip(*rows, strict=True)))], now=1e5)
    slots = archive.read(str(NAME), 0.0, 1e5)
    expected = {}
    for at, value in rows:
        expected.setdefault(at // 300, []).append(value)
    assert [slot.start for slot in slots] == [300.0 * place for place in sorted(expected)]
    for slot in slots:
        values = expected[slot.start // 300]
        assert (slot.count, slot.low, slot.high) == (len(values), min(values), max(values))
        assert slot.mean == pytest.approx(sum(values) / len(values))


def test_hours_are_made_of_what_five_minutes_hold(tmp_path):
    archive = Archive(tmp_path, SMALL)
    times, values = regular(0.0, 7200.0)
    archive.add([column(times, values)], now=7200.0 + 1000.0)
    hours = archive.read(str(NAME), 0.0, 7200.0, step=3600.0)
    assert [(slot.start, slot.step, slot.count) for slot in hours] == [
        (0.0, 3600.0, 60),
        (3600.0, 3600.0, 60),
    ]
    assert hours[0].mean == pytest.approx(sum(values[:60]) / 60)
    assert (hours[1].low, hours[1].high) == (min(values[60:]), max(values[60:]))


def test_where_hours_are_not_yet_made_five_minutes_stand(tmp_path):
    archive = Archive(tmp_path, SMALL)
    archive.add([column(*regular(0.0, 7200.0))], now=7300.0)
    slots = archive.read(str(NAME), 0.0, 7200.0, step=3600.0)
    assert [slot.step for slot in slots] == [3600.0] + [300.0] * 12
    assert [slot.start for slot in slots[1:]] == [3600.0 + 300.0 * place for place in range(12)]


def test_what_is_older_than_any_slot_is_kept_makes_no_file(tmp_path):
    archive = Archive(tmp_path, SMALL)
    assert archive.add([column([0.0, 90 * DAY, 99.9 * DAY], [0.5] * 3)], now=100 * DAY) == 2
    assert [path.name for path in sorted(tmp_path.glob("300/*"))] == ["90.rows", "99.rows"]
    assert sorted(path.name for path in tmp_path.glob("3600/*")) == ["22.rows", "24.rows"]


def test_a_slot_that_is_not_over_is_not_archived_and_none_twice(tmp_path):
    archive = Archive(tmp_path, SMALL)
    times, values = regular(0.0, 3000.0)
    kept = column(times[:15], values[:15])
    assert archive.add([kept], now=900.0) == 2
    assert archive.add([kept], now=900.0) == 0
    kept.extend(times[15:], values[15:])
    assert archive.add([kept], now=3100.0) == 8
    assert [slot.count for slot in archive.read(str(NAME), 0.0, 3000.0)] == [5] * 10


@pytest.mark.parametrize("torn", [0, 7])
def test_a_restart_goes_on_where_the_last_process_ended(tmp_path, torn):
    times, values = regular(0.0, 4 * 3600.0)
    kept = column(times, values)
    archive = Archive(tmp_path, SMALL)
    archive.add([kept], now=1.5 * 3600.0)
    path = tmp_path / "300" / "0.rows"
    path.write_bytes(path.read_bytes() + b"x" * torn)
    again = Archive(tmp_path, SMALL)
    again.add([kept], now=5 * 3600.0)
    assert [slot.count for slot in again.read(str(NAME), 0.0, 14400.0)] == [5] * 48
    assert [slot.count for slot in again.read(str(NAME), 0.0, 14400.0, 3600.0)] == [60] * 4
    assert path.stat().st_size == 48 * ROW.itemsize


@pytest.mark.parametrize("left", [0, 1.5, 2, 3.25])
def test_hours_of_which_only_some_were_written_are_made_after_a_restart(tmp_path, left):
    times, values = regular(0.0, 7200.0)
    kept = []
    for host in ("ada", "bob"):
        kept.append(SeriesColumn(SeriesName("availableCpu", host), 2000))
        kept[-1].extend(times, values)
    Archive(tmp_path, SMALL).add(kept, now=9000.0)
    path = tmp_path / "3600" / "0.rows"
    path.write_bytes(path.read_bytes()[: int(left * ROW.itemsize)])
    again = Archive(tmp_path, SMALL)
    again.add(kept, now=9000.0)
    for column in kept:
        assert [slot.count for slot in again.read(column.text, 0.0, 7200.0, 3600.0)] == [60, 60]
        assert [slot.step for slot in again.read(column.text, 0.0, 7200.0, 3600.0)] == [3600.0] * 2
    assert len(path.read_bytes()) == 4 * ROW.itemsize


def named(host, times, values):
    found = SeriesColumn(SeriesName("availableCpu", host), 20_000)
    found.extend(times, values)
    return found


def days_of_ada(directory):
    """Archive ten days of one host, as a process did that ended since."""
    ada = named("ada", *regular(0.0, 10 * DAY, 600.0))
    Archive(directory, SMALL).add([ada], now=10 * DAY + 400.0)
    return ada


@pytest.mark.parametrize("archived", [0.0, 2.5, 2.502, 3.0])
def test_old_history_that_no_process_had_archived_is_archived_after_a_restart(tmp_path, archived):
    ada = days_of_ada(tmp_path)
    times, values = regular(2 * DAY, 3 * DAY)
    part = [place for place, time in enumerate(times) if time < archived * DAY]
    bob = named("bob", times[: len(part)], values[: len(part)])
    Archive(tmp_path, SMALL).add([ada, bob], now=10 * DAY + 400.0)
    bob.extend(times[len(part) :], values[len(part) :])
    again = Archive(tmp_path, SMALL)
    again.add([ada, bob], now=10 * DAY + 400.0)
    assert again.add([ada, bob], now=10 * DAY + 400.0) == 0
    assert [slot.count for slot in again.read(bob.text, 0.0, 10 * DAY)] == [5] * 288
    assert [slot.count for slot in again.read(bob.text, 0.0, 10 * DAY, 3600.0)] == [60] * 24
    assert sum(slot.count for slot in again.read(ada.text, 0.0, 10 * DAY)) == 1440
    rows = (tmp_path / "300" / "2.rows").stat().st_size // ROW.itemsize
    assert rows == 144 + 288 + (archived == 2.502)  # a slot that was not whole has two


def test_hours_of_old_history_are_made_though_a_process_was_killed_before_it_made_them(tmp_path):
    ada = days_of_ada(tmp_path)
    bob = named("bob", *regular(2 * DAY, 3 * DAY))
    path = tmp_path / "3600" / "0.rows"
    before = path.read_bytes()
    Archive(tmp_path, SMALL).add([ada, bob], now=10 * DAY + 400.0)
    path.write_bytes(before)
    again = Archive(tmp_path, SMALL)
    again.add([ada, bob], now=10 * DAY + 400.0)
    hours = again.read(bob.text, 0.0, 10 * DAY, 3600.0)
    assert [(slot.step, slot.count) for slot in hours] == [(3600.0, 60)] * 24


def test_what_is_imported_in_pieces_makes_whole_slots(tmp_path):
    archive = Archive(tmp_path, SMALL)
    times, values = regular(0.0, 7200.0)
    bob = named("bob", [], [])
    for start in range(0, len(times), 7):
        bob.extend(times[start : start + 7], values[start : start + 7])
        archive.add([bob], now=DAY)
    slots = archive.read(bob.text, 0.0, DAY)
    assert [slot.count for slot in slots] == [5] * 24
    assert slots[1].mean == pytest.approx(sum(values[5:10]) / 5)
    assert [slot.count for slot in archive.read(bob.text, 0.0, DAY, 3600.0)] == [60, 60]


def test_an_hour_of_which_more_came_is_made_again_though_a_process_was_killed_in_between(tmp_path):
    times, values = regular(0.0, 3600.0)
    bob = named("bob", times[:38], values[:38])
    archive = Archive(tmp_path, SMALL)
    archive.add([bob], now=DAY)
    path = tmp_path / "3600" / "0.rows"
    before = path.read_bytes()
    bob.extend(times[38:], values[38:])
    archive.add([bob], now=DAY)
    path.write_bytes(before)
    again = Archive(tmp_path, SMALL)
    assert [slot.count for slot in again.read(bob.text, 0.0, DAY, 3600.0)] == [38]
    again.add([bob], now=DAY)
    assert [slot.count for slot in again.read(bob.text, 0.0, DAY, 3600.0)] == [60]
    size = path.stat().st_size
    Archive(tmp_path, SMALL).add([bob], now=DAY)  # nothing is made that is made already
    assert path.stat().st_size == size


def test_a_file_of_the_future_keeps_nothing_from_being_archived(tmp_path):
    days_of_ada(tmp_path)
    for name in ("300/90000.rows", "300/90001.rows", "3600/90000.rows"):
        (tmp_path / name).write_bytes(b"")
    again = Archive(tmp_path, SMALL)
    bob = named("bob", *regular(9 * DAY, 10 * DAY))
    assert again.add([bob], now=10 * DAY + 400.0) == 288
    assert [slot.count for slot in again.read(bob.text, 0.0, 10 * DAY, 3600.0)] == [60] * 24


def test_a_bad_byte_costs_its_slot(tmp_path):
    times, values = regular(0.0, 3000.0)
    Archive(tmp_path, SMALL).add([column(times, values)], now=3600.0)
    path = tmp_path / "300" / "0.rows"
    data = bytearray(path.read_bytes())
    data[3 * ROW.itemsize + 20] ^= 0x40
    path.write_bytes(data)
    slots = Archive(tmp_path, SMALL).read(str(NAME), 0.0, 3000.0)
    assert [slot.start for slot in slots] == [300.0 * place for place in range(10) if place != 3]


def test_what_a_full_disk_refused_is_archived_the_next_time(tmp_path):
    times, values = regular(0.0, 3000.0)
    kept = column(times, values)
    for place in range(1, 5):
        folder = tmp_path / str(place)
        Archive(folder, SMALL)  # makes the folders
        failing = FaultyFiles(place, errno.ENOSPC, persistent=False, short=True)
        archive = Archive(folder, SMALL, files=failing)
        try:
            archive.add([kept], now=3600.0)
        except OSError:
            failing.fail_at = 0
            archive.add([kept], now=3600.0)
        assert [slot.count for slot in archive.read(str(NAME), 0.0, 3000.0)] == [5] * 10


def test_where_five_minutes_are_gone_hours_go_on(tmp_path):
    archive = Archive(tmp_path, SMALL)
    for day in range(4):
        times, values = regular(day * DAY, (day + 1) * DAY)
        archive.add([column(times, values)], now=(day + 1) * DAY + 8000.0)
    assert archive.tidy(now=4 * DAY) == 1
    slots = archive.read(str(NAME), 0.0, 4 * DAY, step=300.0)
    assert [slot.step for slot in slots] == [3600.0] * 24 + [300.0] * (3 * 288)
    assert sum(slot.count for slot in slots) == 4 * 1440


def test_the_oldest_goes_when_there_is_too_much(tmp_path):
    archive = Archive(tmp_path, SMALL)
    for day in range(4):
        times, values = regular(day * DAY, (day + 1) * DAY)
        archive.add([column(times, values)], now=(day + 1) * DAY + 8000.0)
    before = archive.size()
    limited = Archive(tmp_path, SMALL, size=before - 1)
    assert limited.tidy(now=4 * DAY) == 1
    assert not (tmp_path / "300" / "0.rows").exists()
    assert limited.size() < before


def test_a_grid_of_a_database_goes_back_beyond_what_is_kept_one_by_one(quick_disk):
    now = [0.0]
    database = ForecastDatabase(quick_disk, Retention(capacity=20), clock=lambda: now[0])
    for step in range(200):
        now[0] = 60.0 * step
        for future in database.submit([(str(NAME), now[0], step / 200)]).futures:
            future.result(timeout=120)
        if step % 5 == 0:
            database.roll_up()
    slots = database.slots(str(NAME), 0.0, now[0], 300.0)
    assert {slot.step for slot in slots} == {300.0, 0.0}
    grid = on_grid(slots, 300.0)
    assert grid.times == [300.0 * place for place in range(40)]
    assert grid.counts == [5] * 40  # and none of them a gap
    assert grid.partial == []
    for mean, low, high in zip(grid.means, grid.lows, grid.highs, strict=True):
        assert low <= mean <= high
    hours = database.slots(str(NAME), 0.0, now[0], 3600.0)
    assert sum(slot.count for slot in hours) == 200
    grid = on_grid(hours, 3600.0)  # of hours, of five minutes, and of measurements
    assert (grid.times, grid.counts) == ([0.0, 3600.0, 7200.0, 10800.0], [60, 60, 60, 20])
    assert grid.partial == [10800.0]
    database.close()
    again = ForecastDatabase(quick_disk, Retention(capacity=20), clock=lambda: now[0])
    assert again.slots(str(NAME), 0.0, now[0], 300.0) == slots
    again.close(save=False)


def test_a_history_that_is_stored_faster_than_the_archive_looks_is_archived_whole(quick_disk):
    database = ForecastDatabase(quick_disk, Retention(capacity=100), clock=lambda: 1e6)
    handler = RequestHandler(database, "secret")
    times, values = regular(0.0, DAY)

    async def life():
        for start in range(0, len(times), 25):
            rows = zip(times[start : start + 25], values[start : start + 25], strict=True)
            await handler.store([(str(NAME), at, value) for at, value in rows])

    asyncio.run(life())
    database.roll_up()
    assert [slot.count for slot in database.archive.read(str(NAME), 0.0, DAY)] == [5] * 288
    database.close(save=False)


def measured(times):
    return [Slot(float(at), 0.0, 1, 0.5, 0.5, 0.5) for at in times]


def slots_of(times, step):
    """Return the slots of five minutes, or an hour, that an archive makes of measurements."""
    places = sorted({at // step for at in times})
    return [Slot(p * step, step, sum(at // step == p for at in times), 0.5, 0, 1) for p in places]


@pytest.mark.parametrize(
    ("slots", "step", "counts", "partial"),
    [
        # Measurements alone: a place lies around its time.
        (measured(range(0, 100, 10)), 10.0, [1] * 10, []),
        (measured([0, 10.4, 19.8, 30.1]), 10.0, [1] * 4, []),
        (measured(range(0, 6000, 10)), 600.0, [30] + [60] * 9 + [30], [0.0, 6000.0]),
        # The first hour was begun at 25 minutes, the last ended at 40.
        (slots_of(range(1500, 9600, 10), 3600.0), 3600.0, [210, 360, 240], [0.0, 7200.0]),
        (slots_of(range(1500, 10800, 10), 3600.0), 3600.0, [210, 360, 360], [0.0]),
        (slots_of(range(0, 9600, 10), 3600.0), 3600.0, [360, 360, 240], [7200.0]),
        (slots_of(range(0, 10800, 10), 3600.0), 3600.0, [360] * 3, []),
        # Five minutes that are not yet an hour, and measurements that are not yet five minutes.
        (slots_of(range(0, 5400, 10), 300.0), 3600.0, [360, 180], [3600.0]),
        (slots_of(range(0, 5400, 10), 300.0) + measured(range(5400, 7200, 10)), 3600.0, [360] * 2, []),
        # One missing measurement makes no slot partial, a gap within is not at its end.
        (slots_of([*range(10, 3600, 10), *range(3600, 7190, 10)], 3600.0), 3600.0, [359] * 2, []),
        (measured([5.0]), 60.0, [1], []),
    ],
)  # fmt: skip
def test_the_ends_of_a_grid_are_said_to_be_partial_where_they_are(slots, step, counts, partial):
    grid = on_grid(slots, step)
    assert grid.counts == counts
    assert grid.partial == partial
    assert sum(grid.counts) == sum(slot.count for slot in slots)
