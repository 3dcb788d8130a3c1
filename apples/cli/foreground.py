"""A run of `apples run` that its command waits for: planned, followed, verified and shown here."""

from __future__ import annotations

import shlex
import sys
import tempfile
from pathlib import Path

from apples.agent.session.phases import of_this_process
from apples.agent.session.results import RunResult, VerificationInterrupt, dry_document
from apples.agent.session.running import prepare
from apples.agent.session.spec import RunSpec
from apples.cli import progress
from apples.cli.program import say, show_answer
from apples.errors import UsageError, VerificationError
from apples.views.provenance import made_by
from apples.views.run_text import dry_text, run_text


def run_here(spec: RunSpec, report: Path | None, dry_run: bool, json: bool) -> int:
    """Plan and run as `apples run` does that lets nothing run on; return its exit code."""
    prepared = prepare(spec, look=not dry_run, talk=say, phases=of_this_process())
    if prepared.plan.refusal is not None:
        prepared.close()
        raise prepared.plan.refusal
    if report is not None:
        make_folder(report)
    if dry_run:
        prepared.close()
        document = dry_document(prepared.plan.document(), prepared.command())
        show_answer(document, dry_text(document["command"]), json)
        return 0
    name = prepared.coordinator.information.template.name
    predicted = prepared.plan.estimate.execution_seconds
    try:
        result = prepared.execute(talk=say, follow=progress.on_stderr(name, predicted))
    except VerificationInterrupt as interrupt:
        say("warning: not verified: interrupted; the run itself is complete")
        answer(interrupt.result, report, json)
        raise
    answer(result, report, json)
    if result.verified is False:
        raise VerificationError("the result differs from the sequential run's")
    return 0


def answer(result: RunResult, report: Path | None, json: bool) -> None:
    """Show what a run did, and write its page, where one is asked for, after that."""
    command = shlex.join(["apples", *sys.argv[1:]])
    document = {**result.document(), "made_by": made_by(command)}
    try:
        show_answer(document, run_text(document, command), json)
    finally:  # whoever reads the answer may have gone, the page is another's
        if report is not None:
            from apples.views.run_page import run_page  # noqa: PLC0415 - templates, for a page only

            write_page(report, run_page(document))


def write_page(path: Path, page: str) -> None:
    """Write a page and say where it is; one that cannot be written is a warning, for the run is done."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        say(f"warning: --report {path}: {error.strerror}; there is no page")
        return
    say(f"report: {path}")


def make_folder(path: Path) -> None:
    """Make the folder of a page and see that it may be written, before anything is run for it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise UsageError(f"--report {path}: {error.strerror}") from None
    if path.is_dir():
        raise UsageError(f"--report {path}: is a directory, not a file")
