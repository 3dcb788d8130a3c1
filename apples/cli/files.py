"""The files that users write: checked, and the JSON Schemas of what is read and written."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import typer

import hat
from apples.cli.program import say, show_answer, show_json
from apples.errors import UsageError

SCHEMA = "hat.check/1"


def _host_list_model() -> type[Any]:
    from apples.resources import HostListDocument  # noqa: PLC0415 - for host lists only

    return HostListDocument


def is_host_list(document: Mapping[str, Any]) -> bool:
    """Whether a document looks like a host list."""
    return "host" in document or "default_link" in document


def check_files(files: Sequence[Path], json: bool, only: str | None = None) -> int:
    """Say every problem of the files on stderr; exit code 2 when there is any."""
    anything = only is not None
    kinds: dict[str, hat.Kind] = {
        "host list": (lambda document: anything or is_host_list(document), _host_list_model)
    }
    results = [hat.inspect(path, kinds) for path in files]
    pairs = list(zip(files, results, strict=True))
    entries = [_checked(path, result) for path, result in pairs]
    fine = "\n".join(f"{path}: {one.kind}, ok" for path, one in pairs if not one.problems)
    for result in results:
        for problem in result.problems:
            say(str(problem))
    show_answer({"schema": SCHEMA, "files": entries}, fine, json)
    return 2 if any(result.problems for result in results) else 0


def _checked(path: Path, result: hat.CheckResult) -> dict[str, Any]:
    problems = [
        {"line": p.line, "field": p.field, "message": p.message, "suggestion": p.suggestion}
        for p in result.problems
    ]
    return {"file": str(path), "kind": result.kind, "problems": problems}


KINDS = ("template", "user", "hosts", "protocol")


def schema(kind: Annotated[str, typer.Argument(help=", ".join(KINDS))]) -> int:
    """Print the JSON Schema of a template, a user file, a host list, or the application protocol.

    Example: apples schema hosts
    """
    if kind == "template":
        show_json(hat.schema(hat.ApplicationTemplate))
    elif kind == "user":
        show_json(hat.schema(hat.UserSpecifications))
    elif kind == "hosts":
        show_json(hat.schema(_host_list_model()))
    elif kind == "protocol":
        text = resources.files("apples.launch").joinpath("protocol.schema.json").read_text("utf-8")
        show_json(json.loads(text))
    else:
        raise UsageError(f"schema '{kind}': known are {', '.join(KINDS)}")
    return 0
