"""The service of jobs from Python, with real MPI: nothing is printed, every answer is a typed value."""

from pathlib import Path

import pytest
from waiting import until

from apples import DeadlineError, InfeasibleError, LaunchError, RunSpec, UsageError, jobs
from apples.jobs import timeline_document
from apples.launch import marked

HERE = Path(__file__).parent / "sample"
FILES = [HERE / f"{name}.toml" for name in ("hosts", "template", "user")]
LONG = {"iterations": 1_000_000, "pause": 0.005}

pytestmark = pytest.mark.mpi


@pytest.fixture(autouse=True)
def own_state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    yield
    for job in jobs.list_jobs():
        jobs.cancel(job.id)


def submit(**settings):
    return jobs.submit(RunSpec(*FILES, settings=settings, weather="static", verify=False))


def test_file_of_working_folder_takes_place_of_no_module_of_supervisor(tmp_path, monkeypatch):
    for name in ("random", "numbers"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(1)\n")
    monkeypatch.chdir(tmp_path)
    record = jobs.run_program(jobs.ProgramSpec(("echo", "done"), HERE / "hosts.toml", ("ada",)))
    assert record.exit_code == 0


@pytest.mark.more
def test_a_job_is_submitted_moved_and_cancelled_without_a_word(capfd):
    job = submit(**LONG)
    assert (job.state, job.hosts, job.rows) == ("running", ("ada", "bob", "cleo"), (20, 20, 20))

    moved = jobs.resize(job.id, {"ada": 1, "dan": 0.5})
    assert dict(zip(moved.status.hosts, moved.status.rows, strict=True)) == {"ada": 40, "dan": 20}
    assert moved.status.epoch == 1
    assert moved.seconds > 0
    assert set(moved.phases) >= {"wait", "redistribute", "leave"}

    swapped = jobs.migrate(job.id, "dan", "bob").status
    assert dict(zip(swapped.hosts, swapped.rows, strict=True)) == {"ada": 40, "bob": 20}
    balanced = jobs.rebalance(job.id[:4]).status
    assert (set(balanced.hosts), sum(balanced.rows)) == ({"ada", "bob"}, 60)

    with pytest.raises(UsageError) as refused:
        jobs.resize(job.id, {"zoe": 1})
    assert (refused.value.code, refused.value.fields["host"]) == ("host-unknown", "zoe")
    with pytest.raises(UsageError) as refused:
        jobs.resize(job.id, {"ada": 0})
    assert refused.value.code == "value-range"
    assert refused.value.fields == {"field": "weight", "host": "ada", "value": 0, "bound": 0}
    with pytest.raises(UsageError) as refused:
        jobs.migrate(job.id, "dan", "cleo")
    assert (refused.value.code, refused.value.fields["host"]) == ("host-unknown", "dan")
    assert refused.value.fields["option"] == "--from"
    assert jobs.status(job.id).epoch == 3

    with pytest.raises(DeadlineError):
        jobs.wait(job.id, seconds=0.0)
    assert jobs.cancel(job.id).state == "cancelled"
    assert marked(job.id) == []
    with pytest.raises(LaunchError) as refused:
        jobs.rebalance(job.id)
    assert refused.value.code == "job-ended"
    assert refused.value.fields == {"job": job.id, "value": "cancelled"}
    assert capfd.readouterr() == ("", "")


def test_job_that_prints_more_than_a_pipe_holds_gets_the_hosts_that_it_asks_for():
    """It prints before the safe point for which the supervisor's own resize waits."""
    job = submit(iterations=500, ask="5 2", prints=1 << 17)
    record = jobs.wait(job.id, 200.0)
    assert record.state == "finished", record.reason
    assert [len(one["hosts"]) for one in record.events if one["event"] == "moved"] == [2]


@pytest.mark.more
def test_of_moves_one_right_after_another_every_one_is_on_record_and_in_the_timeline():
    job = submit(**LONG)
    places = (
        {"ada": 1, "dan": 1},
        {"bob": 1},
        {"ada": 1, "bob": 1, "cleo": 1},
        {"cleo": 3, "dan": 1},
    )
    made = [jobs.resize(job.id, places[k % 4]).status for k in range(16)]

    def enough():
        """Whether the program has reported from where it is now, so that there is something to draw."""
        events = jobs.run_record(job.id).events
        last = [k for k, one in enumerate(events) if one["event"] == "moved"]
        return len(last) >= 16 and any(
            one["event"] == "progress" for one in events[last[-1] + 1 :]
        )

    until(enough)
    jobs.cancel(job.id)
    record = jobs.run_record(job.id)
    moved = [one for one in record.events if one["event"] == "moved"]
    assert [(one["epoch"], tuple(one["hosts"])) for one in moved] == [
        (one.epoch, one.hosts) for one in made
    ]
    assert all(one["seconds"] > 0 and one["phases"] for one in moved)
    drawn = timeline_document(record.plan, record.events)
    assert [move["hosts"] for move in drawn["moves"]] == [list(one.hosts) for one in made]


@pytest.mark.more
def test_the_record_of_a_finished_run_is_waited_for():
    job = submit(iterations=50)
    record = jobs.wait(job.id, seconds=300)
    assert (record.state, record.exit_code, record.iterations) == ("finished", 0, 50)
    assert record.measured_seconds > 0
    assert record.verified is None
    assert [one.state for one in jobs.list_jobs()] == ["finished"]


def test_what_keeps_a_job_from_running_is_raised_and_its_id_is_told(tmp_path):
    (tmp_path / "hosts.toml").write_text('[[host]]\nname = "ada"\nfree_memory = 10\n')
    told = []
    spec = RunSpec(tmp_path / "hosts.toml", *FILES[1:], weather="static")
    with pytest.raises(InfeasibleError):
        jobs.submit(spec, talk=told.append)
    (job,) = jobs.list_jobs()
    (line,) = told
    assert job.id in line
    assert (job.state, job.exit_code) == ("failed", 3)
    assert jobs.log(job.id)


def test_an_actuator_that_is_none_is_refused_before_there_is_a_job():
    with pytest.raises(UsageError) as refused:
        jobs.submit(RunSpec(*FILES, weather="static", actuator="cloud"))
    assert (refused.value.code, refused.value.fields["value"]) == ("launcher-unknown", "cloud")
    assert jobs.list_jobs() == []
