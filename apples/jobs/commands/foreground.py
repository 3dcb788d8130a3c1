"""A run of `apples run` that its command waits for: planned, followed, verified and shown here."""

from __future__ import annotations

import shlex
import sys
import tempfile
from functools import partial
from pathlib import Path

from apples.agent.session.phases import of_this_process
from apples.agent.session.results import VerificationInterrupt, verification_error
from apples.agent.session.running import Follow, PreparedRun
from apples.agent.session.spec import RunSpec
from apples.errors import UsageError, unwritable
from apples.io import documents
from apples.jobs.commands import progress
from apples.jobs.recorder import RunRecorder, carry_out, recorded
from apples.jobs.spec import JobSpec
from apples.jobs.text.run import run_text
from apples.jobs.text.timeline import timeline_document, timeline_text
from apples.launch.events import to_stderr
from apples.ui.command_line import say, show_answer
from apples.ui.provenance import made_by


def run_here(spec: RunSpec, report: Path | None, json: bool, timeline: bool = False) -> int:
    """Plan and run as `apples run` does that lets nothing run on; return its exit code."""
    phases = of_this_process()
    if report is not None:
        make_folder(report)
    command = shlex.join(["apples", *sys.argv[1:]])
    with recorded(JobSpec(spec).document(), say) as record:
        try:
            carry_out(
                record, spec, talk=say, said=to_stderr, follow=_shown, phases=phases,
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


def _shown(prepared: PreparedRun) -> Follow:
    """Return what shows a run's progress."""
    name = prepared.coordinator.information.template.name
    return progress.on_stderr(name, prepared.plan.estimate.execution_seconds)


def answer(
    record: RunRecorder, command: str, report: Path | None, json: bool, timeline: bool
) -> None:
    """Show what a run did, and write its page, where one is asked for, after that."""
    document, drawn = dict(record.document), ""
    if timeline:
        document["timeline"] = timeline_document(document, record.events())
        drawn = timeline_text(document["timeline"])
    try:
        show_answer(document, run_text(document, command, drawn), json)
    finally:  # whoever reads the answer may have gone, the page is another's
        if report is not None:
            from apples.jobs.pages.run import run_page  # noqa: PLC0415 - templates, for a page only

            write_page(report, run_page(document, record.events()))


def write_page(path: Path, page: str) -> None:
    """Write a page and say where it is; one that cannot be written is a warning, for the run is done."""
    try:
        documents.put(path, page)
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
        raise unwritable(f"--report {path}", error) from None
    if path.is_dir():
        raise UsageError(
            f"--report {path}: is a directory, not a file",
            code="file-invalid",
            option="--report",
            file=path,
        )
