"""Whatever is killed, nothing of the run is left.

agent -- pipe --> supervisor --> mpiexec --> proxy --> rank rank rank
         (eof)    (subreaper)  (dies with (dies with (die with
                                supervisor)  mpiexec)   the proxy)
"""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from apples.errors import ApplicationError, LaunchError
from apples.launch import RankGroup, Run, command

AGENT = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from conftest import Job
from apples.errors import ApplesError
job = Job()
job.name = sys.argv[2]
run = job.run("fake.py", how="silent")
try:
    for event in run.events():
        print("ready", flush=True)
except ApplesError as error:
    sys.exit(error.exit_code)
"""


@pytest.fixture
def agent(job):
    """An agent in a process of its own, whose run is ready."""
    process = subprocess.Popen(
        [sys.executable, "-c", AGENT, str(Path(__file__).parent), job.name],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout.readline() == b"ready\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def state(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def opened(pid):
    """Names of what a process holds open; what it closes during this look is not held."""
    names = []
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            names.append(str(descriptor.readlink()))
    return names


def test_a_rank_is_one_process(job):
    run = job.run(how="silent")
    run.until_ready()
    expected = {"supervisor": 1, "mpiexec": 1, "proxy": 1, "rank": 3}
    assert job.eventually(
        lambda: {k: len(pids) for k, pids in job.processes().items()} == expected
    )
    run.cancel()


def test_a_killed_agent_leaves_nothing(job, agent):
    assert set(job.processes()) == {"supervisor", "mpiexec", "proxy", "rank"}
    agent.kill()
    assert job.is_gone()


def test_an_interrupted_agent_leaves_nothing(job, agent):
    agent.send_signal(signal.SIGINT)
    assert agent.wait(job.patience) == -signal.SIGINT
    assert not job.processes()


def test_an_agent_killed_together_with_its_supervisor_leaves_no_process(job, agent, tmp_path):
    (supervisor,) = job.processes()["supervisor"]
    os.kill(supervisor, signal.SIGKILL)
    agent.kill()
    assert job.is_gone()
    for directory in tmp_path.glob("apples-*"):  # all that is left: three small files
        for file in directory.iterdir():
            file.unlink()
        directory.rmdir()


def test_a_killed_agent_wakes_a_supervisor_that_was_stopped(job, agent):
    (supervisor,) = job.processes()["supervisor"]
    os.kill(supervisor, signal.SIGSTOP)
    agent.kill()
    assert job.is_gone()


@pytest.mark.parametrize("victim", ["supervisor", "mpiexec", "proxy"])
def test_a_killed_helper_ends_the_run(job, victim):
    run = job.run(how="silent")
    run.until_ready()
    os.kill(job.processes()[victim][0], signal.SIGKILL)
    with pytest.raises(ApplicationError) as raised:
        list(run.events())
    assert raised.value.code == "program-failed"
    assert not job.processes()


@pytest.mark.parametrize("victim", ["supervisor", "mpiexec", "proxy", "rank"])
def test_a_stopped_process_does_not_hold_up_the_end(job, victim):
    run = job.run(how="silent")
    run.until_ready()
    os.kill(job.processes()[victim][0], signal.SIGSTOP)
    run.cancel()
    assert not job.processes()


def test_a_stopped_launcher_is_woken(job):
    """When the ranks have ended it is the only one left, and nobody else would notice."""
    run = job.run(how="silent")
    run.until_ready()
    (launcher,) = job.processes()["mpiexec"]

    def stopped():
        os.kill(launcher, signal.SIGSTOP)
        return state(launcher) == "T"

    assert job.eventually(stopped)
    assert job.eventually(lambda: state(launcher) != "T")
    run.cancel()


def test_a_launcher_killed_before_the_start_is_a_failed_launch(job):
    run = job.run(how="never ready")
    assert job.eventually(lambda: "rank" in job.processes())
    os.kill(job.processes()["mpiexec"][0], signal.SIGKILL)
    with pytest.raises(LaunchError) as raised:
        run.until_ready()
    assert raised.value.code == "program-not-ready"
    fields = raised.value.fields
    assert (fields["reason"], fields["launcher_end"]) == ("launcher-killed", "-9")
    assert not job.processes()


def test_processes_that_hide_are_found(job, tmp_path):
    """Double fork, a session of its own, every signal ignored, and the launcher gone."""
    hidden = tmp_path / "hidden"
    program = (
        "import os, signal, time\n"
        "for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):\n"
        "    signal.signal(number, signal.SIG_IGN)\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork():\n"
        "        os._exit(0)\n"
        f"    open({str(hidden)!r}, 'w').write(str(os.getpid()))\n"
        "time.sleep(600)\n"
    )
    rank_groups = [RankGroup("ada", 1, (sys.executable, "-S", "-c", program))]
    run = Run(command(rank_groups, {}), rank_groups, job=job.name, talk=job.talk.append)
    assert job.eventually(lambda: hidden.exists() and hidden.read_text())
    run.cancel()
    assert not job.processes()
    assert not Path(f"/proc/{hidden.read_text()}").exists()


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("how", "named"),
    [
        *(
            ("exit 1", True),
            ("exit 0", True),
            ("abort", True),
            ("exception", False),
            ("kill", False),
        ),
        # Its neighbours die of it, and on a busy machine one of them may be seen first.
        pytest.param("exception", True, marks=pytest.mark.hardware),
        pytest.param("kill", True, marks=pytest.mark.hardware),
    ],
)
def test_a_rank_that_fails_ends_the_run(job, how, named):
    deadlines = {"patience_seconds": 0.3}
    run = job.run("ring.py", iterations=10**9, how=how, deadlines=deadlines)
    with pytest.raises(ApplicationError) as raised:
        list(run.events())
    fields = raised.value.fields
    assert raised.value.code == "program-failed"
    if how == "exception" and named:
        assert "row 7 is bad" in str(raised.value)  # the program's own words
    elif named:
        assert (fields["rank"], fields["host"]) == (2, "bob")
        assert (fields["reason"] == "program-error") == (how == "abort")
    assert not job.processes()


@pytest.mark.mpi
def test_shared_memory_has_no_name_once_all_are_ready(job):
    run = job.run("ring.py", iterations=10**9)
    run.until_ready()
    (rank, *_) = job.processes()["rank"]
    assert job.eventually(lambda: not named_segments(rank))
    run.cancel()


def test_nobody_but_the_supervisor_holds_what_it_reports_through(job):
    """Its end says that the supervisor is gone; a process that outlives it must not keep that back."""
    run = job.run(how="silent")
    run.until_ready()
    there = job.processes()
    (supervisor,) = there.pop("supervisor")
    report = str(Path(f"/proc/{supervisor}/fd/1").readlink())
    held = {pid: opened(pid) for pids in there.values() for pid in pids}
    run.cancel()
    assert report.startswith("pipe:")
    assert held
    assert [pid for pid, names in held.items() if report in names] == []


def test_a_run_nobody_holds_ends(job):
    run = job.run(how="silent")
    run.until_ready()
    del run
    assert job.is_gone()


def named_segments(pid):
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    names = [line.split(maxsplit=5)[-1] for line in lines if "/dev/shm/mpich_shm_" in line]  # noqa: S108
    return [name for name in names if Path(name).exists()]


@pytest.mark.mpi
def test_the_description_that_a_proxy_wrote_for_its_ranks_is_gone_once_they_are_up(job):
    """hydra keeps it open, and removes it itself only where it is not killed."""
    run = job.run("ring.py", iterations=10**9)
    run.until_ready()
    (proxy,) = job.processes()["proxy"]

    def described():
        return [name for name in opened(proxy) if "hydra_hwloc_xmlfile" in name]

    assert described()
    assert job.eventually(lambda: all(name.endswith(" (deleted)") for name in described()))
    run.cancel()
