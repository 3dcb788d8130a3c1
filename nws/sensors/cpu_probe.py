"""The CPU probe: a child process that spins, and measures its share of a CPU."""

import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

from nws.sensor import SensorError
from nws.sensors import spin


def spin_command(cpus: Collection[int], seconds: float) -> list[str]:
    """Return the command that spins on `cpus` for `seconds`.

    A child with its own interpreter: a thread of ours would measure the interpreter lock, a fork
    of ours may inherit held locks, and neither must change the affinity of the caller.
    """
    pinned = ",".join(str(cpu) for cpu in sorted(cpus))
    return [sys.executable, "-I", "-S", str(Path(spin.__file__)), str(seconds), pinned]


def probe_share(cpus: Collection[int], seconds: float = 0.1, deadline: float = 10.0) -> float:
    """Return the share of one CPU, 0..1, that a new process on `cpus` gets now.

    A launcher starts a process in a session of its own, and the probe does so too: with autogroups, a session
    is a group of the scheduler. The control group is the one of this process.

    The cost is at most `seconds` of one CPU and the start of an interpreter (about 10 ms).

    Raises
    ------
    SensorError
        Transient: it did not end within `deadline` seconds. Permanent: it could not run, for
        example because the cpuset does not allow a CPU.
    """
    command = spin_command(cpus, seconds)
    try:
        # A new session, because Linux (autogroup) divides a CPU among sessions first: a probe in
        # ours would share our weight.
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=deadline,
            check=False,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired as error:
        raise SensorError(
            f"a CPU probe did not end in {deadline} s",
            transient=True,
            code="probe-timeout",
            seconds=deadline,
        ) from error
    except OSError as error:
        raise SensorError(
            f"a CPU probe did not start: {error}",
            transient=True,
            code="probe-not-started",
            reason=str(error),
        ) from error
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or [f"code {done.returncode}"])[-1]
        raise SensorError(
            f"a probe on CPUs {sorted(cpus)} failed: {reason}",
            transient=False,
            code="probe-failed",
            cpus=sorted(cpus),
        )
    return float(done.stdout)
