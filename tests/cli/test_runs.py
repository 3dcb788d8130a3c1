"""`apples report` of what was recorded."""

import pytest
from commands import command
from views.documents import run

from apples.jobs import store


@pytest.fixture(autouse=True)
def own_state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def job():
    return store.create({}, "heat")


def finished(job, **news):
    job.write_result(run())
    job.write({**job.record(), "state": "finished", "exit_code": 0, **news})


def test_the_page_of_a_job_is_made_when_it_is_asked_for(job, tmp_path):
    finished(job)
    done = command("apples", "report", job.id[:6], "--json")
    assert done.code == 0, done.err
    page = tmp_path / f"{job.id}.html"
    assert done.document == {
        "schema": "apples.report/1",
        "page": page.name,
        "bytes": page.stat().st_size,
        "record": job.id,
    }
    assert "jacobi2d took" in page.read_text()
    assert command("apples", "report", job.id, "-o", tmp_path / "deep" / "p.html").code == 0
    assert (tmp_path / "deep" / "p.html").read_text() == page.read_text()


def test_a_page_that_cannot_be_written_is_one_line(job):
    finished(job)
    done = command("apples", "report", job.id, "-o", "/dev/null/x/y.html")
    assert (done.code, done.out) == (2, "")
    assert done.err == "apples: --out /dev/null/x/y.html: Not a directory\n"


def test_a_name_that_is_no_run_and_no_log_is_one_line(job):
    done = command("apples", "report", "abc" if job.id[0] != "a" else "bcd")
    assert done.code == 2
    assert "there is none" in done.err
    done = command("apples", "report", "some.swf")
    assert (done.code, done.err) == (
        2,
        "apples: --out: names the page to write about simulations\n",
    )


def test_a_page_that_nobody_would_write_is_refused_and_says_what_does():
    done = command("apples", "run", "--detach", "--report", "x.html")
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        "apples: --report: not with --detach; when the job is over: apples report JOB\n"
    )
    done = command("apples", "run", "--program", "--report", "x.html", "--", "true")
    assert done.code == 2
    assert done.err.startswith("apples: --report: not with --program")
    assert store.jobs() == []
