"""How tests wait: for a condition, never for a time; and look at what changes meanwhile."""

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path


def until(condition, seconds=300.0):
    """Return what `condition()` returns once it is true; what has not come in so long does not come."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"it did not come true in {seconds:g} s: {found}"
        time.sleep(0.01)  # between two looks
    return found


@contextlib.contextmanager
def begun(argv, seconds=30.0, **options):
    """Start a program, and have it end: where it still runs at last it is told to, and after some seconds killed.

    What it leaves in its process group is killed in any case.
    """
    with subprocess.Popen(argv, start_new_session=True, **options) as process:
        try:
            yield process
        finally:
            try:
                if process.poll() is None:
                    process.terminate()
                    process.wait(seconds)
            finally:
                with contextlib.suppress(ProcessLookupError):  # nothing is left
                    os.killpg(process.pid, signal.SIGKILL)


def files_below(folder):
    """Return the files below a folder, of which others may remove any meanwhile: `rglob` fails of that."""
    return [Path(place, name) for place, _, names in os.walk(folder) for name in names]
