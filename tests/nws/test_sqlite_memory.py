"""Measurements in the database: what is acknowledged stays, what is old becomes slots, and what is refused."""

import math
import os
import random
import resource
import shutil
import sqlite3
import stat
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from nws import (
    DAY,
    Measurement,
    Retention,
    SeriesName,
    SqliteMemory,
    StorageError,
    backup_database,
    check_database,
)

ADA = SeriesName("availableCpu", "ada")
NAME = str(ADA)
OLD = Path(__file__).parent / "directory-0.2"
OLD_BEGIN = 1_699_999_200.0
FILE = "weather.db"


def everything(_):
    """Return the position up to which forecasters have taken in a series: all of it."""
    return math.inf


def rows(start, stop, period=10.0, name=NAME):
    return [(name, period * step, (step % 10) / 16) for step in range(start, stop)]


def counted(memory, name=NAME):
    """Return the measurements that single rows and slots of a series stand for."""
    slots = memory.slots(name, 0.0, math.inf)
    return len(memory.samples(name)) + sum(slot.count for slot in slots)


@settings(max_examples=examples(15), deadline=None)
@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 40), st.sampled_from([0.25, 0.5])), max_size=20),
        max_size=6,
    )
)
def test_the_first_value_of_a_time_stays_in_any_order(tmp_path_factory, batches):
    directory = tmp_path_factory.mktemp("drawn")
    memory, model = SqliteMemory(directory), {}
    for batch in batches:
        result = memory.submit([(NAME, float(at), value) for at, value in batch]).result(60)
        fresh = {}
        for at, value in batch:
            if at not in model:
                fresh.setdefault(at, value)
        model |= fresh
        assert (result.stored, result.duplicates) == (len(fresh), len(batch) - len(fresh))
    assert memory.samples(NAME) == sorted(model.items())
    before = [(one.text, one.count, one.oldest, one.newest, one.latest, one.spacing(), one.position)
              for one in memory.summaries()]  # fmt: skip
    memory.close()
    again = SqliteMemory(directory)
    assert again.samples(NAME) == sorted(model.items())
    assert before == [
        (one.text, one.count, one.oldest, one.newest, one.latest, one.spacing(), one.position)
        for one in again.summaries()
    ]
    again.close()


def test_old_measurements_become_slots_and_none_counts_twice(quick_disk):
    memory = SqliteMemory(quick_disk, Retention(capacity=100))
    for start in range(0, 1000, 50):
        memory.submit(rows(start, start + 50)).result(60)
        memory.tidy(everything)
        assert counted(memory) == start + 50
    assert 100 <= len(memory.samples(NAME)) <= 125
    for slot in memory.slots(NAME, 0.0, math.inf):
        assert slot.step == 300.0
        assert slot.low <= slot.mean <= slot.high
    first = memory.slots(NAME, 0.0, math.inf)[0]
    assert (first.start, first.count, first.low, first.high) == (0.0, 30, 0.0, 9 / 16)
    assert first.mean == pytest.approx(sum(range(10)) / 160)
    memory.close()


def test_five_minutes_become_hours_and_hours_leave(quick_disk):
    now = [0.0]
    memory = SqliteMemory(quick_disk, Retention(capacity=10), clock=lambda: now[0])
    now[0] = 2 * DAY
    memory.submit(rows(0, 2880, period=60.0)).result(60)
    memory.tidy(everything)
    now[0] = 61 * DAY
    memory.age_slots()
    slots = memory.slots(NAME, 0.0, math.inf)
    assert {slot.step for slot in slots} == {300.0, 3600.0}
    assert [slot.start for slot in slots] == sorted({slot.start for slot in slots})
    assert max(slot.start for slot in slots if slot.step == 3600.0) == DAY - 3600.0
    assert counted(memory) == 2880
    hour = slots[0]
    assert (hour.step, hour.count, hour.low, hour.high) == (3600.0, 60, 0.0, 9 / 16)
    assert hour.mean == pytest.approx(sum(range(10)) / 160)
    now[0] = 402 * DAY
    memory.age_slots()
    assert memory.slots(NAME, 0.0, math.inf) == []
    assert len(memory.samples(NAME)) == 10
    memory.close()


def test_the_oldest_slots_leave_when_there_are_too_many(quick_disk):
    memory = SqliteMemory(quick_disk, Retention(capacity=10, size=480.0), clock=lambda: 40_000.0)
    memory.submit(rows(0, 400, period=100.0)).result(60)
    memory.tidy(everything)
    memory.age_slots()
    slots = memory.slots(NAME, 0.0, math.inf)
    assert 0 < len(slots) <= 10
    assert slots[-1].start + 300.0 >= memory.samples(NAME)[0][0] - 100.0  # the latest stay
    assert memory.slot_bytes() <= 480
    memory.close()


def test_a_measurement_that_became_part_of_a_slot_is_refused_when_it_comes_again(quick_disk):
    memory = SqliteMemory(quick_disk, Retention(capacity=10))
    memory.submit(rows(0, 50)).result(60)
    memory.tidy(everything)
    result = memory.submit(rows(0, 50)).result(60)
    assert (result.stored, result.duplicates) == (0, 10)
    assert {error.code for _, error in result.refused} == {"measurement-too-old"}
    assert counted(memory) == 50
    memory.close()
    again = SqliteMemory(quick_disk, Retention(capacity=10))
    assert again.submit(rows(0, 50)).result(60).stored == 0
    again.close()


def test_a_series_with_slots_only_goes_on_behind_them(quick_disk):
    now = [0.0]
    memory = SqliteMemory(quick_disk, Retention(age=1000.0), clock=lambda: now[0])
    memory.submit(rows(0, 1, name=NAME)).result(60)
    now[0] = 2000.0
    assert memory.tidy(everything) == (NAME,)
    assert memory.series() == ()
    assert len(memory.slots(NAME, 0.0, math.inf)) == 1
    memory.store(Measurement(ADA, 2000.0, 0.5))
    assert counted(memory) == 2
    now[0] = 500 * DAY
    assert memory.tidy(everything) == (NAME,)
    memory.age_slots()
    memory.close()
    with closing(sqlite3.connect(quick_disk / FILE)) as connection:
        assert connection.execute("SELECT count(*) FROM series").fetchone() == (0,)


def test_the_database_is_its_owners_alone(tmp_path):
    memory = SqliteMemory(tmp_path / "new")
    memory.store(Measurement(ADA, 1.0, 0.5))
    for path in (tmp_path / "new").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path.name
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700
    memory.close()


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("PRAGMA user_version = 99", "database-newer"),
        ("PRAGMA application_id = 7", "database-foreign"),
    ],
)
def test_a_database_that_is_not_ours_to_write_is_refused(tmp_path, statement, code):
    SqliteMemory(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / FILE)) as connection:
        connection.execute(statement)
    before = (tmp_path / FILE).read_bytes()
    with pytest.raises(StorageError) as raised:
        SqliteMemory(tmp_path)
    assert (raised.value.code, raised.value.fields["file"]) == (code, str(tmp_path / FILE))
    assert (tmp_path / FILE).read_bytes() == before


@pytest.mark.parametrize("damage", ["no database at all", "middle"])
def test_a_damaged_database_is_named_with_its_remedy(tmp_path, damage):
    memory = SqliteMemory(tmp_path)
    memory.submit(rows(0, 3000)).result(60)
    memory.close()
    path = tmp_path / FILE
    data = bytearray(path.read_bytes())
    if damage == "middle":
        data[1024:] = random.Random(1).randbytes(len(data) - 1024)
        path.write_bytes(data)
    else:
        path.write_bytes(b"this is no database" * 100)
    with pytest.raises(StorageError) as raised:
        SqliteMemory(tmp_path)
    assert raised.value.code == "database-damaged"
    assert "backup" in str(raised.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_that_cannot_be_written_is_named(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(StorageError) as raised:
        SqliteMemory(tmp_path)
    assert raised.value.code == "database-unwritable"


def test_nothing_is_acknowledged_while_commits_fail_and_all_goes_on_afterwards(tmp_path):
    memory = SqliteMemory(tmp_path)
    memory.submit(rows(0, 10)).result(60)
    with closing(sqlite3.connect(tmp_path / FILE)) as other:
        # The writer finds a table that takes no rows, as it would find a disk that fails.
        other.execute(
            "CREATE TRIGGER broken BEFORE INSERT ON samples BEGIN SELECT RAISE(ABORT, 'broken'); END"
        )
        with pytest.raises(StorageError) as raised:
            memory.submit(rows(10, 20)).result(60)
        assert raised.value.code == "disk-failed"
        assert memory.problems() != []
        assert len(memory.samples(NAME)) == memory.summary(NAME).count == 10
        other.execute("DROP TRIGGER broken")
    assert memory.submit(rows(10, 20)).result(60).stored == 10
    assert memory.problems() == []
    memory.close()
    again = SqliteMemory(tmp_path)
    assert len(again.samples(NAME)) == 20
    again.close()


@pytest.mark.parametrize("gone", ["weather.db", "weather.db-wal"])
@pytest.mark.parametrize("replaced", [False, True])
def test_nothing_is_acknowledged_once_a_file_of_the_database_is_gone(tmp_path, gone, replaced):
    memory = SqliteMemory(tmp_path)
    memory.submit(rows(0, 10)).result(60)
    memory.samples(NAME)
    data = (tmp_path / gone).read_bytes()
    (tmp_path / gone).rename(tmp_path / "aside")
    if replaced:
        (tmp_path / gone).write_bytes(data)
    for _ in range(2):
        with pytest.raises(StorageError) as raised:
            memory.submit(rows(10, 20)).result(60)
        assert raised.value.code == "database-replaced"
        assert memory.problems() == [str(raised.value)]
    memory.close()
    if gone == "weather.db-wal" and not replaced:  # the writer still had it open
        again = SqliteMemory(tmp_path)
        assert len(again.samples(NAME)) == 10
        again.close()


def test_a_clean_end_leaves_no_write_ahead_log(tmp_path):
    memory = SqliteMemory(tmp_path)
    memory.submit(rows(0, 10)).result(60)
    memory.samples(NAME)
    memory.close()
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_check_refuses_what_is_no_database_of_ours(tmp_path):
    (tmp_path / "empty").touch()
    with closing(sqlite3.connect(tmp_path / "other")) as other:
        other.execute("CREATE TABLE mine (value)")
    codes = []
    for name in ("empty", "other"):
        with pytest.raises(StorageError) as raised:
            check_database(tmp_path / name)
        codes.append(raised.value.code)
    assert codes == ["database-damaged", "database-foreign"]


def test_a_copy_of_the_files_has_what_was_acknowledged_before_it(quick_disk):
    """The write-ahead log is copied while a batch is written, and cut at any place behind that."""
    memory = SqliteMemory(quick_disk / "live")
    chance = random.Random(5)
    for step in range(12):
        memory.submit(rows(100 * step, 100 * step + 100)).result(60)
        acknowledged = 100 * step + 100
        log = quick_disk / "live" / f"{FILE}-wal"
        whole = log.stat().st_size
        more = memory.submit(rows(acknowledged, acknowledged + 100))
        copy = quick_disk / f"copy-{step}"
        copy.mkdir()
        shutil.copy(quick_disk / "live" / FILE, copy)
        shutil.copy(log, copy)
        more.result(60)
        memory.submit([(NAME, 10.0 * (acknowledged + 100), 0.5)]).result(60)
        grown = (copy / log.name).stat().st_size
        os.truncate(copy / log.name, chance.randint(min(whole, grown), grown))
        found = SqliteMemory(copy)
        assert len(found.samples(NAME)) >= acknowledged
        found.close()
        assert check_database(copy / FILE) == []
        memory.close()
        shutil.rmtree(quick_disk / "live")
        memory = SqliteMemory(quick_disk / "live")
        memory.submit(rows(0, acknowledged)).result(60)
    memory.close()


def test_a_backup_is_a_whole_database_of_its_owner(quick_disk):
    memory = SqliteMemory(quick_disk)
    memory.submit(rows(0, 500)).result(60)
    target = quick_disk / "copy.db"
    assert backup_database(quick_disk / FILE, target) == target.stat().st_size
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    memory.submit(rows(500, 600)).result(60)  # the service goes on
    memory.close()
    assert check_database(target) == []
    with pytest.raises(FileExistsError):
        backup_database(quick_disk / FILE, target)
    restored = quick_disk / "restored"
    restored.mkdir()
    target.rename(restored / FILE)
    again = SqliteMemory(restored)
    assert len(again.samples(NAME)) == 500
    again.close()
    with pytest.raises(StorageError) as raised:
        backup_database(quick_disk / "none.db", quick_disk / "other")
    assert raised.value.code == "database-unwritable"
    assert not (quick_disk / "other").exists()
    assert not list(quick_disk.glob(".backup-*"))


def test_a_backup_ends_while_the_service_goes_on_writing(quick_disk):
    memory = SqliteMemory(quick_disk)
    memory.submit(rows(0, 1)).result(60)
    with closing(sqlite3.connect(quick_disk / FILE, isolation_level=None)) as large:
        large.execute("CREATE TABLE large (value BLOB)")
        large.execute("INSERT INTO large VALUES (zeroblob(12000000))")
    writing, ended = threading.Event(), threading.Event()

    def write():
        with closing(
            sqlite3.connect(quick_disk / FILE, isolation_level=None, timeout=60)
        ) as other:
            other.execute("PRAGMA synchronous=OFF")
            deadline = time.monotonic() + 20
            while not ended.is_set() and time.monotonic() < deadline:
                other.execute("UPDATE series SET created = created + 1")
                writing.set()

    writer = threading.Thread(target=write)
    writer.start()
    assert writing.wait(60)
    backup_database(quick_disk / FILE, quick_disk / "copy.db")
    assert writer.is_alive()  # the copy did not wait for the writer to stop
    ended.set()
    writer.join(60)
    memory.close()
    assert [*quick_disk.glob("*copy*"), *quick_disk.glob(".backup-*")] == [quick_disk / "copy.db"]
    assert check_database(quick_disk / "copy.db") == []


@pytest.fixture
def old(tmp_path):
    """Return a directory that apples 0.2 wrote, with `Retention(capacity=20)`: 200 and 20 measurements."""
    shutil.copytree(OLD, tmp_path / "nws")
    (tmp_path / "nws").chmod(0o700)
    return tmp_path / "nws"


def test_a_directory_of_apples_0_2_is_imported_once(old):
    from nws import ForecastDatabase

    small = Retention(capacity=20)
    database = ForecastDatabase(old, small, profile="classic", clock=lambda: OLD_BEGIN + 13_000)
    (line,) = database.mended
    assert line.startswith("40 measurements of 2 series were imported")
    assert line.endswith("remove " + str(old / "apples-0.2") + " once you need no way back")
    memory = database.memory
    expected = [(OLD_BEGIN + 60.0 * step, (step % 10) / 16) for step in range(180, 200)]
    assert memory.samples(NAME) == expected
    slots = memory.slots(NAME, 0.0, math.inf)
    assert [slot.start for slot in slots] == [OLD_BEGIN + 300.0 * step for step in range(36)]
    assert {slot.count for slot in slots} == {5}
    assert slots[0].mean == pytest.approx(sum(range(5)) / 5 / 16)
    assert len(memory.samples("latencyTcp/ada/bob")) == 20
    assert database.forecast(NAME)[0].samples == 20
    sent_again = memory.submit([(NAME, OLD_BEGIN + 60.0 * 179, 0.5)]).result(60)
    assert [error.code for _, error in sent_again.refused] == ["measurement-too-old"]
    database.close()
    assert sorted(path.name for path in (old / "apples-0.2").iterdir()) == [
        "archive", "shard-0", "states",
    ]  # fmt: skip
    again = ForecastDatabase(old, small, profile="classic")
    assert again.mended == []
    assert len(again.memory.samples(NAME)) == 20
    again.close()


@pytest.mark.parametrize("place", [0, 7, 40, 100, 1000, 5000])
def test_a_damaged_block_of_an_old_log_costs_little(old, place):
    from nws import ForecastDatabase

    (log,) = (old / "shard-0").glob("*.log")
    data = bytearray(log.read_bytes())
    data[place] ^= 0xFF
    log.write_bytes(bytes(data[:-5]))  # and its tail is torn
    database = ForecastDatabase(old, Retention(capacity=200), profile="classic")
    assert sum(each.count for each in database.summaries()) >= 218
    (line,) = database.mended
    assert line.endswith(f"could not be read: keep {old / 'apples-0.2'}")
    database.close()


@pytest.mark.parametrize(("cut", "what"), [(5, "a record that was not written whole"), (0, "")])
def test_the_torn_tail_of_an_old_log_is_no_damage(old, cut, what):
    from nws import ForecastDatabase

    (log,) = (old / "shard-0").glob("*.log")
    data = log.read_bytes()
    log.write_bytes(data[: len(data) - cut])
    database = ForecastDatabase(old, profile="classic")
    (line,) = database.mended
    assert what in line
    assert "damaged" not in line
    assert line.endswith("once you need no way back")
    database.close()


def test_a_damaged_slot_of_an_old_archive_is_counted(old):
    from nws import ForecastDatabase

    path = min((old / "archive").glob("*/*.rows"))
    data = bytearray(path.read_bytes())
    data[20] ^= 0xFF
    path.write_bytes(data)
    database = ForecastDatabase(old, profile="classic")
    (line,) = database.mended
    assert "0 damaged records, 1 slots and 0 bytes could not be read" in line
    database.close()


def test_an_import_that_was_cut_before_its_end_is_finished(old):
    from nws import ForecastDatabase

    ForecastDatabase(old, profile="classic").close()
    (old / "apples-0.2/shard-0").rename(old / "shard-0")
    again = ForecastDatabase(old, profile="classic")
    assert sum(each.count for each in again.summaries()) == 220
    (line,) = again.mended
    assert line.startswith("files of apples 0.2 lay beside the database")
    again.close()
    assert (old / "apples-0.2/shard-0").is_dir()
    assert not (old / "shard-0").exists()


def test_a_second_import_keeps_the_files_of_the_first(old):
    from nws import ForecastDatabase

    ForecastDatabase(old, profile="classic").close()
    (old / FILE).unlink()
    shutil.copytree(OLD / "shard-0", old / "shard-0")
    again = ForecastDatabase(old, profile="classic")
    assert again.series() != ()
    again.close()
    assert (old / "apples-0.2/shard-0").is_dir()
    assert (old / "apples-0.2-2/shard-0").is_dir()


def test_an_import_that_was_interrupted_begins_again(old):
    from nws import ForecastDatabase

    (old / f"{FILE}.new").write_bytes(b"half")
    database = ForecastDatabase(old, Retention(capacity=20), profile="classic")
    assert sum(each.count for each in database.summaries()) == 40
    database.close()


def test_late_rows_are_duplicates_if_they_are_stored_already(tmp_path):
    with closing(SqliteMemory(tmp_path, clock=lambda: 1e5)) as memory:
        day = rows(0, 8640)
        first = memory.submit([*day, *day[:9]]).result(30)
        assert (first.stored, first.duplicates, first.refused) == (8640, 9, [])
        again = memory.submit(day).result(30)
        assert (again.stored, again.duplicates, again.refused) == (0, 8640, [])
        other = memory.submit([(NAME, 15.0, 0.5)]).result(30)
        assert [error.code for _, error in other.refused] == ["measurement-late"]


def test_failed_write_of_a_backup_names_the_target(tmp_path):
    copy = tmp_path / "copy.db"
    with closing(SqliteMemory(tmp_path)) as memory:
        memory.submit(rows(0, 500)).result(30)
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
        try:
            with pytest.raises(OSError, check=lambda error: error.filename == str(copy)):
                backup_database(tmp_path / FILE, copy)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not copy.exists()
