"""Ranks on other machines, each asked from inside which CPUs it may use."""

import os
from contextlib import contextmanager
from dataclasses import replace

import pytest

from apples.agent import host_survey, launch_plan
from apples.errors import LaunchError
from apples.launch import SlurmActuator, SshActuator, places
from apples.resources import Allocation, Schedule
from apples.topology import probe

OWN = sorted(os.sched_getaffinity(0))
several = pytest.mark.skipif(len(OWN) < 2, reason="this process has one CPU: no rank is bound")


@contextmanager
def logins_on(sshd, cpus):
    """Give the logins of a server these CPUs alone."""
    before = os.sched_getaffinity(sshd.process.pid)
    os.sched_setaffinity(sshd.process.pid, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(sshd.process.pid, before)


@pytest.fixture
def abroad(case, sshd, tmp_path):
    """Return what runs ranks on so many hosts; gives each rank's CPUs, and what was said."""
    (tmp_path / "list").write_text(sshd.host_list(2))

    def run(count, forget=()):
        one = case(hosts=tmp_path / "list")
        talk = []
        actuator = SshActuator(talk=talk.append)
        information = one.information.with_findings(actuator.look(host_survey(one.information)))
        for name in forget:
            seen = replace(information.findings[name], topology="")
            information = information.with_findings({name: seen})
        hosts = [information.hosts[f"h{i + 1}"] for i in range(count)]
        schedule = Schedule(tuple(Allocation(h, 30 // count, "default") for h in hosts))
        actuator.actuate(launch_plan(schedule, information)).outcome()
        return [record["cpus"] for record in one.records()], talk

    return run


@several
@pytest.mark.ssh
def test_hosts_that_are_one_machine_get_a_cpu_each_over_ssh(abroad):
    found, talk = abroad(2)
    assert [len(cpus) for cpus in found] == [1, 1]
    assert found[0] != found[1]
    assert talk == []


@several
@pytest.mark.ssh
def test_only_the_cpus_a_login_gives_are_used(abroad, sshd):
    with logins_on(sshd, {OWN[-1]}):
        assert abroad(1) == ([[OWN[-1]]], [])
        assert abroad(2) == ([[OWN[-1]], [OWN[-1]]], [])  # shared: bound to nothing closer


@several
@pytest.mark.ssh
def test_a_host_that_did_not_say_leaves_all_unbound_and_is_named(abroad):
    found, talk = abroad(2, forget=("h2",))
    assert found == [OWN, OWN]
    (note,) = talk
    assert "h2" in note


@pytest.fixture
def job(slurm, case, tmp_path, monkeypatch):
    """Return what runs one rank on each of some nodes; gives each rank's CPUs, and what was said."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)

    def run(*names):
        one = case(hosts=slurm.hosts)
        hosts = [one.information.hosts[name] for name in names]
        schedule = Schedule(tuple(Allocation(h, 30 // len(hosts), "default") for h in hosts))
        talk = []
        SlurmActuator(talk=talk.append).actuate(launch_plan(schedule, one.information)).outcome()
        return [record["cpus"] for record in one.records()], talk

    return run


@several
@pytest.mark.lab
@pytest.mark.slurm
def test_ranks_of_a_job_share_out_what_slurm_gave_them(job):
    found, talk = job("far", "bob")
    assert not set(found[0]) & set(found[1])
    assert talk == []
    alone = [job(name)[0][0] for name in ("far", "bob")]
    assert found == alone  # a host of the lab with a quota has as many CPUs as begun cores


def told(cpus, boot="x", whole=True):
    answer = probe.describe() if whole else probe.describe(patterns=())
    return {**answer, "boot": boot, "cpus": cpus}


def test_what_slurm_gave_each_task_alone_stays_its():
    own = [told([cpu], whole=not i) for i, cpu in enumerate(OWN)]
    assert places(["a"] * len(OWN), own) == tuple((cpu,) for cpu in OWN)


def test_what_slurm_gave_to_all_tasks_of_a_machine_is_divided_and_never_exceeded():
    alike = [told(OWN, whole=True), told(OWN, whole=False)]
    found = places(["a", "a"], alike)
    assert sorted(cpu for rank in found for cpu in rank) == (OWN if len(OWN) > 1 else [])
    assert places(["a", "b"], [told(OWN[:1]), told(OWN[:1], "y")]) == ((OWN[0],), (OWN[0],))
    assert places(["a", "a"], [told(OWN[:1]), told(OWN[:1])]) == ()


def test_a_node_that_does_not_describe_itself_is_named():
    with pytest.raises(LaunchError) as raised:
        places(["a", "b"], [told(OWN), told(OWN, "y", whole=False)])
    assert (raised.value.code, raised.value.fields["host"]) == ("topology-answer-invalid", "b")
