"""Check that a program follows the application protocol, by running it: ``apples doctor --program``."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from apples.errors import ApplesError, ApplicationError
from apples.launch.calibrate import calibrate
from apples.launch.events import Event, HostTimes, Outcome, Progress, Ready
from apples.launch.hydra import RankGroup, command
from apples.launch.plan import SCHEMA, Parameters
from apples.launch.run import Run
from apples.resources import Host
from apples.ui.units import listed

Piece = Mapping[str, int]
"""Rows (and columns) of one host: an entry of a task's partition without the host."""
HOSTS = {"first": 2, "second": 1}
"""Two hosts and three ranks: the smallest partition in which both neighbours and slots occur."""
ALONE = {"first": 1}
PAIR = {"first": 1, "second": 1}
THREE = {"first": 1, "second": 1, "third": 1}
MAX_THREADS = 3
UNEQUAL = {"few": 1, "many": 1}
"""Two hosts; the first gets a twentieth of the rows. Their computing times show whether the program uses the
rows."""
FEW = 20
MIN_SECONDS = 1e-3
"""Minimum computing time for a judgment."""
TRIES = 3
"""Maximum timing runs. The least ratio counts, because a busy machine may delay the host with few rows."""
SILENCE_SECONDS = 60.0
PROGRESS_SECONDS = 1e-6
"""Interval of progress events: so short that the program reports as often as it can."""


@dataclass(frozen=True, slots=True)
class Check:
    """One claim about the program, and whether it holds; `ok` is None if it could not be checked."""

    name: str
    ok: bool | None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ProblemSize:
    """Parameters of a program, and the rows and columns of its grid at them; columns only for rectangles."""

    parameters: Parameters
    rows: int
    columns: int = 0


def check_program(
    programs: Mapping[str, Sequence[str]],
    small: ProblemSize,
    telling: ProblemSize,
    of_rectangles: Collection[str] = (),
    by_threads: Collection[str] = (),
    sweeps: Mapping[str, int] | None = None,
) -> list[Check]:
    """Return the results of all checks of a program's implementations; a failure does not stop later checks.

    Parameters
    ----------
    programs
        Implementation name -> argument list.
    small
        Size for correctness checks, with at least 3 rows. Each implementation runs on up to five partitions, one
        of them with a strip of minimum size, and calibrates.
    telling
        Size for timing: large enough that a host's computing time depends on its number of rows.
    of_rectangles
        Implementations that take rectangles by their template; they also run on rectangles.
    by_threads
        Implementations with a single process; they run on one host, with one thread and with three.
    sweeps
        Implementation -> rows of a border, which is the minimum size of a strip; default 1.
    """
    checks: list[Check] = []
    for name, program in programs.items():
        tiled, shared = name in of_rectangles, name in by_threads
        least = (sweeps or {}).get(name, 1)
        check = Conformance(name, tuple(program), small, telling, tiled, shared, least)
        checks += check.checks()
    return checks


@dataclass(frozen=True)
class Conformance:
    """The checks of one implementation."""

    name: str
    program: tuple[str, ...]
    small: ProblemSize
    telling: ProblemSize
    of_rectangles: bool = False
    by_threads: bool = False
    least_rows: int = 1

    def checks(self) -> Iterator[Check]:
        """Yield the result of each check; each check runs the program."""
        digests, worked, rows = dict[str, str](), 0, self.small.rows
        third, sixth = max(self.least_rows, rows // 3), max(self.least_rows, rows // 6)
        partitions = {
            "3 ranks": (_strips([rows - rows // 3, rows // 3]), HOSTS),
            "1 rank": (_strips([rows]), ALONE),
        }
        unequal = {
            (third, rows - third): PAIR,
            (rows - sixth - third, sixth, third): THREE,
            (rows - self.least_rows - third, self.least_rows, third): THREE,
        }
        if self.of_rectangles:
            partitions["rectangles"] = _columns(rows, self.small.columns), HOSTS
        uneven = {
            f"{len(counts)} ranks of {':'.join(map(str, counts))} rows": (_strips(counts), hosts)
            for counts, hosts in unequal.items()
        }
        partitions |= uneven
        if self.by_threads:
            (whole,) = _strips([rows])
            shared: list[Piece] = [{**whole, "threads": MAX_THREADS}]
            partitions = {
                f"{MAX_THREADS} threads": (shared, ALONE),
                "1 thread": ([{**whole, "threads": 1}], ALONE),
            }
        for label, (pieces, ranks) in partitions.items():
            events: list[Event] = []
            yield self._tried(
                f"runs on {label}",
                lambda: self._run(self.small, pieces, ranks, events),  # noqa: B023 - called at once
            )
            if outcome := _outcome(events):
                worked += 1
                if outcome.sha256:
                    digests[label] = outcome.sha256
                contents = self._contents(label, events, outcome, list(ranks))
                # For partitions of unequal strips, only failures are reported; the successes would repeat.
                yield from (one for one in contents if label not in uneven or one.ok is False)
        yield Check(f"{self.name}: the result does not depend on the partition", *_alike(digests))
        claim = "computes on the rows it is given"
        if not self.by_threads:  # one process has all rows
            yield self._tried_if(worked == len(partitions), claim, self._uses_its_rows)
        # A program that never runs would fail this task too, which proves nothing.
        yield self._tried_if(worked > 0, "refuses a task of an unknown mode", self._refusal)
        yield self._tried("calibrates", self._calibrate)

    def _tried_if(self, works: bool, claim: str, act: Callable[[], str]) -> Check:
        if works:
            return self._tried(claim, act)
        return Check(f"{self.name}: {claim}", None, "not checked: it does not run")

    def _tried(self, claim: str, act: Callable[[], str]) -> Check:
        try:
            return Check(f"{self.name}: {claim}", True, act())
        except UntoldError as reason:
            return Check(f"{self.name}: {claim}", None, f"not checked: {reason}")
        except ApplesError as error:
            return Check(f"{self.name}: {claim}", False, str(error))

    def _run(
        self,
        size: ProblemSize,
        pieces: Sequence[Piece],
        ranks: Mapping[str, int],
        events: list[Event],
    ) -> str:
        with tempfile.TemporaryDirectory(prefix="apples-") as folder:
            self._events(self._task(size, pieces, ranks, folder), ranks, events)
        if _outcome(events) is None:
            raise ApplicationError(
                "the program reported 'done' without a 'result'", code="result-missing"
            )
        return ""

    def _events(self, task: dict[str, Any], ranks: Mapping[str, int], heard: list[Event]) -> None:
        rank_groups = [RankGroup(host, count, self.program) for host, count in ranks.items()]
        run = Run(
            command(rank_groups, task), rank_groups, silence_seconds=SILENCE_SECONDS, talk=_quiet
        )
        heard.extend(run.events())
        run.finish()

    def _task(
        self, size: ProblemSize, pieces: Sequence[Piece], ranks: Mapping[str, int], folder: str
    ) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "mode": "run",
            "parameters": dict(size.parameters),
            "implementations": dict.fromkeys(ranks, self.name),
            "partition": [
                {"host": host, "address": "127.0.0.1", "ranks": count, **piece}
                for (host, count), piece in zip(ranks.items(), pieces, strict=True)
            ],
            "output": folder,
            "progress_seconds": PROGRESS_SECONDS,
            "save": False,
        }

    def _contents(
        self, label: str, events: Sequence[Event], outcome: Outcome, hosts: Sequence[str]
    ) -> Iterator[Check]:
        """Yield the checks of the events of a successful run."""
        where = f"{self.name} on {label}"
        ready = sum(isinstance(event, Ready) for event in events)
        yield Check(f"{where}: reports 'ready' once", ready == 1, f"{ready} times")
        steps = [event for event in events if isinstance(event, Progress)]
        counts = [step.iteration for step in steps]
        grow = counts == sorted(counts) if counts else None
        said = f"{len(steps)} reports" if steps else "not checked: it reported no progress"
        yield Check(f"{where}: iterations only grow", grow, said)
        every = [[h.host for h in times] for times in (outcome.hosts, *(s.hosts for s in steps))]
        complete = all(names == list(hosts) for names in every)
        detail = f"{', '.join(hosts)}, in {len(every)} events"
        yield Check(f"{where}: every event has every host's times", complete, detail)
        spent = max(
            (h.compute_seconds + h.communicate_seconds for h in outcome.hosts), default=0.0
        )
        fits = spent <= outcome.seconds * 1.05 + 1e-3 if spent else None
        figures = f"{'' if spent else 'not checked: '}{spent:.4g} s of {outcome.seconds:.4g} s"
        yield Check(f"{where}: the hosts' times fit into the loop's", fits, figures)
        yield Check(f"{where}: gives a digest", bool(outcome.sha256), outcome.sha256)

    def _uses_its_rows(self) -> str:
        """Give two hosts very unequal strips; check that their computing times are as unequal."""
        rows = self.telling.rows
        strips = [max(1, rows // FEW), rows - max(1, rows // FEW)]
        given = strips[0] / strips[1]
        least = math.inf
        for _ in range(TRIES):
            events: list[Event] = []
            self._run(self.telling, _strips(strips), UNEQUAL, events)
            outcome = _outcome(events)
            spent = {h.host: _computing(h) for h in outcome.hosts} if outcome else {}
            if set(spent) != set(UNEQUAL) or spent["many"] < MIN_SECONDS:
                raise UntoldError(
                    f"computing takes less than {MIN_SECONDS:g} s at {rows} rows",
                    rows=rows,
                    bound=MIN_SECONDS,
                )
            least = min(least, spent["few"] / spent["many"])
            if least <= math.sqrt(given):
                return f"{strips[0]} of {rows} rows take {least:.2g} times as long as the others"
        raise ApplicationError(
            f"a host with {strips[0]} of {rows} rows computes {least:.2g} times as long as one with the"
            f" other {strips[1]}: check that it computes the rows of the task's partition",
            code="partition-ignored",
            rows=rows,
            value=least,
            bound=math.sqrt(given),
        )

    def _refusal(self) -> str:
        """Give the program an unknown mode; it must fail without a ``done`` event."""
        task = self._task(self.small, _strips([self.small.rows]), ALONE, "")
        task |= {"mode": "no-such-mode", "output": None}
        try:
            self._events(task, ALONE, [])
        except ApplesError as refusal:
            return str(refusal)
        raise ApplicationError("the program reported 'done'", code="mode-accepted", field="mode")

    def _calibrate(self) -> str:
        host, (parameters, sizes) = Host("first"), (self.small.parameters, (self.small.rows,))
        threads = MAX_THREADS if self.by_threads else 0
        one, *_ = calibrate(
            host, self.program, self.name, parameters, sizes, talk=_quiet, threads=threads
        )
        return f"{one.seconds_per_point:.3g} s per point"


def _strips(rows: Sequence[int]) -> list[Piece]:
    """Return the pieces of hosts with these numbers of rows, in order."""
    return [{"first_row": sum(rows[:k]), "rows": count} for k, count in enumerate(rows)]


def _columns(rows: int, columns: int) -> list[Piece]:
    """Return two pieces of whole columns, two thirds of the grid and the rest; they border on each other."""
    left = columns - columns // 3
    return [
        {"first_row": 0, "rows": rows, "first_column": first, "columns": count}
        for first, count in ((0, left), (left, columns - left))
    ]


class UntoldError(ApplicationError):
    """The program ran too briefly to judge it."""

    code = "program-too-fast"


def _alike(digests: Mapping[str, str]) -> tuple[bool | None, str]:
    """Return whether runs on several partitions gave equal results, and which partitions differ.

    The reference is the result on one rank or by one thread, else the first result.

    Examples
    --------
    >>> _alike({"3 ranks": "b", "1 rank": "a", "2 ranks": "a"})
    (False, 'the result on 3 ranks differs from that on 1 rank')
    """
    if len(digests) < 2:
        return None, f"not checked: {len(digests)} of 2 runs gave a digest"
    right = next((label for label in digests if label.startswith("1 ")), next(iter(digests)))
    different = [label for label, digest in digests.items() if digest != digests[right]]
    if different:
        return False, f"the result on {listed(different)} differs from that on {right}"
    return True, f"equal on {listed(digests)}"


def _computing(times: HostTimes) -> float:
    """Return the computing time of a host: processor time if reported, since other processes do not change it."""
    if times.processor_seconds is None:
        return times.compute_seconds
    return times.processor_seconds


def _outcome(events: Sequence[Event]) -> Outcome | None:
    return next((event for event in events if isinstance(event, Outcome)), None)


def _quiet(_line: str) -> None:
    """Discard a line of the program's output; an error message has the last lines."""
