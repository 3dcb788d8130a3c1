"""``apples run --program -- CMD``: a program that knows nothing of us, as a job that can migrate."""

from __future__ import annotations

import ctypes
import json as formats
import os
import signal as signals
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from apples.agent.information.sky import LiveSky
from apples.cli.detaching import detach
from apples.cli.job_face import face
from apples.cli.program import say, show, show_json
from apples.errors import UsageError
from apples.jobs import store
from apples.jobs.store import StoredJob
from apples.launch.actuator import Outcome
from apples.launch.actuators.program import ProgramExecution, start_program
from apples.malleable.programs.anchor import signal_number
from apples.resources import HostList, read_host_list

Document = dict[str, Any]
PR_SET_PDEATHSIG = 1


def run_program(order: Document, *, detached: bool, json: bool) -> int:
    """Run a program to its end, or let it go; either way it is a job with an id that can be migrated."""
    if detached:
        document = face(detach(order, ""))
        if json:
            show_json(document)
        else:
            show(f"{document['id']} runs on {', '.join(document['hosts'])}")
            show(f"next: apples migrate {document['id']} --from {order['on']} --to HOST")
        return 0
    job = store.create(order, "")
    say(f"job {job.id} on {order['on']}; its output: {order['output'] or job.commits}")
    code = _supervised(job)
    if not job.result.exists():
        return code
    document = formats.loads(job.result.read_text("utf-8"))
    if json:
        show_json(document)
    else:
        show(result_line(document))
    return code


def _supervised(job: StoredJob) -> int:
    """Supervise a job in a process that ends with this one; return its exit code."""
    told, telling = os.pipe()
    libc = ctypes.CDLL(None)
    supervisor = subprocess.Popen(
        [sys.executable, "-m", "apples.cli.supervise", str(job.folder), str(telling)],
        pass_fds=(telling,),
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG, int(signals.SIGTERM), 0, 0, 0),  # noqa: PLW1509 - one thread
    )
    os.close(telling)
    try:
        return supervisor.wait()
    except KeyboardInterrupt:
        supervisor.terminate()
        supervisor.wait()
        raise
    finally:
        os.close(told)


def order_of_program(
    hosts: Path,
    words: Sequence[str],
    *,
    on: str,
    signal: str,
    signal_seconds: float,
    weather: str,
    output: Path | None,
) -> Document:
    """Return what the supervisor is to do, checked here: what is wrong is said before anything starts.

    Raises
    ------
    UsageError
        No command, or a host or signal nobody knows. Permanent.
    """
    if not words:
        raise UsageError(
            "--program: name the command after --: apples run --program -- CMD ARG .."
        )
    known = read_host_list(hosts)
    if on and on not in known:
        there = ", ".join(host.name for host in known)
        raise UsageError(f"--on {on}: the host list has {there}")
    if weather not in {"live", "static"}:
        raise UsageError(f"--weather {weather}: with --program it is live or static")
    try:
        signal_number(signal)
    except ValueError as error:
        raise UsageError(f"--signal: {error}") from None
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
    return {
        "directory": str(Path.cwd()),
        "hosts": str(hosts.absolute()),
        "program": list(words),
        "on": on or most_able(known, weather),
        "signal": signal,
        "signal_seconds": signal_seconds,
        "output": None if output is None else str(output.absolute()),
    }


def most_able(hosts: HostList, weather: str) -> str:
    """Return the host that is forecast to do most: the share a new process gets over the time of a point."""
    share = {host.name: host.cpu for host in hosts}
    if weather == "live":
        told = LiveSky(hosts).weather()
        share |= {name: one.value for name, one in told.cpu.items()}
    return max(hosts, key=lambda host: share[host.name] / (host.seconds_per_point or 1.0)).name


def started(order: Document, job: StoredJob) -> ProgramExecution:
    """Start the program of an order."""
    return start_program(
        order["program"],
        read_host_list(order["hosts"]),
        order["on"],
        job.folder,
        job.commits,
        job.id,
        job.secret(),
        signal=order["signal"],
        signal_seconds=order["signal_seconds"],
        output=Path(order["output"]) if order["output"] else None,
        talk=say,
    )


def result_of(order: Document, outcome: Outcome) -> Document:
    """Return the ``apples.run/1`` document of a program: it has no plan, and nothing to verify."""
    return {
        "schema": "apples.run/1",
        "program": order["program"],
        "plan": None,
        "execution": {
            "iterations": 1,
            "predicted_seconds": None,
            "measured_seconds": outcome.seconds,
            "iteration_seconds": outcome.seconds,
            "startup_seconds": outcome.startup_seconds,
            "hosts": [{"host": times.host} for times in outcome.hosts],
        },
        "verified": None,
        "result_sha256": None,
    }


def result_line(document: Document) -> str:
    """Return what became of a program, in words."""
    ran = document["execution"]
    where = ", ".join(one["host"] for one in ran["hosts"])
    name = os.path.basename(document["program"][0])  # noqa: PTH119 - a word of a command, no path
    return (
        f"{name} ended with exit code 0 after {ran['measured_seconds']:.2f} s, at last on {where}"
    )


SIGNAL_HELP = "Signal that the program gets before a checkpoint if it catches it; or none."
