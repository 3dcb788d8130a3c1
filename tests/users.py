"""Several users of this machine, by numbers that no account has. Needs root."""

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import psutil

SCHEDULER, ADA, BOB = 61000, 61001, 61002
ON_THE_PAGE = {"apples": 61010, "ann": 61011, "bob": 61012, "cleo": 61013}
"""The users of the page about a shared scheduler, whose test kills all their processes at its end."""

STAND_IN = """#!/bin/sh
# sudo -u NAME COMMAND, for users without an account
case "$1 $2" in
{cases}
*) exit 97 ;;
esac
shift 2
exec env -i PATH="$PATH" HOME="{home}/$id" COLUMNS=80 NO_COLOR=1 TERM=dumb LC_ALL=C.UTF-8 \\
  setpriv --reuid $id --regid $id --clear-groups "$@"
"""


def lacking():
    """Return why a test cannot be several users here; empty if it can."""
    if os.geteuid() != 0:
        return "needs root, to be several users"
    if not all(place.stat().st_mode & 0o001 for place in Path(sys.executable).resolve().parents):
        return "needs an interpreter that other users can run"
    return ""


def write_sudo(folder):
    """Write a stand-in for sudo to `folder`/bin, and make a home for each user of the page."""
    (folder / "bin").mkdir()
    (folder / "home").mkdir()
    cases = []
    for name, uid in ON_THE_PAGE.items():
        home = folder / "home" / str(uid)
        home.mkdir(mode=0o700)
        os.chown(home, uid, uid)
        cases.append(f'"-u {name}") id={uid} ;;')
    sudo = folder / "bin" / "sudo"
    sudo.write_text(STAND_IN.format(cases="\n".join(cases), home=folder / "home"))
    sudo.chmod(0o755)


def kill_processes():
    """Kill all processes of the users of the page, as long as there are any."""
    while found := [p for p in psutil.process_iter(["uids"]) if is_on_the_page(p)]:
        for process in found:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        psutil.wait_procs(found, 10)


def is_on_the_page(process):
    return (
        process.info["uids"].real in ON_THE_PAGE.values()
        and process.status() != psutil.STATUS_ZOMBIE
    )
