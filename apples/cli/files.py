"""The files that users write: checked, and the JSON Schemas of what is read and written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import typer

import hat
from apples import user_files
from apples.cli.program import say, show_answer, show_json
from apples.errors import UsageError

SCHEMA = "hat.check/1"


def check_files(files: Sequence[Path], json: bool, only: str | None = None) -> int:
    """Print the problems of the files on stderr, each with its code; return 2 if there are any.

    With `json`, stderr has one JSON line.
    """
    results = [user_files.inspect(path, only) for path in files]
    pairs = list(zip(files, results, strict=True))
    entries = [user_files.checked(path, result) for path, result in pairs]
    fine = "\n".join(f"{path}: {one.kind}, ok" for path, one in pairs if not one.problems)
    problems = [problem for result in results for problem in result.problems]
    if not json:
        for problem in problems:
            say(f"{problem} [{problem.code}]")
    show_answer({"schema": SCHEMA, "files": entries}, fine, json)
    if json and problems:
        raise hat.DocumentError(problems)
    return 2 if problems else 0


KINDS = ("template", "user", "hosts", "protocol")
"""What is read; what is printed is in `apples.views.documents`."""


def schema(
    kind: Annotated[
        str, typer.Argument(help=f"{', '.join(KINDS)}; plan, run, job, .. or nws.forecast, ..")
    ],
) -> int:
    """Print the JSON Schema of a file that is read, or of a document that a command prints.

    Example: apples schema hosts; apples schema plan
    """
    if kind == "template":
        show_json(hat.schema(hat.ApplicationTemplate))
    elif kind == "user":
        show_json(hat.schema(hat.UserSpecifications))
    elif kind == "hosts":
        show_json(hat.schema(user_files.host_list_model()))
    elif kind == "protocol":
        text = resources.files("apples.launch").joinpath("protocol.schema.json").read_text("utf-8")
        show_json(json.loads(text))
    else:
        show_json(hat.schema(_document_type(kind)))
    return 0


def _document_type(kind: str) -> Any:
    """Return the type of a document, asked for as ``plan``, ``apples.plan`` or ``apples.plan/1``."""
    from apples.views.documents import DOCUMENTS  # noqa: PLC0415 - for schemas only

    name = kind.partition("/")[0]
    found = DOCUMENTS.get(name) or DOCUMENTS.get(f"apples.{name}")
    if found is None:
        short = (one.removeprefix("apples.") for one in DOCUMENTS if one != "apples.hosts")
        known = [*KINDS, "apples.hosts", *short]
        raise UsageError(
            f"schema '{kind}': known are {', '.join(known)}",
            code="schema-unknown",
            value=kind,
            known=known,
        )
    return found
