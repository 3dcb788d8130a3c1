"""`apples forget`: everything goes, or nothing while it is in use."""

import subprocess
import sys

import pytest
from commands import command, refused
from waiting import begun

from apples.jobs import store


@pytest.fixture(autouse=True)
def roots(tmp_path, monkeypatch):
    """Return a state directory and a cache of the test's own, each with a file of another kind."""
    found = []
    for kind in ("state", "cache"):
        monkeypatch.setenv(f"XDG_{kind.upper()}_HOME", str(tmp_path / kind))
        found.append(tmp_path / kind / "apples")
        found[-1].mkdir(parents=True)
    (found[0] / "measurements.json").write_text("{}")
    (found[1] / "compiled").mkdir()
    (found[1] / "compiled" / "step.nbi").write_bytes(b"12345")
    return found


def paths(roots):
    return [str(roots[0] / "measurements.json"), str(roots[1] / "compiled")]


def test_a_dry_run_lists_and_removes_nothing(roots):
    done = command("apples", "forget", "--dry-run", "--json")
    assert (done.code, done.document["removed"], done.document["bytes"]) == (0, False, 7)
    assert done.document["paths"] == paths(roots)
    assert (roots[0] / "measurements.json").exists()


def test_it_removes_records_measurements_and_cache(roots, tmp_path):
    job = store.create({}, "heat")
    job.write({**job.record(), "state": "finished", "exit_code": 0})
    (tmp_path / "kept").write_text("kept")
    (roots[0] / "link").symlink_to(tmp_path / "kept")
    done = command("apples", "forget", "--all", "--json")
    assert done.code == 0, done.err
    assert done.document["removed"] is True
    assert set(paths(roots)) < set(done.document["paths"])
    assert not any(root.exists() for root in roots)
    assert (tmp_path / "kept").read_text() == "kept"
    again = command("apples", "forget", "--all")
    assert (again.code, again.out.strip()) == (0, "removed 0 B")


def test_nothing_goes_while_a_job_runs(roots):
    job = store.create({}, "heat")
    with job.supervising():
        job.write({**job.record(), "state": "running"})
        error = refused("apples", "forget", "--all")
        assert (error["exit_code"], error["code"], error["fields"]["job"]) == (
            4,
            "job-running",
            job.id,
        )
    assert all(root.exists() for root in roots)


def test_nothing_goes_while_a_process_uses_a_file_there(roots):
    held = roots[0] / "measurements.json"
    script = f"f = open({str(held)!r}); print('open', flush=True); input()"
    words = [sys.executable, "-c", script]
    with begun(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "open\n"
        error = refused("apples", "forget", "--all")
        assert (error["exit_code"], error["code"]) == (4, "state-in-use")
        assert error["fields"]["processes"][0].startswith(f"{holder.pid} (")
        holder.stdin.close()
    assert held.exists()


def test_nothing_goes_while_a_process_uses_a_file_by_its_real_path(roots, tmp_path, monkeypatch):
    """The state directory may be a symbolic link, for example to a larger disk."""
    (tmp_path / "link").symlink_to(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "link" / "state"))
    words = [sys.executable, "-c", "print('open', flush=True); input()"]
    with begun(
        words, cwd=roots[0], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout.readline() == "open\n"
        assert refused("apples", "forget", "--all")["code"] == "state-in-use"
        holder.stdin.close()
    assert (roots[0] / "measurements.json").exists()


def test_nothing_goes_while_a_lab_is_there(roots):
    (roots[0] / "labs" / "pair").mkdir(parents=True)
    error = refused("apples", "forget", "--all")
    assert (error["exit_code"], error["code"]) == (4, "state-in-use")
    assert "apples lab down pair" in error["message"]


def test_without_an_option_it_removes_nothing():
    error = refused("apples", "forget")
    assert (error["exit_code"], error["code"], error["fields"]["options"]) == (
        2,
        "option-missing",
        ["--all", "--dry-run"],
    )
