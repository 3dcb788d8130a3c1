"""CRIU, which checkpoints a process into files and restores it: finds the program and builds its commands.

The full checkpoint is in files, as in van Albada et al. 1999 ("Migration"). That is slower than from memory to
memory, but the program can be restarted from it after any later failure.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from apples.io import state

LOCATION = "APPLES_CRIU"
"""Environment variable that names a criu program, or the folder of a private tree with one."""
GHOST_BYTES = 16 << 20
"""Largest size of a removed but open file that the checkpoint contains."""
DUMP_LOG, RESTORE_LOG = "dump.log", "restore.log"
# The supervisor enters the cgroup and the CPUs of the host before it starts CRIU, and the program
# inherits them.
COMMON = ("-v2", "--manage-cgroups=ignore", "--file-locks")


@dataclass(frozen=True, slots=True)
class Criu:
    """A criu program.

    Attributes
    ----------
    argv
        Command that starts it; several words if it needs its own loader.
    origin
        Source of the program: ``PATH``, the environment variable or the private tree.
    """

    argv: tuple[str, ...]
    origin: str

    def check(self) -> list[str]:
        """Return the command that checks whether the kernel has the features that CRIU needs."""
        return [*self.argv, "check"]

    def version(self) -> list[str]:
        """Return the command that prints the version."""
        return [*self.argv, "--version"]

    def dump(self, pid: int, folder: str) -> list[str]:
        """Return the command that writes the processes below `pid` into `folder` and ends them.

        Examples
        --------
        >>> " ".join(Criu(("criu",), "").dump(7, "/job/checkpoint")[:6])
        'criu dump -t 7 -D /job/checkpoint'
        """
        own = ["-t", str(pid), "-D", folder, "-o", DUMP_LOG, "--ghost-limit", str(GHOST_BYTES)]
        return [*self.argv, "dump", *own, *COMMON]

    def restore(self, folder: str) -> list[str]:
        """Return the command that restores the processes in `folder`, as children of the calling process."""
        # As a sibling of CRIU the program is the supervisor's child again: its exit code is real,
        # and it dies with its parent.
        own = ["-D", folder, "-o", RESTORE_LOG, "--restore-detached", "--restore-sibling"]
        return [*self.argv, "restore", *own, *COMMON]


def candidates(environment: Mapping[str, str], state: Path) -> Iterator[Criu]:
    """Yield the available criu programs, the preferred first: from the environment, the private tree, PATH.

    A private tree has the unpacked packages of a newer release, without an installation, so it has its own loader
    and libraries.

    Parameters
    ----------
    state
        The state directory; a private tree is its subfolder ``criu``.
    """
    named = environment.get(LOCATION, "")
    if named and not Path(named).is_dir():
        yield Criu((named,), LOCATION)
    elif named:
        yield from _private(Path(named), LOCATION)
    yield from _private(state / "criu", "private tree")
    found = shutil.which("criu", path=environment.get("PATH", os.defpath))
    if found:
        yield Criu((found,), "PATH")


def _private(root: Path, origin: str) -> Iterator[Criu]:
    loaders = sorted(root.glob("usr/lib/*-linux-gnu*/ld-linux*.so.*"))
    program = root / "usr/sbin/criu"
    if loaders and program.is_file():
        loader = loaders[0]
        yield Criu((str(loader), "--library-path", str(loader.parent), str(program)), origin)


def first_error(log: str) -> str:
    r"""Return the first error in a log of CRIU, without its clock and source lines.

    Examples
    --------
    >>> first_error("(00.01) Warn  (a.c:1): old\n(00.02) Error (criu/files.c:12): Can't open file tmp/x\n")
    "Can't open file tmp/x"
    """
    for line in log.splitlines():
        found = re.search(r"\bError \(([^)]*)\): (.*)", line)
        if found and not re.search(r"RLIMIT|rlimit", found[2]):
            return found[2].strip()[:300]
    return "its log names no error"


CHECK_SECONDS = 20.0
STEP_SECONDS = 0.002
TALK_BYTES = 1 << 16


def version_of(found: Criu) -> str:
    """Return the version that a CRIU prints; empty if it prints none."""
    try:
        ran = subprocess.run(
            found.version(), capture_output=True, text=True, timeout=CHECK_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return next((w[8:].strip() for w in ran.stdout.splitlines() if w.startswith("Version:")), "")


def working_criu(meanwhile: Callable[[], None] = lambda: None) -> tuple[Criu | None, str]:
    """Return the first CRIU that works on this kernel; else None and the reasons.

    Parameters
    ----------
    meanwhile
        Called repeatedly while a check runs.
    """
    missing = []
    for one in candidates(os.environ, state.directory()):
        reason = _checked(one, meanwhile)
        if not reason:
            return one, ""
        missing.append(f"{one.origin}: {reason}")
    if os.geteuid() != 0:
        missing.append("it needs root")
    return (
        None,
        f"no working CRIU ({'; '.join(missing) or 'none installed'}); see apples help migration",
    )


def _checked(one: Criu, meanwhile: Callable[[], None]) -> str:
    """Return the missing feature that CRIU's own check reports; empty if the check succeeds.

    Its output goes to a file: a pipe would stay open while any process that it started lives.
    """
    until = time.monotonic() + CHECK_SECONDS
    with tempfile.TemporaryFile() as talk:
        try:
            process = subprocess.Popen(
                one.check(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=talk
            )
        except OSError as error:
            return str(error)
        while process.poll() is None:
            if time.monotonic() > until:
                process.kill()
            time.sleep(STEP_SECONDS)
            meanwhile()
        talk.seek(0)
        text = talk.read(TALK_BYTES).decode(errors="replace")
    if process.returncode < 0:
        return f"its check was killed by signal {-process.returncode}"
    return first_error(text) if process.returncode else ""
