"""Real runs over real ssh: four hosts that are loopback addresses of one sshd.

agent --> supervisor --> mpiexec
agent --> ssh ==> sshd --> host agent --> proxy --> rank
                  (its end ends the host agent, that all below it)
"""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import sshd as own

from apples.errors import ApplicationError, LaunchError
from apples.launch import RankGroup, Reach, Run, job_processes, log_in, ssh

pytestmark = pytest.mark.ssh
FAKE = (sys.executable, "-S", str(Path(__file__).parent / "programs" / "fake.py"))
HOSTS = ("h1", "h2", "h3", "h4")


def over_ssh(
    job,
    config,
    hosts=HOSTS,
    python=sys.executable,
    directory="",
    *,
    stillborn=(),
    deadlines=None,
    **parameters,
):
    """A run of the test program, two ranks on the first host and one on each other."""
    rank_groups = [RankGroup(h, 2 if h == "h1" else 1, FAKE) for h in hosts]
    targets = [
        ssh.LaunchTarget(
            one,
            own.ADDRESSES[i],
            Reach(one.host, own.ADDRESSES[i], python, "", str(config)),
            directory,
        )
        for i, one in enumerate(rank_groups)
    ]
    task = job.task(rank_groups, **parameters)
    order = ssh.command(targets, task, job=job.name, here="127.0.0.1", directory=Path.cwd())
    return Run(
        job.with_a_stillborn(order, *stillborn) if stillborn else order,
        rank_groups,
        job=job.name,
        talk=job.talk.append,
        connections=[log_in(target.reach, job.name) for target in targets],
        startup_seconds=job.patience,
        silence_seconds=job.patience,
        **(deadlines or {}),
    )


def processes(job):
    """Name -> process ids; remote supervisors are what started the proxies."""
    found = job.processes()
    supervisors = {job_processes.parent_of(pid) for pid in found.get("proxy", [])}
    others = [pid for pid in found.get("rank", []) if pid not in supervisors]
    ssh_ = [pid for pid in others if program(pid) == "ssh"]
    ranks = [pid for pid in others if program(pid) != "ssh" and became(pid)]
    return found | {"remote": sorted(supervisors), "ssh": ssh_, "rank": ranks}


def became(pid):
    """Whether a rank is the program already, which it becomes after it is known to its supervisor."""
    words = job_processes.read(f"/proc/{pid}/cmdline")
    # The wrapper of a rank, which has another name on a host of its own.
    return b"rank_wrapper.py" not in words and b"bind.py" not in words


def program(pid):
    return job_processes.read(f"/proc/{pid}/comm").decode().strip()


def folders(job):
    return list(Path("/tmp").glob(f"apples-{job.name}-*"))  # noqa: S108 - where supervisors make them


@pytest.fixture
def nothing_left(job):
    """Nothing of the job is left in the shared folder either; a killed supervisor's is put away."""
    yield
    for folder in folders(job):
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()


def test_uneven_ranks_run_where_they_were_put_and_leave_nothing(job, sshd, tmp_path):
    record = tmp_path / "records"
    record.mkdir()
    run = over_ssh(job, sshd.config, directory=str(tmp_path), record=str(record))
    assert run.until_ready().ranks == 5
    list(run.events())
    run.finish()
    assert not processes(job)["rank"]
    assert not folders(job)
    told = [json.loads(file.read_text()) for file in sorted(record.iterdir())]
    servers = [one["environment"]["SSH_CONNECTION"].split()[2] for one in told]
    assert servers == [own.ADDRESSES[0], *own.ADDRESSES]  # in rank order
    assert {one["directory"] for one in told} == {str(tmp_path)}
    assert {one["environment"]["OMP_NUM_THREADS"] for one in told} == {"1"}


def test_only_listed_variables_leave_this_machine(job, sshd, tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    monkeypatch.setenv("UCX_LOG_LEVEL", "error")
    monkeypatch.setenv("WANTED", "yes")
    monkeypatch.setenv("APPLES_CARRY", "WANTED")
    record = tmp_path / "records"
    record.mkdir()
    run = over_ssh(job, sshd.config, hosts=("h1", "h2"), record=str(record))
    list(run.events())
    run.finish()
    for file in record.iterdir():
        told = json.loads(file.read_text())["environment"]
        assert "AWS_SECRET_ACCESS_KEY" not in told
        assert (told["UCX_LOG_LEVEL"], told["WANTED"]) == ("error", "yes")


def test_lines_of_a_rank_arrive_in_their_order_and_byte_for_byte(job, sshd):
    """Longer than a line may be, with escapes, and not UTF-8."""
    run = over_ssh(job, sshd.config, hosts=("h1",), how="babbles")
    list(run.events())
    run.finish()
    longest, *others = job.talk
    assert len(longest) == 65537
    assert others == [
        "\x1b[31mred",
        '{"event": "weather"}',
        '{"event": 3}',
        "[]",
        "{",
        "\ufffd\ufffd",
    ]


PAIR = ("h1", "h2")  # where two hosts show what four would: a login takes its time
PRESENT = {"supervisor": 1, "mpiexec": 1, "ssh": 2, "remote": 2, "proxy": 2, "rank": 3}


def started(job, config, deadlines=None):
    """A run of a program that says no more after it is ready, and who is there by then."""
    run = over_ssh(job, config, hosts=PAIR, deadlines=deadlines, how="silent")
    run.until_ready()

    def counted():
        return {name: len(pids) for name, pids in processes(job).items()}

    assert job.eventually(lambda: counted() == PRESENT), counted()
    return run, processes(job)


@pytest.mark.more
@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("victim", ["supervisor", "mpiexec", "proxy", "remote", "ssh"])
def test_a_killed_helper_ends_the_run_on_every_host(job, sshd, victim):
    run, there = started(job, sshd.config)
    os.kill(there[victim][-1], signal.SIGKILL)
    with pytest.raises(ApplicationError) as raised:
        list(run.events())
    assert raised.value.code == "program-failed"
    assert job.is_gone()
    assert job.eventually(
        lambda: not any(Path(f"/proc/{pid}").exists() for pid in there["remote"])
    )


# Its neighbours die of it, and on a busy machine one of them may be seen first.
@pytest.mark.parametrize("named", [False, pytest.param(True, marks=pytest.mark.hardware)])
def test_a_killed_rank_is_named_with_its_host(job, sshd, named):
    run, there = started(job, sshd.config, {"patience_seconds": 0.3})
    victim = next(pid for pid in there["rank"] if b"PMI_RANK=2" in environ(pid))
    os.kill(victim, signal.SIGKILL)
    with pytest.raises(ApplicationError) as raised:
        list(run.events())
    fields = raised.value.fields
    assert raised.value.code == "program-failed"
    if named:
        assert (fields["rank"], fields["host"], fields["signal"]) == (2, "h2", "SIGKILL")
    assert not job_processes.marked(job.name)
    assert not folders(job)


@pytest.mark.more
@pytest.mark.parametrize(
    ("rank", "end"),
    [
        pytest.param(1, "exit 3", id="beside a living one"),
        pytest.param(2, "exit 3", id="alone"),
        pytest.param(2, "kill -9 $$", id="killed"),
    ],
)
def test_a_rank_that_ends_before_anybody_heard_of_it_is_missed(job, sshd, rank, end):
    run = over_ssh(job, sshd.config, hosts=PAIR, how="never ready", stillborn=(rank, end))
    with pytest.raises(LaunchError) as raised:
        run.until_ready()
    assert raised.value.code == "program-not-ready"
    assert (raised.value.fields["rank"], raised.value.fields["host"]) == (rank, f"h{rank}")
    assert job.is_gone()
    assert not folders(job)


def environ(pid):
    return job_processes.read(f"/proc/{pid}/environ")


def test_a_launcher_that_kills_its_process_group_kills_no_supervisor(job, sshd):
    """hydra kills the group of each child; one that it has just forked is still in hydra's own."""
    run, there = started(job, sshd.config)
    supervisors = {os.getpgid(pid) for pid in (*there["supervisor"], *there["remote"])}
    for pid in (*there["mpiexec"], *there["proxy"]):
        assert os.getpgid(pid) not in supervisors
    run.cancel()


@pytest.mark.more
@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("victim", ["mpiexec", "remote", "ssh"])
def test_a_stopped_process_does_not_hold_up_the_end(job, sshd, victim):
    run, there = started(job, sshd.config)
    os.kill(there[victim][-1], signal.SIGSTOP)
    run.cancel()
    assert not job_processes.marked(job.name)
    assert not any(line.startswith("warning: h") for line in job.talk)
    assert job.eventually(lambda: not Path(f"/proc/{there[victim][-1]}").exists())


@pytest.mark.usefixtures("nothing_left")
def test_a_host_that_cannot_be_asked_any_more_is_named(job, sshd, tmp_path):
    config = tmp_path / "config"
    config.write_text(f"Include {sshd.config}\n")
    run, there = started(job, config)
    config.write_text(f"Host 127.0.0.3\n  Port 1\nHost *\n  Include {sshd.config}\n")
    second = next(pid for pid in there["remote"] if b"127.0.0.3" in environ(pid))
    os.kill(second, signal.SIGKILL)
    run.cancel()
    assert job.talk[-1].startswith("warning: h2: ")
    assert job.is_gone()


AGENT = """
import sys
sys.path.insert(0, sys.argv[1])
from conftest import Job
from test_ssh_runs import PAIR, over_ssh
job = Job()
job.name = sys.argv[2]
for event in over_ssh(job, sys.argv[3], hosts=PAIR, how="silent").events():
    print("ready", flush=True)
"""


@pytest.mark.more
@pytest.mark.parametrize("together_with", [(), ("supervisor",), ("supervisor", "mpiexec")])
def test_a_killed_agent_leaves_nothing_on_any_host(job, sshd, together_with, tmp_path):
    place = str(Path(__file__).parent)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    agent = subprocess.Popen(
        [sys.executable, "-c", AGENT, place, job.name, str(sshd.config)],
        stdout=subprocess.PIPE,
        env=environment,
    )
    try:
        assert agent.stdout.readline() == b"ready\n"
        there = processes(job)
        # What it did between their deaths and its own would be another test: its hosts are one machine here,
        # so that clearing up after its own supervisor it would kill those that are to clear the other hosts.
        agent.send_signal(signal.SIGSTOP)
        for name in together_with:
            with suppress(ProcessLookupError):  # a launcher dies with its supervisor
                os.kill(there[name][0], signal.SIGKILL)
    finally:
        agent.kill()
        agent.wait()
        agent.stdout.close()
    assert job.is_gone()
    assert job.eventually(lambda: not folders(job))
    # What an agent that is killed with its supervisor leaves: a few files.
    for directory in tmp_path.glob("apples-*"):
        for file in directory.iterdir():
            file.unlink()
        directory.rmdir()


def test_a_host_that_cannot_be_reached_fails_the_launch_by_name(job, sshd, tmp_path):
    config = tmp_path / "config"
    config.write_text(f"Host 127.0.0.3\n  Port 1\nHost *\n  Include {sshd.config}\n")
    # A program of MPI waits for its other ranks in MPI_Init.
    run = over_ssh(job, config, hosts=PAIR, how="never ready")
    with pytest.raises(LaunchError) as raised:
        run.until_ready()
    fields = raised.value.fields
    assert raised.value.code == "program-not-ready"
    assert (fields["reason"], fields["host"]) == ("host-lost", "h2")
    assert "refused" in fields["last_words"]  # ssh's own words
    assert job.is_gone()
    assert job.eventually(lambda: not folders(job))
