"""Detached jobs, end to end: the command lets go, the job is moved, and nothing is left of it."""

import hashlib
import os
import re
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import rowed
from commands import command, files, refused
from waiting import until

from apples import jobs
from apples.jobs import store
from apples.launch import SHARED_MEMORY, marked, noted_processes
from apples.malleable import data_path, whole_manifests

HERE = Path(__file__).parent / "sample"
FILES = [
    word
    for name in ("hosts", "template", "user")
    for word in (f"--{name}", str(HERE / f"{name}.toml"))
]
LONG = ("--set", "iterations=1000000", "--set", "pause=0.005")

pytestmark = pytest.mark.mpi


@pytest.fixture(autouse=True)
def own_state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    yield
    for job in store.jobs():
        command("apples", "cancel", job.id)


def detach(*options):
    done = command(
        "apples", "run", "--detach", *FILES, "--weather", "static", "--no-verify", "--json",
        *options,
    )  # fmt: skip
    assert done.code == 0, done.err
    assert done.document["schema"] == "apples.job/1"
    return done.document


def ask(*words):
    return command("apples", *words, "--json")


def events_of(name, kind):
    return [event for event in jobs.run_record(name).events if event["event"] == kind]


def test_the_command_that_starts_a_job_prints_which_hosts_are_measured_first(tmp_path):
    given = files(tmp_path, hosts=rowed.HOSTS, template=rowed.template())
    done = command("apples", "run", "--detach", *given, "--no-verify", "--json")
    assert "measuring rowed on ada" in done.err
    assert command("apples", "wait", done.document["id"]).code == 0


@pytest.mark.more
def test_a_job_outlives_its_command_and_is_moved_by_every_verb():
    started = detach(*LONG)
    name = started["id"]
    assert started["state"] == "running"
    assert started["hosts"] == ["ada", "bob", "cleo"]
    assert started["rows"] == [20, 20, 20]

    shrunk = ask("resize", name, "--on", "ada,dan=0.5").document
    assert dict(zip(shrunk["hosts"], shrunk["rows"], strict=True)) == {"ada": 40, "dan": 20}
    assert (shrunk["state"], shrunk["epoch"]) == ("running", 1)
    assert set(shrunk["last_resize"]["phases"]) >= {"wait", "redistribute", "leave"}

    swapped = ask("resize", name, "--from", "dan", "--to", "bob").document
    assert dict(zip(swapped["hosts"], swapped["rows"], strict=True)) == {"ada": 40, "bob": 20}

    even = ask("resize", name[:6], "--balance").document
    assert even["rows"] == [30, 30]
    assert even["iteration"] > 0

    for words, code, fields in (
        (("resize", name, "--on", "zoe"), "host-unknown", {"host": "zoe"}),
        (("resize", name, "--on", "ada,bob,cleo,dan"), "hosts-above-maximum", {}),
        (("resize", name, "--on", "ada=0"), "value-invalid", {"value": "ada=0"}),
        (("resize", name, "--on", "ada,ada"), "host-repeated", {"host": "ada"}),
        (("resize", name, "--from", "dan", "--to", "bob"), "host-unknown", {"option": "--from"}),
        (("resize", name, "--from", "ada", "--to", "bob"), "host-in-use", {"host": "bob"}),
        (("resize", "ffffffff", "--on", "ada"), "job-unknown", {"value": "ffffffff"}),
    ):
        failure = command("apples", *words, "--json").failure
        assert (failure["exit_code"], failure["code"]) == (2, code)
        assert failure["fields"].items() >= fields.items()
    unchanged = ask("jobs", name).document
    assert unchanged["epoch"] == even["epoch"]
    assert ask("jobs").document["jobs"][0]["id"] == name

    moved = until(lambda: [e for e in events_of(name, "moved") if e["epoch"] >= even["epoch"]])
    assert dict(zip(moved[-1]["hosts"], moved[-1]["rows"], strict=True)) == {"ada": 30, "bob": 30}
    assert moved[-1]["phases"].keys() >= {"redistribute"}

    ended = ask("cancel", name)
    assert (ended.code, ended.document["state"]) == (0, "cancelled")
    assert marked(name) == []
    over = refused("apples", "resize", name, "--on", "ada")
    assert (over["exit_code"], over["code"]) == (4, "job-ended")
    assert ask("wait", name).code == 5


def test_a_job_whose_start_is_interrupted_is_cancelled(tmp_path):
    """As by Ctrl-C while it is being planned: nobody has been told its id."""
    slow = tmp_path / "slow.py"
    slow.write_text(
        "import pathlib, time\npathlib.Path(__file__).with_name('planning').touch()\ntime.sleep(1000)"
    )
    words = [
        "apples",
        "run",
        "--detach",
        *FILES,
        "--weather",
        "static",
        "--blueprint",
        f"{slow}:any",
    ]
    run = f"import sys\nsys.argv = {words!r}\nfrom apples.__main__ import main\nmain()"
    with subprocess.Popen(
        [sys.executable, "-c", run], stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as asker:
        while not (tmp_path / "planning").exists():
            assert asker.poll() is None
            time.sleep(0.01)  # between looks
        (job,) = store.jobs()
        fork = job.supervisor()
        os.killpg(asker.pid, signal.SIGINT)
        said = asker.stderr.read()
    assert (asker.returncode, said.count("\n")) == (130, 2)
    assert job.id in said
    assert job.record()["state"] == "cancelled"
    assert select.select([fork], [], [], 300)[0]
    os.close(fork)


@pytest.mark.more
def test_wait_prints_the_record_of_the_run(tmp_path):
    name = detach("--set", "iterations=40")["id"]
    waited = ask("wait", name, "--timeout", "300", "--timeline")
    assert waited.code == 0, waited.err
    assert waited.document["schema"] == "apples.run/1"
    assert set(waited.document["timeline"]["hosts"]) == {"ada", "bob", "cleo"}
    told = command("apples", "wait", name, "--timeline").out
    assert {"ada", "bob", "cleo"} <= {*told.split()}
    page = tmp_path / "page.html"
    reported = command("apples", "report", name, "--timeline", "--out", page)
    assert (reported.code, page.exists()) == (0, True)
    assert {"ada", "bob", "cleo"} <= {*reported.out.split()}
    assert waited.document["execution"]["iterations"] == 40
    assert waited.document["result_sha256"]
    assert waited.document["record"] == name
    assert ask("jobs", name).document["state"] == "finished"
    record = jobs.run_record(name)
    assert [event["event"] for event in record.events[:2]] == ["planned", "running"]
    assert [event["event"] for event in record.events[-3:]] == ["measured", "verified", "ended"]
    (measured,) = events_of(name, "measured")
    assert measured["seconds"] == waited.document["execution"]["measured_seconds"]
    assert record.plan == waited.document["plan"]
    assert record.summary["measured_seconds"] == measured["seconds"]


def test_a_job_that_fails_says_why_and_wait_ends_as_the_run_did():
    name = detach("--set", "iterations=1000", "--set", "fail_at=30")["id"]
    waited = command("apples", "wait", name, "--timeout", "300")
    assert waited.code == 5
    assert "as was asked for" in waited.err  # the program's own words
    assert "as was asked for" in ask("jobs", name).document["reason"]
    assert "as was asked for" in command("apples", "logs", name).out
    assert marked(name) == []


def kill_supervisor(name, *others):
    handle = store.job(name).supervisor()
    signal.pidfd_send_signal(handle, signal.SIGKILL)
    for pid in others:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert select.select([handle], [], [], 120)[0]
    os.close(handle)


def test_a_job_whose_supervisor_is_killed_ends_and_the_record_says_so():
    name = detach(*LONG)["id"]
    running = refused("apples", "restart", name)
    assert (running["exit_code"], running["code"]) == (4, "job-running")
    kill_supervisor(name)
    found = ask("jobs", name).document
    assert (found["state"], found["reason"]) == ("failed", store.LOST)
    assert command("apples", "wait", name).code == 4
    assert ask("cancel", name).document["state"] == "failed"
    assert marked(name) == []
    again = refused("apples", "restart", name)
    assert (again["exit_code"], again["code"]) == (2, "commit-missing")
    assert ask("jobs", name).document == found


def after_change(name):
    """What a job says of itself once it has answered a change of its hosts, which holds a little earlier."""
    return until(lambda: found if (found := ask("jobs", name).document)["last_change"] else None)


@pytest.mark.more
@pytest.mark.slow
def test_a_job_that_asks_for_hosts_gets_them_from_its_own_list():
    """The user file says three at most; the program asks for four, which is all there are."""
    name = detach(*LONG, "--set", "ask=20 4")["id"]
    found = after_change(name)
    assert (sorted(found["hosts"]), sum(found["rows"])) == (["ada", "bob", "cleo", "dan"], 60)
    assert (found["epoch"], found["last_change"]["answer"]) == (1, "done")


ITERATIONS = 300


def committed(tmp_path):
    """Start a job that is too slow to end, and fast without the file it reads; return both after a commit."""
    slow = tmp_path / "slow"
    slow.write_text("ada 300\nbob 300\ncleo 300\n")
    name = detach(
        *("--set", f"iterations={ITERATIONS}", "--set", f"slow={slow}"), "--commit", "0.05"
    )["id"]
    until(lambda: list(whole_manifests(store.job(name).commits)))
    return name, slow


def right(name):
    """Whether a job ends, its every iteration done once."""
    waited = ask("wait", name, "--timeout", "300")
    assert waited.code == 0, waited.err
    assert waited.document["execution"]["iterations"] == ITERATIONS
    expected = hashlib.sha256(np.full((60, 4), float(ITERATIONS)).tobytes()).hexdigest()
    return waited.document["result_sha256"] == expected


@pytest.mark.more
def test_a_job_whose_supervisor_was_killed_goes_on_from_its_last_commit(tmp_path):
    name, slow = committed(tmp_path)
    kill_supervisor(name)
    done = ask("restart", name[:6])
    assert done.code == 0, done.err
    assert (done.document["state"], done.document["attempt"]) == ("running", 2)
    again = after_change(name)
    assert again["epoch"] == 1
    assert 0 < again["iteration"] <= ITERATIONS
    assert again["last_change"]["answer"] == "rolled back"
    assert again["last_change"]["iteration"] > 0
    said = re.compile(rf"epoch 1: .*\b{again['last_change']['iteration']}\b")
    until(lambda: said.search(command("apples", "logs", name).out))
    slow.unlink()
    assert right(name)
    finished = refused("apples", "restart", name)
    assert (finished["exit_code"], finished["code"]) == (2, "job-finished")
    assert marked(name) == []


@pytest.mark.more
@pytest.mark.slow
def test_a_job_of_which_everything_was_killed_or_cancelled_goes_on_unless_its_commits_are_damaged(
    tmp_path,
):
    name, slow = committed(tmp_path)
    job = store.job(name)
    folder = Path((job.folder / "run").read_text())
    assert folder.is_dir()
    ranks = noted_processes(str(folder))
    there = Path(SHARED_MEMORY).iterdir()
    segments = [one for one in there if one.name.partition(":")[0] in map(str, ranks)]
    assert len(segments) == len(ranks) == 3
    kill_supervisor(name, *marked(name))
    assert ask("restart", name).document["attempt"] == 2
    assert not folder.exists()
    assert not [one for one in segments if one.exists()]
    cancelled = ask("cancel", name).document
    assert cancelled["state"] == "cancelled", cancelled["reason"]
    assert not (job.folder / "run").exists()

    kept = {}
    for manifest in whole_manifests(job.commits):
        path = data_path(job.commits, manifest["commit"], 0)
        kept[path] = path.read_bytes()
        path.write_bytes(bytes(len(kept[path])))
    damaged = command("apples", "restart", name)
    assert damaged.code == 4, damaged.err
    found = ask("jobs", name).document
    assert (found["state"], found["attempt"]) == ("failed", 3)
    assert str(job.commits) in found["reason"]
    assert marked(name) == []

    for path, data in kept.items():
        path.write_bytes(data)
    slow.unlink()
    assert ask("restart", name).document["attempt"] == 4
    assert right(name)


def test_what_cannot_start_is_said_by_the_command_that_asked(tmp_path):
    template = tmp_path / "template.toml"
    template.write_text((HERE / "template.toml").read_text().replace("program.py", "nowhere.py"))
    options = [str(template) if word.endswith("template.toml") else word for word in FILES]
    done = command("apples", "run", "--detach", *options, "--weather", "static", "--json")
    assert done.code in {4, 5}
    assert "nowhere.py" in done.failure["message"]
    assert ask("jobs").document["jobs"][0]["state"] == "failed"
    assert command("apples", "run", "--detach", *FILES, "--set", "grid=-1").code == 2


@pytest.mark.parametrize("words", ["--planner rectangles", "--blueprint square_blocks"])
def test_rectangles_for_a_job_that_can_be_moved_are_refused_before_there_is_a_record(words):
    failure = refused("apples", "run", "--detach", *FILES, "--weather", "static", *words.split())
    assert (failure["exit_code"], failure["code"]) == (2, "rectangles-unsupported")
    assert store.jobs() == []


def test_a_broken_record_does_not_stop_the_others():
    name = detach("--set", "iterations=5")["id"]
    command("apples", "wait", name)
    broken = store.create({}, "broken")
    (broken.folder / "job.json").write_text('{"state": ')
    documents = {one["id"]: one for one in ask("jobs").document["jobs"]}
    assert documents[name]["state"] == "finished"
    assert documents[broken.id]["state"] == "failed"
    assert "job.json" in documents[broken.id]["reason"]


def test_no_other_user_reaches_the_control_of_a_job():
    job = store.job(detach(*LONG)["id"])
    until(job.control_socket.exists)
    assert job.control_socket.stat().st_mode & 0o777 == 0o600
    assert job.folder.stat().st_mode & 0o777 == 0o700
