"""Checks that a program keeps the application protocol, by running it: ``apples doctor --program``."""

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
"""What one host has: an entry of a task's partition without the host."""
HOSTS = {"first": 2, "second": 1}
"""Two hosts and three ranks: the smallest partition in which both neighbours and slots occur."""
ALONE = {"first": 1}
PAIR = {"first": 1, "second": 1}
THREE = {"first": 1, "second": 1, "third": 1}
MAX_THREADS = 3
UNEQUAL = {"few": 1, "many": 1}
"""Two hosts of which one gets a twentieth of the rows: what they compute tells whether the rows are used."""
FEW = 20
MIN_SECONDS = 1e-3
"""Of computing, to tell anything from."""
TRIES = 3
"""A busy machine may stop the host with few rows; what it computes otherwise is the least of so many runs."""
SILENCE_SECONDS = 60.0
PROGRESS_SECONDS = 1e-6
"""As often as the program can."""


@dataclass(frozen=True, slots=True)
class Check:
    """One claim about the program, and whether it held; `ok` is None where nothing was there to check it on."""

    name: str
    ok: bool | None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ProblemSize:
    """Parameters of a program, and how many rows and columns its grid has at them; columns only for rectangles."""

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
    """Return the checks of a program and all its implementations, each made whatever came before it.

    Parameters
    ----------
    programs
        Implementation name -> argument list.
    small
        The program runs on up to five partitions at this size for each implementation, one with a strip as small
        as there are, and calibrates; at least 3 rows.
    telling
        Large enough that the time a host computes tells how many rows it has.
    of_rectangles
        Implementations whose template says that they take rectangles: these are run on some too.
    by_threads
        Implementations that are one process: these are run on one host, by one thread and by three.
    sweeps
        By implementation: the rows of a border, and so the fewest of a strip; 1 if not named.
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
        """Yield one check after another; each runs the program for real."""
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
                # What holds on equal ranks is repeated for unequal ones only where it fails.
                yield from (one for one in contents if label not in uneven or one.ok is False)
        yield Check(f"{self.name}: the result does not depend on the partition", *_alike(digests))
        claim = "computes on the rows it is given"
        if not self.by_threads:  # one process has all rows
            yield self._tried_if(worked == len(partitions), claim, self._uses_its_rows)
        # What cannot run at all has refused nothing.
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
        """Yield what must hold of the events of a run that worked."""
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
        """Give two hosts very unequal strips, and see whether what they compute is as unequal."""
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
            f" other {strips[1]}: are the rows those of the task's partition?",
            code="partition-ignored",
            rows=rows,
            value=least,
            bound=math.sqrt(given),
        )

    def _refusal(self) -> str:
        """Give the program a mode that does not exist; it must fail and not say done."""
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
    """Return what hosts with so many rows have, one after the other."""
    return [{"first_row": sum(rows[:k]), "rows": count} for k, count in enumerate(rows)]


def _columns(rows: int, columns: int) -> list[Piece]:
    """Return two columns, two thirds of the grid and the rest: the ranks of the first are beside the second."""
    left = columns - columns // 3
    return [
        {"first_row": 0, "rows": rows, "first_column": first, "columns": count}
        for first, count in ((0, left), (left, columns - left))
    ]


class UntoldError(ApplicationError):
    """The program ran too briefly to judge it."""

    code = "program-too-fast"


def _alike(digests: Mapping[str, str]) -> tuple[bool | None, str]:
    """Return whether runs on several partitions have one result, and the partitions that have another.

    The result on one rank, or by one thread, is the right one, else the first.

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
    """Return what a host computed: on the processor where the program says that, for others cannot lengthen it."""
    if times.processor_seconds is None:
        return times.compute_seconds
    return times.processor_seconds


def _outcome(events: Sequence[Event]) -> Outcome | None:
    return next((event for event in events if isinstance(event, Outcome)), None)


def _quiet(_line: str) -> None:
    """Let the program's talk pass unheard; its last words are in the error."""
