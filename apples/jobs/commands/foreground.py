"""A run in the foreground: the command plans it, follows it, verifies it and prints its result.

Its progress is on stderr: a bar in place on a terminal, else a line every 10 % or 60 s.
"""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from apples.agent.session.phases import of_this_process
from apples.agent.session.results import PlanResult, VerificationInterrupt, verification_error
from apples.agent.session.spec import RunSpec
from apples.agent.text.run import run_text
from apples.errors import UsageError, unwritable
from apples.io import documents
from apples.jobs.recorder import RunRecorder, carry_out, recorded
from apples.jobs.spec import JobSpec
from apples.jobs.text.timeline import timeline_document, timeline_text
from apples.launch.actuator import Execution
from apples.launch.events import Progress, to_stderr
from apples.ui.command_line import say, show_answer
from apples.ui.provenance import made_by
from apples.ui.terminal import escaped
from apples.ui.units import duration

if TYPE_CHECKING:
    from apples.jobs.documents import RunDocument

MIN_SHARE, MAX_SECONDS = 0.1, 60.0
"""A line of progress is printed after this share of the iterations or these seconds, whichever comes first."""


def run_here(spec: RunSpec, report: Path | None, json: bool, timeline: bool = False) -> int:
    """Plan and run an application as `apples run` without ``--detach`` does; return the exit code."""
    phases = of_this_process()
    if report is not None:
        make_folder(report)
    command = shlex.join(["apples", *sys.argv[1:]])
    with recorded(JobSpec(spec).document(), say) as record:
        try:
            carry_out(
                record, spec, talk=say, program_log=to_stderr, follow=progress_on_stderr, phases=phases,
                made_by=partial(made_by, command),
            )  # fmt: skip
        except VerificationInterrupt:
            say("warning: not verified: interrupted; the run itself is complete")
            answer(record, command, report, json, timeline)
            raise
        answer(record, command, report, json, timeline)
        if wrong := verification_error(record.document):
            raise wrong
    return 0


def answer(
    record: RunRecorder, command: str, report: Path | None, json: bool, timeline: bool
) -> None:
    """Print the result of a run; then write its page, if `report` is given."""
    document, drawn = cast("RunDocument", dict(record.document)), ""
    if timeline:
        document["timeline"] = timeline_document(document["plan"], record.events())
        drawn = timeline_text(document["timeline"])
    try:
        show_answer(document, run_text(document, command, drawn), json)
    finally:  # the reader of the answer may have closed the pipe; the page is written all the same
        if report is not None:
            from apples.jobs.pages.run import run_page  # noqa: PLC0415 - templates, for a page only

            write_page(report, run_page(document, record.events()))


def write_page(path: Path, page: str) -> None:
    """Write a page and print its path; a failure is only a warning, because the run is already over."""
    try:
        documents.put(path, page)
    except OSError as error:
        say(f"warning: --report {path}: {error.strerror}; no page is written")
        return
    say(f"report: {path}")


def make_folder(path: Path) -> None:
    """Create the folder of a page and check that it is writable, before the run begins."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise unwritable(f"--report {path}", error) from None
    if path.is_dir():
        raise UsageError(
            f"--report {path}: is a directory, not a file",
            code="file-invalid",
            option="--report",
            file=path,
        )


@contextmanager
def progress_on_stderr(
    plan: PlanResult, execution: Execution
) -> Iterator[Callable[[Progress], None]]:
    """Show the progress of a run until it ends; if the user interrupts it, print the last progress."""
    del execution
    name, latest = plan.information.template.name, list[Progress]()
    on_terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    try:
        with _progress_bar(name) if on_terminal else nullcontext(_progress_lines(name)) as show:

            def received(at: Progress) -> None:
                latest[:] = [at]
                show(at)

            yield received
    except KeyboardInterrupt:
        for line in stopped_text(name, plan.estimate.execution_seconds, *latest):
            say(line)
        raise


def stopped_text(name: str, predicted: float, at: Progress | None = None) -> list[str]:
    """Return the last progress of a run that its user stopped, and the command that detaches a run.

    Examples
    --------
    >>> for line in stopped_text("heat", 9.3, Progress(100, 500, 2.0, ())):
    ...     print(line)
    heat was stopped at iteration 100 of 500, after 2.00 s (20.0 ms an iteration; predicted 9.30 s for all)
    a run that goes on without its terminal: apples run --detach
    """
    begun = f"{name} was stopped before its first report (predicted {duration(predicted)} for all)"
    if at is not None:
        mean = duration(at.iteration_seconds)
        begun = (
            f"{name} was stopped at iteration {at.iteration} of {at.iterations}, after {duration(at.seconds)} "
            f"({mean} an iteration; predicted {duration(predicted)} for all)"
        )
    return [begun, "a run that goes on without its terminal: apples run --detach"]


@contextmanager
def _progress_bar(name: str) -> Iterator[Callable[[Progress], None]]:
    from rich.console import Console  # noqa: PLC0415 - for a terminal only
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as Bar  # noqa: PLC0415

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[each]}"),
    )
    with Bar(*columns, console=Console(stderr=True), refresh_per_second=4) as bar:
        task = bar.add_task(escaped(name), total=None, each="")

        def show(at: Progress) -> None:
            each = f"{duration(at.iteration_seconds)} an iteration"
            bar.update(task, total=at.iterations, completed=at.iteration, each=each)

        yield show


def _progress_lines(
    name: str, clock: Callable[[], float] = time.monotonic
) -> Callable[[Progress], None]:
    """Return a function that prints a line of progress after each `MIN_SHARE` or `MAX_SECONDS`."""
    shown, last = 0.0, clock()

    def show(at: Progress) -> None:
        nonlocal shown, last
        share = at.iteration / max(1, at.iterations)
        if share - shown < MIN_SHARE and clock() - last < MAX_SECONDS:
            return
        shown, last = share, clock()
        stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        mean = at.iteration_seconds
        left = mean * (at.iterations - at.iteration)
        say(
            f"{stamp} {name} iteration {at.iteration}/{at.iterations} "
            f"iteration_ms={mean * 1e3:.3g} left_s={left:.3g}"
        )

    return show
