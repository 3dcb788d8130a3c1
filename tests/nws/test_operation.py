"""What an operator relies on: word to systemd, damage set aside and named, problems that end."""

import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from nws import ForecastDatabase, Listen, Measurement, SeriesName, Serving
from nws.service.service_manager import ServiceManager

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


def test_a_torn_tail_that_was_cut_is_told_and_no_problem_any_more(quick_disk):
    database = ForecastDatabase(quick_disk)
    database.store(Measurement(ADA, 100.0, 0.5))
    database.close()
    (segment,) = [path for path in quick_disk.glob("shard-*/*.log") if path.stat().st_size > 100]
    whole = segment.stat().st_size
    with segment.open("ab") as file:
        file.write(b"\xa7W torn")
    again = ForecastDatabase(quick_disk)
    assert again.problems() == []
    assert f"bytes {whole}-{whole + 7}" in again.mended()[0]
    assert segment.stat().st_size == whole
    again.close()


def test_a_state_that_could_not_be_read_is_a_problem_until_the_next_is_saved(quick_disk):
    database = ForecastDatabase(quick_disk)
    for step in range(30):
        database.store(Measurement(ADA, 100.0 + step, 0.5))
    database.forecast(str(ADA))
    database.close()
    path = quick_disk / "states"
    path.write_bytes(path.read_bytes()[:-20] + b"x" * 19 + b"\n")
    again = ForecastDatabase(quick_disk)
    assert "a bad line" in again.problems()[0]
    again.forecast(str(ADA))
    again.save()
    assert again.problems() == []
    again.close()


def test_an_archive_that_cannot_be_written_is_a_problem_until_it_can(quick_disk):
    database = ForecastDatabase(quick_disk, clock=lambda: 10_000.0)
    for step in range(30):
        database.store(Measurement(ADA, 100.0 * step, 0.5))
    folder = quick_disk / "archive" / "300"
    folder.rmdir()
    folder.write_bytes(b"")
    with pytest.raises(NotADirectoryError):
        database.roll_up()
    assert database.problems() == [f"{quick_disk / 'archive'}: Not a directory"]
    folder.unlink()
    folder.mkdir()
    assert database.roll_up() == 10
    assert database.problems() == []
    database.close(save=False)
