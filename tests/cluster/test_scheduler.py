"""The live scheduler by its commands: real jobs on hosts of this machine, and what is refused."""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
from pathlib import Path

import pytest
from sites import LONG, SHORT, Site
from waiting import until

from apples.__main__ import DOCUMENTS
from apples.cluster import SchedulerLog, between_hosts


@pytest.mark.mpi
def test_submit_to_empty_hosts_prints_that_the_job_is_started(site):
    one = site()
    printed = one.run("submit", "--min", "2", *SHORT).stdout
    assert printed.splitlines()[0] == "local.1 is started"


@pytest.mark.mpi
def test_jobs_run_one_after_the_other_and_the_history_is_a_log_for_the_simulator(site, tmp_path):
    one = site()
    first, second = one.submit("--min", "4", *SHORT), one.submit("--min", "3", *SHORT)
    assert (first, second) == ("local.1", "local.2")
    record = one.ask("wait", second)
    assert record["schema"] == "apples.run/1"
    assert len(record["execution"]["hosts"]) == 3
    options = ("--min", "3", "--messages", second)
    third = one.submit(*options, "--after", first, "--after", second, *SHORT)
    ended = one.ask("wait", third)
    assert ended["schema"] == "apples.run/1"
    assert ended["plan"]["arrangement"]["ranks"] == len(record["execution"]["messages"]["ranks"])
    exit_code, code, line = one.refused("submit", "--after", "local.9", *SHORT)
    assert (exit_code, code) == (2, "job-unknown")
    assert "local.9" in line
    controller, terminal = os.openpty()
    piped = one.run(
        "queue", "--watch", stderr=terminal
    )  # where the answer goes no terminal is: once
    assert piped.stdout.count("local: ") == 1
    os.close(controller)
    os.close(terminal)
    jobs = one.ask("queue", "--all")["jobs"]
    assert [job["state"] for job in jobs] == ["finished"] * 3
    assert jobs[2]["after"] == [first, second]
    assert jobs[0]["ended"] <= jobs[1]["started"]
    log = tmp_path / "log.swf"
    log.write_text(one.run("queue", "--all", "--swf").stdout)
    simulated = one.ask("simulate", str(log), "--policy", "fcfs", "--processors", "4")
    assert simulated["jobs"] == 3


def test_a_submission_tells_what_hosts_sent_each_other_in_parts_of_the_most(tmp_path):
    place = tmp_path / "run.json"

    def told(hosts, rows):
        ranks = [{"host": host, "world": 0, "rank": n} for n, host in enumerate(hosts)]
        messages = {"ranks": ranks, "rank_bytes": rows, "rank_messages": rows, "source": "counted"}
        place.write_text(json.dumps({"execution": {"messages": messages}}))
        return between_hosts(place)

    assert told("aab", [[0, 900, 3], [900, 0, 1], [0, 2, 0]]) == [[0, 1000], [500, 0]]
    assert told("ab", [[5, 0], [0, 5]]) == [[0, 0], [0, 0]]
    many = [f"h{n}" for n in range(33)]
    assert told(many, [[1] * 33] * 33) == []


@pytest.mark.more
def test_conservative_scheduler_loads_the_compiler_before_it_listens(tmp_path):
    pytest.importorskip("numba")
    with contextlib.closing(Site(tmp_path, "conservative")) as one:
        one.start("compiled backfilling")
        assert "llvmlite" in Path("/proc", str(one.process.pid), "maps").read_text()


@pytest.mark.more
@pytest.mark.mpi
def test_a_malleable_job_is_shrunk_for_another_and_grows_when_that_is_over(site):
    one = site("equipartition")
    first = one.submit("--min", "1", "--max", "3", *LONG)
    assert len(one.until(first, "running")["hosts"]) == 3
    second = one.submit("--min", "1", "--max", "3", *LONG)
    one.until(second, "running")
    hosts = {name: one.job(name)["hosts"] for name in (first, second)}
    assert [len(hosts[first]), len(hosts[second])] == [2, 2]
    assert not set(hosts[first]) & set(hosts[second])
    assert one.ask("cancel", second)["state"] == "cancelled"
    until(lambda: len(one.job(first)["hosts"]) == 3)
    assert one.job(first)["resizes"] == 2


UNEQUAL = """
[[host]]
name = "ada"
site = "x"
seconds_per_point = 9e-4
[[host]]
name = "bob"
site = "x"
seconds_per_point = 9e-4
[[host]]
name = "cleo"
site = "y"
seconds_per_point = 9e-4
cpu = 0.2
[[host]]
name = "dan"
site = "y"
seconds_per_point = 1e-4
[[host]]
name = "eve"
site = "z"
seconds_per_point = 1e-4
[default_link]
latency = 1e-6
bandwidth = 1e9
"""
"""By the list two hosts of one site are best; by the model the two fast ones of two sites."""


@pytest.mark.more
@pytest.mark.mpi
def test_a_job_runs_on_the_hosts_that_its_model_estimates_it_to_be_soonest_done_on(site, tmp_path):
    place = tmp_path / "hosts.toml"
    place.write_text(UNEQUAL)
    one = site("fcfs", "--hosts", str(place))
    for _ in range(3):  # the model may answer too late for the first
        job = one.submit("--min", "2", *LONG)
        hosts = one.until(job, "running")["hosts"]
        chosen = one.ask("queue", job)["placed_by"]
        assert chosen in one.run("queue", job).stdout
        one.ask("cancel", job)
        one.until(job, "cancelled")
        if chosen.startswith("its model:"):
            break
    assert chosen.startswith("its model:")
    assert sorted(hosts) == ["dan", "eve"]
    quick = one.submit("--min", "5", *SHORT)
    assert one.ask("wait", quick)["schema"] == "apples.run/1"
    assert one.ask("queue", quick)["placed_by"] == ""  # there was nothing to choose


@pytest.mark.more
@pytest.mark.mpi
def test_an_evolving_job_gets_the_hosts_that_it_asks_for_when_they_are_free(site):
    one = site("easy")
    wide = one.submit("--min", "3", *LONG)
    one.until(wide, "running")
    job = one.submit("--min", "1", "--max", "3", "--kind", "evolving", *LONG, "--set", "ask=5 3")
    one.until(job, "running")
    until(lambda: one.job(job)["asks"] == [3, 3])
    shown = one.job(job)
    assert (len(shown["hosts"]), re.findall(r"\d+", shown["reason"])) == (1, ["3", "0"])
    assert shown["reason"] in one.run("queue").stdout
    end = until(lambda: one.job(wide)["expected_end"])
    assert end > one.queue()["time"]
    one.ask("cancel", wide)
    until(lambda: len(one.job(job)["hosts"]) == 3)
    until(lambda: one.job(job)["state"] == "running")
    assert (one.job(job)["resizes"], one.job(job)["reason"]) == (1, "")
    assert one.ask("cancel", job)["state"] == "cancelled"


@pytest.mark.more
@pytest.mark.mpi
def test_a_scheduler_that_is_killed_harms_no_job_and_another_takes_it_up(site):
    one = site()
    running, waiting = one.submit("--min", "3", *LONG), one.submit("--min", "2", *SHORT)
    record = one.until(running, "running")["record"]
    one.stop(signal.SIGKILL)
    exit_code, code, _ = one.refused("queue")
    assert (exit_code, code) == (4, "scheduler-unreachable")
    one.start()
    found = one.until(running, "running")
    assert (found["record"], found["attempt"]) == (record, 1)
    assert one.job(waiting)["state"] == "queued"
    assert one.ask("cancel", running)["state"] == "cancelled"
    assert one.ask("wait", waiting)["schema"] == "apples.run/1"


@pytest.mark.more
@pytest.mark.mpi
def test_whoever_waits_for_a_job_waits_for_a_scheduler_that_comes_back(site):
    one = site()
    job = one.submit("--min", "1", *SHORT)
    one.stop(signal.SIGKILL)
    waiting = one.begin("wait", job, "--json")
    assert "600 s" in waiting.stderr.readline(), "how long it asks again"
    late = one.run("wait", job, "--timeout", "0.1")
    assert (late.returncode, late.stderr.count("\n")) == (7, 2)
    assert late.stderr.endswith("[wait-timeout]\n")
    one.start()
    assert json.loads(waiting.communicate(timeout=90)[0])["schema"] == "apples.run/1"
    assert waiting.returncode == 0


def foretold(one, *words):
    """Ask until the planner, a process that has to load, has answered before its asker's timeouts was over."""
    return until(lambda: (done := one.run("queue", "--what-if", *words)).returncode != 4 and done)


@pytest.mark.mpi
@pytest.mark.more
def test_after_ten_runs_a_waiting_job_knows_when_it_starts_and_what_if_knows_both(site):
    one = site("easy")
    few = one.submit("--min", "1", *SHORT)
    unknown = json.loads(foretold(one, "--policy", "sjf", "--json").stdout)
    assert (unknown["basis"], unknown["then"]["policy"]) == ("estimates", "ShortestJobFirst")
    jobs = [few, *(one.submit("--min", "1", "--seconds", "10", *SHORT) for _ in range(10))]
    for job in jobs:
        one.ask("wait", job)
    running = one.submit("--min", "3", "--seconds", "50", *LONG)
    one.until(running, "running")
    waiting = one.submit("--min", "2", "--seconds", "10", *SHORT)
    why = until(lambda: (found := one.ask("queue", waiting))["start"] and found)
    first, middle, last = why["start"]
    assert why["time"] - 60.0 < first <= middle <= last
    assert (why["blocking"], why["changes"]["hosts"]) == ([running], 1)
    shown = one.job(waiting)
    assert shown["start"][0] <= shown["start"][2]
    both = json.loads(foretold(one, "--hosts-more", "1", "--json").stdout)
    assert both["basis"] == "history"
    assert both["then"]["starts"][waiting][1] <= both["now"]["starts"][waiting][1]
    least = json.loads(foretold(one, "--minimum", f"{waiting}=1", "--json").stdout)
    assert least["then"]["hosts"] == 4
    assert foretold(one, "--policy", "fcfs").stdout
    for words, code, value in (
        (("--hosts-less", "4"), "value-range", "below 4, the number of hosts"),
        (("--policy", "odd"), "policy-unknown", "odd"),
        (("--policy", "sd"), "policy-unsuitable", "sd"),
        (("--minimum", f"{running}=1"), "job-unknown", f"{running}=1"),
        (("--minimum", "x"), "value-invalid", "--minimum x"),
        (("--option", "depth=2"), "option-not-applicable", "--policy"),
    ):
        done = foretold(one, *words)
        (line,) = done.stderr.splitlines()
        assert (done.returncode, line.endswith(f" [{code}]")) == (2, True), (words, line)
        assert value in line
    for job in (waiting, running):
        one.ask("cancel", job)


@pytest.mark.mpi
@pytest.mark.more
def test_the_verbs_for_jobs_take_the_ids_of_a_scheduler(site, tmp_path):
    one = site()
    job = one.submit("--min", "1", "--max", "3", *LONG)
    record = one.until(job, "running")["record"]
    second = one.submit("--min", "2", *SHORT)
    assert one.ask("jobs", job)["id"] == record
    assert one.ask("logs", job)["id"] == record
    resized = one.ask("resize", job, "--on", "dan,ada")
    assert sorted(resized["hosts"]) == ["ada", "dan"]
    assert one.ask("wait", second)["schema"] == "apples.run/1"
    assert sorted(one.ask("resize", job, "--from", "dan", "--to", "cleo")["hosts"]) == [
        "ada",
        "cleo",
    ]
    assert one.ask("resize", job, "--balance")["hosts"] == ["ada", "cleo"]
    assert one.ask("resize", job, "--on", "ada", "--dry-run")["change"] is not None
    page = tmp_path / "page.html"
    assert one.ask("report", job, "-o", str(page))["record"] == record
    for words, code, value in (
        (("resize", record, "--on", "ada,bob"), "job-scheduled", job),
        (("resize", job, "--on", "ada=0.5"), "option-not-applicable", "ada=0.5"),
        (("resize", job, "--on", "ada,bob,cleo,dan"), "value-range", "1 to 3"),
        (("resize", job, "--from", "bob", "--to", "dan"), "host-unknown", "bob"),
        (("restart", job), "job-scheduled", job),
        (("jobs", "local.9"), "job-unknown", "local.9"),
    ):
        exit_code, found, line = one.refused(*words)
        assert (exit_code, found) == (2, code), line
        assert value in line
    assert one.ask("cancel", job)["state"] == "cancelled"
    one.stop(signal.SIGKILL)
    assert one.ask("jobs", job)["state"] == "cancelled"  # the log knows its record
    one.start()


@pytest.mark.more
@pytest.mark.mpi
def test_a_job_whose_program_fails_is_failed_with_its_reason_and_exit_code(site):
    one = site()
    job = one.submit("--min", "2", *SHORT, "--set", "fail_at=5")
    done = one.run("wait", job)
    assert done.returncode == 5
    found = one.job(job)
    assert (found["state"], found["attempt"], found["exit_code"]) == ("failed", 1, 5)
    assert all(host["state"] == "free" for host in one.ask("queue")["hosts"])


@pytest.mark.more
def test_what_cannot_be_is_refused_in_one_line(site, tmp_path):
    one = site("first_fit")
    place = str(tmp_path / "none")
    cases = {
        ("submit", "--min", "5"): (2, "too-many-hosts", ("5", "4")),
        ("submit", "--min", "3", "--max", "2"): (2, "value-range", ("--max 2", "--min 3")),
        ("submit", "--kind", "odd"): (2, "value-unknown", ("odd", "rigid", "evolving")),
        ("submit", "--template", "nowhere.toml"): (2, "file-missing", ("nowhere.toml",)),
        ("queue", "local.7"): (2, "job-unknown", ("local.7",)),
        ("queue", "lab.7"): (2, "job-unknown", ("lab.7", "local.1")),
        ("cancel", "local.7"): (2, "job-unknown", ("local.7",)),
        ("drain", "zoe"): (2, "host-unknown", ("'zoe'", "ada, bob, cleo, dan")),
        ("drain", "../x"): (2, "name-invalid", ("'../x'",)),
        ("queue", "--scheduler", place): (4, "scheduler-missing", (place,)),
        ("scheduler", "--policy", "sd"): (2, "field-missing", ("ada", "topologyd")),
        ("scheduler", "--option", "foo=1"): (2, "option-unknown", ("foo", "order, depth")),
        ("scheduler", "--actuator", "slurm"): (2, "launcher-unknown", ("slurm", "local", "ssh")),
        ("scheduler",): (4, "scheduler-running", ("schedulers/local",)),
        ("scheduler", "--name", "../x"): (2, "name-invalid", ("../x",)),
        ("scheduler", "--name", "two"): (4, "host-busy", ("ada", "schedulers/local")),
        ("jobs", "local.1"): (2, "job-unknown", ("local.1",)),
    }
    for words, (exit_code, code, values) in cases.items():
        *found, line = one.refused(*words)
        assert found == [exit_code, code], (words, line)
        assert all(value in line for value in values), line


@pytest.mark.more
def test_a_waiting_job_says_why_and_a_drained_host_gets_none(site):
    one = site()
    for host in ("ada", "bob", "cleo", "dan"):
        one.ask("drain", host)
    job = one.submit("--min", "2", *SHORT)
    why = one.ask("queue", job)
    assert (why["needs"], why["free"], why["position"]) == (2, 0, 1)
    first = one.run("queue", job).stdout.splitlines()[0]
    assert first.startswith(job)
    assert re.findall(r" (\d+) ", first)[:2] == ["2", "0"], "hosts needed and free"
    until(lambda: one.job(job)["estimated_by"] == "model")
    alone = one.submit(
        "--min", "1", "--set", "iterations=40", *SHORT[:-2]
    )  # as long, and on one host
    until(lambda: one.job(alone)["estimated_by"] == "model")
    assert 0 < one.job(job)["requested"] < one.job(alone)["requested"] < 3600.0
    given = one.submit("--min", "2", "--seconds", "7", *SHORT)
    assert (one.job(given)["estimated_by"], one.job(given)["requested"]) == ("user", 7.0)
    for other in (alone, given):
        one.ask("cancel", other)
    assert [host["state"] for host in one.ask("queue")["hosts"]] == ["drained"] * 4
    assert one.ask("cancel", job)["state"] == "cancelled"
    assert one.ask("undrain", "ada")["hosts"][0]["state"] == "free"


MUCH = "y" * 40_000


def test_the_socket_answers_what_is_malformed_and_goes_on(site, tmp_path):
    one = site()
    place = tmp_path / "apples" / "schedulers" / "local" / "socket"
    assert place.stat().st_mode & 0o777 == 0o600
    submission = {"minimum": 1, "maximum": 1, "kind": "rigid", "work": {}}
    for method, path, body, status in (
        ("GET", "/v1/nothing", b"", 404),
        ("DELETE", "/v1/queue", b"", 404),
        ("POST", "/v1/queue", b"", 404),
        ("POST", "/v1/jobs", b"{", 400),
        ("POST", "/v1/jobs", b"[" * 5000, 400),
        ("POST", "/v1/jobs", b"[1]", 400),
        ("POST", "/v1/jobs", b"{}", 400),
        ("POST", "/v1/jobs", json.dumps({"submission": {**submission, "minimum": 0}}).encode(), 400),
        ("POST", "/v1/jobs", json.dumps({"submission": {**submission, "kind": "x"}}).encode(), 400),
        ("POST", "/v1/jobs", json.dumps({"submission": {**submission, "odd": 1}}).encode(), 400),
        ("POST", "/v1/jobs", json.dumps({"submission": submission, "request": "/"}).encode(), 400),
        ("POST", "/v1/jobs", json.dumps({"submission": {**submission, "work": {"x": MUCH}}}).encode(), 400),
        ("POST", "/v1/jobs/9/cancel", b"", 400),
        ("GET", "/v1/queue", b"", 200),
    ):  # fmt: skip
        with socket.socket(socket.AF_UNIX) as there:
            there.connect(str(place))
            connection = http.client.HTTPConnection("x")
            connection.sock = there
            connection.request(method, path, body)
            assert connection.getresponse().status == status, (path, body[:40])
    with socket.socket(socket.AF_UNIX) as there:  # what is too long is not read
        there.connect(str(place))
        there.sendall(b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 1048577\r\n\r\n")
        assert there.recv(100).startswith(b"HTTP/1.1 400")
    assert one.ask("queue")["jobs"] == []


def test_the_documents_are_described():
    assert {"apples.queue", "apples.submitted", "apples.history"} <= DOCUMENTS.keys()


@pytest.mark.more
def test_a_second_scheduler_on_a_directory_leaves_the_host_list_of_the_first_alone(tmp_path):
    where = tmp_path / "there"
    first = SchedulerLog.open(where)
    text = '[[host]]\nname = "ada"\nallocation = "7"\n'
    (where / "hosts.toml").write_text(text)
    words = ("--slurm", "7", "--reach", "srun", "--directory", str(where))
    exit_code, code, line = Site(tmp_path, "fcfs").refused("scheduler", *words)
    first.close()
    assert (exit_code, code) == (4, "scheduler-running")
    assert str(where) in line
    assert (where / "hosts.toml").read_text() == text
