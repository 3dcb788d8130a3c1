"""The socket of a job's supervisor on which verbs ask for plans of moves."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from apples import RunSpec
from apples.errors import LaunchError, UsageError
from apples.io import socket_name
from apples.jobs import JobSpec, move_planner, store

SAMPLE = Path(__file__).parent / "sample"
FILES = [SAMPLE / f"{name}.toml" for name in ("hosts", "template", "user")]
POSITION = {
    "hosts": ["ada"], "rows": [60], "weights": [1.0], "malleable": True, "epoch": 0, "row_bytes": 480,
    "block_bytes": 0, "constant_bytes": 0, "rate": 0.0, "last_resize": None, "warm": [], "iteration": 5,
}  # fmt: skip


@pytest.fixture
def job(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / ("long" * 20)))
    return store.create(JobSpec(RunSpec(*FILES, weather="static")).document(), "")


@pytest.fixture
def serving(job):
    with move_planner.serving_plans(job):
        yield job


def test_supervisor_plans_the_rows_of_a_move_and_its_cost(serving):
    rows, estimate, places = move_planner.plan_move(
        serving, POSITION, weights={"ada": 1.0, "bob": 1.0}
    )
    assert sorted(rows) == ["ada", "bob"]
    assert sum(rows.values()) == 60
    assert (estimate.rows, places) == (rows, [])


def test_rejected_move_keeps_its_error(serving):
    with pytest.raises(UsageError) as rejected:
        move_planner.plan_move(serving, POSITION, weights={"zoe": 1.0})
    assert (rejected.value.code, rejected.value.fields["host"]) == ("host-unknown", "zoe")


def test_job_without_a_supervisor_makes_no_plan(job):
    with pytest.raises(LaunchError) as silent:
        move_planner.plan_move(job, POSITION)
    assert (silent.value.code, silent.value.fields["job"]) == ("job-unanswered", job.id)


def test_socket_is_its_owners_and_goes_with_the_supervisor(job):
    path = job.folder / "plan"
    path.touch()  # of a supervisor that was killed
    with move_planner.serving_plans(job):
        assert path.is_socket()
        assert path.stat().st_mode & 0o777 == 0o600
    assert not path.exists()


@pytest.mark.parametrize(
    "line", [b"rubbish\n", b"{}\n", b'{"position": 1}\n', b"[" * 9000 + b"\n", b""]
)
def test_invalid_request_harms_no_other(serving, line):
    with socket.socket(socket.AF_UNIX) as peer, socket_name(serving.folder / "plan") as name:
        peer.settimeout(60)
        peer.connect(name)
        peer.sendall(line)
        peer.shutdown(socket.SHUT_WR)
        assert b'"failure"' in peer.recv(1 << 16)
    assert move_planner.plan_move(serving, POSITION, weights={"bob": 1.0})[0] == {"bob": 60}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_gets_no_plan(serving):
    for folder in list(serving.folder.parents)[:6]:
        folder.chmod(0o755)
    serving.folder.chmod(0o755)
    (serving.folder / "plan").chmod(0o666)
    program = (
        "import os, socket, sys\n"
        "folder = os.open(sys.argv[1], os.O_PATH)\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "peer = socket.socket(socket.AF_UNIX)\n"
        "peer.connect(f'/proc/self/fd/{folder}/plan')\n"
        "print(peer.recv(100))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(serving.folder)], capture_output=True, text=True, check=False
    )  # fmt: skip
    assert "failure" not in done.stdout
    assert "rows" not in done.stdout
    assert "b''" in done.stdout or "ConnectionResetError" in done.stderr
