"""Real jobs on a real Slurm, in the lab: where ranks land, how they are ended, what the queue costs."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from commands import command
from waiting import until

from apples.agent import Coordinator, host_survey, launch_plan, load_information, with_queue_wait
from apples.errors import ApplicationError, DeadlineError, LaunchError
from apples.launch import (
    LocalActuator,
    SlurmActuator,
    SlurmOptions,
    SshActuator,
    client,
    example_folder,
)
from apples.resources import Allocation, Schedule

pytestmark = [pytest.mark.lab, pytest.mark.slurm]


@pytest.fixture
def cluster(slurm, case, tmp_path, monkeypatch):
    """Return a case whose hosts are nodes of the lab: far, two ranks on ada, bob, in that order."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)

    def make(**settings):
        one = case(hosts=slurm.hosts, **settings)
        hosts = one.information.hosts
        rows = {"far": 10, "ada": 15, "bob": 5}
        one.schedule = Schedule(tuple(Allocation(hosts[n], r, "default") for n, r in rows.items()))
        return one

    yield make
    assert queue() == []
    assert not list(tmp_path.glob(".apples-*"))


def queue():
    return client.run(["squeue", "--noheader", "--format=%i"]).split()


def nodes_of(one):
    return [record["node"] for record in one.records()]


def test_uneven_ranks_land_exactly_where_planned(cluster):
    one = cluster()
    execution = SlurmActuator().actuate(one.plan)
    assert execution.outcome().iterations == 2
    assert nodes_of(one) == ["far", "ada", "ada", "bob"]
    assert {r["environment"]["SLURM_JOB_NUM_NODES"] for r in one.records()} == {"3"}
    assert one.records()[0]["task"]["partition"][1]["ranks"] == 2


def test_cancel_leaves_nothing_in_the_queue_and_no_process(cluster):
    one = cluster(how="silent")
    execution = SlurmActuator().actuate(one.plan)
    (job,) = queue()
    execution.cancel()
    assert queue() == []
    assert client.job_end(int(job)).state == "CANCELLED"


def test_a_program_that_fails_is_named_with_its_reason(cluster):
    one = cluster(how="refuses")
    with pytest.raises(ApplicationError) as raised:
        SlurmActuator().actuate(one.plan)
    assert raised.value.code == "program-failed"
    assert "depth" in raised.value.fields["text"]


def test_a_rank_that_was_killed_is_named_with_its_signal(cluster):
    one = cluster(how="silent")
    # Slurm's own patience with a busy node is longer than a program may be silent.
    execution = SlurmActuator(silence_seconds=300.0).actuate(one.plan)
    os.kill(program_of(3), signal.SIGSEGV)
    try:
        with pytest.raises(ApplicationError) as raised:
            execution.outcome()
    except DeadlineError:
        for log in Path(os.environ["SLURM_CONF"]).parent.glob("*.log"):
            print(log.name, log.read_text(errors="replace")[-3000:])
        raise
    fields = raised.value.fields
    assert (raised.value.code, fields["reason"]) == ("program-failed", "rank-killed")
    assert (fields["rank"], fields["host"], fields["signal"]) == (3, "bob", "SIGSEGV")


@pytest.mark.mpi
def test_a_rank_that_raises_is_named_while_the_others_wait(cluster, tmp_path):
    leaver = Path(__file__).parents[1] / "programs" / "leaver.py"
    one = cluster()
    template = f'name = "leaver"\nprogram = ["{{python}}", "{leaver}"]\n[parameters.how]\n'
    template += 'default = "raise"\n[parameters.grid]\ndefault = 30\n'
    template += "[parameters.iterations]\ndefault = 2\n"
    (tmp_path / "template.toml").write_text(template)
    files = [tmp_path / f"{name}.toml" for name in ("hosts", "template", "user")]
    plan = launch_plan(one.schedule, load_information(*files, weather="static"))
    with pytest.raises(ApplicationError) as raised:
        SlurmActuator().actuate(plan).outcome()
    fields = raised.value.fields
    assert fields["reason"] in {"rank-left", "rank-ended"}
    assert (fields["rank"], fields["host"]) == (1, "ada")
    assert "ValueError: row 7 is bad" in fields["last_words"]


def program_of(rank):
    """The process of a rank of the only job of this Slurm, once it is the program."""
    (job,) = client.run(["squeue", "--noheader", "--format=%j"]).split()
    wanted = {b"SLURM_PROCID=%d" % rank, b"SLURM_JOB_NAME=%s" % job.encode()}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command_line = (folder / "cmdline").read_bytes()
            variables = (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if wanted <= set(variables) and b"fake.py" in command_line:
            return int(folder.name)
    raise AssertionError(f"no rank {rank}")


def test_a_job_that_slurm_ends_says_how(cluster):
    one, talk = cluster(how="silent"), []
    execution = SlurmActuator(talk=talk.append).actuate(one.plan)
    client.run(["scancel", *queue()])
    with pytest.raises(ApplicationError) as raised:
        execution.outcome()
    assert raised.value.code == "program-failed"


@pytest.mark.skipif(
    "APPLES_TIME_LIMIT" not in os.environ,
    reason="waits up to half a minute for Slurm to look at limits: APPLES_TIME_LIMIT=1 asks for it",
)
@pytest.mark.parametrize("how", ["silent", "complains"])
def test_a_job_ended_by_its_time_limit_is_a_deadline_whatever_its_ranks_say(cluster, how):
    one = cluster(how=how)
    actuator = SlurmActuator(options=SlurmOptions(minutes=1))
    execution = actuator.actuate(one.plan)
    client.run(["scontrol", "update", f"JobId={queue()[0]}", "EndTime=now"])
    with pytest.raises(DeadlineError) as raised:
        execution.outcome()
    assert (raised.value.code, raised.value.fields["minutes"]) == ("time-limit", 1.0)


def test_a_plan_runs_as_a_step_of_the_allocation_the_agent_is_in(cluster, monkeypatch):
    one = cluster()
    hold = ["salloc", "--nodes=3", "--ntasks=4", "--no-shell"]
    number = client.run(hold).partition("Granted job allocation ")[2].split()[0]
    try:
        monkeypatch.setenv("SLURM_JOB_ID", number)
        monkeypatch.setenv("SLURM_JOB_NODELIST", "ada,bob,far")
        actuator = SlurmActuator()
        assert actuator.wait_seconds(one.plan) == 0.0
        seen = actuator.look(host_survey(one.information))
        assert set(seen) == {"ada", "bob", "far"}
        assert not any(look.refusal for look in seen.values())
        plan = launch_plan(one.schedule, one.information.with_findings(seen))
        actuator.actuate(plan).outcome()
        assert nodes_of(one) == ["far", "ada", "ada", "bob"]
        assert {r["environment"]["SLURM_JOB_ID"] for r in one.records()} == {number}
        assert client.run(["squeue", "--steps", "--noheader"]).strip() == ""
    finally:
        client.run(["scancel", number])
        until(lambda: not queue())


def test_hosts_outside_the_allocation_or_unknown_are_not_used(cluster, monkeypatch):
    one = cluster()
    monkeypatch.setenv("SLURM_JOB_NODELIST", "ada")
    survey = host_survey(one.information)
    seen = SlurmActuator(allocation="12", talk=lambda _: None).look(survey)
    assert {name for name, look in seen.items() if look.refusal} == {"bob", "far"}
    client.run(["scontrol", "update", "NodeName=bob", "State=DRAIN", "Reason=fan"])
    try:
        until(lambda: SlurmActuator(talk=lambda _: None).look(survey)["bob"].refusal)
    finally:
        client.run(["scontrol", "update", "NodeName=bob", "State=RESUME"])


def test_the_queue_is_waited_for_in_the_estimate(cluster, tmp_path):
    one = cluster()
    (tmp_path / "blocker").write_text("#!/bin/sh\nexec sleep 300\n")
    hold = ["sbatch", "--parsable", "--nodes=3", "--ntasks=4", "--time=5", "blocker"]
    blocker = int(client.run(hold))
    try:
        until(lambda: client.job_state(blocker).running)
        actuator = SlurmActuator(options=SlurmOptions(minutes=1))
        wait = actuator.wait_seconds(one.plan)
        assert 120 < wait < 400
        coordinator = Coordinator(one.information, actuator)
        estimate = coordinator.estimate(one.schedule)
        ((later,), _) = with_queue_wait([estimate], actuator, one.information)
        assert later.wait_seconds == pytest.approx(wait, abs=60)
        assert later.value == pytest.approx(estimate.value + later.wait_seconds)
    finally:
        client.run(["scancel", str(blocker)])
        until(lambda: not queue())


def test_a_detached_job_is_let_go_before_its_turn_in_the_queue_and_can_be_cancelled(
    cluster, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = cluster().folder
    (tmp_path / "blocker").write_text("#!/bin/sh\nexec sleep 300\n")
    hold = ["sbatch", "--parsable", "--nodes=3", "--ntasks=4", "--time=5", "blocker"]
    blocker = int(client.run(hold))
    try:
        until(lambda: client.job_state(blocker).running)
        files = [f"--{name}={folder / name}.toml" for name in ("hosts", "template", "user")]
        words = ["run", *files, "--detach", "--actuator", "slurm", "--no-verify", "--json"]
        started = command("apples", *words).document
        assert started["state"] == "starting"
        until(lambda: len(queue()) == 2)
        assert command("apples", "cancel", started["id"]).code == 0
        until(lambda: len(queue()) == 1)
    finally:
        client.run(["scancel", str(blocker)])
        until(lambda: not queue())


def test_a_job_slurm_would_not_take_is_refused_with_its_words(cluster):
    one = cluster()
    with pytest.raises(LaunchError) as raised:
        SlurmActuator(options=SlurmOptions(partition="nosuch")).wait_seconds(one.plan)
    assert raised.value.code == "slurm-command-failed"
    assert "partition" in raised.value.fields["reason"]  # Slurm's own words


def test_the_same_plan_gives_the_same_bytes_through_every_actuator(slurm, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.delenv("UCX_TLS", raising=False)  # each way keeps MPI off shared memory by itself
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = example_folder()
    files = (slurm.hosts, folder / "template.toml", folder / "user.toml")
    information = load_information(
        *files, settings={"grid": 120, "iterations": 20}, weather="static"
    )
    hosts = information.hosts
    rows = {"far": 30, "ada": 70, "bob": 20}
    schedule = Schedule(
        tuple(
            Allocation(hosts[n], r, information.implementation(hosts[n])) for n, r in rows.items()
        )
    )
    digests = set()
    for actuator in (LocalActuator(), SshActuator(), SlurmActuator()):
        pool = information.with_findings(actuator.look(host_survey(information)))
        outcome = actuator.actuate(launch_plan(schedule, pool)).outcome()
        assert [one.host for one in outcome.hosts] == ["far", "ada", "bob"]
        digests.add(outcome.sha256)
    assert len(digests) == 1


def test_a_dry_run_prints_script_and_machine_file_and_submits_nothing(
    slurm, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = example_folder()
    words = ["--hosts", slurm.hosts, "--template", folder / "template.toml"]
    words += ["--user", folder / "user.toml", "--weather", "static", "--set", "grid=2000"]
    words += ["--actuator", "slurm", "--slurm", "account=physics", "--dry-run"]
    done = command("apples", "run", *words)
    assert done.code == 0, done.err
    assert "# job.sh" in done.out
    assert "#SBATCH --account=physics" in done.out
    assert "# machines" in done.out
    assert queue() == []


AGENT = """
import sys
sys.path[:0] = {path!r}
from pathlib import Path
from apples.launch import SlurmActuator
from apples.agent import load_information
from apples.agent import launch_plan
from apples.resources import Allocation, Schedule
files = [Path({folder!r}) / f"{{n}}.toml" for n in ("hosts", "template", "user")]
information = load_information(*files, settings={{"how": "silent"}}, weather="static")
hosts = information.hosts
schedule = Schedule((Allocation(hosts["ada"], 20, "default"), Allocation(hosts["bob"], 10, "default")))
run = SlurmActuator().actuate(launch_plan(schedule, information))
print("ready", flush=True)
run.outcome()
"""


def test_a_job_does_not_outlive_an_agent_that_is_killed(cluster, tmp_path):
    cluster()
    program = AGENT.format(path=sys.path, folder=str(tmp_path))
    agent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert agent.stdout.readline() == b"ready\n"
    assert len(queue()) == 1
    agent.send_signal(signal.SIGKILL)
    agent.wait()
    agent.stdout.close()
    until(lambda: not queue())
    until(lambda: not [*tmp_path.glob(".apples-*"), *(tmp_path / "tmp").iterdir()])
