"""Checking files: what ``hat check`` and ``apples hosts check`` share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import hat
from apples.cli.program import say, show, show_json
from apples.resources import HostListDocument

SCHEMA = "hat.check/1"


def is_host_list(document: Mapping[str, Any]) -> bool:
    """Whether a document looks like a host list."""
    return "host" in document or "default_link" in document


def check_files(files: Sequence[Path], json: bool, only: str | None = None) -> int:
    """Say every problem of the files on stderr; exit code 2 when there is any."""
    anything = only is not None
    kinds: dict[str, hat.Kind] = {
        "host list": (lambda document: anything or is_host_list(document), HostListDocument)
    }
    results = [hat.inspect(path, kinds) for path in files]
    if json:
        show_json(
            {
                "schema": SCHEMA,
                "files": [
                    {
                        "file": str(path),
                        "kind": result.kind,
                        "problems": [
                            {
                                "line": p.line,
                                "field": p.field,
                                "message": p.message,
                                "suggestion": p.suggestion,
                            }
                            for p in result.problems
                        ],
                    }
                    for path, result in zip(files, results, strict=True)
                ],
            }
        )
    for path, result in zip(files, results, strict=True):
        for problem in result.problems:
            say(str(problem))
        if not result.problems and not json:
            show(f"{path}: {result.kind}, ok")
    return 2 if any(result.problems for result in results) else 0
