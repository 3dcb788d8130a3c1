"""A rank that the host's parked interpreter forks is what it would be if it had been started by itself."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import uuid
from contextlib import contextmanager
from pathlib import Path

import pytest
from waiting import until

from apples.launch import MARK, descendants, hydra, marked, parent_of, read
from apples.launch import rank_wrapper as bind
from apples.malleable import RANK_INTERPRETER, ROOM

TELLS = """
import atexit, json, os, signal, sys, threading, time
import numpy, random
found = {
    "argv": sys.argv, "path": sys.path, "name": __name__, "file": globals().get("__file__"),
    "main": sys.modules["__main__"].__dict__ is globals(), "flags": list(sys.flags),
    "cwd": os.getcwd(), "umask": os.umask(0o22), "cpus": sorted(os.sched_getaffinity(0)),
    "environ": {k: v for k, v in os.environ.items() if not k.startswith(("PMI_", "APPLES_"))},
    "files": len(os.listdir("/proc/self/fd")),
    "signals": {n: str(signal.getsignal(n)) for n in signal.valid_signals()},
    "blocked": len(signal.pthread_sigmask(signal.SIG_BLOCK, ())), "mpi": "mpi4py.MPI" in sys.modules,
    "group": os.getpgid(0) == os.getpid(),
    "native": threading.main_thread().native_id == os.getpid(), "threads": threading.active_count(),
    "stdin": sys.stdin.readline() if os.environ["PMI_RANK"] == "0" else "",
    "buffered": sys.stdout.line_buffering, "limit": sys.getrecursionlimit(),
    "command": open("/proc/self/cmdline").read().rstrip("\\0"), "comm": open("/proc/self/comm").read(),
}
draws = [random.random(), float(numpy.random.rand())]
found |= {"zone": time.tzname, "begun": sys.orig_argv, "package": __package__, "loader": type(__loader__).__name__}
from mpi4py import MPI
found["level"], found["rank"], found["draws"] = MPI.Query_thread(), MPI.COMM_WORLD.rank, draws
found["sum"] = MPI.COMM_WORLD.allreduce(MPI.COMM_WORLD.rank)
with open(f"told-{found['rank']}", "w") as file:
    json.dump(found, file)
"""
ALIKE = [
    *(
        "argv",
        "path",
        "name",
        "file",
        "main",
        "flags",
        "cwd",
        "umask",
        "cpus",
        "environ",
        "signals",
    ),
    *(
        "blocked",
        "mpi",
        "threads",
        "stdin",
        "buffered",
        "limit",
        "command",
        "comm",
        "level",
        "sum",
    ),
]
"""Of what a rank tells."""


class Host:
    """Starts the ranks of one host as a node supervisor does, with an interpreter or without."""

    def __init__(self, folder: Path, ranks: int = 2) -> None:
        self.folder, self.ranks, self.job = folder, ranks, uuid.uuid4().hex[:8]
        self.environment = {**os.environ, **hydra.LOOPBACK, **hydra.ONE_THREAD, MARK: self.job}
        self.interpreter: subprocess.Popen[bytes] | None = None

    def park(self) -> None:
        path = str(self.folder / "parked")
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(path)
            listener.listen(64)
            words = [sys.executable, "-m", RANK_INTERPRETER, bind.__file__, ROOM]
            words += [str(listener.fileno())]
            self.interpreter = subprocess.Popen(
                words, pass_fds=(listener.fileno(),), env=self.environment, cwd="/",
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            )  # fmt: skip
        self.environment[bind.INTERPRETER] = path

    def start(self, program: list[str], **options: object) -> subprocess.Popen[str]:
        entry = {"host": "ada", "program": program, "cpus": [], "cgroup": "", **options}
        launch = {"directory": str(self.folder), "hosts": [entry]}
        (self.folder / "launch.json").write_text(json.dumps(launch))
        words = [hydra.mpiexec(), *hydra.OPTIONS, "-n", str(self.ranks), sys.executable]
        return subprocess.Popen(
            [*words, "-I", "-S", bind.__file__, str(self.folder / "launch.json"), "0"],
            env=self.environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def run(self, program: list[str], **options: object) -> tuple[int, str, str]:
        with self.start(program, **options) as started:
            try:
                output, errors = started.communicate("said\n", 60)
            finally:
                started.kill()
            return started.returncode, output, errors

    def end(self) -> None:
        """End the interpreter, and see that its ranks end with it."""
        assert self.interpreter is not None
        self.interpreter.kill()
        self.interpreter.wait()
        until(lambda: not marked(self.job))

    @property
    def forked(self) -> list[int]:
        assert self.interpreter is not None
        return [pid for pid, _ in descendants(self.interpreter.pid)]


@contextmanager
def parked(folder: Path, ranks: int = 2):
    """Yield a host with an interpreter, which is ended, and of which nothing is left."""
    host = Host(folder, ranks)
    host.park()
    try:
        yield host
        assert host.interpreter.poll() is None
    finally:
        host.end()


def program(folder: Path, text: str) -> str:
    (folder / "program.py").write_text(text)
    return str(folder / "program.py")


@pytest.mark.parametrize("how", [[], ["-m", "mpi4py"], ["-m", "named"]])
def test_a_forked_rank_sees_what_one_sees_that_was_started(tmp_path, how):
    file = program(tmp_path, TELLS)
    (tmp_path / "named.py").write_text(TELLS)
    words = [sys.executable, *how, *([] if how == ["-m", "named"] else [file]), "-x", "y z"]
    options = {
        "environment": {"COLOUR": "red", "TZ": "Asia/Tokyo"},
        "cpus": [min(os.sched_getaffinity(0))],
    }

    def told(host):
        assert host.run(words, **options) == (0, "", "")
        return [json.loads((tmp_path / f"told-{rank}").read_text()) for rank in range(2)]

    started = told(Host(tmp_path))
    with parked(tmp_path) as host:
        forked = told(host)
    for one, other in zip(forked, started, strict=True):
        for what in ALIKE:
            assert one[what] == other[what], what
        assert one["files"] == 5  # the first three, the launcher's, and the list's own
        assert one["group"]  # to end its group ends nobody beside it
    assert not set(forked[0]["draws"]) & set(forked[1]["draws"])


def test_no_two_forked_ranks_draw_the_same_numbers_though_their_library_is_loaded_before(tmp_path):
    (tmp_path / "early").mkdir()
    (tmp_path / "early" / "sitecustomize.py").write_text("import numpy.random")
    host = Host(tmp_path, 3)
    host.environment["PYTHONPATH"] = str(tmp_path / "early")
    host.park()
    file = program(
        tmp_path,
        "import os, sys, numpy; sys.stdout.write(f'{os.getppid()} {numpy.random.rand()}\\n')",
    )
    lines = host.run([sys.executable, file])[1].split()
    assert set(lines[::2]) == {str(host.interpreter.pid)}
    assert len(set(lines[1::2])) == 3
    host.end()


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("import sys; sys.exit(3)", 3),
        ("import sys; sys.exit('a reason')", 1),
        ("raise ValueError('its own')", 1),
        ("def f():\n    import nothing_such\nf()", 1),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", 11),
        ("raise KeyboardInterrupt", 2),
        ("import sys; sys.exit(2 ** 70)", 255),
        ("import sys; sys.exit(-1)", 255),
        ("import sys; sys.excepthook = lambda *_: sys.exit(7); 1 / 0", 7),
        ("import sys; sys.excepthook = lambda *_: [][1]; 1 / 0", 1),
        (
            "import atexit, pickle\nclass P: pass\natexit.register(lambda: print(pickle.dumps(P())))",
            0,
        ),
        ("import sys\nclass P:\n def __del__(self): print('gone')\np = P()", 0),
        ("this is no Python", 1),
        ("import atexit; atexit.register(print, 'last'); print('first')", 0),
        (
            "import threading; threading.Timer(.1, lambda: print('late')).start()",
            0,
        ),
    ],
)
def test_a_forked_rank_ends_as_one_ends_that_was_started(tmp_path, text, code):
    words = [sys.executable, program(tmp_path, text)]
    started = Host(tmp_path, 1).run(words)
    with parked(tmp_path, 1) as host:
        forked = host.run(words)
    assert forked[0] == started[0] == code
    assert forked[1] == started[1]
    assert forked[2] == started[2]


def test_a_forked_rank_whose_program_is_not_there_says_so_as_an_interpreter_does(tmp_path):
    words = [sys.executable, str(tmp_path / "nowhere.py")]
    started = Host(tmp_path, 1).run(words)
    with parked(tmp_path, 1) as host:
        assert host.run(words) == started


def test_an_unhandled_error_of_one_rank_aborts_the_others_through_mpi4py(tmp_path):
    text = "from mpi4py import MPI\nif MPI.COMM_WORLD.rank: raise ValueError('one')\nMPI.COMM_WORLD.Barrier()"
    with parked(tmp_path) as host:
        code, _, errors = host.run([sys.executable, "-m", "mpi4py", program(tmp_path, text)])
        assert code != 0
        assert "ValueError: one" in errors
        until(lambda: not host.forked)


@pytest.mark.parametrize(
    ("words", "environment"),
    [
        (["-O", "FILE"], {}),
        (["-c", "print('never')"], {}),
        (["FILE"], {"PYTHONHASHSEED": "7"}),
        (["FILE"], {"OMP_NUM_THREADS": "2"}),
        (["FILE"], {"PYTHONPATH": "lib"}),
        (["FILE"], {bind.COUNTING: "/nowhere.so"}),
    ],
)
def test_what_an_interpreter_would_load_otherwise_is_started_by_itself(
    tmp_path, words, environment
):
    file = program(tmp_path, "import os; print(os.getppid())")
    words = [sys.executable, *(file if one == "FILE" else one for one in words)]
    with parked(tmp_path, 1) as host:
        code, output, _ = host.run(words, environment=environment)
        assert code == 0
        assert output.strip() != str(host.interpreter.pid)


def test_what_is_no_program_of_this_interpreter_is_started_by_itself(tmp_path):
    with parked(tmp_path, 1) as host:
        assert host.run(["/bin/echo", "itself"])[:2] == (0, "itself\n")


def test_a_rank_beside_whose_program_lies_another_module_of_a_loaded_name_is_started_by_itself(
    tmp_path,
):
    file = program(tmp_path, "import statistics, os; print(statistics.OURS, os.getppid())")
    (tmp_path / "statistics.py").write_text("OURS = 'ours'")
    with parked(tmp_path, 1) as host:
        word, parent = host.run([sys.executable, "-m", "mpi4py", file])[1].split()
        assert word == "ours"
        assert parent != str(host.interpreter.pid)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_forked_rank_hears_the_signals_that_the_launcher_passes_on(tmp_path, number):
    text = (
        "import signal, sys, time\n"
        f"signal.signal({int(number)}, lambda n, _: sys.exit(5))\n"
        "print('there', flush=True)\n"
        "time.sleep(60)"
    )
    with parked(tmp_path, 1) as host, host.start([sys.executable, program(tmp_path, text)]) as it:
        assert it.stdout.readline() == "there\n"
        assert len(host.forked) == 1
        it.send_signal(number)
        assert it.wait(30) == 5


def test_ranks_that_are_asked_to_end_with_all_else_end_as_they_want_to(tmp_path):
    text = (
        "import signal, sys, time\n"
        "def end(*_):\n time.sleep(.2); print('saved', flush=True); sys.exit(3)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "print('there', flush=True)\n"
        "time.sleep(60)"
    )
    with parked(tmp_path, 1) as host, host.start([sys.executable, program(tmp_path, text)]) as it:
        assert it.stdout.readline() == "there\n"
        for pid in (host.interpreter.pid, *host.forked):
            os.kill(pid, signal.SIGTERM)
        assert it.stdout.readline() == "saved\n"
        assert it.wait(30) == 3


@pytest.mark.parametrize("victim", ["rank", "stand-in", "interpreter", "launcher"])
def test_a_rank_the_interpreter_and_what_stands_for_it_end_together(tmp_path, victim):
    file = program(tmp_path, "import time; from mpi4py import MPI; time.sleep(60)")
    host = Host(tmp_path, 2)
    host.park()
    started = host.start([sys.executable, file])
    until(lambda: len(host.forked) == 2)
    rank = host.forked[0]
    assert parent_of(rank) == host.interpreter.pid
    stand_ins = [
        pid
        for pid, _ in descendants(started.pid)
        if b"rank_wrapper.py" in read(f"/proc/{pid}/cmdline")
    ]
    victims = {"rank": rank, "stand-in": stand_ins[0], "interpreter": host.interpreter.pid}
    os.kill(victims.get(victim, started.pid), signal.SIGKILL)
    if victim != "launcher":
        started.kill()
    started.wait(30)
    until(lambda: not [pid for pid in marked(host.job) if pid != host.interpreter.pid])
    assert victim == "interpreter" or host.interpreter.poll() is None
    host.end()
    for pipe in (started.stdin, started.stdout, started.stderr):
        pipe.close()


def test_whoever_sends_the_interpreter_rubbish_gets_no_rank_and_others_do(tmp_path):
    with parked(tmp_path, 1) as host:
        path = host.environment[bind.INTERPRETER]
        (tmp_path / "other.json").write_text('{"directory": "/", "hosts": ["x"]}')
        other = json.dumps(
            {"launch": str(tmp_path / "other.json"), "index": 0, "environment": {}}
        ).encode()
        for data in (
            b"",
            b"{",
            b"[]",
            b'{"launch": "/nowhere"}',
            b'{"launch": "/etc/passwd"}',
            other,
        ):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as rude:
                rude.connect(path)
                if data:
                    socket.send_fds(rude, [data], [0, 1])
                    assert rude.recv(10) == b""
        assert host.run([sys.executable, program(tmp_path, "print('there')")])[:2] == (
            0,
            "there\n",
        )
