"""CRIU, which writes a process into files and makes it again from them: found, and its commands built.

A full checkpoint in files, as in van Albada et al. 1999 ("Migration"): slower than from memory to memory, and
whatever fails afterwards, the program can be started again from it.
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
"""Files that were removed while open travel inside the checkpoint up to this size."""
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
        What starts it; more than one argument where it needs a loader of its own.
    origin
        Where it was found.
    """

    argv: tuple[str, ...]
    origin: str

    def check(self) -> list[str]:
        """Return the command that says whether the kernel has what CRIU needs."""
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
        """Return the command that makes the processes in `folder` again, as children of who runs it."""
        # As a sibling of CRIU the program is the supervisor's child again: its exit code is real,
        # and it dies with its parent.
        own = ["-D", folder, "-o", RESTORE_LOG, "--restore-detached", "--restore-sibling"]
        return [*self.argv, "restore", *own, *COMMON]


def candidates(environment: Mapping[str, str], state: Path) -> Iterator[Criu]:
    """Yield the criu programs there are, the one to prefer first: named, private, the system's.

    A private tree is what a newer release's packages were unpacked into: nothing in it is installed, so it
    comes with its own loader and libraries.

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
    """Return the version a CRIU says it has; empty when it does not say."""
    try:
        ran = subprocess.run(
            found.version(), capture_output=True, text=True, timeout=CHECK_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return next((w[8:].strip() for w in ran.stdout.splitlines() if w.startswith("Version:")), "")


def working_criu(meanwhile: Callable[[], None] = lambda: None) -> tuple[Criu | None, str]:
    """Return the first CRIU that this kernel has what it needs for, or None and what is missing.

    Parameters
    ----------
    meanwhile
        Called again and again while a check runs.
    """
    missing = []
    for one in candidates(os.environ, state.directory()):
        reason = _checked(one, meanwhile)
        if not reason:
            return one, ""
        missing.append(f"{one.origin}: {reason}")
    if os.geteuid() != 0:
        missing.append("it needs root")
    return None, f"no working CRIU ({'; '.join(missing) or 'none installed'})"


def _checked(one: Criu, meanwhile: Callable[[], None]) -> str:
    """Return what CRIU's own check finds missing; empty if nothing.

    Its talk goes to a file: a pipe would stay open as long as anything it started lives.
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
