"""The live scheduler on hosts that are other machines: those of a lab, over ssh."""

import shutil
import signal

import pytest
from labs import cut_off
from sites import LONG, SAMPLE, SHORT, UNITS_FILE, UNITS_PROGRAM, Site
from waiting import until

from apples.jobs import store
from apples.launch import marked

pytestmark = [pytest.mark.mpi, pytest.mark.lab]


@pytest.fixture
def site(state):
    made = []

    def started(hosts, policy="equipartition", *options):
        made.append(Site(state, policy, "--hosts", str(hosts), "--actuator", "ssh", *options))
        made[-1].start()
        return made[-1]

    yield started
    for one in made:
        one.close()


def answered(one, *hosts):
    """Wait until hosts have said that nothing is there."""
    until(lambda: all(one.host(name)["state"] == "free" for name in hosts), 180)


def on(one, job, count):
    """Wait until a job is on so many hosts, and has left all others."""
    until(lambda: len(one.job(job)["hosts"]) == count, 180)


def grown(one, job):
    """Wait until a job has all three hosts: it was given them to start with, and its plan did with the fastest."""
    until(lambda: (found := one.job(job))["resizes"] and len(found["hosts"]) == 3, 180)


def test_jobs_on_other_machines_are_started_shrunk_grown_and_taken_up_after_a_kill(site, lab):
    one = site(lab.hosts)
    answered(one, "ada", "bob", "far")
    first = one.submit("--min", "1", "--max", "3", *LONG)
    grown(one, first)
    second = one.submit("--min", "1", "--max", "1", *LONG)
    one.until(second, "running", 180)
    assert len(one.job(first)["hosts"]) == 2
    one.stop(signal.SIGKILL)
    one.start()
    until(lambda: one.job(first)["iteration"], 180)  # it was asked where it is
    assert (one.job(first)["state"], one.job(first)["attempt"]) == ("running", 1)
    assert one.ask("cancel", second)["state"] == "cancelled"
    on(one, first, 3)
    records = [one.job(name)["record"] for name in (first, second)]
    assert one.ask("cancel", first)["state"] == "cancelled"
    answered(one, "ada", "bob", "far")
    assert [marked(record) for record in records] == [[], []]


def test_a_host_that_is_cut_off_in_a_job_is_lost_and_comes_back_by_itself(site, lab):
    one = site(lab.hosts)
    answered(one, "ada", "bob", "far")
    job = one.submit("--min", "1", "--max", "3", *LONG)
    grown(one, job)
    with cut_off(lab, "far"):
        on(one, job, 2)
        until(lambda: one.host("far")["reason"], 180)
        assert one.host("far")["state"] in {"lost", "quarantined"}
        waiting = one.submit("--min", "3", "--max", "3", *SHORT)
        assert one.ask("cancel", job)["state"] == "cancelled"
        answered(one, "ada", "bob")
        assert one.job(waiting)["state"] == "queued"
        there = one.submit("--min", "2", "--max", "2", "--priority", "9", *SHORT)
        until(lambda: one.job(there)["state"] == "finished", 180)
        assert "far" not in one.run("logs", there).stdout  # nobody looked at it
        assert one.host("far")["state"] in {"lost", "quarantined"}
    assert one.ask("wait", waiting)["schema"] == "apples.run/1"
    answered(one, "ada", "bob", "far")


def test_a_job_of_a_program_that_is_not_malleable_leaves_its_hosts_by_their_own_word(
    site, lab, tmp_path
):
    template = (SAMPLE / "template.toml").read_text().replace("malleable = true", "")
    (tmp_path / "template.toml").write_text(template)
    shutil.copy(SAMPLE / "program.py", tmp_path)
    one = site(lab.hosts, "fcfs")
    words = ("--template", str(tmp_path / "template.toml"), "--min", "2", "--max", "2")
    job = one.submit(*words, *LONG)
    record = one.until(job, "running", 180)["record"]
    assert marked(record) != []  # this machine sees the processes of its lab
    assert one.ask("cancel", job)["state"] == "cancelled"
    answered(one, "ada", "bob", "far")
    assert marked(record) == []


def test_a_master_with_workers_grows_loses_a_host_and_leaves_all_by_their_own_word(
    site, lab, tmp_path
):
    (tmp_path / "master-worker.toml").write_text(UNITS_FILE)
    (tmp_path / "program.py").write_text(UNITS_PROGRAM)
    gate = tmp_path / "gate"
    one = site(lab.hosts, "easy")
    answered(one, "ada", "bob", "far")
    words = ("--template", str(tmp_path / "master-worker.toml"), "--no-verify")
    job = one.submit(*words, "--min", "1", "--max", "3", "--set", f"gate={gate}")
    on(one, job, 3)
    record = one.job(job)["record"]
    assert marked(record) != []  # this machine sees the processes of its lab
    found = store.record(record)
    master = store.document_of(found.plan)["master"]
    with cut_off(lab, next(host for host in ("far", "bob") if host != master)):
        on(one, job, 2)
        gate.touch()
        until(lambda: found.record()["state"] == "finished", 180)
    # Of a lab this machine sees what is left on the host, and the job is over when that has ended.
    done = one.ask("wait", job)["execution"]
    assert (done["result"], one.job(job)["attempt"]) == (sum(n * n for n in range(200)), 1)
    answered(one, "ada", "bob", "far")
    gate.unlink()
    other = one.submit(*words, "--min", "3", "--max", "3", "--set", f"gate={gate}")
    again = one.until(other, "running", 180)["record"]
    until(lambda: marked(again))
    assert one.ask("cancel", other)["state"] == "cancelled"
    answered(one, "ada", "bob", "far")
    assert [marked(record), marked(again)] == [[], []]
