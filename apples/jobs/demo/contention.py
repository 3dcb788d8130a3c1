"""Real contention for demonstrations: processes that compete for chosen CPUs, and end with their owner."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from apples.errors import LaunchError
from apples.jobs.demo import spin

END_SECONDS = 5.0


@contextmanager
def contention(cpus: Sequence[int], own_sessions: bool = False) -> Iterator[None]:
    """Run a spinning process on each of `cpus` during the block; a CPU may be listed twice.

    The spinning processes end with this process, also if it is killed.

    Parameters
    ----------
    own_sessions
        Start each process in a session of its own, as other users' programs are. If the kernel groups processes by
        session (autogroup), this changes the CPU share that is left to others.

    Raises
    ------
    LaunchError
        A spinning process could not be started.
    """
    with ExitStack() as stack:
        for cpu in cpus:
            command = [sys.executable, "-I", "-S", str(spin.__file__), str(cpu), str(os.getpid())]
            load = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stdin=subprocess.DEVNULL,
                start_new_session=own_sessions,
            )
            stack.callback(_end, load)
            if load.stdout is None or load.stdout.readline() != b"spinning\n":
                raise LaunchError(
                    f"no competing load could be started on CPU {cpu}",
                    code="load-not-started",
                    cpu=cpu,
                )
        yield


def _end(load: subprocess.Popen[bytes]) -> None:
    load.kill()
    load.wait(END_SECONDS)
    if load.stdout is not None:
        load.stdout.close()
