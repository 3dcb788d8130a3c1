"""What a failed run says: which rank, on which host, what became of it, and its own last words."""

import os
import re
import signal
import sys
import tempfile
from pathlib import Path

import pytest

from apples.errors import ApplicationError, LaunchError, ManagerUnreachableError
from apples.launch import RankGroup, Run, client, command
from apples.storage import documents

PROGRAMS = Path(__file__).with_name("programs")
LEAVER = (sys.executable, str(PROGRAMS / "leaver.py"))


def leaver(job, ranks=2, **parameters):
    """A run of the plain MPI program, its last rank on bob."""
    groups = [RankGroup("ada", ranks - 1, LEAVER), RankGroup("bob", 1, LEAVER)]
    order = command(groups, job.task(groups, **parameters))
    return Run(order, groups, job=job.name, talk=job.talk.append)


def failure(run, kind=ApplicationError):
    with pytest.raises(kind) as caught:
        list(run.events())
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    "name", ["SIGKILL", "SIGSEGV", "SIGTERM", "SIGABRT", "SIGBUS", "SIGFPE", "SIGXCPU"]
)
def test_a_rank_that_was_killed_is_named_with_its_signal(job, name):
    run = job.run(how="silent")
    run.until_ready()
    assert job.eventually(lambda: program_of(job, 2))
    os.kill(program_of(job, 2), signal.Signals[name])
    said = failure(run)
    assert said == f"fake.py: rank 2 (bob) ended before it said 'done': killed by {name}"
    assert job.is_gone()


def stillborn(job, rank, end):
    groups = [RankGroup("ada", 2, LEAVER), RankGroup("bob", 1, LEAVER)]
    order = job.with_a_stillborn(command(groups, job.task(groups, how="returns")), rank, end)
    said = failure(Run(order, groups, job=job.name, talk=job.talk.append), LaunchError)
    assert job.is_gone()
    return said


def test_a_rank_that_ends_before_it_is_heard_of_is_missed_beside_living_ones(job):
    assert stillborn(job, 2, "exit 3") == "leaver.py: rank 2 (bob) ended before it was ready"


def test_a_rank_that_is_killed_before_it_is_heard_of_ends_the_run(job):
    assert " ended before it was ready" in stillborn(job, 2, "kill -9 $$")


@pytest.mark.parametrize("code", [1, 3, 255])
def test_an_exit_code_is_the_ranks_own(job, code):
    program = (sys.executable, "-S", "-c", f"raise SystemExit({code})")
    groups = [RankGroup("ada", 1, program)]
    run = Run(command(groups, {}), groups, job=job.name, talk=job.talk.append)
    said = failure(run, LaunchError)
    assert said.endswith(f"rank 0 (ada) ended before it was ready (exit code {code})")


def test_last_words_are_those_of_the_rank_that_failed(job, tmp_path):
    spoken = tmp_path / "spoken"
    spoken.mkdir()
    program = (
        "import os, sys, time\n"
        "rank = int(os.environ['PMI_RANK'])\n"
        "for i in range(9): print('rank', rank, 'is fine', file=sys.stderr, flush=True)\n"
        f"os.mkdir(os.path.join({str(spoken)!r}, str(rank)))\n"
        f"while rank == 1 and len(os.listdir({str(spoken)!r})) < 3: time.sleep(0.01)\n"
        "if rank == 1: open('/no/such/file')\n"
        "time.sleep(600)\n"
    )
    groups = [RankGroup("ada", 3, (sys.executable, "-S", "-c", program))]
    said = failure(
        Run(command(groups, {}), groups, job=job.name, talk=job.talk.append), LaunchError
    )
    assert "rank 1 (ada) ended before it was ready (exit code 1)" in said
    assert said.endswith("FileNotFoundError: [Errno 2] No such file or directory: '/no/such/file'")
    assert "is fine" not in said
    assert sum("is fine" in line for line in job.talk) == 27  # and all of it is talk


def test_what_a_rank_writes_cannot_steer_a_terminal(job):
    program = "import sys; sys.stderr.write('\\x1b[2J\\x9b31m' + 'x' * 5000 + '\\n'); sys.exit(4)"
    groups = [RankGroup("ada", 1, (sys.executable, "-S", "-c", program))]
    said = failure(
        Run(command(groups, {}), groups, job=job.name, talk=job.talk.append), LaunchError
    )
    assert said.isprintable()
    assert len(said) < 500


@pytest.mark.mpi
def test_a_rank_that_raises_is_named_with_the_users_line_while_others_wait(job):
    said = failure(leaver(job, how="raise"))
    line = 'File "' + str(PROGRAMS / "leaver.py") + '", line 23, in go_wrong'
    assert said == (
        "leaver.py: rank 1 (bob) left before it said 'done'; its last words: "
        f'{line} / raise ValueError("row 7 is bad") / ValueError: row 7 is bad'
    )
    assert "Traceback (most recent call last):" in job.talk  # the whole of it
    assert job.is_gone()


@pytest.mark.mpi
@pytest.mark.more
@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize(
    ("how", "who", "words"),
    [
        ("sys.exit", 1, "rank 1 (HOST) left before it said 'done'"),
        ("sys.exit", 0, "rank 0 (ada) left before it said 'done'"),
        ("raise", 0, "rank 0 (ada) left before it said 'done'; its last words: "),
        ("os._exit", 1, "rank 1 (HOST) ended before it said 'done' (exit code 0)"),
        ("SIGKILL", 1, "rank 1 (HOST) ended before it said 'done': killed by SIGKILL"),
        ("SIGSEGV", 0, "rank 0 (ada) ended before it said 'done': killed by SIGSEGV"),
    ],
)
def test_whatever_becomes_of_a_rank_is_said_while_others_wait(job, ranks, how, who, words):
    said = failure(leaver(job, ranks, how=how, who=who))
    assert words.replace("HOST", "bob" if ranks == 2 else "ada") in said
    assert job.is_gone()


@pytest.mark.mpi
@pytest.mark.more
def test_the_first_rank_may_do_its_last_work_alone(job):
    run = leaver(job, 3, how="return")
    assert [type(event).__name__ for event in run.events()] == ["Ready", "Outcome", "DoneEvent"]
    run.finish()


MEMORY = Path("/sys/fs/cgroup/memory")


@pytest.fixture
def small_group(job):
    """A cgroup of version 1 with 64 MiB, in which a process that wants more is killed."""
    group = MEMORY / f"apples-{job.name}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(64 << 20))
    except OSError as error:
        pytest.skip(f"no memory cgroup of version 1 can be made: {error}")
    yield group
    assert job.eventually(lambda: not (group / "cgroup.procs").read_text())
    group.rmdir()


def test_a_rank_that_hit_its_memory_limit_is_said_to(job, small_group):
    program = (sys.executable, "-S", "-c", "bytearray(256 << 20)")
    groups = [RankGroup("ada", 1, program, cgroup=str(small_group / "cgroup.procs"))]
    run = Run(command(groups, {}), groups, job=job.name, talk=job.talk.append)
    assert failure(run, LaunchError).endswith(
        "rank 0 (ada) ended before it was ready: killed by SIGKILL; "
        "the memory limit of its group was hit (oom_kill 1)"
    )


def program_of(job, rank):
    """The process of a rank, once it is the program; not the one that stays beside it."""
    for pid in job.processes().get("rank", []):
        command_line = Path(f"/proc/{pid}/cmdline").read_bytes()
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        if b"PMI_RANK=%d" % rank in variables and b"bind.py" not in command_line:
            return pid
    return None


def test_a_full_disk_is_named_with_the_file_that_did_not_fit(job, full, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(full))
    groups = [RankGroup("ada", 1, ("true",))]
    with pytest.raises(LaunchError) as caught:
        Run(command(groups, job.task(groups)), groups, job=job.name)
    words = rf"cannot start the run: {full}/apples-[^/]+/task.json: No space left on device"
    assert re.fullmatch(words, str(caught.value))
    assert [path.name for path in full.iterdir()] == ["ballast"]


def test_a_document_that_does_not_fit_is_named(full):
    with pytest.raises(OSError, match=r"No space left on device: '/.*/full/record.json'"):
        documents.replace(full / "record.json", "x" * 5000)
    assert [path.name for path in full.iterdir()] == ["ballast"]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"SLURM_CONF": "/no/such.conf"}, "SLURM_CONF names /no/such.conf, which is not there"),
        ({}, "SLURM_CONF is not set"),
    ],
)
def test_slurm_that_cannot_be_asked_is_no_refusal_of_a_plan(
    tmp_path, monkeypatch, settings, words
):
    fake = tmp_path / "sbatch"
    fake.write_text(
        "#!/bin/sh\necho 'sbatch: fatal: Unable to process configuration file' >&2; exit 1"
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.delenv("SLURM_CONF", raising=False)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(client, "USUAL_CONFIGURATIONS", ())
    with pytest.raises(ManagerUnreachableError) as caught:
        client.wait_seconds({}, "job.sh")
    assert str(caught.value).startswith("sbatch: Slurm cannot be asked: Unable to process")
    assert words in str(caught.value)
    assert caught.value.exit_code == 4
