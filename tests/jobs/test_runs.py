"""`apples jobs | report | compare`: of what was recorded."""

import json
import os

import pytest
from commands import command, refused
from pages.documents import demo, plan, run, strip

from apples.jobs import CLEAR, recorded, store


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


def test_list_without_records_needs_no_folder_that_can_be_made(monkeypatch):
    monkeypatch.setenv(
        "XDG_STATE_HOME", "/proc/none"
    )  # no user can make a folder there, root included
    done = command("apples", "jobs", "--json")
    assert (done.code, done.document["jobs"], done.document["runs"]) == (0, [], [])
    assert refused("apples", "report", "abc")["code"] == "run-unknown"


def test_a_page_that_cannot_be_written_is_one_line(job):
    finished(job)
    done = command("apples", "report", job.id, "-o", "/dev/null/x/y.html", "--json")
    assert (done.code, done.failure["code"]) == (2, "file-unwritable")
    assert done.failure["fields"]["file"].startswith("/dev/null/x")


def test_a_name_that_is_no_run_and_no_log_is_one_line(job, tmp_path):
    name = "abc" if job.id[0] != "a" else "bcd"
    failure = refused("apples", "report", name)
    assert (failure["exit_code"], failure["code"]) == (2, "run-unknown")
    assert refused("apples", "report", "some.swf")["code"] == "run-unknown"
    (log := tmp_path / "some.swf").touch()
    failure = refused("apples", "report", str(log))
    assert (failure["exit_code"], failure["code"]) == (2, "option-missing")
    assert failure["fields"] == {"option": "--out"}


def record(seconds, spread=0.05, stretches=20, **settings):
    """Record a run whose stretches of one iteration take `seconds`, give or take `spread` of it."""
    own = plan([strip("ada", 60), strip("bob", 40)], iterations=stretches + 1)
    own["application"]["parameters"] |= settings
    document = run(seconds=seconds) | {"plan": own}
    with recorded({}, pytest.fail) as recorder:
        recorder.job.plan.write_text(json.dumps(own))
        recorder.note(
            name="jacobi2d", blueprint="blocked", hosts=["ada", "bob"], predicted_seconds=2.6
        )
        total = 0.0
        for k in range(stretches + 1):
            total += seconds * (1 + spread * (-1) ** k)
            hosts = [{"host": h, "compute_seconds": 0.7 * total, "communicate_seconds": 0.1 * total,
                      "wait_seconds": None, "processor_seconds": None} for h in ("ada", "bob")]  # fmt: skip
            recorder.event("progress", iteration=k + 1, iterations=99, seconds=total, hosts=hosts)
        recorder.state["measured_seconds"] = total
        recorder.finished(document)
    return recorder.id


def in_order(*ids):
    """Set these records apart by more than the step in which a kernel counts the times of files."""
    for k, one in enumerate(ids):
        os.utime(store.folder() / one / "order.json", (k, k))


@pytest.fixture
def silent_scheduler(tmp_path, monkeypatch):
    """A scheduler's directory in which nobody listens, and two attempts at its job 7."""
    folder = tmp_path / "local"
    folder.mkdir()
    monkeypatch.setenv("APPLES_SCHEDULER", str(folder))
    others = [
        store.create({"scheduled": {"scheduler": name, "job": number, "attempt": 1}}, "heat").id
        for name, number in (("local", 70), ("other", 7))
    ]
    attempts = [
        store.create({"scheduled": {"scheduler": "local", "job": 7, "attempt": k}}, "heat")
        for k in (1, 2)
    ]
    in_order(*(one.id for one in attempts), *others)
    return attempts


def test_record_of_last_attempt_is_found_while_scheduler_does_not_answer(silent_scheduler):
    _, last = silent_scheduler
    assert command("apples", "logs", "local.7", "--json").document["id"] == last.id
    failure = refused("apples", "logs", "local.8")
    assert (failure["exit_code"], failure["code"]) == (4, "scheduler-unreachable")


def test_damaged_order_hides_no_other_record(silent_scheduler):
    first, last = silent_scheduler
    (last.folder / "order.json").write_text("[]")
    assert command("apples", "logs", "local.7", "--json").document["id"] == first.id


def test_messages_option_takes_job_of_scheduler(silent_scheduler, monkeypatch):
    _, last = silent_scheduler
    last.write_result(run())
    words = ("topology", "fit", "package:1 core:2 pu:1", "--ranks", "2", "--messages")
    monkeypatch.delenv("APPLES_SCHEDULER")
    failure = refused("apples", *words, "local.7")
    assert failure["fields"]["file"] == str(last.result)
    failure = refused("apples", *words, "local.8")
    assert (failure["exit_code"], failure["code"]) == (2, "run-unknown")
    assert failure["fields"]["option"] == "--messages"


def test_every_run_is_in_the_list_with_what_was_predicted_and_measured():
    empty = {"schema": "apples.jobs/1", "jobs": [], "runs": []}
    assert command("apples", "jobs", "--json").document == empty
    assert "apples run" in command("apples", "jobs").err
    done, job = record(0.01), store.create({}, "heat")
    in_order(done, job.id)
    with job.supervising():
        job.write({**job.record(), "state": "running"})
        first, second = command("apples", "jobs", "--json").document["runs"]
        assert next(iter(first)) == "id"
        assert (first["id"], first["application"], first["state"]) == (
            done,
            "jacobi2d",
            "finished",
        )
        assert (first["hosts"], first["verified"]) == (["ada", "bob"], True)
        assert first["predicted_seconds"] == 2.6
        assert first["measured_seconds"] == pytest.approx(0.21, rel=0.01)
        assert (second["id"], second["state"], second["kind"]) == (job.id, "running", "job")
        text = command("apples", "jobs").out
    assert f"{done}  finished  jacobi2d (blocked)" in text
    assert text.endswith(f"apples report {job.id}\n")


def test_a_run_of_an_earlier_version_has_its_figures_in_the_list(job):
    job.write_result(run())
    (one,) = command("apples", "jobs", "--json").document["runs"]
    assert (one["verified"], one["measured_seconds"]) == (True, pytest.approx(0.0139 * 227))


def test_old_records_are_removed_when_that_is_asked_for():
    first, second = record(0.01), record(0.01)
    in_order(first, second)
    done = command("apples", "jobs", "--prune", "--older", "0", "--json")
    assert done.document["runs"] == []
    assert done.document["pruned"] == [first, second]
    assert done.document["freed_bytes"] > 1000
    assert " 2 records" in done.err
    record(0.01)
    assert command("apples", "jobs", "--prune", "--json").document["pruned"] == []


def test_runs_differ_clearly_only_where_their_own_spreads_do_not_meet():
    slow, alike, fast, short = record(0.02), record(0.021), record(0.01), record(0.02, stretches=3)
    done = command("apples", "report", slow, alike, fast, short, "--json")
    figures = {one["figure"]: one["runs"] for one in done.document["figures"]}
    for name in ("measured", "compute", "communicate"):
        assert [one["clear"] for one in figures[name]] == [False, False, True, None], name
    assert [one["clear"] for one in figures["predicted"]] == [None] * 4
    assert figures["measured"][2]["ratio"] == pytest.approx(0.5)
    lines = command("apples", "report", slow, alike, fast, short).out.splitlines()
    expected = [(alike, "1.05", False), (fast, "0.50", True), (short, "", None)]
    for line, (run_id, ratio, clear) in zip(lines[:3], expected, strict=True):
        assert run_id in line
        assert slow in line
        assert ratio in line
        assert [verdict for verdict in CLEAR.values() if verdict and verdict in line] == (
            [CLEAR[clear]] if CLEAR[clear] else []
        )


def test_what_runs_were_given_is_compared_too():
    document = command("apples", "report", record(0.02), record(0.02, tol=3), "--json").document
    assert document["differ"] == {"tol": [None, 3]}
    assert document["same"]["blueprint"] == "minimum_execution_time"
    assert document["same"]["rows"] == [60, 40]


def test_comparison_with_a_run_without_a_plan_is_refused(job):
    failure = refused("apples", "report", job.id, record(0.01))
    assert (failure["exit_code"], failure["code"]) == (2, "plan-missing")
    assert failure["fields"]["run"] == job.id


def test_the_page_of_a_run_that_was_stopped_shows_what_was_measured(tmp_path):
    name = record(0.01)
    store.record(name).result.unlink()
    state = store.record(name)
    state.write({**state.record(), "state": "cancelled", "reason": "interrupted"})
    assert command("apples", "report", name).code == 0
    page = (tmp_path / f"{name}.html").read_text()
    assert "cancelled" in page
    assert "interrupted" in page
    (state.folder / "events").unlink()
    assert command("apples", "report", name, "-o", "b.html").code == 0
    without = (tmp_path / "b.html").read_text()
    assert without.count("<h2") < page.count("<h2"), "nothing was measured"


def test_a_demo_has_a_page_too(tmp_path):
    with recorded({}, pytest.fail, kind=store.DEMO) as recorder:
        recorder.finished(demo())
    assert command("apples", "report", recorder.id).code == 0
    assert "Run-time AppLeS" in (tmp_path / f"{recorder.id}.html").read_text()


def test_a_run_that_is_no_job_is_not_moved_but_its_log_is_shown():
    name = record(0.01)
    for words in (("resize", name, "--balance"), ("cancel", name), ("restart", name)):
        failure = refused("apples", *words)
        assert (failure["exit_code"], failure["code"]) == (2, "run-not-a-job")
        assert name in failure["message"]
    store.record(name).log.write_text("hello\n")
    assert command("apples", "logs", name).out == "hello\n"
    assert json.loads(command("apples", "wait", name, "--json").out)["schema"] == "apples.run/1"
    assert command("apples", "jobs", "--json").document["jobs"] == []


def test_a_page_that_nobody_would_write_is_refused_and_says_what_does():
    failure = refused("apples", "run", "--detach", "--report", "x.html")
    assert (failure["exit_code"], failure["code"]) == (2, "option-conflict")
    assert failure["fields"]["options"] == ["--report", "--detach"]
    assert store.jobs() == []
