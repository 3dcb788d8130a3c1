"""What is too old to be kept one by one: means, lows and highs of slots."""

import errno
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nws import ForecastDatabase, Retention, SeriesName
from nws.memory.archive import DAY, ROW, Archive, Tier
from nws.memory.column import SeriesColumn
from nws.memory.journal_files import FaultyFiles
from nws.service.routes import bands_on_grid

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
@settings(max_examples=25)
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
    Archive(tmp_path, SMALL)  # makes the folders
    for place in range(1, 5):
        failing = FaultyFiles(place, errno.ENOSPC, persistent=False, short=True)
        archive = Archive(tmp_path, SMALL, files=failing)
        archive._done.clear()
        archive._floor = -1
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
            future.result(timeout=10)
        if step % 5 == 0:
            database.roll_up()
    slots = database.slots(str(NAME), 0.0, now[0], 300.0)
    assert {slot.step for slot in slots} == {300.0, 0.0}
    bands = bands_on_grid(slots, 300.0, 0.0, now[0])
    assert len(bands) == 40
    assert all(low <= mean <= high for _, mean, low, high in bands)  # and none of them a gap
    assert sum(slot.count for slot in slots) == 200
    hours = database.slots(str(NAME), 0.0, now[0], 3600.0)
    assert sum(slot.count for slot in hours) == 200
    database.close()
    again = ForecastDatabase(quick_disk, Retention(capacity=20), clock=lambda: now[0])
    assert again.slots(str(NAME), 0.0, now[0], 300.0) == slots
    again.close(save=False)
