"""Checks of the `Actuator` contract. The tests run them on our actuators; users run them on their own.

``python -m apples.launch.actuators.checks file.py:name [HOSTS]`` prints each check that passed and stops at the
first failure. The checks start a small program without MPI several times on all hosts of the list.
"""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from apples.errors import ApplesError, ApplicationError, LaunchError
from apples.launch.actuator import Actuator, Execution
from apples.launch.actuators import actuator_class, checked_program
from apples.launch.hydra import LaunchCommand
from apples.launch.plan import HostProgram, HostSurvey, LaunchPlan, run_task, strips_of
from apples.launch.remote.fitness import Needs
from apples.launch.this_host import PYTHON
from apples.resources import Host, read_host_list
from apples.resources.schedule import Allocation

HOSTS = """
[[host]]
name = "first"
slots = 2
[[host]]
name = "second"
"""
"""The default host list: two hosts with three ranks, all on this machine."""
ROWS, ITERATIONS = 100, 2
ITERATION_SECONDS = 0.002
"""The predicted seconds of an iteration, from which a queue's time limit is derived."""
PROBE = "apples.topology.sources.probe"
"""The module that describes the CPUs of a host on another machine."""
LEFT_SECONDS = 60.0
"""Time limit for all ranks to end after their agent was killed."""


def check_actuator(
    reference: str, hosts: Path | None = None, folder: Path | None = None
) -> list[str]:
    """Check an actuator by running it; return the claims that passed, in order.

    Parameters
    ----------
    reference
        A value of ``--actuator``: a built-in name, ``module:name`` or ``file.py:name``.
    hosts
        A host list; the checks use all its hosts. None: two emulated hosts on this machine.
    folder
        A folder that all hosts share, for the files of the ranks. None: a temporary folder.

    Raises
    ------
    LaunchError
        A check failed; the message has the actual result and the result that the contract requires.
    UsageError
        The actuator or the host list does not exist.

    Examples
    --------
    >>> check_actuator("recording")[0]
    'builds a command and starts nothing'
    """
    with tempfile.TemporaryDirectory(prefix="apples-checks-", dir=folder) as place:
        return list(ActuatorChecks(reference, hosts, Path(place)).held())


class ActuatorChecks:
    """The checks of one actuator; their files lie in `folder`."""

    def __init__(self, reference: str, hosts: Path | None, folder: Path) -> None:
        self.reference, self.folder = reference, folder
        self.kind = actuator_class(reference)
        self.name = self.kind.name or self.kind.__name__
        self.hosts = folder / "hosts.toml" if hosts is None else hosts
        if hosts is None:
            self.hosts.write_text(HOSTS, encoding="utf-8")

    def held(self) -> Iterator[str]:
        """Run the checks in order; yield the claim of each check that passed.

        Raises
        ------
        LaunchError
            A check failed.
        """
        yield self._check("builds a command and starts nothing", self._command)
        yield self._check("looks at no host twice", self._look)
        yield self._check("expects a wait of finite seconds, of none without a queue", self._wait)
        plan = self._plan("finishes")
        with self._started(plan) as run:
            outcome = run.outcome()
            if outcome is None:
                self._none_left(expected=0)
                yield "starts nothing, and returns no outcome"
                return
        yield self._check("is ready when every rank runs with the plan's task", self._ready)
        yield self._check("reports progress and one outcome, and leaves no process", self._finish)
        yield self._check("cancels, and again, and leaves no process", self._cancel)
        yield self._check("passes the refusal of the program on", lambda: self._fails("refuses"))
        yield self._check(
            "fails where a rank dies before it is ready", lambda: self._fails("dies")
        )
        yield self._check("leaves no process behind an agent that is killed", self._killed)

    def hold(self) -> None:
        """Act as the agent that will be killed: start a program that waits, print ``ready``, and wait."""
        run = self._actuator().actuate(self._plan("waits"))
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        run.outcome()

    # ------------------------------------------------------------------ the checks
    def _command(self) -> None:
        plan = self._plan("finishes")
        before = sorted(map(str, self.folder.rglob("*")))
        order = self._actuator().command(plan)
        if not isinstance(order, LaunchCommand):
            raise self._broken(f"command returned {type(order).__name__}, not LaunchCommand")
        kinds = sorted({type(word).__name__ for word in order.argv} - {"str"})
        self._expect("words that command returned", kinds, [])
        written = sorted(map(str, self.folder.rglob("*")))
        self._expect("files that command wrote", written, before)

    def _look(self) -> None:
        actuator, survey = self._actuator(), self._survey()
        found = actuator.look(survey)
        self._expect(
            "hosts it found that are not listed",
            sorted(set(found) - {h.name for h in survey.hosts}),
            [],
        )
        again = actuator.look(replace(survey, findings={**survey.findings, **found}))
        self._expect("hosts that look found again", sorted(again), [])

    def _wait(self) -> None:
        actuator = self._actuator()
        seconds = actuator.wait_seconds(self._plan("finishes"))
        if not (math.isfinite(seconds) and seconds >= 0 and (actuator.queues or seconds == 0)):
            raise self._broken(f"wait_seconds is {seconds}, queues {actuator.queues}")

    def _ready(self) -> None:
        plan = self._plan("waits")
        with self._started(plan):
            records = self._records()
            ranks = sum(strip.ranks for strip in plan.strips)
            self._expect("ranks that run", sorted(r["rank"] for r in records), list(range(ranks)))
            wanted = run_task(plan)["partition"]
            for record in records:
                self._expect(
                    "the partition that a rank received", record["task"]["partition"], wanted
                )

    def _finish(self) -> None:
        plan = self._plan("finishes")
        with self._started(plan) as run:
            steps = [progress.iteration for progress in run.monitor()]
            self._expect("iterations that were reported", steps, [1, 2])
            outcome = run.outcome()
            if outcome is None or run.outcome() != outcome:
                raise self._broken("outcome is not the same when it is asked again")
            names = [strip.host.name for strip in plan.strips]
            self._expect("hosts of the outcome", [one.host for one in outcome.hosts], names)
            self._none_left()

    def _cancel(self) -> None:
        with self._started(self._plan("waits")) as run:
            run.cancel()
            self._none_left()
            run.cancel()

    def _fails(self, how: str) -> None:
        kinds = ApplicationError if how == "refuses" else (ApplicationError, LaunchError)
        try:
            run = self._actuator().actuate(self._plan(how))
        except kinds:
            self._none_left()
            return
        run.cancel()
        raise self._broken("actuate returned, though the program was never ready")

    def _killed(self) -> None:
        self._plan("waits")  # empties the folder of records
        words = [sys.executable, "-m", "apples.launch.actuators.checks", "--hold", self.reference]
        with subprocess.Popen([*words, self.hosts, self.folder], stdout=subprocess.PIPE) as agent:
            assert agent.stdout is not None  # noqa: S101 - for the type checker: it is a pipe
            said = agent.stdout.readline()
            agent.send_signal(signal.SIGKILL)
        self._expect(
            "the line of the agent before it is killed", said.decode(errors="replace"), "ready\n"
        )
        self._none_left(seconds=LEFT_SECONDS)

    # ------------------------------------------------------------------ helpers of the checks
    def _check(self, claim: str, check: Callable[[], None]) -> str:
        try:
            check()
        except ApplesError as error:
            fields = {**error.fields, "actuator": self.name, "claim": claim, "cause": error.code}
            raise LaunchError(
                f"{self.name}: {claim}: {error}", code="actuator-check-failed", **fields
            ) from error
        return claim

    def _actuator(self) -> Actuator:
        return self.kind.create(None, save=False)

    def _survey(self) -> HostSurvey:
        hosts = read_host_list(self.hosts)
        return HostSurvey(hosts, tuple(hosts), Needs(probe=PROBE))

    def _plan(self, how: str) -> LaunchPlan:
        """Return a plan that uses all hosts in reverse order, with strips of very different sizes."""
        record = self.folder / "records"
        record.mkdir(exist_ok=True)
        for old in record.iterdir():
            old.unlink()
        survey = self._survey()
        hosts = tuple(reversed(list(survey.hosts)))
        rows = [host.slots + place for place, host in enumerate(hosts)]
        rows[-1] += ROWS - sum(rows)
        strips = [Allocation(h, r, "default") for h, r in zip(hosts, rows, strict=True)]
        return LaunchPlan(
            "checked",
            {"grid": ROWS, "iterations": ITERATIONS, "record": str(record), "how": how},
            strips_of(strips, lambda one: _program(one.host)),
            ROWS,
            survey.hosts,
            iterations=ITERATIONS,
            iteration_seconds=ITERATION_SECONDS,
            cpu_quotas={host.name: host.cpu * host.slots for host in hosts if host.cpu < 1},
            findings=self._actuator().look(survey),
            needs=survey.needs,
        )

    @contextmanager
    def _started(self, plan: LaunchPlan) -> Iterator[Execution]:
        run = self._actuator().actuate(plan)
        try:
            yield run
        finally:
            run.cancel()

    def _records(self) -> list[Mapping[str, Any]]:
        files = (self.folder / "records").glob("rank-*.json")
        return [json.loads(file.read_text(encoding="utf-8")) for file in files]

    def _none_left(self, expected: int | None = None, seconds: float = 0.0) -> None:
        """Raise an error if a rank on this machine still runs after `seconds`."""
        records = self._records()
        if expected is not None:
            self._expect("ranks that ran", len(records), expected)
        deadline = time.monotonic() + seconds
        while left := [r for r in records if _runs(r)]:
            if time.monotonic() > deadline:
                raise self._broken(f"rank {left[0]['rank']} still runs, process {left[0]['pid']}")
            time.sleep(0.05)

    def _expect(self, what: str, found: object, wanted: object) -> None:
        if found != wanted:
            raise self._broken(f"{what}: {found}, not {wanted}", value=found, bound=wanted)

    def _broken(self, how: str, **fields: Any) -> LaunchError:
        return LaunchError(how, code="actuator-check-failed", **fields)


def _program(host: Host) -> HostProgram:
    """Return the command lines of the test program on a host."""
    here = (sys.executable, checked_program.__file__)
    return HostProgram(host, "default", here, (PYTHON, here[1]))


def _runs(record: Mapping[str, Any]) -> bool:
    """Whether the process that wrote a record still runs; False if it ran on another machine."""
    if record["machine"] != checked_program.machine():
        return False
    return bool(checked_program.began(record["pid"]) == record["began"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Check the actuator named by the first argument, on the host list named by the second.

    Parameters
    ----------
    arguments
        None: those of the command line.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["--hold"]:
        reference, hosts, folder = arguments[1:]
        ActuatorChecks(reference, Path(hosts), Path(folder)).hold()
        return 0
    reference, *listed = arguments
    try:
        for claim in check_actuator(reference, Path(listed[0]) if listed else None):
            sys.stdout.write(f"ok: {claim}\n")
    except ApplesError as error:
        sys.stderr.write(f"apples: {error} [{error.code}]\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
