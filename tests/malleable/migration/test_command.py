"""``apples run-program`` and the verbs of jobs, end to end."""

import contextlib
import os
import signal
from pathlib import Path

import pytest
from commands import command
from waiting import until

from apples.io import state
from apples.jobs import store
from apples.launch import MANAGER, marked
from apples.malleable import inspection

LOOP = "i=0; while [ ! -e enough ]; do i=$((i+1)); echo $i; sleep 0.01; done"


@pytest.fixture
def hosts(tmp_path, monkeypatch):
    private = state.directory() / "criu"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    if "APPLES_CRIU" not in os.environ and private.exists():
        monkeypatch.setenv("APPLES_CRIU", str(private))
    monkeypatch.chdir(tmp_path)
    cpus = sorted(os.sched_getaffinity(0))
    path = tmp_path / "hosts.toml"
    path.write_text(
        f'[[host]]\nname = "ada"\ncpus = [{cpus[0]}]\n[[host]]\nname = "bob"\ncpus = [{cpus[-1]}]\n'
    )
    yield ["run-program", "--hosts", str(path), "--weather", "static"]
    for job in store.jobs():
        command("apples", "cancel", job.id)


def refused(verb, *words):
    """Run a command that fails; ``--json`` stands before the program. Return its error."""
    done = command("apples", verb, "--json", *words)
    assert done.out == ""
    return done.failure


def written(path):
    """The lines that the program wrote so far."""
    return path.read_text().splitlines() if path.exists() else []


def grown(path, more):
    """Wait until a program that goes on writing wrote so many lines more."""
    least = len(written(path)) + more
    until(lambda: len(written(path)) >= least)


@pytest.mark.criu
@pytest.mark.usefixtures("criu")
def test_a_detached_program_is_migrated_by_the_verb_and_its_end_is_recorded(hosts, tmp_path):
    started = command("apples", *hosts, "--detach", "--json", "--", "sh", "-c", LOOP).document
    name = started["id"]
    assert (started["state"], started["hosts"], started["name"]) == ("running", ["ada"], "sh")
    output = store.job(name).commits / "output"
    grown(output, 3)
    moved = command("apples", "resize", name, "--from", "ada", "--to", "bob", "--json").document
    assert (moved["hosts"], moved["epoch"], moved["state"]) == (["bob"], 1, "running")
    phases = moved["last_resize"]["phases"]
    assert set(phases) == {"inspect", "signal", "checkpoint", "restart"}
    grown(output, 3)
    both = refused("resize", name, "--on", "ada,bob")
    assert (both["exit_code"], both["code"]) == (2, "hosts-above-maximum")
    (tmp_path / "enough").touch()
    waited = command("apples", "wait", name, "--timeout", "300", "--json")
    assert (waited.code, waited.document["execution"]["hosts"]) == (0, [{"host": "bob"}])
    lines = written(output)
    assert lines == [str(n + 1) for n in range(len(lines))]
    assert lines[-1] in command("apples", "logs", name).out
    assert marked(name) == []


@pytest.mark.criu
@pytest.mark.usefixtures("criu")
def test_what_cannot_be_moved_is_refused_by_the_verb_with_the_reason(hosts, tmp_path):
    source = tmp_path / "talks.py"
    source.write_text(
        "import socket, time\ns = socket.create_server(('127.0.0.1', 0))\n"
        "print('up', flush=True)\ntime.sleep(600)\n"
    )
    detached = command("apples", *hosts, "--detach", "--json", "--", "python3", str(source))
    name = detached.document["id"]
    until(lambda: written(store.job(name).commits / "output") == ["up"])
    failure = refused("resize", name, "--from", "ada", "--to", "bob")
    assert (failure["exit_code"], failure["code"]) == (4, "program-not-movable")
    assert "TCP" in failure["fields"]["reason"]
    assert command("apples", "jobs", name, "--json").document["hosts"] == ["ada"]
    assert command("apples", "cancel", name).code == 0
    assert marked(name) == []


def test_in_the_foreground_the_exit_code_says_how_it_ended(hosts, tmp_path, capfd):
    done = command(
        "apples", *hosts, "--output", str(tmp_path / "out"), "--", "sh", "-c", "echo hi"
    )
    assert done.code == 0, done.err
    assert {"sh", "0"} <= {*done.out.split()}
    assert (tmp_path / "out/output").read_text() == "hi\n"
    failed = command("apples", *hosts, "--", "sh", "-c", "echo bad >&2; exit 3")
    assert failed.code == 5
    said = capfd.readouterr().err
    assert "bad" in said  # the program's own word


@pytest.fixture
def looping(hosts):
    """A job that writes for ever, by name, and its anchor."""
    name = command("apples", *hosts, "--detach", "--json", "--", "sh", "-c", LOOP).document["id"]
    grown(store.job(name).commits / "output", 3)
    anchors = []
    for pid in marked(name):
        with contextlib.suppress(OSError):  # the loop's own children come and go
            called = Path(f"/proc/{pid}/comm").read_text().strip()
            anchors += [pid] if called == MANAGER else []
    (anchor,) = anchors
    return name, anchor


def test_an_anchor_that_is_killed_ends_the_job_with_no_process_left(looping):
    name, anchor = looping
    os.kill(anchor, signal.SIGKILL)
    waited = command("apples", "wait", name, "--timeout", "300")
    assert waited.code in {4, 5, 7}, waited.err
    assert command("apples", "jobs", name, "--json").document["state"] == "failed"
    assert marked(name) == []


@pytest.mark.more
def test_an_anchor_that_is_stopped_is_woken_and_the_job_goes_on(looping):
    name, anchor = looping
    os.kill(anchor, signal.SIGSTOP)
    until(lambda: inspection.state(anchor) != "T")
    grown(store.job(name).commits / "output", 3)
    assert command("apples", "jobs", name, "--json").document["state"] == "running"
    assert command("apples", "cancel", name).code == 0
    assert marked(name) == []


@pytest.mark.parametrize(
    ("words", "code", "fields"),
    [
        ((), "argument-missing", {"argument": "words"}),
        (("--on", "zoe", "--", "true"), "host-unknown", {"host": "zoe", "known": ["ada", "bob"]}),
        (("--signal", "KILL", "--", "true"), "signal-unknown", {"value": "KILL"}),
        (("--signal", "9", "--", "true"), "signal-unknown", {"value": "9"}),
    ],
)
def test_what_is_wrong_is_said_before_anything_starts(hosts, words, code, fields):
    failure = refused(*hosts[:3], *words)
    assert (failure["exit_code"], failure["code"]) == (2, code)
    assert failure["fields"].items() >= fields.items()
    assert list(store.jobs()) == []


def test_dry_run_of_a_program_starts_nothing(hosts, tmp_path):
    words = ["--output", "out", "--", "touch", "started"]
    document = command("apples", *hosts, "--dry-run", "--json", *words).document
    assert (document["program"], document["on"]) == (["touch", "started"], ["ada"])
    assert document["command"]["argv"] == ["touch", "started"]
    text = command("apples", *hosts, "--dry-run", *words)
    assert (text.code, text.out, text.err) == (0, "on ada: touch started\n", "")
    assert [path.name for path in tmp_path.iterdir() if path.name != "state"] == ["hosts.toml"]
    assert list(store.jobs()) == []
    assert Path("hosts.toml").exists()
