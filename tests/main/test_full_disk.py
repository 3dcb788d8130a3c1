"""A full disk ends every verb that writes with exit code 4, after its answer, and what was there is as it was."""

import re
from pathlib import Path

import pytest
from commands import command
from pages.documents import run

from apples.jobs import recorded, store

SAMPLE = Path(__file__).parents[1] / "jobs" / "sample"
LOG = Path(__file__).parents[1] / "simulation" / "sample.swf.gz"


@pytest.fixture(autouse=True)
def own_state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def heat(tmp_path):
    """The options for a program that writes its result."""
    assert command("hat", "new", "heat", "--into", tmp_path).code == 0
    names = ("hosts", "template", "user")
    return [word for n in names for word in (f"--{n}", tmp_path / "heat" / f"{n}.toml")]


def refused(done, place, code="disk-full"):
    """Whether a command ended as on a full disk, in one line; the error of a program has another code."""
    assert done.code == 4, done.err
    last = done.err.splitlines()[-1]
    return re.fullmatch(rf"(apples|nws|hat): .*{place}.* \[{code}\]", last) is not None


def test_the_page_of_a_run(full):
    with recorded({}, pytest.fail) as recorder:
        recorder.finished(run())
    page = full / "page.html"
    done = command("apples", "report", recorder.id, "--timeline", "-o", page)
    assert refused(done, f"--out {page}")
    assert done.out, "its answer comes first"
    assert [path.name for path in full.iterdir()] == ["ballast"]


@pytest.mark.more
@pytest.mark.parametrize("pictures", [False, True])
def test_the_page_of_simulations_and_their_pictures(full, tmp_path, pictures):
    where = [tmp_path / "page.html", "--pictures", full] if pictures else [full / "page.html"]
    done = command("apples", "report", LOG, "--policy", "easy", "--out", *where)
    assert refused(done, str(full))
    assert "easy" in done.out
    assert [path.name for path in full.iterdir()] == ["ballast"]
    assert command("apples", "report", LOG, "--policy", "easy", "--json", "--out", *where).document


@pytest.mark.more
def test_a_table_of_jobs(full):
    done = command("apples", "simulate", LOG, "--policy", "easy", "--csv", full / "jobs.csv")
    assert refused(done, f"{full}/jobs.csv")
    assert done.out
    assert [path.name for path in full.iterdir()] == ["ballast"]


@pytest.mark.more
def test_the_results_of_a_sweep(full):
    given = ("--policy", "easy", "--processors", "64", "--workers", "1")
    assert refused(command("apples", "simulate", LOG, *given, "--grid", full / "r.jsonl"), full)


def test_a_new_application(full):
    assert refused(command("hat", "new", "heat", "--into", full), f"{full}/heat")
    assert [path.name for path in full.iterdir()] == ["ballast"]


def test_pictures_of_forecasts(full, tmp_path):
    lines = [f"{1000 + 10 * k},{k % 9}" for k in range(200)]
    (tmp_path / "history.csv").write_text("\n".join(["timestamp,value", *lines]))
    done = command("nws", "backtest", tmp_path / "history.csv", "--plot", full)
    assert refused(done, f"--plot {full}")
    assert "history" in done.out


@pytest.mark.more
@pytest.mark.mpi
def test_a_speed_that_is_not_kept(full, heat, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(full / "state"))
    done = command("apples", "calibrate", *heat)
    assert refused(done, "learned-heat")
    assert "here" in done.out


@pytest.mark.more
@pytest.mark.mpi
def test_a_job_and_the_result_of_a_run(full, heat, monkeypatch):
    given = (*heat, "--set", "grid=300", "--weather", "static")
    done = command("apples", "run", *given, "--output", full / "out")
    assert refused(done, f"{full}/out/result.npy", "resources-missing")
    assert not list((full / "out").iterdir())
    (record,) = store.records()
    assert (record.record()["state"], record.record()["exit_code"]) == ("failed", 4)
    assert [one for one in store.read_events(record.events) if one["event"] == "progress"]

    monkeypatch.setenv("XDG_STATE_HOME", str(full / "state"))
    assert refused(command("apples", "run", "--detach", *given), full)
    monkeypatch.delenv("XDG_STATE_HOME")


@pytest.mark.mpi
def test_the_result_of_the_example(full):
    example = Path(__file__).parents[2] / "examples" / "jacobi2d"
    names = ("hosts", "template", "user")
    given = [word for n in names for word in (f"--{n}", example / f"{n}.toml")]
    done = command(
        "apples", "run", *given, "--set", "grid=300", "--set", "iterations=20", "--weather", "static",
        "--blueprint", "single_host", "--output", full / "out",
    )  # fmt: skip
    assert refused(done, f"{full}/out/result.npy", "resources-missing")


@pytest.mark.more
@pytest.mark.mpi
def test_the_page_of_a_run_that_is_done_is_a_warning_and_the_old_one_stays(full, heat):
    page = full / "page.html"
    (full / "ballast").unlink()
    page.write_text("the page before")
    fill(full)
    done = command("apples", "run", *heat, "--weather", "static", "--report", page)
    assert done.code == 0, done.err
    assert f"warning: --report {page}: " in done.err
    assert done.out
    assert page.read_text() == "the page before"
    assert sorted(path.name for path in full.iterdir()) == ["ballast", "page.html"]


def fill(folder):
    with (folder / "ballast").open("wb", buffering=0) as ballast:
        try:
            while True:
                ballast.write(bytes(4096))
        except OSError:
            pass
