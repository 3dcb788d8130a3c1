"""Commands run on this machine, in a namespace of it, or on an emulated host."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from apples.errors import LaunchError
from apples.lab import enter, requirements
from apples.lab.record import MARK, TRANSPORT, EmulatedHost, Lab

LIMIT_SECONDS = 30.0


def run(words: Sequence[str], text: str = "", settings: Path | None = None) -> str:
    """Return the output of a short command that must succeed.

    Parameters
    ----------
    text
        Its standard input.
    settings
        The ``slurm.conf`` for it.

    Raises
    ------
    LaunchError
        It failed; the message repeats its output.
    """
    try:
        done = subprocess.run(
            [requirements.path_of(words[0]), *words[1:]],
            input=text,
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            env={**os.environ, "SLURM_CONF": str(settings)} if settings else None,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise LaunchError(
            f"{words[0]} did not end within {LIMIT_SECONDS:g} s",
            code="tool-timeout",
            tool=words[0],
            seconds=LIMIT_SECONDS,
        ) from None
    if done.returncode != 0:
        output = " / ".join((done.stderr or done.stdout).split("\n")[:3]).strip(" /")
        raise LaunchError(
            f"{' '.join(words[:4])}: {output}",
            code="command-failed",
            tool=words[0],
            value=done.returncode,
        )
    return done.stdout


def in_network(pid: int, words: Sequence[str], text: str) -> str:
    """Return the output of a command run in the network namespace of another process."""
    inside = [requirements.path_of(words[0]), *words[1:]]
    return run(["nsenter", f"--net=/proc/{pid}/ns/net", *inside], text)


def entering(machine: EmulatedHost, words: Sequence[str], log: Path | None = None) -> list[str]:
    """Return the command line that runs `words` on a host.

    Parameters
    ----------
    log
        File of its output; the command then continues in the background.
    """
    order = {
        "host": machine.name,
        "pid": machine.pid,
        "started": machine.started,
        "cgroups": machine.cgroups,
        "log": str(log) if log else "",
    }
    return [sys.executable, "-I", "-S", enter.__file__, json.dumps(order), *words]


def environment(lab: Lab | str) -> dict[str, str]:
    """Return the environment of processes on a lab's hosts: with the lab's tag and the emulated transport."""
    mark = lab if isinstance(lab, str) else lab.identity
    more = {MARK: mark}
    if isinstance(lab, Lab) and lab.slurm_conf:
        more["SLURM_CONF"] = lab.slurm_conf
    return {**TRANSPORT, **os.environ, **more}


def execute(lab: Lab, host: str, words: Sequence[str]) -> int:
    """Run a command on a host with this process's standard streams; return its exit code.

    Raises
    ------
    UsageError
        No such host.
    LaunchError
        The host is gone.
    """
    process = subprocess.Popen(entering(_living(lab, host), words), env=environment(lab))
    while True:
        try:
            code = process.wait()
            break
        except KeyboardInterrupt:
            continue  # the command receives the interrupt too: wait for its end
    return code if code >= 0 else 128 - code


def captured(lab: Lab, host: str, words: Sequence[str]) -> tuple[int, str, str]:
    """Run a command on a host; return its exit code, standard output and standard error.

    Raises
    ------
    UsageError, LaunchError
        As of `execute`.
    """
    done = subprocess.run(
        entering(_living(lab, host), words),
        env=environment(lab),
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    return (
        done.returncode if done.returncode >= 0 else 128 - done.returncode,
        done.stdout,
        done.stderr,
    )


def _living(lab: Lab, host: str) -> EmulatedHost:
    machine = lab.machine(host)
    if not machine.alive:
        raise LaunchError(
            f"{host}: the host is gone (its first process ended)", code="host-lost", host=host
        )
    return machine


def leave_running(lab: Lab | str, machine: EmulatedHost, words: Sequence[str], log: Path) -> None:
    """Start a process on a host; it runs until the lab is down.

    Raises
    ------
    LaunchError
        It could not be started.
    """
    done = subprocess.run(
        entering(machine, words, log),
        env=environment(lab),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise LaunchError(
            f"{machine.name}: {words[0]}: {done.stderr.strip()}",
            code="command-failed",
            tool=words[0],
            host=machine.name,
            value=done.returncode,
        )
