"""``apples report RUN``: what was recorded of runs and jobs."""

from __future__ import annotations

import re
from pathlib import Path

from apples import jobs as service
from apples.cli.program import show_answer
from apples.errors import UsageError
from apples.jobs import store

RECORD_NAME = re.compile(r"[0-9a-f]{1,8}")
"""What an id, or the beginning of one, looks like."""


def is_record(name: str) -> bool:
    """Whether a word names a record, and no file."""
    return RECORD_NAME.fullmatch(name) is not None and not Path(name).exists()


def report_run(name: str, out: Path | None, json: bool) -> None:
    """Write the page of a recorded run."""
    from apples.views.run_page import run_page  # noqa: PLC0415 - templates, for a page only

    record = service.RunRecord.of(store.job(name))
    if record.document is None or not record.document.get("plan"):
        raise UsageError(f"{record.id}: is {record.state} and has no plan to draw a page of")
    path = out or Path(f"{record.id}.html")
    page = run_page(record.document)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--out {path}: {error.strerror}") from None
    size = len(page.encode())
    document = {"schema": "apples.report/1", "page": str(path), "bytes": size, "record": record.id}
    show_answer(document, f"{path}: {size} bytes, of {record.id}", json)
