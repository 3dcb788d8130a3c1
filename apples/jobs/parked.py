"""The parked interpreter, as verbs use it: what is asked for runs in a fork of it, as in a process of one's own.

What planning needs takes a second of CPU to load. One process of this user on this machine has loaded it
(`apples.jobs.interpreter`), and no verb has: `call` has a fork of that process answer a question, `start` has one
become the supervisor of a job. The first that needs it starts it, and nothing depends on it after the fork.

A fork gets whatever one process can hand another: environment, working directory, file mask, CPUs, open files.
What it can only inherit (user, cgroup, namespaces, limits, niceness) is the interpreter's: verbs that differ in
that, or in the code they would load, have different interpreters.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from apples.errors import (
    ApplesError,
    ApplicationError,
    DeadlineError,
    InfeasibleError,
    LaunchError,
    UsageError,
)
from apples.storage import documents, state
from apples.supervision import job_processes
from apples.wire.json_lines import LineBuffer, LineError, decode, encode

ROOT = str(Path(__file__).parents[2])
INTERPRETER = (
    "import sys; sys.path[:1] = [] if sys.argv[1] in sys.path else [sys.argv[1]]; "
    "from apples.jobs.interpreter import main; sys.exit(main())"
)
"""What it runs: nothing comes from the folder in which it happens to be started, for others will be elsewhere."""
HELLO = b"apples.parked/1\n"
"""What a fork says first."""
LINE_LIMIT = 1 << 24
"""Bytes of a request, which holds an environment, or of an answer."""
LOAD_SECONDS = 120.0
"""For an interpreter that was just started to load everything."""
TRIES = 3
"""How often one that ends before it has forked is started again; it may just have been idle for long enough."""
BACKLOG = 1024
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}
"""What has threads forks badly, and they are of no use to a plan."""
DETACH = "import os, sys; os.fork() and os._exit(0); os.execv(sys.argv[1], sys.argv[1:])"
"""It becomes a child of the system's: whoever started it cannot forget to wait for it."""
INHERITED = re.compile(
    r"^(?:Uid|Gid|Groups|Cap[A-Z][a-z]+|NoNewPrivs|Seccomp)\s*:.*$", re.MULTILINE
)
LIMITS = tuple(getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_"))
PACKAGES = ("apples", "hat", "nws", "blueprints")
ERRORS = (UsageError, InfeasibleError, LaunchError, ApplicationError, DeadlineError)


def call(do: str, **arguments: object) -> Any:
    """Return what a fork answers; it ends when nobody waits for the answer any more.

    Parameters
    ----------
    do
        What is asked for: a name of `apples.jobs.interpreter.ANSWERS`.

    Raises
    ------
    ApplesError
        What kept it from answering, as if it had been asked in this process; or there is no fork (`LaunchError`).
    """
    with _fork() as connection, Path(os.devnull).open("wb") as nobody:
        _ask(connection, do, arguments, 2 if sys.__stderr__ else nobody.fileno())
        connection.settimeout(None)
        lines, found = LineBuffer(LINE_LIMIT), list[bytes]()
        try:
            while not found and (data := connection.recv(1 << 16)):
                found = lines.feed(data)
            answer = decode(found[0], LINE_LIMIT) if found else {}
        except (OSError, LineError) as error:
            raise LaunchError(f"the fork of the parked interpreter: {error}") from None
    if "error" in answer:
        raise error_of(str(answer["error"]), int(answer["code"]))
    if "answer" not in answer:
        raise LaunchError("the fork of the parked interpreter was killed")
    return answer["answer"]


def start(do: str, talk: int, handles: Sequence[int], **arguments: object) -> None:
    """Have a fork do something that lasts, with these open files; it outlives this process.

    Parameters
    ----------
    do
        What: a name of `apples.jobs.interpreter.TASKS`.
    talk
        Where its standard output and error go.

    Raises
    ------
    LaunchError
        There is no fork.
    """
    with _fork() as connection:
        _ask(connection, do, arguments, talk, *handles)


def refusal_of(error: Exception | SystemExit) -> tuple[str, int]:
    """Return what kept something from being done, in words, and its exit code; `error_of` is the way back."""
    if isinstance(error, ApplesError):
        return str(error), error.exit_code
    if getattr(error, "problems", None):  # hat.DocumentError, known by its face
        return str(error), UsageError.exit_code
    from apples.plugins import where_in_users_code  # noqa: PLC0415 - only where something went wrong

    kind, whose = type(error).__name__, where_in_users_code(error)
    if whose:
        return f"{whose}: {kind}: {error}", UsageError.exit_code
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename else ""
        return f"{place}{error.strerror or error}", LaunchError.exit_code
    return f"internal error: {kind}: {error}", 1


def error_of(text: str, code: int) -> ApplesError:
    """Return the error of these words that ends a command with this exit code."""
    kinds = {kind.exit_code: kind for kind in ERRORS}
    return kinds.get(code, ApplesError)(text)


# ---------------------------------------------------------------------------- reaching it
@contextmanager
def _fork() -> Iterator[socket.socket]:
    """Yield the connection to a fork that waits for what it is to do."""
    path = address()
    log = state.directory() / "parked.log"
    try:
        for _ in range(TRIES):
            connection = _connected(path) or _begun(path, log)
            with connection:
                connection.settimeout(LOAD_SECONDS)
                if _greeted(connection):
                    yield connection
                    return
    except TimeoutError:
        raise LaunchError(f"the parked interpreter gave no fork in {LOAD_SECONDS:g} s") from None
    said = log.read_text("utf-8", errors="replace").splitlines() or ["nothing"]
    raise LaunchError(f"the parked interpreter ended; its last words ({log}): {said[-1]}")


def address() -> Path:
    """Return where the interpreter of whoever is like this process listens."""
    return state.directory() / f"parked-{_circumstances()}"


def _connected(path: Path) -> socket.socket | None:
    """Return a connection to the interpreter, None where there is none."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with in_its_folder(path) as name:
            connection.connect(name)
    except (FileNotFoundError, ConnectionRefusedError):
        connection.close()
        return None
    except BaseException:
        connection.close()
        raise
    return connection


def _begun(path: Path, log: Path) -> socket.socket:
    """Start an interpreter, unless another process has just done so, and return a connection to it.

    It inherits the listening socket, so that one may connect before it has loaded anything.
    """
    with documents.locked(path.parent / "parked.lock"):
        if (there := _connected(path)) is not None:
            return there
        path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener, log.open("wb") as said:
            with in_its_folder(path) as name:
                listener.bind(name)
            path.chmod(0o600)
            listener.listen(BACKLOG)
            words = ["-c", INTERPRETER, ROOT, str(path), str(listener.fileno())]
            environment = {**os.environ, **ONE_THREAD}
            environment.pop(job_processes.MARK, None)  # it is no process of a job
            subprocess.run(
                [sys.executable, "-I", "-S", "-c", DETACH, sys.executable, *words],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                env=environment,
                pass_fds=(listener.fileno(),),
                start_new_session=True,
                check=True,
            )
            connection = _connected(path)
    if connection is None:
        raise LaunchError(f"{path}: nobody can be reached there")
    return connection


@contextmanager
def in_its_folder(path: Path) -> Iterator[str]:
    """Yield a name of a socket that is short enough for the kernel, wherever its folder is."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def _greeted(connection: socket.socket) -> bool:
    """Whether a fork says that it is there; False where the interpreter has ended."""
    heard = b""
    try:
        while heard != HELLO:
            data = connection.recv(len(HELLO) - len(heard))
            heard += data
            if not data or not HELLO.startswith(heard):
                return False
    except ConnectionResetError:
        return False
    return True


def _ask(
    connection: socket.socket, do: str, arguments: Mapping[str, object], talk: int, *handles: int
) -> None:
    """Say what a fork is to do, and in whose place."""
    status = Path("/proc/self/status").read_text("ascii", errors="replace")
    request = {
        "do": do,
        "arguments": arguments,
        "environment": dict(os.environ),
        "umask": int(status.partition("\nUmask:")[2].split()[0], 8),
        "cpus": sorted(os.sched_getaffinity(0)),
    }
    here = os.open(".", os.O_PATH | os.O_DIRECTORY)
    try:
        data = encode(request)
        sent = socket.send_fds(connection, [data], [talk, here, *handles])
        if sent < len(data):  # else it may have read all and hung up
            connection.sendall(data[sent:])
    except OSError as error:
        raise LaunchError(f"the fork of the parked interpreter: {error.strerror}") from None
    finally:
        os.close(here)


def _circumstances() -> str:
    """Return a short name of all that a fork inherits and cannot change, and of the code that it runs."""
    own = Path("/proc/self")
    status = (own / "status").read_text("ascii", errors="replace")
    loading = [f"{k}={v}" for k, v in os.environ.items() if k.startswith(("PYTHON", "LD_"))]
    inherited = [
        *(ROOT, sys.executable, sys.getfilesystemencoding(), *sorted(loading), _newest_source()),
        *(INHERITED.findall(status), [resource.getrlimit(one) for one in LIMITS]),
        *(os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0)),
        *((own / "cgroup").read_text(), (own / "oom_score_adj").read_text()),
        *(str(one.readlink()) for one in sorted((own / "ns").iterdir())),
        *(str((own / "root").readlink()), Path("/proc/sys/kernel/random/boot_id").read_text()),
    ]
    return hashlib.sha256(json.dumps(inherited).encode()).hexdigest()[:16]


def _newest_source() -> tuple[int, int]:
    """Return how many source files there are, and when the last one was changed."""
    count = newest = 0
    folders = [f"{ROOT}/{name}" for name in PACKAGES]
    for folder in folders:
        for entry in os.scandir(folder) if Path(folder).is_dir() else ():
            if entry.name.endswith(".py"):
                count, newest = count + 1, max(newest, entry.stat().st_mtime_ns)
            elif entry.is_dir() and entry.name != "__pycache__":
                folders.append(entry.path)
    return count, newest
