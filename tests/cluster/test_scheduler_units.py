"""Masters with their workers as jobs of the live scheduler: real processes on hosts of this machine."""

import json
import os
import re
import signal
from pathlib import Path

import pytest
from sites import LONG, UNITS_FILE, UNITS_PROGRAM
from waiting import files_below, until

from apples import UsageError
from apples.cluster import JobRequest
from apples.jobs import store
from apples.launch import marked, read
from hat import DocumentError

HOSTS = ("ada", "bob", "cleo", "dan")


@pytest.fixture
def written(tmp_path, monkeypatch):
    """A master with its workers, written down; return its file."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "master-worker.toml").write_text(UNITS_FILE)
    (tmp_path / "program.py").write_text(UNITS_PROGRAM)
    return tmp_path / "master-worker.toml"


@pytest.fixture
def home(written, tmp_path, monkeypatch):  # noqa: ARG001 - it is there before any scheduler
    """What the workers of this machine have for their home: a folder of which nothing is left afterwards."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    yield
    assert files_below(tmp_path / "home") == []


@pytest.fixture
def site(home, site):  # noqa: ARG001 - it is there before any scheduler
    return site


def units(one, *words):
    return one.submit("--template", str(one.folder / "master-worker.toml"), *words)


def at_a_gate(one, *words):
    """Submit a program whose units from the twentieth on wait for a file; return the job and the file."""
    gate = one.folder / "gate"
    return units(one, "--set", f"gate={gate}", *words), gate


def squares(count):
    return sum(n * n for n in range(count))


def lanes(record, host):
    """Return the worker processes of a job that are on a host."""
    found = []
    for pid in marked(record):
        words = read(f"/proc/{pid}/cmdline").split(b"\0")
        if any(word.rsplit(b"/")[-1].startswith(f"{host}#".encode()) for word in words):
            found.append(pid)
    return found


def master_of(record):
    return store.document_of(store.record(record).plan)["master"]


@pytest.mark.more
def test_a_master_with_its_workers_runs_on_the_hosts_that_the_scheduler_gives_it(site):
    one = site()
    job = units(one, "--min", "3")
    record = one.ask("wait", job)
    assert record["schema"] == "apples.master-worker/1"
    done = record["execution"]
    assert (done["result"], sum(done["hosts"].values())) == (squares(200), 200)
    assert {record["master"], *done["hosts"]} <= set(HOSTS)
    assert 1 <= done["verified"] <= 8
    assert one.run("wait", job).stdout.splitlines()[0] == str(squares(200))
    (shown,) = one.ask("jobs")["runs"]
    assert (shown["application"], shown["state"], shown["verified"]) == (
        "squares",
        "finished",
        True,
    )
    assert [each["state"] for each in one.ask("queue", "--all")["jobs"]] == ["finished"]
    page = one.folder / "page.html"
    assert one.ask("report", job, "-o", str(page))["record"] == shown["id"]
    assert "200" in page.read_text()


@pytest.mark.more
def test_a_scheduler_that_is_killed_adopts_it_and_its_units_are_its_progress(site):
    one = site()
    job, gate = at_a_gate(one, "--min", "3", "--no-verify")
    record = one.until(job, "running")["record"]
    until(lambda: one.job(job)["iterations"] == 200)
    one.stop(signal.SIGKILL)
    one.start()
    found = one.until(job, "running")
    assert (found["record"], found["attempt"]) == (record, 1)
    gate.touch()
    assert one.ask("wait", job)["execution"]["result"] == squares(200)


@pytest.mark.more
def test_a_worker_that_is_killed_is_no_lost_job_and_its_host_is_given_back(site):
    one = site()
    job, gate = at_a_gate(one, "--min", "3", "--no-verify")
    record = one.until(job, "running")["record"]
    until(lambda: sum(bool(lanes(record, host)) for host in HOSTS) == 3)
    killed = next(h for h in HOSTS if lanes(record, h) and h != master_of(record))
    for pid in lanes(record, killed):
        os.kill(pid, signal.SIGKILL)
    until(lambda: killed not in one.job(job)["hosts"])
    until(lambda: one.host(killed)["state"] == "free")
    gate.touch()
    done = one.ask("wait", job)["execution"]
    assert (done["result"], list(done["lost"])) == (squares(200), [killed])
    assert one.job(job)["attempt"] == 1


@pytest.mark.more
def test_units_that_are_given_up_fail_the_job_and_the_result_is_without_them(site):
    one = site()
    program = one.folder / "program.py"
    program.write_text(
        UNITS_PROGRAM.replace("number, gate = unit", "number, gate = unit\n    assert number != 7")
    )
    job = units(one, "--min", "2", "--no-verify")
    done = one.run("wait", job)
    assert (done.returncode, done.stdout.splitlines()[0]) == (5, str(squares(200) - 49))
    assert len(re.findall(r"\bunit 7\b", done.stderr)) == 1
    found = one.job(job)
    assert (found["state"], found["exit_code"], found["attempt"]) == ("failed", 5, 1)


@pytest.mark.more
def test_one_that_is_cancelled_leaves_nothing(site):
    one = site()
    job, _ = at_a_gate(one, "--min", "3")
    record = one.until(job, "running")["record"]
    until(lambda: marked(record))
    assert one.ask("cancel", job)["state"] == "cancelled"
    assert marked(record) == []
    assert {host["state"] for host in one.queue()["hosts"]} == {"free"}


@pytest.mark.parametrize(
    ("more", "code", "option"),
    [
        ({"count_messages": True}, "option-not-applicable", "--count-messages"),
        ({"messages": Path("run.json")}, "option-not-applicable", "--messages"),
        ({"kind": "odd"}, "value-unknown", "--kind"),
        ({"user": Path("wishes.toml")}, "option-not-applicable", "--user"),
    ],
)
def test_an_option_that_a_master_with_workers_does_not_take_is_refused(
    written, more, code, option
):
    asked = {"user": None, "settings": {}, "minimum": 1, "maximum": 3, **more}
    with pytest.raises(UsageError) as raised:
        JobRequest(written, **asked).body()
    assert (raised.value.code, raised.value.fields["option"]) == (code, option)


@pytest.mark.parametrize(
    ("text", "settings", "code", "line", "field"),
    [
        ("[name", {}, "file-invalid", 1, None),
        ("name = 'squares'\nunits = 3\nattempts = 0", {}, "value-range", 3, "attempts"),
        ("name = 'squares'\nunits = 'count'", {}, "parameter-unknown", 2, "units"),
        ("name = 'squares'\nunits = -3", {}, "value-range", None, "units"),
        (UNITS_FILE, {"cuont": "3"}, "parameter-unknown", None, "cuont"),
        (UNITS_FILE, {"count": "many"}, "value-type", None, "count"),
        ("name = 'squares'\nunits = 3\nfiles = ['a.dat']", {}, "file-missing", None, "files"),
        ("name = 'squares'\nunits = 3\nprogram = 'p.py'", {}, "file-missing", None, "program"),
    ],
)
def test_a_bad_file_of_a_master_with_workers_is_refused_before_it_is_a_job(
    written, text, settings, code, line, field
):
    written.write_text(text)
    with pytest.raises((UsageError, DocumentError)) as raised:
        JobRequest(written, None, settings, 1, 3).body()
    fields = raised.value.fields
    assert (raised.value.code, fields.get("line"), fields.get("field")) == (code, line, field)


def test_a_template_that_is_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "template.toml")
    with pytest.raises(DocumentError) as raised:
        JobRequest(tmp_path / "template.toml", None, {}).body()
    assert raised.value.code == "file-not-regular"


def test_wishes_that_only_lie_in_the_folder_do_not_keep_a_master_from_its_scheduler(written):
    for place in (Path("user.toml"), written.parent / "user.toml"):
        request = JobRequest(written, place, {}, 1, 3, directory=written.parent)
        assert request.body()["submission"]["name"] == "squares"


@pytest.mark.more
def test_an_evolving_one_grows_leaves_hosts_that_it_is_to_leave_and_gives_back_what_adds_nothing(
    site,
):
    one = site("easy")
    wide = one.submit("--min", "2", *LONG)
    one.until(wide, "running")
    job, gate = at_a_gate(one, "--min", "1", "--max", "4", "--no-verify", "--set", "count=3000")
    assert one.job(job)["kind"] == "evolving"
    record = one.until(job, "running")["record"]
    master = master_of(record)
    until(lambda: len(one.job(job)["hosts"]) == 2)
    until(lambda: one.job(job)["asks"][0] > 2)
    one.ask("cancel", wide)
    until(lambda: len(one.job(job)["hosts"]) == 4)
    until(lambda: one.job(job)["state"] == "running")
    # A worker starts after its host has joined.
    until(lambda: all(lanes(record, host) for host in HOSTS))
    stays = sorted({master, *HOSTS[:2]})
    resizing = one.begin("resize", job, "--on", ",".join(stays), "--json")
    until(lambda: one.job(job)["state"] in {"resizing", "unsettled"})
    gate.touch()  # units end, and workers that are to leave with them
    assert json.loads(resizing.communicate(timeout=90)[0])["hosts"]
    done = one.ask("wait", job)["execution"]
    assert (done["result"], done["lost"]) == (squares(3000), {})
    assert set(HOSTS) - set(stays) <= set(done["left"])
    assert one.job(job)["attempt"] == 1
