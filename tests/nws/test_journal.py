"""The log: what was acknowledged is on the disk, and damage costs what it touches."""

import errno
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nws import (
    BLOCK,
    FaultyFiles,
    Files,
    JournalMemory,
    JournalShard,
    LogError,
    Measurement,
    PowerCutError,
    SeriesName,
    encode_measurements,
    encode_name,
    key_of,
    replace_file,
    scan,
)

ROWS = st.lists(
    st.tuples(
        st.integers(0, 2**64 - 1),
        st.floats(allow_nan=False, allow_infinity=False),
        st.floats(allow_nan=False, allow_infinity=False),
    ),
    max_size=40,
)
NAMES = {key_of(f"availableCpu/h{i}"): f"availableCpu/h{i}" for i in range(3)}
KEYS = list(NAMES)


def rows_of(found):
    return [(int(r["key"]), float(r["time"]), float(r["value"])) for r in found.rows]


def stored(directory, **options):
    shard = JournalShard(directory, 0, Files(), **options)
    rows = [row for _, found in shard.recover() for row in rows_of(found)]
    shard.close()
    return rows


def some_rows(count, start=0):
    return [(KEYS[i % 3], float(start + i), i / 7) for i in range(count)]


@given(ROWS)
def test_what_is_encoded_is_read_back(rows):
    assert rows_of(scan(encode_measurements(rows))) == rows


@given(ROWS, st.binary(max_size=100), st.binary(max_size=100))
def test_junk_around_records_costs_no_record(rows, before, after):
    found = rows_of(scan(before + encode_measurements(rows) + after))
    assert [row for row in found if row in rows] == rows or len(found) > len(rows)


@given(st.binary(max_size=4000))
def test_any_bytes_can_be_scanned(data):
    found = scan(data)
    assert sum(d.stop - d.start for d in found.damages) <= len(data)


def test_a_restart_finds_what_was_appended(tmp_path):
    shard = JournalShard(tmp_path, 0, Files())
    list(shard.recover())
    positions = [shard.append(some_rows(5, 10 * k), NAMES) for k in range(4)]
    assert positions == sorted(positions)
    shard.close()
    assert stored(tmp_path) == [row for k in range(4) for row in some_rows(5, 10 * k)]


def test_a_long_log_is_cut_into_segments_that_name_their_series(tmp_path):
    shard = JournalShard(tmp_path, 0, Files(), segment_bytes=1000)
    list(shard.recover())
    for k in range(20):
        shard.append(some_rows(10, 10 * k), NAMES)
    assert len(shard.segments()) > 3
    for segment in shard.segments():
        found = shard.read(segment)
        assert {int(key) for key in np.unique(found.rows["key"])} <= set(found.names)


@pytest.mark.parametrize("cut", range(1, 2 * BLOCK, 3))
def test_a_torn_tail_is_cut_and_what_was_before_it_stays(tmp_path, cut):
    shard = JournalShard(tmp_path, 0, Files())
    list(shard.recover())
    shard.append(some_rows(10), NAMES)
    shard.close()
    path = shard.path(1)
    path.write_bytes(path.read_bytes()[:-cut])
    kept = 10 - -(-cut // BLOCK)
    again = JournalShard(tmp_path, 0, Files())
    list(again.recover())
    again.append(some_rows(3, 100), NAMES)
    again.close()
    assert stored(tmp_path) == some_rows(10)[:kept] + some_rows(3, 100)


def test_what_is_cut_is_set_aside_and_named(tmp_path):
    shard = JournalShard(tmp_path, 0, Files())
    list(shard.recover())
    shard.append(some_rows(2), NAMES)
    shard.close()
    with shard.path(1).open("ab") as file:
        file.write(b"torn")
    again = JournalShard(tmp_path, 0, Files())
    list(again.recover())
    assert again.damages == []  # it is gone
    assert "00000001.log" in again.mended[0]
    assert [p.read_bytes() for p in tmp_path.glob("*.bad-*")] == [b"torn"]


def test_every_byte_of_a_shard_flipped_costs_one_record_at_most(tmp_path):
    shard = JournalShard(tmp_path, 0, Files())
    list(shard.recover())
    shard.append(some_rows(12), NAMES)
    shard.close()
    whole = shard.path(1).read_bytes()
    for place in range(len(whole)):
        flipped = bytearray(whole)
        flipped[place] ^= 0xFF
        found = scan(bytes(flipped))
        rows = rows_of(found)
        assert len(rows) >= 11
        assert set(rows) <= set(some_rows(12))  # never a wrong value
        assert {int(key) for key in found.rows["key"]} <= set(found.names)
        assert len(rows) == 12 or found.damages


def test_every_length_of_a_shard_cut_keeps_all_before_the_cut():
    whole = encode_name("availableCpu/h0") * 2 + encode_measurements(some_rows(12))
    start = len(whole) - 12 * BLOCK
    for length in range(len(whole)):
        rows = rows_of(scan(whole[:length]))
        assert rows == some_rows(12)[: max(0, length - start) // BLOCK]


def test_random_damage_in_a_large_shard_costs_little():
    rows = [(KEYS[i % 3], float(i), float(i % 17)) for i in range(20_000)]
    whole = np.frombuffer(encode_measurements(rows), np.uint8)
    right, chance = set(rows), random.Random(4)
    for _ in range(5):
        bad = whole.copy()
        places = [chance.randrange(len(bad)) for _ in range(10)]
        bad[places] ^= 0x55
        found = rows_of(scan(bad.tobytes()))
        assert len(found) >= len(rows) - 10
        assert right.issuperset(found)


FAULTS = [
    (error, persistent, short)
    for error in (errno.EIO, errno.ENOSPC, errno.EINTR, errno.EMFILE, 0)
    for persistent in (False, True)
    for short in (False, True)
]


def life(directory, files, acknowledged, timer):
    """Append ten times, going on after errors; record what was acknowledged."""
    shard = JournalShard(directory, 0, files, timer=timer, segment_bytes=900)
    try:
        list(shard.recover())
        for k in range(10):
            try:
                shard.append(some_rows(4, 10 * k), NAMES)
                acknowledged += some_rows(4, 10 * k)
            except LogError:
                pass
    except (PowerCutError, OSError):
        pass
    shard.close()


@pytest.mark.more
@pytest.mark.parametrize(("error", "persistent", "short"), FAULTS)
def test_a_fault_at_every_operation_loses_nothing_acknowledged(
    quick_disk, error, persistent, short
):
    ticks = iter(range(10**6))

    def timer():  # every look at the clock is a second later
        return float(next(ticks))

    counting = FaultyFiles(persistent=False)
    life(quick_disk / "count", counting, [], timer)
    assert counting.operations > 20
    for place in range(1, counting.operations + 1):
        directory, acknowledged = quick_disk / str(place), []
        files = FaultyFiles(place, error, persistent=persistent, short=short)
        life(directory, files, acknowledged, timer)
        assert files.failed
        found = stored(directory)
        assert set(acknowledged) <= set(found), f"{files.failed[0]} at {place}"
        assert len(found) == len(set(found)) or error
        life(directory, Files(), acknowledged, timer)  # a second start is clean
        assert set(acknowledged) <= set(stored(directory))


def test_a_file_that_cannot_be_replaced_stays_and_leaves_nothing_beside_it(tmp_path):
    path = tmp_path / "states"
    counting = FaultyFiles(persistent=False)
    replace_file(counting, path, [b"old"])
    assert counting.operations >= 4
    for place in range(1, counting.operations + 1):
        replace_file(Files(), path, [b"old"])
        with pytest.raises(OSError) as raised:  # noqa: PT011 - its number is asserted
            replace_file(FaultyFiles(place, errno.ENOSPC, persistent=False), path, [b"new"] * 99)
        assert raised.value.errno == errno.ENOSPC
        assert path.read_bytes() in {b"old", b"new" * 99}
        assert [each.name for each in tmp_path.iterdir()] == ["states"]


def test_a_full_disk_is_told_apart_from_a_broken_one(tmp_path):
    for number, error in enumerate((errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS)):
        shard = JournalShard(tmp_path / str(number), 0, FaultyFiles(4, error, persistent=True))
        list(shard.recover())
        with pytest.raises(LogError) as caught:
            shard.append(some_rows(1), NAMES)
        full = error in {errno.ENOSPC, errno.EDQUOT}
        assert caught.value.full is full
        assert caught.value.code == ("disk-full" if full else "disk-failed")
        assert caught.value.fields["shard"] == 0


def test_a_shard_that_failed_answers_at_once_and_opens_itself_again(tmp_path):
    now = [0.0]
    files = FaultyFiles(5, errno.ENOSPC, persistent=True)
    shard = JournalShard(tmp_path, 0, files, timer=lambda: now[0])
    list(shard.recover())
    for _ in range(100):
        with pytest.raises(LogError):
            shard.append(some_rows(1), NAMES)
    assert files.operations < 20  # the disk is left alone meanwhile
    files.fail_at = 0
    now[0] = 1.0
    shard.append(some_rows(2), NAMES)
    shard.close()
    assert shard.problem is None
    assert stored(tmp_path) == some_rows(2)


def test_a_directory_with_two_shards_stays_one(tmp_path):
    names = [f"availableCpu/h{number}" for number in range(20)]
    old = JournalMemory(tmp_path, shards=2)
    for name in names:
        assert old.store(Measurement(SeriesName.parse(name), 1.0, 0.5))
    old.close()
    again = JournalMemory(tmp_path)
    assert again.store(Measurement(SeriesName.parse(names[0]), 2.0, 0.5))
    assert [str(name) for name in again.series()] == sorted(names)
    assert {path.name for path in tmp_path.glob("shard-*")} == {"shard-0", "shard-1"}
    assert all(any(path.read_bytes().count(b"availableCpu") for path in shard.glob("*.log"))
               for shard in tmp_path.glob("shard-*"))  # fmt: skip
    again.close()
