"""`JobRequest`: an order carries the texts of its files, and later changes of the files do not change the job."""

import pytest
from sites import UNITS_FILE, UNITS_PROGRAM

from apples.agent import load
from apples.applications import MasterWorkerProgram
from apples.cluster import JobRequest, JobSubmission, LiveJob, LiveJobState, SchedulerState
from apples.errors import UsageError
from apples.jobs import spec
from apples.scheduling import JobKind
from hat import DocumentError

TEMPLATE = """\
name = "plate"
program = ["true"]
[parameters.grid]
default = 2000
[structure]
rows = "grid"
columns = "grid"
iterations = "100"
"""
HOSTS = """
[[host]]
name = "ada"
seconds_per_point = 1e-8
[default_link]
latency = 1e-4
bandwidth = 1e9
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "template.toml").write_text(TEMPLATE)
    (tmp_path / "user.toml").write_text('[preferences]\nplanner = "linear"\n')
    (tmp_path / "hosts.toml").write_text(HOSTS)
    return tmp_path


def ordered(folder, template="template.toml", user="user.toml"):
    """Return the specification of a job as its supervisor reads it from a new order."""
    user = folder / user if user else None
    request = JobRequest(folder / template, user, {}, weather="static", directory=folder)
    work = request.body()["submission"]["work"]
    return spec.read({**work, "hosts": str(folder / "hosts.toml")})


def rows(job):
    return load(job.run).application.rows


def test_edited_files_do_not_change_queued_job(folder):
    job = ordered(folder)
    (folder / "template.toml").write_text(TEMPLATE.replace("2000", "500"))
    (folder / "user.toml").write_text('[preferences]\nplanner = "missing.py:planner"\n')
    assert rows(job) == 2000
    assert rows(ordered(folder, user=None)) == 500


def test_removed_files_do_not_fail_queued_job(folder):
    job = ordered(folder)
    for name in ("template.toml", "user.toml"):
        (folder / name).unlink()
    assert rows(job) == 2000


def test_edited_master_worker_file_does_not_change_queued_job(folder):
    (folder / "units.toml").write_text(UNITS_FILE)
    (folder / "program.py").write_text(UNITS_PROGRAM)
    job = ordered(folder, "units.toml", None)
    (folder / "units.toml").write_text(UNITS_FILE.replace("count = 200", "count = 7"))
    assert MasterWorkerProgram.read(job.file, {}, job.contents["units"]).count == 200


def test_error_in_carried_template_names_file_and_line(folder):
    document = ordered(folder).document()
    document["contents"] = {"template": TEMPLATE + "rowz = 3\n"}
    with pytest.raises(DocumentError, match=r"template\.toml:9: structure: unknown"):
        load(spec.read(document).run)


def test_state_keeps_files_of_order_until_job_is_over():
    work = {"template": "t.toml", "contents": {"template": "x" * 1000}}
    job = LiveJob(1, JobSubmission(1, 1, work=work), 0.0)
    state = SchedulerState()
    state.put(job)
    assert state.content_bytes >= 1000
    state.put(
        job.start(("ada",), "f", 0.0).end(LiveJobState.FINISHED, "", 1.0, over=True).leave("ada")
    )
    assert state.content_bytes == 0
    assert dict(state.jobs[1].submission.work) == {"template": "t.toml"}


@pytest.mark.parametrize(
    ("text", "require", "code"),
    [
        (TEMPLATE, "MAX_RADIUS=1", "program-not-malleable"),
        (f"malleable = true\n{TEMPLATE}", "MAX_RADIUSS=1", "field-unknown"),
        (f"malleable = true\n{TEMPLATE}", "CPUSET[MAX_RADIUS=far]", "value-invalid"),
        (UNITS_FILE, "MAX_RADIUS=1", "program-not-malleable"),
    ],
)
def test_requirement_that_no_daemon_could_meet_is_refused(folder, text, require, code):
    name = "master-worker.toml" if text == UNITS_FILE else "template.toml"
    (folder / name).write_text(text)
    (folder / "program.py").write_text(UNITS_PROGRAM)
    with pytest.raises(UsageError) as refused:
        JobRequest(folder / name, None, {}, require=require).body()
    assert (refused.value.code, refused.value.fields["option"]) == (code, "--require")


def test_job_with_a_requirement_shares_its_hosts_with_no_other(folder):
    (folder / "template.toml").write_text(f"malleable = true\n{TEMPLATE}")

    def job(require):
        request = JobRequest(folder / "template.toml", None, {}, 1, 2, require=require)
        work = request.body()["submission"]["work"]
        submission = JobSubmission(
            minimum=1, maximum=2, requested=60.0, kind=JobKind.MALLEABLE, work=work
        )
        return LiveJob(1, submission, 0.0).as_job(4)

    assert (job("").exclusive, job("CPUSET[MAX_RADIUS=1]").exclusive) == (False, True)
