"""Messages of MPI programs that know nothing of it: exactly those that were sent, to whom, and while they run."""

import contextlib
import os
import shutil
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import until

from apples.launch import HEADER, MAGIC, MessageCounts, counting_library

PROGRAMS = Path(__file__).with_name("programs")
BIN = Path(sys.executable).parent
DEADLINE = 120
RANKS = 4

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler"),
]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        return counting_library()


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    made = tmp_path_factory.mktemp("talk") / "talk"
    subprocess.run([BIN / "mpicc", "-o", made, PROGRAMS / "talk.c"], check=True, timeout=DEADLINE)
    return made


def started(program, folder, library, ranks=RANKS, **environment):
    """The arguments of `subprocess.run` for a program whose messages are counted into `folder`."""
    variables = {
        "APPLES_COUNT_MESSAGES": folder, "APPLES_COUNT_HOST": "here", "LD_PRELOAD": library, **environment,
    }  # fmt: skip
    command = [BIN / "mpiexec", "-n", ranks]
    for name, value in variables.items():
        command += ["-genv", name, value]
    return {"args": [*map(str, command), *map(str, program)], "env": dict(os.environ)}


def counted(program, folder, library, **options):
    subprocess.run(**started(program, folder, library, **options), check=True, timeout=DEADLINE)
    return MessageCounts(folder, library).read()


def to_next(*sizes, ranks=RANKS, step=1):
    """The matrices of bytes and messages where each rank sends these to the next."""
    sent = [[0] * ranks for _ in range(ranks)]
    messages = [[0] * ranks for _ in range(ranks)]
    for rank in range(ranks):
        sent[rank][(rank + step) % ranks] += sum(sizes)
        messages[rank][(rank + step) % ranks] += len(sizes)
    return sent, messages


def as_lists(matrix):
    return [list(row) for row in matrix]


@pytest.mark.more
@pytest.mark.parametrize(
    ("part", "sizes"),
    [("point", (10, 48, 28, 1, 0)), ("persistent", (5, 5, 5, 6, 6))],
)
def test_sends_of_every_kind_are_counted_exactly(part, sizes, built, library, tmp_path):
    found = counted([built, part], tmp_path, library)
    sent, messages = to_next(*sizes)
    assert as_lists(found.bytes) == sent
    assert as_lists(found.messages) == messages
    assert found.missed == 0


def test_ranks_of_other_communicators_are_those_of_the_world(built, library, tmp_path):
    found = counted([built, "groups"], tmp_path, library)
    forth, back = to_next(*[11] * 10), to_next(*[11] * 10, step=-1)
    assert as_lists(found.bytes) == [
        [a + b for a, b in zip(*rows, strict=True)] for rows in zip(forth[0], back[0], strict=True)
    ]


def test_collectives_are_counted_by_the_stated_convention(built, library, tmp_path):
    found = counted([built, "collectives"], tmp_path, library, ranks=3)
    every = 2  # all-to-all
    ring = 16 + 16 + 9
    assert as_lists(found.bytes) == [
        [0, ring + 1 + every + 5 + 2, every + 3 + 3],
        [100 + 16 + every, 0, 100 + 3 + ring + 2 + every + 5],
        [16 + ring + 3 + every, every, 0],
    ]


@pytest.mark.more
def test_neighbourhood_collectives_go_to_the_neighbours(built, library, tmp_path):
    found = counted([built, "neighbours"], tmp_path, library)
    forth, back = to_next(13)[0], to_next(13, step=-1)[0]
    assert as_lists(found.bytes) == [
        [a + b for a, b in zip(*rows, strict=True)] for rows in zip(forth, back, strict=True)
    ]


def test_python_programs_are_counted_by_the_functions_of_large_counts_too(library, tmp_path):
    found = counted([sys.executable, PROGRAMS / "talk.py", "ring"], tmp_path, library)
    sent, messages = to_next(8000, 80, 24, 24, 40)
    assert as_lists(found.bytes) == sent
    assert as_lists(found.messages) == messages


@pytest.mark.skipif(not shutil.which("gfortran"), reason="no gfortran")
@pytest.mark.parametrize("family", ["-DNESTED", "-DPROFILED"])
def test_fortran_programs_are_counted_once_whatever_their_library_calls(family, library, tmp_path):
    side, made = tmp_path / "side.o", tmp_path / "talk"
    mpicc = [BIN / "mpicc", family, "-c", "-o", side, PROGRAMS / "fortran_side.c"]
    subprocess.run(mpicc, check=True, timeout=DEADLINE)
    flags = [
        "-fallow-argument-mismatch",
        PROGRAMS / "talk.f90",
        side,
        f"-L{BIN.parent / 'lib'}",
        "-lmpi",
    ]
    path = f"-Wl,-rpath,{BIN.parent / 'lib'}"
    # A library of its own, as it would be: what is loaded before it has the names first.
    shared = tmp_path / "libside.so"
    subprocess.run(
        [BIN / "mpicc", family, "-shared", "-fPIC", "-o", shared, PROGRAMS / "fortran_side.c"],
        check=True,
        timeout=DEADLINE,
    )
    flags[2] = shared
    fortran = ["gfortran", "-o", made, *flags, path, f"-Wl,-rpath,{tmp_path}"]
    subprocess.run(fortran, check=True, timeout=DEADLINE)
    counts = tmp_path / "counts"
    counts.mkdir()
    found = counted([made], counts, library)
    sent, messages = to_next(80, 24, 24, 16)
    assert as_lists(found.bytes) == sent
    assert as_lists(found.messages) == messages


def test_counts_are_read_while_the_program_runs(library, tmp_path):
    program = [sys.executable, PROGRAMS / "talk.py", "hold"]
    with subprocess.Popen(
        **started(program, tmp_path, library, ranks=2),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        try:
            for size, total in ((7, 7), (30, 37)):
                running.stdin.write(f"{size}\n")
                running.stdin.flush()
                assert running.stdout.readline() == f"{size}\n"
                wanted = (0, total), (0, 0)
                counts = MessageCounts(tmp_path, library)
                until(lambda c=counts, w=wanted: c.read().bytes == w)  # the other may yet begin
            running.stdin.close()
            assert running.wait(DEADLINE) == 0
        finally:
            running.kill()


def test_worlds_that_merge_know_each_others_ranks(library, tmp_path):
    program = [sys.executable, PROGRAMS / "talk.py", "meet"]
    wanted = [[0, 1, 0, 0], [0, 0, 2, 0], [0, 0, 0, 3], [4, 0, 0, 0]]
    counts = MessageCounts(tmp_path, library)
    with subprocess.Popen(
        **started(program, tmp_path, library, ranks=2), start_new_session=True
    ) as running:
        try:  # MPICH may hang at the end of worlds that met, when all has been sent
            until(lambda: (found := counts.read()) and as_lists(found.bytes) == wanted)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
    found = counts.read()
    assert [(one.world, one.rank) for one in found.ranks] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert found.missed == 0


def test_what_another_machine_sends_when_the_run_is_over_is_passed_over(tmp_path):
    counts = MessageCounts(tmp_path / "messages", tmp_path / "none.so")
    counts.folder.mkdir()
    said = struct.pack("=QQ", MAGIC, 7).ljust(HEADER.size, b"\0")
    counts.take(said)
    assert [one.name for one in counts.folder.iterdir()] == [f"{7:016x}"]
    counts.discard()
    counts.take(said)
    assert not counts.folder.exists()


def test_what_is_no_file_of_a_rank_is_left_out(built, library, tmp_path):
    counted([built, "point"], tmp_path, library)
    (first, *others) = sorted(tmp_path.iterdir())
    (tmp_path / "notes").write_text("nothing")
    (tmp_path / "link").symlink_to(first)
    (tmp_path / "pipe").mkdir()
    damaged = bytearray(others[0].read_bytes())
    damaged[:8] = b"\0" * 8
    others[0].write_bytes(damaged)
    found = MessageCounts(tmp_path, library).read()
    assert len(found.ranks) == RANKS - 1
    assert found.missed == 5  # to the rank whose file is damaged
    claims = bytearray(others[1].read_bytes())
    claims[40:44] = (1 << 31).to_bytes(4, "little")  # more destinations than there is room for
    others[1].write_bytes(claims)
    assert len(MessageCounts(tmp_path, library).read().ranks) == RANKS - 2
    others[2].write_bytes(b"\xff" * HEADER.size)
    assert len(MessageCounts(tmp_path, library).read().ranks) == RANKS - 3
