"""What an operator relies on: word to systemd, damage set aside and named, problems that end."""

import asyncio
import gc
import shutil
import socket
import subprocess
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from threading import Event

import pytest

from nws import (
    ForecastDatabase,
    Listen,
    Measurement,
    RequestHandler,
    ScoredForecaster,
    SeriesName,
    ServiceManager,
    Serving,
    classic,
    save_and_tidy,
)

ADA = SeriesName("availableCpu", "ada")
UNIT = Path(__file__).parents[2] / "packaging/apples-nws.service"


@pytest.fixture
def manager(tmp_path):
    """Return a socket that hears what a service tells, and the environment that names it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as hearing:
        hearing.bind(str(tmp_path / "notify"))
        hearing.settimeout(60)
        yield hearing, {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "2000000"}


def test_systemd_hears_ready_alive_and_ending(manager):
    hearing, environment = manager
    supervisor = ServiceManager(environment)
    supervisor.ready("answers")
    for now in (0.0, 0.5, 1.0, 1.1):
        supervisor.alive(now)
    supervisor.ending()
    told = [hearing.recv(100) for _ in range(4)]
    assert told == [b"READY=1\nSTATUS=answers", b"WATCHDOG=1", b"WATCHDOG=1", b"STOPPING=1"]


def test_without_systemd_nothing_is_told():
    supervisor = ServiceManager({"WATCHDOG_USEC": "1000"})
    assert supervisor.every is None
    supervisor.ready("answers")
    supervisor.alive(0.0)


def test_a_watchdog_of_another_process_is_not_ours(manager):
    assert ServiceManager({**manager[1], "WATCHDOG_PID": "1"}).every is None
    assert ServiceManager(manager[1]).every == 1.0


def test_a_service_tells_that_it_answers_and_that_its_loop_turns(manager, monkeypatch, quick_disk):
    hearing, environment = manager
    for name, value in {**environment, "WATCHDOG_USEC": "1"}.items():
        monkeypatch.setenv(name, value)
    with Serving(quick_disk / "nws", Listen(port=0), database={"engine": "numpy"}):
        assert hearing.recv(100).startswith(b"READY=1")
        assert hearing.recv(100) == b"WATCHDOG=1"
        assert hearing.recv(100) == b"WATCHDOG=1"
    told = {hearing.recv(100)}
    while b"STOPPING=1" not in told:
        told.add(hearing.recv(100))
    assert told <= {b"WATCHDOG=1", b"STOPPING=1"}


def fill(address):
    """Send into a queue until it has no room, and return how many were taken."""
    taken = 0
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out, suppress(BlockingIOError):
        out.setblocking(False)
        while True:
            out.sendto(b"x", address)
            taken += 1
    return taken


def test_a_manager_that_does_not_listen_keeps_nobody_waiting_and_misses_nothing(manager):
    hearing, environment = manager
    taken = fill(environment["NOTIFY_SOCKET"])
    supervisor = ServiceManager(environment)
    supervisor.ready("answers")  # this would wait for room
    supervisor.alive(0.0)
    assert {hearing.recv(100) for _ in range(taken)} == {b"x"}
    supervisor.alive(0.1)  # neither is lost: both are said as soon as there is room
    assert hearing.recv(100) == b"READY=1\nSTATUS=answers"
    assert hearing.recv(100) == b"WATCHDOG=1"


@asynccontextmanager
async def kept(work, condition):
    """Run a work of the keeping, and go on once a condition holds."""
    task = asyncio.create_task(work)
    try:
        async with asyncio.timeout(60):
            while not condition():
                assert not task.done(), task.exception()
                await asyncio.sleep(0.001)  # between two looks
        yield task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


class FailingDatabase(ForecastDatabase):
    """A database whose keeping fails as long as there is a reason."""

    reason = None
    saving = None
    saves = 0

    def save(self, after=1):
        self.saves += 1
        if self.saving is not None:
            self.saving.wait(60)
        if self.reason is not None:
            raise self.reason
        return super().save(after)


@pytest.mark.parametrize(
    "reason", [OSError(28, "No space left"), ValueError("odd"), MemoryError()]
)
def test_saving_that_fails_in_any_way_is_a_problem_until_it_succeeds(quick_disk, reason):
    database = FailingDatabase(quick_disk)
    handler = RequestHandler(database, "secret", tidy_seconds=0.001)
    database.reason = reason

    async def life():
        async with kept(save_and_tidy(handler), lambda: handler.failing):
            (problem,) = handler.status().problems
            assert str(reason) in problem
            assert handler.status().status == "impaired"
            database.reason = None
            while handler.failing:
                await asyncio.sleep(0.001)
        assert handler.status().problems == []

    asyncio.run(life())
    database.close(save=False)


def test_the_end_of_a_service_does_not_wait_for_the_next_saving(quick_disk):
    database = FailingDatabase(quick_disk)
    database.saving = Event()

    async def life():
        work = save_and_tidy(RequestHandler(database, "secret", tidy_seconds=0.0))
        async with kept(work, lambda: database.saves) as task:
            task.cancel()
            await asyncio.wait([task], timeout=60)
            database.saving.set()
            assert task.cancelled()

    asyncio.run(life())
    database.close(save=False)


class FailingForecaster(ScoredForecaster):
    def update(self, measurement):
        if measurement.series.host == "bad":
            raise ValueError("cannot be followed")
        super().update(measurement)


def test_a_series_that_cannot_be_followed_keeps_no_other_waiting(quick_disk):
    database = ForecastDatabase(
        quick_disk, profile="mine", make=lambda _: FailingForecaster(classic())
    )
    for host in ("bad", "ada", "bob"):
        for at in range(20):
            database.store(Measurement(SeriesName("availableCpu", host), 100.0 + at, 0.5))
    assert [database.forecast(f"availableCpu/{host}")[0].samples for host in ("ada", "bob")] == [
        20, 20,
    ]  # fmt: skip
    assert database.forecast("availableCpu/bad")[0] is None
    (problem,) = database.problems()
    assert "ValueError('cannot be followed')" in problem
    database.save(after=1)
    assert database.problems() == [problem]
    answer = asyncio.run(RequestHandler(database, "secret").forecast("availableCpu/bad"))
    assert answer.value is None
    assert "cannot be followed" in answer.remarks[0]
    database.close()


@pytest.mark.parametrize("own", [False, True])
def test_the_collector_leaves_alone_what_is_there_only_where_the_process_is_the_services(
    quick_disk, own
):
    database = FailingDatabase(quick_disk)
    database.store(Measurement(ADA, 100.0, 0.5))
    handler = RequestHandler(database, "secret", own_process=own, tidy_seconds=0.001)
    before = gc.get_freeze_count()

    async def life():
        async with kept(save_and_tidy(handler), lambda: database.saves > 1):
            assert (gc.get_freeze_count() > before) is own

    try:
        asyncio.run(life())
    finally:
        if own:
            gc.unfreeze()
    database.close(save=False)


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd")
def test_the_unit_is_understood_and_little_exposed():
    done = subprocess.run(
        [shutil.which("systemd-analyze"), "security", "--offline=true", "--threshold=15", UNIT],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-300:] + done.stderr
    assert "nknown" not in done.stderr


def test_a_damaged_probing_secret_is_set_aside_and_named(quick_disk):
    home = quick_disk / "nws"
    with Serving(home, Listen(port=0), database={"engine": "numpy"}) as serving:
        before = serving.handler.secret
    (home / "probing").write_bytes(b"\xff\xfe no secret")
    with Serving(home, Listen(port=0), database={"engine": "numpy"}) as serving:
        assert serving.handler.secret != before
        (told,) = serving.handler.status().mended
        assert serving.handler.status().status == "ok"
    (aside,) = home.glob("probing.bad-*")
    assert aside.read_bytes() == b"\xff\xfe no secret"
    assert aside.name in told
    assert (home / "probing").stat().st_mode & 0o777 == 0o600
