"""The parked interpreter, as verbs use it: what is asked for runs in a fork of it, as in a process of one's own.

What planning needs takes a second of CPU to load. One process of this user on this machine has loaded it
(`apples.jobs.interpreter`), and no verb has: `call` has a fork of that process answer a question, `start` has one
become the supervisor of a job. The first that needs it starts it, and nothing depends on it after the fork.

A fork gets whatever one process can hand another: environment, working directory, file mask, CPUs, open files.
What it can only inherit (user, cgroup, namespaces, limits, niceness) is the interpreter's: verbs that differ in
that, or in the code they would load, have different interpreters. A process of a job has those of that job, for
they end with it. Where no socket can be made, as on a full disk, a verb loads one for itself.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from apples.errors import Failure, LaunchError
from apples.io import documents, state
from apples.io.credentials import peer_credentials
from apples.io.json_lines import LineBuffer, LineError, decode, encode
from apples.io.naming import naming
from apples.launch import job_processes
from apples.launch.this_host import own_machine

ROOT = str(Path(__file__).parents[2])
INTERPRETER = (
    "import sys; sys.path = [one for one in sys.path if one]; "
    "sys.path[:0] = [] if sys.argv[1] in sys.path else [sys.argv[1]]; "
    "from apples.jobs.interpreter import main; sys.exit(main())"
)
"""What it runs: nothing comes from the folder in which it happens to be started, for others will be elsewhere."""
ALONE = "-"
"""In place of a socket's name: the interpreter has one connection, and becomes what is asked for in it."""
HELLO = b"apples.parked/1\n"
"""What a fork says first."""
LINE_LIMIT = 1 << 24
"""Bytes of a request, which holds an environment, or of an answer."""
REFUSAL = b"no fork: "
"""What is said in its place, with why, where there cannot be one."""
LONGEST_REFUSAL = 200
LOAD_SECONDS = 120.0
"""For an interpreter that was just started to load everything."""
LOOK_SECONDS = 1.0
"""How often somebody who waits for a fork looks whether the interpreter can give one."""
TRIES = 3
"""How often one that ends before it has forked is started again; it may just have been idle for long enough."""
BACKLOG = 1024
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}
"""What has threads forks badly, and they are of no use to a plan."""
DETACH = "import os, sys; os.fork() and os._exit(0); os.execv(sys.argv[1], sys.argv[1:])"
"""It becomes a child of the system's: whoever started it cannot forget to wait for it."""
# A fork cannot be handed these. They are part of the interpreter's name, so that no job runs with
# another login's rights, limits or cgroup.
INHERITED = re.compile(
    r"^(?:Uid|Gid|Groups|Cap[A-Z][a-z]+|NoNewPrivs|Seccomp)\s*:.*$", re.MULTILINE
)
FACTS = ("cgroup", "oom_score_adj", "personality", "loginuid", "attr/current")
"""Of /proc/self, what is inherited as well; a kernel may lack some."""
# All other variables are left out. For example, a build server that ends each process with its
# variable would end jobs of later commands.
LOADED_BY = ("PYTHON", "LD_", "LC_", "LANG", "GLIBC_", "HOME", job_processes.MARK)
"""How the variables begin that decide what an interpreter loads, and how, and which job ends it. It has no others:
what whoever started it happens to have is of no concern to who comes later."""
LIMITS = tuple(getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_"))
PACKAGES = ("apples", "hat", "nws", "blueprints")


class UnansweredError(LaunchError):
    """A fork has not answered in the time that it had, and is ended. Transient, unless its code never returns."""

    code = "fork-unanswered"


def call(do: str, *, at: str = "", seconds: float | None = None, **arguments: object) -> Any:
    """Return what a fork answers; it ends when nobody waits for the answer any more.

    Parameters
    ----------
    do
        What is asked for: a name of `apples.jobs.interpreter.ANSWERS`, or any other with `at`.
    at
        The function that answers, as ``module:name``; the fork imports it.
    seconds
        At most, for the answer of a fork that is there; None: as long as it takes.

    Raises
    ------
    UnansweredError
        There is no answer in `seconds`.
    ApplesError
        What kept it from answering, as if it had been asked in this process; or there is no fork (`LaunchError`).
    """
    with forked() as connection, Path(os.devnull).open("wb") as nobody:
        _ask(connection, do, at, arguments, 2 if sys.__stderr__ else nobody.fileno())
        lines, found = LineBuffer(LINE_LIMIT), list[bytes]()
        until = None if seconds is None else time.monotonic() + seconds
        try:
            while not found and (data := _heard(connection, until)):
                found = lines.feed(data)
            answer = decode(found[0], LINE_LIMIT) if found else {}
        except TimeoutError:
            raise UnansweredError(
                f"no answer to {do} in {seconds:.3g} s", value=do, seconds=seconds
            ) from None
        except (OSError, LineError) as error:
            raise LaunchError(
                f"the fork of the parked interpreter: {error}", code="fork-lost", value=do
            ) from None
    if "failure" in answer:
        raise Failure.of_document(answer["failure"]).error()
    if "answer" not in answer:
        raise LaunchError(
            "the fork of the parked interpreter ended without an answer: it was killed, or your code ended it",
            code="fork-lost",
            value=do,
        )
    return answer["answer"]


def _heard(connection: socket.socket, until: float | None) -> bytes:
    """Return what a fork says next; `TimeoutError` where it says nothing until then."""
    if until is not None:
        connection.settimeout(max(1e-3, until - time.monotonic()))
    return connection.recv(1 << 16)


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
    with forked() as connection:
        _ask(connection, do, "", arguments, talk, *handles)


# ---------------------------------------------------------------------------- reaching it
@contextmanager
def forked() -> Iterator[socket.socket]:
    """Yield the connection to a fork that waits for what it is to do."""
    path = address()
    try:
        for _ in range(TRIES):
            with _reached(path) as connection:
                if greeted(connection):
                    connection.settimeout(None)
                    yield connection
                    return
    except TimeoutError:
        raise LaunchError(
            f"the parked interpreter gave no fork in {LOAD_SECONDS:g} s",
            code="fork-server-silent",
            seconds=LOAD_SECONDS,
        ) from None
    said = list[str]()
    with suppress(FileNotFoundError):
        said = log_of(path).read_text("utf-8", errors="replace").splitlines()
    last = (said or ["none"])[-1]
    raise LaunchError(
        f"the parked interpreter ended; the last line of {log_of(path)}: {last}",
        code="fork-server-ended",
        file=log_of(path),
        value=last,
    )


def address(root: str = ROOT) -> Path:
    """Return where the interpreter of whoever is like this process listens."""
    machine = hashlib.sha256(socket.gethostname().encode()).hexdigest()  # a home may be several's
    return state.directory() / f"parked-{machine[:8]}-{_circumstances(root)}"


def log_of(path: Path) -> Path:
    """Return where the interpreter that listens there says what it has to say."""
    return path.with_suffix(".log")


def _reached(path: Path) -> socket.socket:
    """Return a connection to an interpreter: to that of this name, started if need be, or to one of its own."""
    try:
        return _connected(path) or _begun(path)
    except OSError as error:
        print(  # noqa: T201 - talk
            f"warning: {error.filename or path}: {error.strerror}; this command loads an interpreter for itself",
            file=sys.stderr,
        )
    with suppress(OSError):
        return _alone()
    raise LaunchError(
        "cannot start a process: the limit of processes is reached", code="too-many-processes"
    )


def _connected(path: Path) -> socket.socket | None:
    """Return a connection to the interpreter, None where there is none that can give a fork.

    Raises
    ------
    OSError
        It cannot be reached, for it is another user's.
    """
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
    process, user = peer_credentials(connection)
    if user == os.geteuid() and not _stuck(process):
        return connection
    connection.close()
    if user != os.geteuid():
        raise PermissionError(errno.EPERM, "it is another user's", str(path))
    return None


def _stuck(interpreter: int) -> bool:
    """Whether an interpreter is stopped, or was moved to another cgroup than that of its name."""
    if job_processes.state_of(interpreter) in "Tt":
        return True
    with suppress(OSError):
        return Path(f"/proc/{interpreter}/cgroup").read_text() != _own("cgroup")
    return False  # it is just being started by a process that has ended, or it has ended itself


def _begun(path: Path) -> socket.socket:
    """Start an interpreter, unless another process has just done so, and return a connection to it.

    It inherits the listening socket, so that one may connect before it has loaded anything.

    Raises
    ------
    OSError
        Its socket cannot be made, or no process be started.
    """
    with documents.locked(path.parent / "parked.lock"):
        if (there := _connected(path)) is not None:
            return there
        path.unlink(missing_ok=True)
        _sweep(path.parent, path.name.rpartition("-")[0])
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            with naming(path), in_its_folder(path) as name:
                listener.bind(name)
            path.chmod(0o600)
            listener.listen(BACKLOG)
            try:
                with log_of(path).open("wb") as said:
                    _launch(str(path), listener, said.fileno())
            except BaseException:
                path.unlink()
                raise
            connection = _connected(path)
    if connection is None:
        raise LaunchError(
            f"{path}: no interpreter answers there", code="fork-server-silent", file=path
        )
    return connection


def _alone() -> socket.socket:
    """Start an interpreter that has one connection and no name, and return that connection."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with there, Path(os.devnull).open("wb") as nobody:
            _launch(ALONE, there, 2 if sys.__stderr__ else nobody.fileno())
    except BaseException:
        here.close()
        raise
    return here


def _launch(name: str, given: socket.socket, said: int) -> None:
    """Start an interpreter with a socket."""
    environment = {k: v for k, v in os.environ.items() if k.startswith(LOADED_BY)} | ONE_THREAD
    inherited = fcntl.fcntl(given, fcntl.F_DUPFD_CLOEXEC, 3)  # the first three may be closed here
    try:
        words = ["-c", INTERPRETER, ROOT, name, str(inherited)]
        subprocess.run(
            [sys.executable, "-I", "-S", "-c", DETACH, sys.executable, *words],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            env=environment,
            pass_fds=(inherited,),
            start_new_session=True,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        raise BlockingIOError(errno.EAGAIN, f"no process can be started ({error})") from None
    finally:
        os.close(inherited)


def _sweep(folder: Path, machine: str) -> None:
    """Remove what interpreters of this machine have left that were killed, or ended with it."""
    probe = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)  # of another kind: it wakes nobody
    with probe:
        for one in folder.glob(f"{machine}-*[0-9a-f]"):
            try:
                with in_its_folder(one) as name:
                    probe.connect(name)
            except ConnectionRefusedError:
                for left in (one, log_of(one)):
                    left.unlink(missing_ok=True)
            except OSError:
                pass  # there is somebody, or it is gone


@contextmanager
def in_its_folder(path: Path) -> Iterator[str]:
    """Yield a name of a socket that is short enough for the kernel, wherever its folder is."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def greeted(connection: socket.socket) -> bool:
    """Whether a fork says that it is there; False where the interpreter has ended, or is stopped.

    Raises
    ------
    LaunchError
        It cannot fork, and says why.
    """
    interpreter, _ = peer_credentials(connection)
    heard, deadline = b"", time.monotonic() + LOAD_SECONDS
    connection.settimeout(LOOK_SECONDS)
    while heard != HELLO:
        try:
            data = connection.recv(LONGEST_REFUSAL)
        except TimeoutError:
            if _stuck(interpreter):
                return False
            if time.monotonic() > deadline:
                raise
            continue
        except ConnectionResetError:
            return False
        heard += data
        if not data and heard.startswith(REFUSAL):
            reason = heard.removeprefix(REFUSAL).decode(errors="replace")
            raise LaunchError(
                f"the parked interpreter cannot fork: {reason}", code="fork-refused", reason=reason
            )
        if not data:
            return False
    return True


def _ask(
    connection: socket.socket,
    do: str,
    at: str,
    arguments: Mapping[str, object],
    talk: int,
    *handles: int,
) -> None:
    """Say what a fork is to do, and in whose place."""
    request = {
        "do": do,
        "at": at,
        "arguments": arguments,
        "environment": dict(os.environ),
        "umask": int(_own("status").partition("\nUmask:")[2].split()[0], 8),
        "cpus": sorted(os.sched_getaffinity(0)),
    }
    try:
        here = os.open(".", os.O_PATH | os.O_DIRECTORY)
    except OSError as error:
        raise LaunchError(
            f"the working directory: {error.strerror}",
            code="working-directory-missing",
            reason=error.strerror,
        ) from None
    try:
        data = encode(request)
        sent = socket.send_fds(connection, [data], [talk, here, *handles])
        if sent < len(data):  # else it may have read all and hung up
            connection.sendall(data[sent:])
    except OSError as error:
        raise LaunchError(
            f"the fork of the parked interpreter: {error.strerror}", code="fork-lost", value=do
        ) from None
    finally:
        os.close(here)


def _circumstances(root: str) -> str:
    """Return a short name of all that a fork inherits and cannot change, and of the code that it runs."""
    loading = [f"{k}={v}" for k, v in os.environ.items() if k.startswith(LOADED_BY)]
    inherited = [
        *(root, sys.executable, sys.getfilesystemencoding(), *sorted(loading), *_sources(root)),
        *(INHERITED.findall(_own("status")), [resource.getrlimit(one) for one in LIMITS]),
        *(os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0)),
        *(_own(fact) for fact in FACTS),
        *(str(one.readlink()) for one in sorted(Path("/proc/self/ns").iterdir())),
        *(os.readlink("/proc/self/root"), own_machine()),  # noqa: PTH115 - as the others
    ]
    return hashlib.sha256(json.dumps(inherited).encode()).hexdigest()[:16]


def _own(fact: str) -> str:
    """Return a file of /proc/self; empty where the kernel has none."""
    with suppress(OSError):
        return Path(f"/proc/self/{fact}").read_text("ascii", errors="surrogateescape")
    return ""


def _sources(root: str) -> Iterator[object]:
    """Yield what changes with every source file of ours that is changed, and with everything installed beside."""
    folders = [f"{root}/{name}" for name in PACKAGES]
    for folder in folders:
        for entry in os.scandir(folder) if Path(folder).is_dir() else ():
            if entry.name.endswith(".py"):
                found = entry.stat()
                yield entry.path, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
            elif entry.is_dir() and entry.name != "__pycache__":
                folders.append(entry.path)
    for place in sys.path:
        if place.endswith(("site-packages", "dist-packages")) and Path(place).is_dir():
            yield place, Path(place).stat().st_mtime_ns
