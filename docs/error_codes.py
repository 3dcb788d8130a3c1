"""Generate ``docs/reference/errors.md``: all error codes of apples, nws and hat, read from the source.

``make errors`` writes the page; ``python docs/error_codes.py --missing`` lists the calls of an error class that
have no code, and exits with 1 if there are any.
"""

from __future__ import annotations

import argparse
import ast
import functools
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("apples", "nws", "hat")
BASES = {"ApplesError": 1, "CodedError": 2, "HatError": 2}
"""The base classes, and the exit code of a command that ends with one of them."""

TRANSIENT = {
    "ServiceError", "SensorError", "DirectoryLockedError", "LogError", "BusyError", "OverloadError",
    "TooManyError", "NotStartedError",
}  # fmt: skip
"""Errors of nws of a service or a machine: a command that ends with one has exit code 4, not 2."""

CARRIED = {
    "TaskError": 5, "AgentTaskError": 5, "CannotMove": 4, "MigrationRefused": 4, "ResizeRefused": 4, "Failure": 0,
    "_failure": 0, "ForgeryError": 0, "LineError": 0, "TaskEnded": 0, "EndReason": 0, "ProgramFault": 0, "_end": 0,
    "_recover": 0,
}  # fmt: skip
"""Calls that carry a code to a command, and its exit code there; 0 if the code ends no command."""

PROGRAM_BY_HAND = 2
"""The exit code of a program that runs by hand and raises an error of its own."""

EXITS = {"UsageError": 2, "LaunchError": 4}
"""The exit code of an argument such as ``UsageError.exit_code``."""

TABLES = {"MISUSE_CODES": 2, "SYSTEM_CODES": 4}
"""Tables of codes, and the exit code of a command that ends with one of their values."""

ENGINE = "apples/malleable/manager/"
"""A code that the engine of a malleable job refuses a change with reaches `apples resize`, which ends with 4."""

APPLES_H = ROOT / "apples/applications/templates/scaffold/c/apples.h"
"""The header of programs in C and Fortran; ``apples_refuse("code", "message", ..)`` ends such a program."""

REFUSAL = re.compile(r'apples_(?:refuse\(|end_all\(1, [^"]*)"([a-z-]+)"(?:, "([^"]*)")?')

KEBAB = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)+|usage")
OWN = {"code", "transient", "status"}
"""Keywords of an error that are not fields of it."""

HEAD = """# Error codes

Every error that `apples`, `nws` and `hat` print has a code, which stays the same when its wording changes.
The code stands in brackets at the end of the line:

    apples: no host 'eva' in hosts.toml [host-unknown]

With `--json` a command prints its error on stderr as one JSON line instead, of the schema `apples.error/1`:

    {"schema": "apples.error/1", "code": "host-unknown", "exit_code": 2, "message": "..", "fields": {..}}

In Python, each error has the attributes `code` and `fields`. A field that does not apply is left out.

A program raises some codes itself, with `apples.program.TaskError` or with `apples.h`. Its run ends with exit code
5; the program that runs by hand ends with 2. Commands raise none of these codes. The table has "5 (by hand 2)".

A dash stands for a code that ends no command: it is the value of a field, such as `cause` or `reason_code`, or
part of an answer of a service. For example, if a malleable job ends with `too-few-hosts-left`, its run ends with
`program-failed`, and a resize under way ends with `job-ended` and this `cause`.

`make errors` generates this page from the source; `{..}` stands for a value.

| code | exit | message | fields |
|---|---|---|---|
"""


@dataclass
class ErrorClass:
    """One class of errors: its bases, its own code and exit code."""

    name: str
    bases: list[str]
    code: str = ""
    exit_code: int | None = None
    of_apples: bool = False


@dataclass
class Code:
    """One code: where it can occur."""

    messages: set[str] = field(default_factory=set)
    fields: set[str] = field(default_factory=set)
    exits: set[int] = field(default_factory=set)
    others: set[int] = field(default_factory=set)
    """Exit codes by classes of nws and hat: apples decides, where it raises an error with the same code."""
    of_program: bool = False
    """Whether a program raises it itself, by `TaskError` or by ``apples.h``."""
    of_command: bool = False
    """Whether an error of apples, nws or hat has it."""
    carried: set[int] = field(default_factory=set)
    """Exit codes of commands that get the code from another process or object; 0: it ends no command."""


@dataclass(frozen=True)
class Use:
    """One call of an error class."""

    place: str
    code: str
    message: str
    fields: tuple[str, ...]
    class_name: str
    permanent: bool = False


@functools.cache
def sources() -> list[tuple[Path, ast.Module]]:
    """Return the parsed Python files of the three packages."""
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    return [(path, ast.parse(path.read_text())) for path in paths if "templates" not in path.parts]


@functools.cache
def walked(tree: ast.Module) -> list[ast.AST]:
    """Return all nodes of a file; the file is walked once."""
    return [*ast.walk(tree)]


@functools.cache
def error_classes() -> dict[str, ErrorClass]:
    """Return the classes of errors with a code, by name."""
    known = {name: ErrorClass(name, [], exit_code=exit_code) for name, exit_code in BASES.items()}
    known["ApplesError"].of_apples = True
    found = []
    for _, tree in sources():
        for node in walked(tree):
            if isinstance(node, ast.ClassDef):
                bases = [
                    base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "")
                    for base in node.bases
                ]
                values = {}
                for statement in node.body:
                    if isinstance(statement, ast.Assign) and isinstance(
                        statement.value, ast.Constant
                    ):
                        values[getattr(statement.targets[0], "id", "")] = statement.value.value
                found.append(
                    ErrorClass(node.name, bases, values.get("code", ""), values.get("exit_code"))
                )
    more = True
    while more:
        more = False
        for one in found:
            parents = [known[base] for base in one.bases if base in known]
            if parents and one.name not in known:
                one.exit_code = one.exit_code or (
                    4 if one.name in TRANSIENT else parents[0].exit_code
                )
                one.of_apples = any(parent.of_apples for parent in parents)
                known[one.name] = one
                more = True
    return known


def uses(classes: dict[str, ErrorClass]) -> Iterator[Use]:
    """Yield each call that makes an error, or a `Problem` of a document."""
    for path, tree in sources():
        tables = _tables(tree)
        for node in walked(tree):
            if not isinstance(node, ast.Call):
                continue
            name = (
                node.func.attr
                if isinstance(node.func, ast.Attribute)
                else getattr(node.func, "id", "")
            )
            keywords = {keyword.arg: keyword.value for keyword in node.keywords}
            code = keywords.get("code")
            given = [value.value for value in _constants(code, tables)] if code is not None else []
            if name not in classes and not any(KEBAB.fullmatch(value) for value in given):
                continue
            if name in classes and not given and (code is not None or None in keywords):
                given = ["*"]  # the code of another error: **coded(error), or code=error.code
            own = classes[name].code if name in classes else ""
            texts = [arg for arg in node.args if not isinstance(getattr(arg, "value", ""), int)]
            # The first argument of `_end` is the state of a job, and the second its message.
            message = "" if name == "_end" or not texts else _template(texts[0])
            for value in given or [own]:
                yield Use(
                    f"{path.relative_to(ROOT)}:{node.lineno}", value, message,
                    tuple(sorted(key for key in keywords if key and key not in OWN)), name,
                    getattr(keywords.get("transient"), "value", True) is False,
                )  # fmt: skip


def _tables(tree: ast.Module) -> dict[str, ast.Dict]:
    """Return the tables of codes of a module: mappings at its top whose names end with CODES."""
    assigned = (node for node in tree.body if isinstance(node, ast.AnnAssign))
    return {
        node.target.id: node.value
        for node in assigned
        if isinstance(node.target, ast.Name)
        and node.target.id.endswith("CODES")
        and isinstance(node.value, ast.Dict)
    }


def _constants(node: ast.expr | None, tables: Mapping[str, ast.Dict]) -> Iterator[ast.Constant]:
    """Yield the texts that an expression may be: a constant, a side of a choice or of ``or``, a table's value."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node
    elif isinstance(node, ast.Dict):
        for value in node.values:
            yield from _constants(value, tables)
    elif isinstance(node, ast.Name):
        yield from _constants(tables.get(node.id), tables)
    elif isinstance(node, ast.Subscript):
        yield from _constants(node.value, tables)
    elif (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "get"
    ):
        yield from _constants(node.func.value, tables)
        yield from _constants(node.args[-1], tables)
    elif isinstance(node, ast.IfExp):
        yield from _constants(node.body, tables)
        yield from _constants(node.orelse, tables)
    elif isinstance(node, ast.BoolOp):
        for value in node.values:
            yield from _constants(value, tables)


def _template(node: ast.expr) -> str:
    """Return a message with its values as ``{..}``."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(
            str(part.value) if isinstance(part, ast.Constant) else "{..}" for part in node.values
        )
    return "{..}"


def other_codes() -> Iterator[tuple[str, int]]:
    """Yield codes that no call has as its ``code=``, with an exit code; 0 if the code ends no command.

    These are arguments of a call of `CARRIED`, defaults of an attribute or parameter ``code`` of a class, the
    values of a table of codes, and the values that a function ``.._code`` returns.
    """
    for _, tree in sources():
        for name, table in _tables(tree).items():
            yield from ((str(each.value), TABLES.get(name, 0)) for each in _constants(table, {}))
        constants = {
            getattr(each.targets[0], "id", ""): getattr(each.value, "value", None)
            for each in tree.body
            if isinstance(each, ast.Assign)
        }
        for node in walked(tree):
            values: list[ast.expr | None] = []
            exit_code = 0
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in CARRIED:
                values = [*node.args]
                numbers = [
                    constants.get(getattr(value, "id", ""), getattr(value, "value", None))
                    for value in node.args
                ]
                owners = [getattr(getattr(value, "value", None), "id", "") for value in node.args]
                numbers += [EXITS.get(owner) for owner in owners]
                exit_code = next((number for number in numbers if isinstance(number, int)), 0)
            elif isinstance(node, ast.ClassDef):
                values, exit_code = [*_defaults(node)], CARRIED.get(node.name, 0)
            elif isinstance(node, ast.FunctionDef) and node.name.endswith("_code"):
                values = [each.value for each in ast.walk(node) if isinstance(each, ast.Return)]
                exit_code = 2
            for value in values:
                yield from ((str(each.value), exit_code) for each in _constants(value, {}))


def _defaults(node: ast.ClassDef) -> Iterator[ast.expr | None]:
    """Yield the defaults of a class's attribute ``code``, and of a parameter ``code`` of its initialiser."""
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign) and getattr(statement.target, "id", "") == "code":
            yield statement.value
        elif isinstance(statement, ast.FunctionDef) and statement.name == "__init__":
            keywords = zip(statement.args.kwonlyargs, statement.args.kw_defaults, strict=True)
            yield from (value for name, value in keywords if name.arg == "code")


def _exit_by_hand_over(use: Use) -> int:
    """Return the exit code of a command that is given the code of a call that is no error class."""
    if use.place.startswith(ENGINE) and use.class_name in {"_refuse", "_answer", "_take_back"}:
        return 4
    return CARRIED.get(use.class_name, 2)


def catalogue() -> dict[str, Code]:
    """Return all codes."""
    classes, codes = error_classes(), defaultdict[str, Code](Code)
    for one in classes.values():
        if one.code and one.name not in BASES:
            code = codes[one.code]
            (code.exits if one.of_apples else code.others).add(one.exit_code or 1)
            code.of_command = True
    for use in uses(classes):
        if use.code and use.code != "*":
            _add_use(codes[use.code], use, classes)
    for name, message in refusals_in_c():
        codes[name].of_program = True
        codes[name].messages |= {message} - {""}
    for name, exit_code in other_codes():
        if KEBAB.fullmatch(name):
            codes[name].carried.add(exit_code)
    for code in codes.values():
        by_commands = code.carried - {0, CARRIED["TaskError"]}
        others = {*sorted(code.others | by_commands)[-1:]}
        code.exits = code.exits or others or code.carried - {0}
        code.exits |= {CARRIED["TaskError"]} if code.of_program else set()
    return dict(codes)


def _add_use(code: Code, use: Use, classes: Mapping[str, ErrorClass]) -> None:
    """Add one call that raises a code to the record of the code."""
    of_program = use.class_name in ("TaskError", "AgentTaskError")
    code.of_program |= of_program
    code.of_command |= not of_program
    if use.message:
        code.messages.add(use.message)
    if of_program or use.class_name in classes:
        code.fields |= {*use.fields}
    if use.class_name in classes:
        one = classes[use.class_name]
        exit_code = 2 if use.permanent else one.exit_code or 1
        (code.exits if one.of_apples else code.others).add(exit_code)
    else:
        code.carried.add(_exit_by_hand_over(use))


def refusals_in_c() -> Iterator[tuple[str, str]]:
    """Yield code and message of each ``apples_refuse`` of ``apples.h``."""
    for code, message in REFUSAL.findall(APPLES_H.read_text()):
        yield code, re.sub(r"%[-0-9.*l]*[sdug]", "{..}", message)
    # The two messages of one call that chooses its code.
    yield from (("end-missing", ""), ("program-result-missing", ""))


def codes_of_examples() -> set[str]:
    """Return the codes of the ``TaskError`` of example programs, which do without `apples.program`."""
    texts = [path.read_text() for path in (ROOT / "examples").rglob("*.py")]
    return {code for text in texts for code in re.findall(r'code="([a-z-]+)"', text)}


GENERIC = {
    "ApplesError", "UsageError", "ModelError", "InfeasibleError", "LaunchError", "ApplicationError",
    "VerificationError", "DeadlineError", "CodedError", "HatError",
}  # fmt: skip
"""Classes for many conditions: each call of one of them gives a code."""


def missing() -> list[str]:
    """Return the calls of an error class that have no code, as lines."""
    classes = error_classes()
    return [
        f"{use.place}: {use.class_name} without a code"
        for use in uses(classes)
        if use.class_name in classes
        and (
            not use.code
            or (use.class_name in GENERIC and use.code == classes[use.class_name].code)
        )
    ]


def page() -> str:
    """Return the page."""
    rows = []
    for name, code in sorted(catalogue().items()):
        shown = sorted(code.messages - {"{..}"})[:3]
        messages = "<br>".join(re.sub(r"([|<>*_`\\[\]])", r"\\\1", text) for text in shown)
        exits = ", ".join(map(str, sorted(code.exits))) or "-"
        exits += f" (by hand {PROGRAM_BY_HAND})" if code.of_program else ""
        fields = ", ".join(f"`{each}`" for each in sorted(code.fields))
        rows.append(f"| `{name}` | {exits} | {messages} | {fields} |")
    return HEAD + "\n".join(rows) + "\n"


def main() -> int:
    """Write the page, or list what has no code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--missing", action="store_true", help="list calls without a code")
    parser.add_argument("prefix", nargs="*", help="only files that begin so")
    options = parser.parse_args()
    if options.missing:
        lines = [line for line in missing() if line.startswith(tuple(options.prefix) or "")]
        print(*lines, f"{len(lines)} without a code", sep="\n")
        return int(bool(lines))
    (ROOT / "docs/reference/errors.md").write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
