"""What a failed run says: which rank, on which host, what became of it, and its own last words."""

import errno
import os
import re
import signal
import sys
import tempfile
from pathlib import Path

import pytest

from apples.errors import ApplicationError, DeadlineError, LaunchError, ManagerUnreachableError
from apples.io import documents
from apples.launch import RankGroup, Run, client, command

PROGRAMS = Path(__file__).with_name("programs")
LEAVER = (sys.executable, str(PROGRAMS / "leaver.py"))


def leaver(job, ranks=2, *, silence_seconds=60.0, **parameters):
    """A run of the plain MPI program, its last rank on bob."""
    groups = [RankGroup("ada", ranks - 1, LEAVER), RankGroup("bob", 1, LEAVER)]
    order = command(groups, job.task(groups, **parameters))
    return Run(order, groups, job=job.name, talk=job.talk.append, silence_seconds=silence_seconds)


def failure(run, kind=ApplicationError):
    """Return the error of a run that fails; its message is one printable line."""
    with pytest.raises(kind) as caught:
        list(run.events())
    assert str(caught.value).isprintable()
    early = kind is LaunchError
    assert caught.value.code == ("program-not-ready" if early else "program-failed")
    return caught.value


def ending(error):
    """Return why a run ended: reason, rank and host."""
    return tuple(error.fields.get(name) for name in ("reason", "rank", "host"))


@pytest.mark.parametrize(
    "name", ["SIGKILL", "SIGSEGV", "SIGTERM", "SIGABRT", "SIGBUS", "SIGFPE", "SIGXCPU"]
)
def test_a_rank_that_was_killed_is_named_with_its_signal(job, name):
    run = job.run(how="silent")
    run.until_ready()
    assert job.eventually(lambda: program_of(job, 2))
    os.kill(program_of(job, 2), signal.Signals[name])
    error = failure(run)
    assert ending(error) == ("rank-killed", 2, "bob")
    assert (error.fields["signal"], error.fields["program"]) == (name, "fake.py")
    assert "last_words" not in error.fields
    assert job.is_gone()


def stillborn(job, rank, end, groups=(("ada", 2), ("bob", 1))):
    groups = [RankGroup(host, ranks, LEAVER) for host, ranks in groups]
    order = job.with_a_stillborn(command(groups, job.task(groups, how="returns")), rank, end)
    error = failure(Run(order, groups, job=job.name, talk=job.talk.append), LaunchError)
    assert job.is_gone()
    # A launcher that nobody killed is not the reason.
    assert error.fields.get("reason") != "launcher-killed", error
    return ending(error)


@pytest.mark.more
def test_a_rank_that_ends_before_it_is_heard_of_is_missed_beside_living_ones(job):
    assert stillborn(job, 2, "exit 3") == ("rank-ended", 2, "bob")


@pytest.mark.parametrize("end", ["exit 3", "kill -9 $$"])
def test_the_only_rank_that_ends_before_it_registers_ends_the_run(job, end):
    reason, *_ = stillborn(job, 0, end, [("ada", 1)])
    assert reason in {"rank-ended", "rank-killed", "program-ended"}


def test_a_rank_that_is_killed_before_it_is_heard_of_ends_the_run(job):
    reason, *_ = stillborn(job, 2, "kill -9 $$")
    assert reason in {"rank-ended", "rank-killed", "program-ended"}


@pytest.mark.parametrize("code", [1, 3, 255])
def test_an_exit_code_is_the_ranks_own(job, code):
    program = (sys.executable, "-S", "-c", f"raise SystemExit({code})")
    groups = [RankGroup("ada", 1, program)]
    run = Run(command(groups, {}), groups, job=job.name, talk=job.talk.append)
    error = failure(run, LaunchError)
    assert ending(error) == ("rank-ended", 0, "ada")
    assert error.fields["exit_status"] == code


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
    error = failure(
        Run(command(groups, {}), groups, job=job.name, talk=job.talk.append), LaunchError
    )
    assert ending(error) == ("rank-ended", 1, "ada")
    assert error.fields["exit_status"] == 1
    words = error.fields["last_words"]
    assert words.endswith("'/no/such/file'")
    assert "FileNotFoundError" in words
    assert "is fine" not in words
    assert sum("is fine" in line for line in job.talk) == 27  # and all of it is talk


def test_what_a_rank_writes_cannot_steer_a_terminal(job):
    program = "import sys; sys.stderr.write('\\x1b[2J\\x9b31m' + 'x' * 5000 + '\\n'); sys.exit(4)"
    groups = [RankGroup("ada", 1, (sys.executable, "-S", "-c", program))]
    error = failure(
        Run(command(groups, {}), groups, job=job.name, talk=job.talk.append), LaunchError
    )
    assert error.fields["last_words"].isprintable()
    assert len(str(error)) < 500


@pytest.mark.mpi
@pytest.mark.parametrize("who", [1, pytest.param(0, marks=pytest.mark.more)])
def test_rank_that_raised_is_named_when_the_others_are_silent_for_too_long(job, who):
    error = failure(leaver(job, silence_seconds=3.0, how="raise", who=who))
    line = 'File "' + str(PROGRAMS / "leaver.py") + '", line 23, in go_wrong'
    assert ending(error) == ("rank-raised", who, ("ada", "bob")[who])
    assert error.fields["last_words"] == (
        f'{line} / raise ValueError("row 7 is bad") / ValueError: row 7 is bad'
    )
    assert "Traceback (most recent call last):" in job.talk  # the whole of it
    assert job.is_gone()


@pytest.mark.mpi
@pytest.mark.more
@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize(
    ("how", "who", "reason", "more"),
    [
        ("os._exit", 1, "rank-ended", {"exit_status": 0}),
        ("SIGKILL", 1, "rank-killed", {"signal": "SIGKILL"}),
        ("SIGSEGV", 0, "rank-killed", {"signal": "SIGSEGV"}),
    ],
)
def test_end_of_a_rank_is_reported_while_others_wait(job, ranks, how, who, reason, more):
    error = failure(leaver(job, ranks, how=how, who=who))
    host = "bob" if (who, ranks) == (1, 2) else "ada"
    assert ending(error) == (reason, who, host)
    assert more.items() <= error.fields.items()
    assert "last_words" not in error.fields
    assert job.is_gone()


@pytest.mark.mpi
@pytest.mark.more
@pytest.mark.parametrize("who", [0, 1])
def test_rank_that_left_without_a_word_is_noticed_by_silence(job, who):
    run = leaver(job, silence_seconds=3.0, how="sys.exit", who=who)
    with pytest.raises(DeadlineError) as caught:
        list(run.events())
    assert caught.value.code == "program-silent"
    assert job.is_gone()


def test_first_of_ranks_that_are_killed_at_once_is_named_though_the_supervisor_was_away(job):
    """hydra kills the other ranks of a host when one was killed; all end by the same signal."""
    run = job.run(how="silent")
    run.until_ready()
    (supervisor,) = job.processes()["supervisor"]
    ranks = [program_of(job, number) for number in range(3)]
    os.kill(supervisor, signal.SIGSTOP)
    os.kill(ranks[2], signal.SIGKILL)
    assert job.eventually(lambda: not any(map(runs, ranks)))
    os.kill(supervisor, signal.SIGCONT)
    error = failure(run)
    assert ending(error) == ("rank-killed", 2, "bob")
    assert error.fields["signal"] == "SIGKILL"


def runs(pid):
    """Whether a process runs; one that ended and that its parent did not reap does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


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
    error = failure(run, LaunchError)
    assert ending(error) == ("rank-killed", 0, "ada")
    assert error.fields["signal"] == "SIGKILL"
    assert "oom_kill 1" in error.fields["end"]


def program_of(job, rank):
    """The process of a rank, once it is the program."""
    for pid in job.processes().get("rank", []):
        command_line = Path(f"/proc/{pid}/cmdline").read_bytes()
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        if b"PMI_RANK=%d" % rank in variables and b"rank_wrapper.py" not in command_line:
            return pid
    return None


def test_a_full_disk_is_named_with_the_file_that_did_not_fit(job, full, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(full))
    groups = [RankGroup("ada", 1, ("true",))]
    with pytest.raises(LaunchError) as caught:
        Run(command(groups, job.task(groups)), groups, job=job.name)
    assert caught.value.code == "disk-full"
    assert re.fullmatch(rf"{full}/apples-[^/]+/task.json", caught.value.fields["file"])
    assert [path.name for path in full.iterdir()] == ["ballast"]


def test_a_document_that_does_not_fit_is_named(full):
    with pytest.raises(OSError) as caught:  # noqa: PT011 - its number is checked
        documents.replace(full / "record.json", "x" * 5000)
    assert caught.value.errno == errno.ENOSPC
    assert Path(caught.value.filename) == full / "record.json"
    assert [path.name for path in full.iterdir()] == ["ballast"]


@pytest.mark.parametrize(
    "settings",
    [{"SLURM_CONF": "/no/such.conf"}, {}],
)
def test_slurm_that_cannot_be_asked_is_no_refusal_of_a_plan(tmp_path, monkeypatch, settings):
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
    assert caught.value.code == "manager-unreachable"
    assert caught.value.fields["command"] == "sbatch"
    assert caught.value.fields["reason"].startswith("Unable to process")  # Slurm's own words
    assert caught.value.fields.get("file") == settings.get("SLURM_CONF")
