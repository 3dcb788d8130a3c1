"""Child processes of a scheduler, which starts many jobs and calls users' models for them.

They are forks of one fork server of the standard library, which has loaded `apples.jobs.preload`: supervisors of
jobs (`begin`), and functions that plan, change the working directory or run a user's code (`call`).
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pkgutil
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Mapping
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import recv_handle, send_handle
from multiprocessing.util import get_temp_dir
from pathlib import Path
from threading import RLock
from typing import Any, NoReturn

from apples.errors import DeadlineError, Failure, LaunchError, failure_of
from apples.io.json_lines import LineError, decode, encode
from apples.jobs import store
from apples.launch.job_processes import close_inherited, signal_at_parents_end

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["apples.jobs.preload"])
SOCKET_DIRECTORY = "/tmp"  # noqa: S108 - the fork server makes a private folder in it
"""Directory of the fork server's socket. The path of a socket has at most 107 bytes; TMPDIR may be longer."""
SOCKET_FOLDER = "APPLES_SOCKET_FOLDER"
"""Environment variable of the fork server only: the folder that it removes if this process is killed."""
ANSWER_BYTES = 1 << 24
STARTED = b"started"
"""A supervisor's message after its start."""
BEGIN_SECONDS = 60.0
"""Time limit for the start of a supervisor."""
END_SECONDS = 10.0
"""Time limit for the end of a killed child."""
_PROCESSES = RLock()
"""Held during each operation on a `Process`: the start of any child polls all the others, and the end of a child
can be read only once."""


def start() -> None:
    """Start the fork server, unless it runs; the first child waits until its modules are loaded.

    Raises
    ------
    OSError
        The process or its socket cannot be created.
    """
    with _PROCESSES:
        before, tempfile.tempdir = tempfile.tempdir, SOCKET_DIRECTORY
        try:
            os.environ[SOCKET_FOLDER] = get_temp_dir()
            forkserver.ensure_running()
        finally:
            tempfile.tempdir = before
            os.environ.pop(SOCKET_FOLDER, None)


def end_process() -> NoReturn:
    """End this process and its fork server without waiting for threads: orders in progress belong to the jobs."""
    shutil.rmtree(get_temp_dir(), ignore_errors=True)  # holds the fork server's socket
    os._exit(0)


def call(function: str, *, seconds: float | None = None, **arguments: object) -> Any:
    """Return the answer of a function that runs in a child process; the child is killed when this returns.

    Parameters
    ----------
    function
        ``module:name``.
    seconds
        Time limit, from the start of the child; None: no limit.
    arguments
        Arguments of the function, which can be pickled. The answer is JSON.

    Raises
    ------
    DeadlineError
        The function did not answer within `seconds`.
    LaunchError
        The child could not be started, or ended without an answer. Transient, unless the function itself ends it.
    ApplesError
        The function raised this error.
    """
    receiver, sender = CONTEXT.Pipe(duplex=False)
    with receiver:
        child = CONTEXT.Process(
            target=_answer, args=(dict(os.environ), function, arguments, sender)
        )
        try:
            with sender:
                _start(child)
            in_time = receiver.poll(seconds)
            answer = decode(receiver.recv_bytes(ANSWER_BYTES), ANSWER_BYTES) if in_time else {}
        except (OSError, EOFError, LineError) as error:
            why = str(error) or "it was killed, or its code ended it"
            raise _lost(function, why) from None
        finally:
            _end(child)
    if not in_time:
        raise DeadlineError(
            f"{function}: no answer in {seconds:.3g} s",
            code="child-timeout",
            value=function,
            seconds=seconds,
        )
    if "failure" in answer:
        raise Failure.of_document(answer["failure"]).error()
    return answer["answer"]


def begin(job: store.StoredJob) -> None:
    """Start the supervisor of a new record, without waiting for the start of the job.

    The supervisor inherits the job's lock, so that no other process can conclude that the job has no supervisor.
    It confirms its start, receives the lock and then begins. A supervisor that starts too late gets no lock, and
    ends without touching the job.

    Raises
    ------
    LaunchError
        The supervisor did not start within `BEGIN_SECONDS`; the job is recorded as failed. Transient.
    """
    here, there = CONTEXT.Pipe()
    with here, there, job.locked() as lock:
        child = CONTEXT.Process(target=_supervise, args=(dict(os.environ), str(job.folder), there))
        why = ""
        try:
            _start(child)
            there.close()
            if here.poll(BEGIN_SECONDS):
                here.recv_bytes(len(STARTED))
                send_handle(here, lock, child.pid)
            else:
                why = f"it did not start in {BEGIN_SECONDS:.3g} s"
        except (OSError, EOFError) as error:
            why = str(error) or "it ended before it started, or its fork server ended"
        finally:
            _end(child)  # not the supervisor, which is in a session of its own
        if why:
            lost = _lost(f"the supervisor of job {job.id}", why)
            job.never_begins("failed", str(lost))
            raise lost


def _lost(name: str, why: str) -> LaunchError:
    """Return the error for a child that cannot be started or that ended too early."""
    return LaunchError(
        f"{name}: its process was lost: {why}", code="child-lost", value=name, reason=why
    )


def _start(child: multiprocessing.process.BaseProcess) -> None:
    """Start a child; start the fork server first if it does not run."""
    with _PROCESSES:
        start()
        child.start()


def _end(child: multiprocessing.process.BaseProcess) -> None:
    """Kill a child, if it was started, and all processes that its code has started."""
    with _PROCESSES:
        if child.pid is None:
            return
        if child.is_alive():  # a child that ended has killed its process group itself
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.kill()
    wait([child.sentinel], END_SECONDS)
    with _PROCESSES:
        if (
            not child.is_alive()
        ):  # else it hangs in the kernel; the start of a later child reaps it
            child.close()


# ----------------------------------------------------------------------- in the child
def _answer(
    environment: Mapping[str, str], function: str, arguments: Mapping[str, Any], sender: Connection
) -> None:
    """Send the result or the error of a function, then kill all processes that its code left running."""
    os.setsid()
    _leave_server(environment, sender.fileno())
    signal_at_parents_end(signal.SIGKILL)  # the fork server ends with the calling process
    os.dup2(2, 1)
    try:
        answer = encode({"answer": pkgutil.resolve_name(function)(**arguments)})
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it is, the caller raises it
        if os.environ.get("APPLES_DEBUG"):
            traceback.print_exc()
        answer = encode({"failure": failure_of(error).document()})
    sender.send_bytes(answer)
    os.killpg(0, signal.SIGKILL)


def _supervise(environment: Mapping[str, str], folder: str, there: Connection) -> None:
    """Fork once more and run a job's supervisor in the grandchild, which no process has to reap."""
    from apples.jobs.supervisor import supervise  # noqa: PLC0415 - the scheduler itself has no use for it

    _leave_server(environment, there.fileno())
    if os.fork():
        os._exit(0)
    code = LaunchError.exit_code
    try:
        os.setsid()
        log = os.open(store.StoredJob(Path(folder)).log, os.O_WRONLY | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        with there:
            there.send_bytes(STARTED)
            lock = recv_handle(there)
        code = supervise(-1, lock, folder)
    finally:
        sys.stdout.flush()
        os._exit(code)


def _leave_server(environment: Mapping[str, str], handle: int) -> None:
    """Set the environment of the calling process, and close all files except `handle` and the standard streams.

    The fork server ends when no process has its pipe open.
    """
    os.environ.clear()
    os.environ.update(environment)
    close_inherited(spare=handle)
