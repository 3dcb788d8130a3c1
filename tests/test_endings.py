"""A run of pytest whose tests hang ends, says of each that it did, and has the status of tests that failed."""

import subprocess
import sys
from pathlib import Path

import pytest
from waiting import begun, until

pytestmark = pytest.mark.more
CONFTEST = f"""
import sys
sys.path.append({str(Path(__file__).parent)!r})
import endings
endings.AGAIN_SECONDS, endings.END_SECONDS, endings.LEAVE_SECONDS = 0.5, 1.0, 0.5
def pytest_configure(config):
    config.pluginmanager.register(endings)
"""
HANGS = """
import subprocess, threading, time, pytest

@pytest.fixture
def end():
    yield
    time.sleep(1000)

@pytest.fixture(scope="session")
def last():
    yield
    time.sleep(1000)

def test_call(): time.sleep(1000)
def test_unwinding():
    away = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(["sleep", "1000"], **away): time.sleep(1000)
def test_end_after_passing(end): pass
def test_end_after_failing(end): assert False
def test_thread(): threading.Thread(target=time.sleep, args=(1000,), name="left").start()
def test_last(last): time.sleep(0.5)
def test_never(): pass
"""


@pytest.mark.parametrize("workers", [(), ("-n1",)])
def test_a_run_ends_though_calls_ends_of_fixtures_and_threads_hang(workers, tmp_path):
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_hangs.py").write_text(HANGS)
    (tmp_path / "pytest.ini").write_text("[pytest]\ntimeout = 1\ntimeout_method = signal\n")
    words = ["-q", "--tb=line", "-p", "no:schemathesis", "-p", "no:cacheprovider", *workers]
    argv = [sys.executable, "-m", "pytest", *words, "test_hangs.py"]
    ways = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with begun(argv, cwd=tmp_path, **ways) as run:
        said, _ = run.communicate(timeout=120)
    lines = said.splitlines()
    failed = {line.split()[1].partition("::")[2] for line in lines if line.startswith("FAILED ")}
    errors = {line.split()[1].partition("::")[2] for line in lines if line.startswith("ERROR ")}
    assert run.returncode == 1, said
    assert failed == {"test_call", "test_unwinding", "test_end_after_failing"}, said
    assert errors >= {"test_end_after_passing", "test_end_after_failing"}, said
    assert workers or "keep pytest from ending: left" in said, said


@pytest.mark.parametrize("deaf", ["", "trap '' TERM; "])
def test_a_program_that_a_test_leaves_is_ended_with_what_it_has_started(deaf, tmp_path):
    script = f"{deaf}sleep 1000 & echo $! > child.new; mv child.new child; wait"
    with pytest.raises((AssertionError, subprocess.TimeoutExpired)):  # noqa: SIM117, PT012
        with begun(["bash", "-c", script], 1.0, cwd=tmp_path):
            child = int(until((tmp_path / "child").exists) and (tmp_path / "child").read_text())
            until(lambda: False, 0.0)
    until(lambda: not _runs(child))


def _runs(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
