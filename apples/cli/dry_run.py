"""`apples run --dry-run`: planned here as it would be run, and not started."""

from __future__ import annotations

from apples.agent.session.phases import of_this_process
from apples.agent.session.results import dry_document
from apples.agent.session.running import prepare
from apples.agent.session.spec import RunSpec
from apples.cli.program import say, show_answer
from apples.views.run_text import dry_text


def show_dry_run(spec: RunSpec, json: bool) -> int:
    """Show what would be started; return the exit code."""
    prepared = prepare(spec, look=False, talk=say, phases=of_this_process())
    prepared.close()
    if prepared.plan.refusal is not None:
        raise prepared.plan.refusal
    document = dry_document(prepared.plan.document(), prepared.command())
    show_answer(document, dry_text(document["command"]), json)
    return 0
