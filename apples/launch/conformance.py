"""Checks that a program keeps the application protocol, by running it: ``apples doctor --program``."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from apples.errors import ApplesError, ApplicationError
from apples.launch.calibrate import calibrate
from apples.launch.events import Event, Outcome, Progress, Ready
from apples.launch.hydra import RankGroup, command
from apples.launch.plan import SCHEMA, Parameters
from apples.launch.run import Run
from apples.resources import Host

HOSTS = {"first": 2, "second": 1}
"""Two hosts and three ranks: the smallest partition in which both neighbours and slots occur."""
ALONE = {"first": 1}
SILENCE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Check:
    """One claim about the program, and whether it held."""

    name: str
    ok: bool
    detail: str = ""


def check_program(
    programs: Mapping[str, Sequence[str]], parameters: Parameters, rows: int
) -> list[Check]:
    """Return the checks of a program and all its implementations, each made whatever came before it.

    Parameters
    ----------
    programs
        Implementation name -> argument list.
    parameters
        Small ones: the program runs three times for each implementation, and calibrates.
    rows
        Rows of the grid at these parameters; at least 3.
    """
    checks: list[Check] = []
    for name, program in programs.items():
        checks += Conformance(name, tuple(program), parameters, rows).checks()
    return checks


@dataclass(frozen=True)
class Conformance:
    """The checks of one implementation."""

    name: str
    program: tuple[str, ...]
    parameters: Parameters
    rows: int

    def checks(self) -> Iterator[Check]:
        """Yield one check after another; each runs the program for real."""
        digests = set()
        last = self.rows // 3
        partitions = {"3 ranks": ([self.rows - last, last], HOSTS), "1 rank": ([self.rows], ALONE)}
        for label, (strips, ranks) in partitions.items():
            events: list[Event] = []
            yield self._tried(f"runs on {label}", lambda: self._run(strips, ranks, events))  # noqa: B023 - called at once
            if outcome := _outcome(events):
                digests.add(outcome.sha256)
                yield from self._contents(label, events, outcome, len(strips))
        same = f"{len(digests)} different digests" if len(digests) > 1 else ""
        yield Check(f"{self.name}: the result does not depend on the partition", not same, same)
        yield self._tried("refuses a task of an unknown mode", self._refusal)
        yield self._tried("calibrates", self._calibrate)

    def _tried(self, claim: str, act: Callable[[], str]) -> Check:
        try:
            return Check(f"{self.name}: {claim}", True, act())
        except ApplesError as error:
            return Check(f"{self.name}: {claim}", False, str(error))

    def _run(self, strips: Sequence[int], ranks: Mapping[str, int], events: list[Event]) -> str:
        with tempfile.TemporaryDirectory(prefix="apples-") as folder:
            self._events(self._task(strips, ranks, folder), ranks, events)
        if _outcome(events) is None:
            raise ApplicationError("the program said 'done' without a 'result'")
        return ""

    def _events(self, task: dict[str, Any], ranks: Mapping[str, int], heard: list[Event]) -> None:
        rank_groups = [RankGroup(host, count, self.program) for host, count in ranks.items()]
        run = Run(
            command(rank_groups, task), rank_groups, silence_seconds=SILENCE_SECONDS, talk=_quiet
        )
        heard.extend(run.events())
        run.finish()

    def _task(
        self, strips: Sequence[int], ranks: Mapping[str, int], folder: str
    ) -> dict[str, Any]:
        first = [sum(strips[:i]) for i in range(len(strips))]
        return {
            "schema": SCHEMA,
            "mode": "run",
            "parameters": dict(self.parameters),
            "implementations": dict.fromkeys(ranks, self.name),
            "partition": [
                {"host": h, "address": "127.0.0.1", "ranks": n, "first_row": f, "rows": r}
                for (h, n), f, r in zip(ranks.items(), first, strips, strict=True)
            ],
            "output": folder,
            "progress_seconds": 0.0,
            "save": False,
        }

    def _contents(
        self, label: str, events: Sequence[Event], outcome: Outcome, hosts: int
    ) -> Iterator[Check]:
        """Yield what must hold of the events of a run that worked."""
        where = f"{self.name} on {label}"
        ready = sum(isinstance(event, Ready) for event in events)
        yield Check(f"{where}: says 'ready' once", ready == 1, f"{ready} times")
        steps = [event for event in events if isinstance(event, Progress)]
        counts = [step.iteration for step in steps]
        yield Check(
            f"{where}: iterations only grow", counts == sorted(counts), f"{len(steps)} steps"
        )
        complete = all(len(times) == hosts for times in (outcome.hosts, *(s.hosts for s in steps)))
        yield Check(f"{where}: every event has every host's times", complete, f"{hosts} hosts")
        spent = max(
            (h.compute_seconds + h.communicate_seconds for h in outcome.hosts), default=0.0
        )
        fits = spent <= outcome.seconds * 1.05 + 1e-3
        figures = f"{spent:.4g} s of {outcome.seconds:.4g} s"
        yield Check(f"{where}: the hosts' times fit into the loop's", fits, figures)
        yield Check(f"{where}: gives a digest", bool(outcome.sha256), outcome.sha256)

    def _refusal(self) -> str:
        """Give the program a mode that does not exist; it must fail and not say done."""
        task = {**self._task([self.rows], ALONE, ""), "mode": "no-such-mode", "output": None}
        try:
            self._events(task, ALONE, [])
        except ApplesError as refusal:
            return str(refusal)
        raise ApplicationError("the program said 'done'")

    def _calibrate(self) -> str:
        host, sizes = Host("first"), (self.rows,)
        one, *_ = calibrate(host, self.program, self.name, self.parameters, sizes, talk=_quiet)
        return f"{one.seconds_per_point:.3g} s per point"


def _outcome(events: Sequence[Event]) -> Outcome | None:
    return next((event for event in events if isinstance(event, Outcome)), None)


def _quiet(_line: str) -> None:
    """Let the program's talk pass unheard; its last words are in the error."""
