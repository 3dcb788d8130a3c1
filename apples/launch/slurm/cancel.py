"""End a job, or one step of an allocation, when its follower is gone.

Started by path as ``python -I -S cancel.py NAME [ALLOCATION]`` in a new session; standard library only. Standard
input is a pipe that the follower holds open. Its end means that the follower has ended, for example because it was
killed. Jobs are identified by their unique name, which is known before Slurm assigns a number.
"""

import contextlib
import subprocess
import sys
import time

SECONDS = 20.0
AGAIN_SECONDS = (0.0, 1.0, 3.0)
"""Pause before each attempt: the submission may still be in progress when the follower is killed."""
LIST_STEPS = ("squeue", "--steps", "--noheader", "--format=%i %j", "--jobs")


def cancel(name: str, allocation: str = "") -> None:
    """Kill the job of that name, or its steps in an allocation, at once and without a grace time."""
    if not allocation:
        # Send SIGKILL at once. After SIGTERM, Slurm would wait KillWait, 30 s on most sites.
        _run("scancel", "--full", "--signal=KILL", f"--name={name}")
        _run("scancel", f"--name={name}")
        return
    for number in steps(_run(*LIST_STEPS, allocation), name):
        _run("scancel", "--signal=KILL", number)


def steps(listing: str, name: str) -> list[str]:
    r"""Return the numbers of the steps with a name, from squeue's listing.

    Examples
    --------
    >>> steps("12.0 apples-7f\n12.1 bash\n12.batch batch\n", "apples-7f")
    ['12.0']
    """
    found = [line.strip().partition(" ") for line in listing.splitlines()]
    return [number for number, _, called in found if called.strip() == name]


def _run(*words: str) -> str:
    """Return the output of a Slurm command; ignore a failure, which means that nothing is left to end."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        return subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            timeout=SECONDS,
            check=False,
        ).stdout
    return ""


def main() -> None:
    """Wait for the end of standard input, then end the job."""
    while sys.stdin.buffer.read(4096):
        pass
    for pause in AGAIN_SECONDS:
        time.sleep(pause)
        cancel(*sys.argv[1:])


if __name__ == "__main__":
    main()
