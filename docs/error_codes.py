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
    "ServiceError", "SensorError", "DirectoryLockedError", "StorageError", "BusyError", "OverloadError",
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

PLACEHOLDER = re.compile(r"\{[a-z_.]+\}")
LITERAL = re.compile(r"[A-Za-z]{2,}")
KEBAB = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)+|usage")
OWN = {"code", "transient", "status"}
"""Keywords of an error that are not fields of it."""

HEAD = """# Error codes

Every error that `apples`, `nws` and `hat` print has a code, which stays the same when its wording changes.
The code stands in brackets at the end of the line:

    apples: no host 'eva' in hosts.toml [host-unknown]

With `--json` a command prints its error on stderr as one JSON line instead, of the schema `apples.error/1`:

    {"schema": "apples.error/1", "code": "host-unknown", "exit_code": 2, "message": "..", "fields": {..}}

In Python, each error has the attributes `code` and `fields`. Below, `{host}` is the field `host` of the code,
and `{..}` another value; fields that the text does not show follow in brackets. Any error may have the fields
`file`, `line` and `position`, `option` and `field` (the place), `value` (the wrong value), `bound` (its limit),
`known` (the valid values) and `reason` (the cause). A code with several messages is listed with a summary or
with the shortest. The printed message often adds a remedy.

`make errors` generates this page from the source.
"""
SECTIONS = {
    "2": "Exit code 2: bad input",
    "3": "Exit code 3: no feasible plan",
    "4": "Exit code 4: resources or launch failed",
    "5": "Exit code 5: the application failed",
    "5, by hand 2": """Exit code 5, of a program that runs by hand 2

A program raises these codes itself, with `apples.program.TaskError` or with `apples.h`.""",
    "6": "Exit code 6: the result is wrong",
    "7": "Exit code 7: time-out",
    "1": "Exit code 1: internal error",
    "130": "Exit code 130: interrupted",
    "-": """Codes that end no command

These are values of a field such as `cause` or `reason_code`, or part of an answer of a service. For example, if a
malleable job ends with `too-few-hosts-left`, its run ends with `program-failed`, and a resize under way ends with
`job-ended` and this `cause`.""",
}
"""Title and text of each section, by exit code."""
MEANINGS = {
    "actuator-check-failed": "an actuator of your own broke a promise; the message names it",
    "address-invalid": "an address must be HOST:PORT",
    "address-taken": "two hosts at address {value}, which MPI cannot distinguish",
    "address-unknown": "a host has no address",
    "answer-invalid": "unexpected answer from {url}; check the address",
    "apples-missing": "a program that declares arrays or blocks needs apples on every host",
    "application-failed": "the program failed, or wrote a line outside the protocol",
    "argument-missing": "{argument} is required",
    "balancer-check-failed": "a balancer of your own broke a promise; the message names it",
    "certificate-invalid": "the certificate or key in {file} cannot be used",
    "cgroup-missing": "this machine has no cgroup tree of the kind that the command needs",
    "cgroup-unwritable": "a cgroup file cannot be written",
    "change-timeout": "the job was not ready, or the change not done, in time",
    "command-failed": "{tool} on {host} failed",
    "command-interrupted": "Ctrl-C or SIGTERM",
    "command-refused": "the scheduler's job refused the command for another reason",
    "command-unknown": "a command that does not exist",
    "commit-unusable": "no commit fits the declarations of the program",
    "cpus-busy": "the CPUs are in use; try again later",
    "cpus-unsatisfied": "this machine can never meet the request for CPUs",
    "cpuset-type-unsupported": "CPUSET_TYPE must be dynamic",
    "daemon-missing": "no topology daemon on {hosts}; start one there and name its socket in the host list",
    "data-missing": "no grid array is left at these parameters",
    "data-unknown": "a task or interface names data that the template lacks",
    "database-closed": "the service is ending",
    "database-damaged": "{file} is damaged; stop the service and put a backup in its place",
    "database-unwritable": "{file} cannot be written",
    "deadline-exceeded": "a wait took longer than its deadline",
    "decision-invalid": "a policy returned something that is not a decision",
    "decision-refused": "a policy decided something that the machine or the job cannot do",
    "declaration-needs-rows": "declared arrays need whole rows, without rectangles=True",
    "directory-copied": "{file} is a copy of the directory of another scheduler",
    "directory-missing": "a folder does not exist",
    "directory-not-private": "other users may change this directory; it must be private",
    "directory-unusable": "the directory cannot be used",
    "disk-full": "{file} does not fit on the disk",
    "document-invalid": "a document does not match its schema",
    "end-missing": "the program ended without apples_end()",
    "expression-invalid": "an expression of the template cannot be parsed",
    "expression-undefined": "an expression divides by zero or gives no real number",
    "field-conflict": "two values contradict each other",
    "field-missing": "a required value is missing",
    "field-unknown": "a field or key that does not exist; {known} are the valid names",
    "file-empty": "{file} is empty",
    "file-invalid": "{file} has another format than the command reads",
    "file-missing": "{file} does not exist",
    "file-not-copied": "{file} could not be copied to a host",
    "file-not-private": "another user may read or change {file}",
    "file-too-large": "{file} is larger than {bound}",
    "file-unknown": "task {task} names a file that no task makes and no input is",
    "file-unreadable": "{file} cannot be read",
    "file-unwritable": "{file} cannot be written",
    "forecaster-failed": "a forecaster of your own failed",
    "form-token-invalid": "load the page again, then send the form",
    "grid-columns-differ": "Task(columns=..) names a parameter whose value is not the grid's columns",
    "history-empty": "{file} holds no run that the command can use",
    "history-unreadable": "the job history cannot be read; move the file aside",
    "home-missing": "the home directory is unknown; set HOME",
    "host-busy": "{host} is in use already",
    "host-header-unknown": "the service does not accept this Host header; start it with --server-name NAME",
    "host-lost": "{host} is gone",
    "host-unknown": "no host {host} in the host list, job or lab; {known} are the hosts",
    "host-unreachable": "{host} did not answer",
    "hosts-above-maximum": "a job cannot use that many hosts",
    "hosts-below-minimum": "a job needs more hosts",
    "hosts-lost": "no host is left to continue on",
    "implementation-unavailable": "this machine lacks the requirements of each implementation",
    "internal-error": "a defect of apples; `APPLES_DEBUG=1` shows where, please report it",
    "isolation-unavailable": "this machine offers no way to restrict CPUs; {reasons} names each attempt",
    "job-ending": "the job is ending already",
    "job-never-started": "a policy left a job waiting to the end of the simulation",
    "job-scheduled": "{job} is a job of a scheduler; use its verbs",
    "key-damaged": "the key {file} is damaged; remove it",
    "lab-ambiguous": "several labs are up ({known}); name one",
    "launch-failed": "the resources could not be had, or the program did not start",
    "launcher-fault": "the launcher lost its connection before the program was ready",
    "lease-refused": "a name's lease has a wrong length, or another token owns the name",
    "line-missing": "no line {value}",
    "link-used": "this link was used before; open the latest",
    "listen-address-unknown": "the address for other hosts is unknown; use --listen with this host's address",
    "listen-refused": "the service does not listen there",
    "log-not-replayable": "an older version wrote this log, or it was rewritten since the scheduler started",
    "log-unwritable": "nothing can be recorded ({reason})",
    "losses-repeated": "repeated losses without a commit between them",
    "malleable-unsupported": "a program in C or Fortran cannot be malleable",
    "measurement-in-future": "{value} lies further in the future than clocks may differ",
    "measurement-refused": "the memory rejects the measurement",
    "measurement-too-old": "{value} is older than the kept history",
    "message-invalid": "a message does not have the form that its protocol asks",
    "method-not-allowed": "the service does not accept this HTTP method here",
    "migration-failed": "the move failed; the program runs on its old host",
    "mode-accepted": "a program accepted a mode that it must reject",
    "model-invalid": "a model, planner or distance of your own returned no number of seconds or rows",
    "name-invalid": "{value} cannot be a name here; the message gives the rule",
    "no-value-yet": "the forecaster has no value yet",
    "nothing-declared": "a malleable program declares no array or blocks",
    "option-conflict": "two options exclude each other",
    "option-invalid": "an option has a wrong value",
    "option-missing": "this command also needs another option, which the message names",
    "option-not-applicable": "{option} has no effect in this mode",
    "origin-foreign": "the form came from a page of another site",
    "output-missing": "a task did not write an output that it declares",
    "output-unwritable": "an output cannot be written",
    "partition-ignored": "the program seems to ignore the rows of its task",
    "path-unsupported": "XDG_STATE_HOME contains a character that {reader} cannot read",
    "permission-denied": "{principal} may not do this",
    "policy-check-failed": "a policy of your own broke a promise; the message names it",
    "policy-failed": "a policy of your own failed in a pass",
    "policy-invalid": "a policy of your own lacks a method or returns a wrong type",
    "policy-unsuitable": "policy {policy} cannot handle this log or option",
    "process-lost": "the process that asked is gone",
    "program-ended": "the program has ended",
    "program-failed": "the program failed on {host}; the message gives its last words",
    "program-file-unwritable": "the program cannot write a file",
    "program-killed": "the program ended by a signal or exit code",
    "program-lost": "the program runs nowhere",
    "program-not-movable": "the program cannot be moved",
    "program-not-ready": "the program ended, or was silent, before it was ready",
    "program-not-started": "the program cannot be started",
    "program-rows-differ": "apples_begin names a parameter whose value is not the grid's rows",
    "prometheus-failed": "Prometheus at {url} answered with an error",
    "protocol-violated": "the program sent an event before `ready`",
    "rank-ended": "a rank ended early",
    "rank-killed": "a signal ended a rank",
    "rank-not-ready": "a rank was not ready in time",
    "rank-not-stopped": "a rank did not stop",
    "record-unusable": "a record of {file} was skipped, which --strict forbids",
    "rectangles-undeclared": "task.rectangle needs Task(rectangles=True)",
    "request-invalid": "a request to the scheduler lacks a field or has a wrong value",
    "request-malformed": "the request is not of the protocol",
    "request-refused": "the form or request is not accepted",
    "request-stale": "the job has changed since the request",
    "request-withdrawn": "the request was withdrawn",
    "reservation-invalid": "a reservation must end after it begins and have a node",
    "resources-missing": "a host has no room for the rank",
    "result-differs": "the result differs from the sequential run's",
    "result-invalid": "the program's result is not of the declared form",
    "route-unknown": "no route {method} {path}",
    "sensor-failed": "a sensor could not measure",
    "service-refused": "the service rejected the request",
    "slurm-answer-invalid": "unexpected output of Slurm's {command}",
    "socket-unusable": "a socket cannot be made or used",
    "state-invalid": "a saved state has not the form that is needed",
    "state-not-saved": "the program did not save its state",
    "sweep-changed": "the folder has results of another version of the sweep",
    "system-error": "the operating system reported {reason}",
    "systemd-unreachable": "systemd does not answer",
    "template-invalid": "a template that the program reads is not valid",
    "template-not-malleable": "the template {template} lacks `malleable = true`",
    "time-limit": "the job's time limit ended it",
    "tls-failed": "TLS with {url} failed",
    "too-many-connections": "the topology daemon has as many connections as it takes",
    "too-many-moves": "an unmodified program leaves one host at a time",
    "tool-missing": "a program that is needed is not installed on {host}",
    "topology-answer-invalid": "the topology probe of {host} gave no valid answer",
    "unit-failed": "unit {unit} failed",
    "usage": "bad input; the message names it",
    "user-code-failed": "your function or module raised an error ({kind})",
    "user-code-missing": "your module or file {file} lacks the name",
    "user-code-timeout": "your function did not return in time",
    "value-invalid": "{value} has not the form that {field} or {option} asks",
    "value-missing": "{field} or {option} has no value",
    "value-range": "{value} is outside the limits; {bound} is the limit",
    "value-type": "{value} is of the wrong type, for example text for a number",
    "value-unknown": "{value} is not one of {known}",
    "verification-failed": "the result differs from that of the sequential run",
    "weather-invalid": "the weather file is not valid",
    "worker-answer-invalid": "a worker sent something that is not a result",
    "working-directory-missing": "the working directory does not exist or cannot be read",
}
"""Meanings of codes with several messages, or with one that is made of parts of others."""

FAMILIES = {
    ".*-unknown": "the name does not exist; the message lists or suggests valid names ({known})",
    "too-many-.*": "a limit is reached ({bound})",
    ".*-repeated": "a name or value is given twice",
    ".*-too-(long|large|deep)": "more than the limit ({bound})",
}
"""Meanings of codes that differ in the thing only, by pattern; they stand at the end of a section."""

GENERAL = {"file", "line", "option", "field", "value", "bound", "known", "reason", "position"}
"""Fields with the same meaning in all codes; the head of the page explains them."""
OF_PROGRAMS = ("TaskError", "AgentTaskError")
"""The errors by which a program ends its run; a program that was started by hand ends with exit code 2."""
IN_RANKS = ("DeclarationError", "UndeclaredStateError")
"""Other errors that only the ranks of a program raise."""


@dataclass
class ErrorClass:
    """One class of errors: its bases, its own code and exit code."""

    name: str
    bases: list[str]
    code: str = ""
    exit_code: int | None = None
    of_apples: bool = False
    summary: frozenset[str] = frozenset()


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
    messages: frozenset[str]
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
                    ErrorClass(
                        node.name,
                        bases,
                        values.get("code", ""),
                        values.get("exit_code"),
                        summary=_summary(node),
                    )
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
            messages = _messages(node, tree)
            for value in given or [own]:
                yield Use(
                    f"{path.relative_to(ROOT)}:{node.lineno}", value, messages,
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


def _messages(call: ast.Call, tree: ast.Module) -> frozenset[str]:
    """Return the messages that a call may give its error: those of its first argument that has any.

    A name in an argument stands for the text that was assigned to it last in the function before the call, or at
    the top of the file.
    """
    function = _function_of(tree).get(call)
    fields = {
        ast.unparse(keyword.value): keyword.arg
        for keyword in call.keywords
        if keyword.arg and keyword.arg not in OWN
    }
    for argument in call.args:
        found = {*_templates(argument, fields)}
        for part in ast.walk(argument) if not found else ():
            if isinstance(part, ast.Name):
                known = _assigned(tree)
                values = known.get((function, part.id)) or known.get((tree, part.id), ())
                before = [value for value in values if value.lineno < call.lineno]
                found |= {text for value in before[-1:] for text in _templates(value, fields)}
        if found:
            return frozenset(found)
    texts = (
        _template(each, fields)
        for each in call.args
        if isinstance(each, ast.JoinedStr | ast.BinOp)
    )
    return frozenset([*texts][:1])


def _templates(node: ast.expr, fields: Mapping[str, str]) -> Iterator[str]:
    """Yield the texts of several words that an expression may be; `_template` describes their values."""
    if isinstance(node, ast.Constant | ast.JoinedStr | ast.BinOp):
        text = _template(node, fields)
        if " " in text.strip() and PLACEHOLDER.sub("", text).strip(" :;,()"):
            yield text
    elif isinstance(node, ast.IfExp):
        yield from _templates(node.body, fields)
        yield from _templates(node.orelse, fields)


def _template(node: ast.expr, fields: Mapping[str, str]) -> str:
    """Return a message; a value is the name of its field in braces, or ``{..}``."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(
            str(part.value) if isinstance(part, ast.Constant) else _value(part, fields)
            for part in node.values
        )
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _template(node.left, fields) + _template(node.right, fields)
    return "{..}"


def _value(part: ast.expr, fields: Mapping[str, str]) -> str:
    """Return the name of the field that a value of a message belongs to, in braces; ``{..}`` without a field."""
    value = part.value if isinstance(part, ast.FormattedValue) else part
    inside = (
        fields.get(ast.unparse(each)) for each in ast.walk(value) if isinstance(each, ast.expr)
    )
    return f"{{{next(filter(None, inside), '..')}}}"


@functools.cache
def _function_of(tree: ast.Module) -> dict[ast.AST, ast.AST]:
    """Return the innermost function of each node of a file; the file for those in none."""
    found: dict[ast.AST, ast.AST] = {}

    def enter(node: ast.AST, owner: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            found[child] = owner
            enter(
                child,
                child if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else owner,
            )

    enter(tree, tree)
    return found


@functools.cache
def _assigned(tree: ast.Module) -> dict[tuple[ast.AST | None, str], list[ast.expr]]:
    """Return the values that are assigned to each name, by function."""
    found = defaultdict[tuple[ast.AST | None, str], list[ast.expr]](list)
    for node in walked(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Name):
                    found[_function_of(tree).get(node), target.id].append(node.value)
    return found


def other_codes() -> Iterator[tuple[str, int, frozenset[str]]]:
    """Yield codes that no call has as its ``code=``, with an exit code and messages.

    The exit code is 0 if the code ends no command.

    These are arguments of a call of `CARRIED`, defaults of an attribute or parameter ``code`` of a class, the
    values of a table of codes, and the values that a function ``.._code`` returns.
    """
    for _, tree in sources():
        for name, table in _tables(tree).items():
            for each in _constants(table, {}):
                yield str(each.value), TABLES.get(name, 0), frozenset()
        constants = {
            getattr(each.targets[0], "id", ""): getattr(each.value, "value", None)
            for each in tree.body
            if isinstance(each, ast.Assign)
        }
        for node in walked(tree):
            values: list[ast.expr | None] = []
            exit_code, messages = 0, frozenset[str]()
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in CARRIED:
                values, messages = [*node.args], _messages(node, tree)
                numbers = [
                    constants.get(getattr(value, "id", ""), getattr(value, "value", None))
                    for value in node.args
                ]
                owners = [getattr(getattr(value, "value", None), "id", "") for value in node.args]
                numbers += [EXITS.get(owner) for owner in owners]
                exit_code = next((number for number in numbers if isinstance(number, int)), 0)
            elif isinstance(node, ast.ClassDef):
                values, exit_code = [*_defaults(node)], CARRIED.get(node.name, 0)
                messages = _summary(node)
            elif isinstance(node, ast.FunctionDef) and node.name.endswith("_code"):
                values = [each.value for each in ast.walk(node) if isinstance(each, ast.Return)]
                exit_code = 2
            for value in values:
                for each in _constants(value, {}):
                    yield str(each.value), exit_code, messages


def _summary(node: ast.ClassDef) -> frozenset[str]:
    """Return the first sentence of a class's docstring, which stands for messages that are made elsewhere."""
    text = " ".join((ast.get_docstring(node) or "").split("\n\n")[0].split())
    return frozenset({text.partition(". ")[0].rstrip(".")} - {""})


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
    if use.place.startswith(ENGINE) and use.class_name in {"_refuse", "_answer", "_abort_change"}:
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
    for one in classes.values():
        codes[one.code].messages |= frozenset() if codes[one.code].messages else one.summary
    codes.pop("", None)
    for name, message in refusals_in_c():
        codes[name].of_program = True
        codes[name].messages |= {message} - {""}
    for name, exit_code, messages in other_codes():
        if KEBAB.fullmatch(name):
            codes[name].carried.add(exit_code)
            codes[name].messages |= messages
    for code in codes.values():
        by_commands = code.carried - {0, CARRIED["TaskError"]}
        others = {*sorted(code.others | by_commands)[-1:]}
        code.exits = code.exits or others or code.carried - {0}
        code.exits |= {CARRIED["TaskError"]} if code.of_program else set()
    return dict(codes)


def _add_use(code: Code, use: Use, classes: Mapping[str, ErrorClass]) -> None:
    """Add one call that raises a code to the record of the code."""
    of_program = use.class_name in OF_PROGRAMS
    code.of_program |= of_program
    code.of_command |= not of_program and use.class_name not in IN_RANKS
    code.messages |= use.messages
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
    """Return the codes of the ``TaskError`` of example programs."""
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
    codes, rows = catalogue(), defaultdict[str, list[str]](list)
    families = defaultdict[tuple[str, str], list[str]](list)
    if unknown := MEANINGS.keys() - codes.keys():
        raise LookupError(f"MEANINGS: no such codes: {sorted(unknown)}")
    for name, code in sorted(codes.items()):
        exits = ", ".join(map(str, sorted(code.exits))) or "-"
        exits += f", by hand {PROGRAM_BY_HAND}" if code.of_program else ""
        family = next((text for text in FAMILIES if re.fullmatch(text, name)), "")
        if family and name not in MEANINGS:
            families[exits, family].append(f"`{name}`")
        else:
            rows[exits].append(f"- `{name}`: {_meaning(name, code)}")
    for (exits, family), names in families.items():
        rows[exits].append(f"- {', '.join(names)}: {FAMILIES[family]}")
    sections = [
        f"\n## {title}\n\n" + "\n".join(rows.pop(exits)) for exits, title in SECTIONS.items()
    ]
    if rows:
        raise LookupError(f"SECTIONS: no section for exit code {sorted(rows)}")
    return HEAD + "\n".join(sections) + "\n"


def _meaning(name: str, code: Code) -> str:
    """Return the shortest informative message of a code, with the fields that it does not show."""
    messages = sorted(map(_bare, code.messages), key=lambda text: (len(text.split()), text))
    telling = [text for text in messages if len(LITERAL.findall(PLACEHOLDER.sub("", text))) >= 3]
    text = re.sub(r"([|<>*_`\\[\]])", r"\\\1", _brief((telling or messages[-1:] or [name])[0]))
    text = MEANINGS.get(name, text)
    hidden = [f"`{each}`" for each in sorted(code.fields - GENERAL) if f"{{{each}}}" not in text]
    hidden = [] if name in MEANINGS else hidden
    return text + (f" ({', '.join(hidden)})" if hidden else "")


def _brief(text: str) -> str:
    """Return the first clause of a message that has several, if it has at least five words."""
    start = " ".join(text.split()[:5])
    return start + re.split(r"[;:.] | \(|, (?:and|so|but) ", text[len(start) :])[0]


def _bare(text: str) -> str:
    """Return a message without the values before and after it, such as the file and the cause."""
    text = re.sub(r"^(?:\{(?:\.\.|file|place|field)\}:)* *", "", text)
    return re.sub(r"(?:[:;,] \{(?:\.\.|reason)\}| \(\{(?:\.\.|reason)\}\))+$", "", text)


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
