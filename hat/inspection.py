"""``hat check``: find the kind of a document by its content, and its problems."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hat.document import Document
from hat.problem import DocumentError, Problem, nearest, printable, shown
from hat.specifications import UserSpecifications
from hat.template import ApplicationTemplate

TEMPLATE = "application template"
USER = "user specifications"
UNKNOWN = "unknown"

NAMES: Mapping[str, frozenset[str]] = {
    kind: frozenset(field.alias or name for name, field in model.model_fields.items())
    for kind, model in ((TEMPLATE, ApplicationTemplate), (USER, UserSpecifications))
}

Kind = tuple[Callable[[Mapping[str, Any]], bool], Callable[[], type[Any]]]
"""A predicate for documents of a kind, and a function that returns their model, called for such a document."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Kind, model and problems of a file.

    Attributes
    ----------
    kind
        ``application template``, ``user specifications``, another kind's name, or ``unknown``.
    document
        The document as its model; None if it has problems.
    problems
        Empty if the file may be used.
    """

    kind: str
    document: object | None
    problems: tuple[Problem, ...]


def check(path: str | os.PathLike[str], others: Mapping[str, Kind] | None = None) -> list[Problem]:
    """Return the problems of a file; never raise."""
    return list(inspect(path, others).problems)


def inspect(
    path: str | os.PathLike[str], others: Mapping[str, Kind] | None = None, text: str | None = None
) -> CheckResult:
    """Return the kind of a file and its problems.

    Parameters
    ----------
    others
        Kinds beside template and user specifications, tried first: a predicate on the document's
        top level, and a model.
    text
        New text of the file, checked in place of its present content.
    """
    kind = UNKNOWN
    try:
        document = (
            Document.read(path) if text is None else Document.parse(text, source=os.fsdecode(path))
        )
        kind = kind_of(document.data, others)
        checked = _checked(document, kind, others or {})
    except DocumentError as error:
        return CheckResult(kind, None, tuple(error.problems))
    return CheckResult(kind, checked, ())


def kind_of(data: Mapping[str, Any], others: Mapping[str, Kind] | None = None) -> str:
    """Return the kind of a document; an empty document is ``user specifications``.

    Examples
    --------
    >>> kind_of({"name": "heat"}), kind_of({"constrains": {}}), kind_of({"host": []})
    ('application template', 'user specifications', 'unknown')
    """
    for kind, (is_one, _) in (others or {}).items():
        if is_one(data):
            return kind
    if not data:
        return USER
    exact = {kind: len(names & data.keys()) for kind, names in NAMES.items()}
    if not any(exact.values()):
        exact = {kind: sum(bool(nearest(k, n)) for k in data) for kind, n in NAMES.items()}
    best = max(exact, key=lambda kind: exact[kind])
    return best if exact[best] else UNKNOWN


def _checked(document: Document, kind: str, others: Mapping[str, Kind]) -> object:
    """Return a document as the model of its kind."""
    if kind in others:
        model = others[kind][1]()
        checked: object = document.validate(model)
        return checked
    if kind == USER:
        specifications = document.validate(UserSpecifications)
        _check_metric(specifications, document)
        return specifications
    if kind == TEMPLATE:
        template = document.validate(ApplicationTemplate)
        _check_template(template, document, Path(document.source).parent)
        return template
    kinds = " or ".join([TEMPLATE, USER, *others])
    found = ", ".join(shown(name) for name in list(document.data)[:5])
    raise DocumentError(
        [
            Problem(
                document.source,
                None,
                "",
                printable(f"is no {kinds} (it sets {found})"),
                code="document-unknown",
            )
        ]
    )


def _check_template(template: ApplicationTemplate, document: Document, folder: Path) -> None:
    """Raise problems of sizes at the default parameters, and of scripts missing beside the file."""
    problems = document.located(_problems_at_defaults(template))
    programs = {("program",): template.program} | {
        ("implementation", i, "program"): one.program
        for i, one in enumerate(template.implementations)
    }
    for loc, program in programs.items():
        script = program[1] if program and program[:1] == ("{python}",) and program[1:] else ""
        if script.endswith(".py") and not (folder / script).is_file():
            problems.append(
                document.problem(loc, f"no file {shown(script)} beside it", code="file-missing")
            )
    if problems:
        raise DocumentError(problems)


def _check_metric(specifications: UserSpecifications, document: Document) -> None:
    """Raise the problems of the file of the user's own metric; the file is parsed and never run."""
    place, _, name = specifications.objective.measure.rpartition(":")
    if not place.endswith(".py"):
        return
    try:
        tree = ast.parse(Path(place).read_bytes(), place)
    except OSError as error:
        code = "file-missing" if isinstance(error, FileNotFoundError) else "file-unreadable"
        problem = _of_metric(document, f"{shown(place)}: {error.strerror}", code=code)
    except (SyntaxError, ValueError) as error:
        line = f":{error.lineno}" if isinstance(error, SyntaxError) else ""
        wrong = f"{place}{line} is no Python: {getattr(error, 'msg', error)}"
        problem = _of_metric(document, wrong, code="file-invalid")
    else:
        defined = set(_defined(tree))
        if name in defined or "*" in defined:
            return
        problem = _of_metric(document, f"{place} defines no {shown(name)}", code="metric-unknown")
    raise DocumentError([problem])


def _of_metric(document: Document, wrong: str, *, code: str) -> Problem:
    return document.problem(("objective", "measure"), printable(wrong), code=code)


def _defined(tree: ast.Module) -> Iterator[str]:
    """Yield the names that a module defines in any branch; `*` for a star import."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).partition(".")[0]


def _problems_at_defaults(template: ApplicationTemplate) -> list[Problem]:
    """Return the problems of sizes that have no value when every parameter has its default."""
    if any(parameter.default is None for parameter in template.parameters.values()):
        return []
    try:
        template.bind()
    except DocumentError as error:
        return error.problems
    return []
