"""What all console scripts share: lazy commands, errors as one line, exit codes, JSON printing."""

from __future__ import annotations

import contextlib
import copy
import functools
import gc
import importlib
import inspect
import io
import json
import math
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer
import typer.core
from typer._coercion import RuntimeParam, TypeDescriptor, build_runtime_param
from typer._param_types import coerce_cli_path

from apples.errors import Failure, bounded_message, failure_of, place_in_users_code
from apples.ui.terminal import escaped

INTERRUPTED = 130
HOME_AND_CLEAR = "\x1b[H\x1b[2J"


@dataclass(frozen=True, slots=True)
class Entry:
    """A command: where its function or sub-commands are, its line in the help, and the section it stands in."""

    place: str
    help: str
    section: str = "Commands"

    def register(self, app: typer.Typer, name: str) -> None:
        """Import the command and add it to `app`."""
        module, _, attribute = self.place.partition(":")
        target = getattr(importlib.import_module(module), attribute)
        if isinstance(target, typer.Typer):
            app.add_typer(target, name=name, help=self.help)
        else:
            app.command(name, help=inspect.getdoc(target), short_help=self.help)(target)


class _SectionedGroup(typer.core.TyperGroup):
    """Commands whose help is in sections."""

    entries: Mapping[str, Entry]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands, section by section."""
        del ctx
        widest = max(len(name) for name in self.entries)
        for section in dict.fromkeys(entry.section for entry in self.entries.values()):
            with formatter.section(section):
                formatter.write_dl([
                    (name.ljust(widest), entry.help)
                    for name, entry in self.entries.items()
                    if entry.section == section
                ])  # fmt: skip


def run(
    name: str,
    entries: Mapping[str, Entry],
    summary: str,
    epilog: str,
    tables: Mapping[str, object] | None = None,
) -> None:
    """Run a console script to its end; never returns.

    Parameters
    ----------
    tables
        The `typer.Context.obj` of every command: names of modules that commands load but do not know.
    """
    _open_standard_files()
    app = typer.Typer(
        name=name,
        cls=_SectionedGroup,
        help=summary,
        epilog=epilog,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback()
    def options(
        version: Annotated[
            bool,
            typer.Option("--version", is_eager=True, callback=_version, help="Print the version."),
        ] = False,
    ) -> None:
        del version

    sys.exit(_outcome(name, app, entries, tables or {}))


def _open_standard_files() -> None:
    """Have input, output and errors where they were closed: what is opened next would be taken for one of them."""
    while (handle := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(handle, True)
    os.close(handle)
    # Python has None for a closed one, and `print(file=None)` prints on the other.
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)


def _outcome(
    name: str, app: typer.Typer, entries: Mapping[str, Entry], tables: Mapping[str, object]
) -> int:
    """Return the exit code of the command line, and print the error that ends it."""
    try:
        code = _called(name, app, entries, tables)
    except BaseException as error:
        if os.environ.get("APPLES_DEBUG") and not isinstance(error, _EXPECTED):
            raise
        return _ended(name, error)
    return (
        _interrupted(name) if code == INTERRUPTED else code
    )  # typer turns the signal into a code


_EXPECTED = (typer.Exit, typer.TyperException, typer.Abort, KeyboardInterrupt, BrokenPipeError)
"""How a command also ends that works as it should."""


def _ended(name: str, error: BaseException) -> int:
    """Return the exit code of a command that an exception ended, and print the error."""
    stop = isinstance(error, SystemExit)
    if isinstance(error, KeyboardInterrupt):
        code = _interrupted(name)
    elif place_in_users_code(error):  # also if it raised `typer.Abort` or `BrokenPipeError`
        code = _refused(name, error)
    elif isinstance(error, typer.Exit):
        code = error.exit_code
    elif isinstance(error, typer.TyperException):
        code = _misused(name, error)
    elif isinstance(error, typer.Abort):
        code = _interrupted(name)
    elif isinstance(error.__context__ if stop else error, BrokenPipeError):
        code = _not_listened_to()  # typer turns a broken pipe into a SystemExit
    elif isinstance(error, SystemExit) and _completes(name):
        code = int(error.code or 0)  # how a shell's question ends, in typer's hands
    else:
        code = _refused(name, error)
    return code


def _interrupted(name: str) -> int:
    """Print that a signal ended the command; return the exit code."""
    failure = Failure("interrupted", INTERRUPTED, "command-interrupted", {})
    if _wants_json(name):
        _print_failure(failure)
    else:
        _print_error(f"{name}: {failure.line}")
    return INTERRUPTED


def _version(asked: bool) -> None:
    if asked:
        from importlib import metadata  # noqa: PLC0415 - slow to load, for this option only

        show(f"apples {metadata.version('apples')}")
        raise typer.Exit


def _not_listened_to() -> int:
    """Let nothing more be written where nobody reads; return the exit code of that, which is no error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _called(
    name: str, app: typer.Typer, entries: Mapping[str, Entry], tables: Mapping[str, object]
) -> int:
    """Import the command that is asked for, and call it."""
    asked = next((word for word in _words(name) if not word.startswith("-")), None)
    gc.disable()  # what is imported stays: looking for garbage in it takes a tenth of the start
    try:
        for each, entry in entries.items():
            if each == asked:
                entry.register(app, each)
            else:  # only its name and line are needed, for the help
                app.command(each, short_help=entry.help)(_not_asked_for)
    finally:
        gc.freeze()  # neither a later collection nor the one at exit looks through it either
        gc.enable()
    typer.core.build_runtime_param = _coercion  # type: ignore[attr-defined]  # has no public place
    group: Any = typer.main.get_command(app)
    group.entries = entries
    _keep_answers_apart(group)
    _take_version(group)
    result = group(prog_name=name, standalone_mode=False, obj=tables)
    return result if isinstance(result, int) else 0


def _take_version(group: Any) -> None:
    """Have every command take the group's ``--version``, but one that passes options on to another program."""
    own = copy.copy(next(one for one in group.params if one.name == "version"))
    own.expose_value, own.hidden = False, True
    waiting = [*group.commands.values()]
    while waiting:
        command = waiting.pop()
        waiting += getattr(command, "commands", {}).values()
        if not command.context_settings.get("ignore_unknown_options"):
            command.params.append(own)


def _completes(name: str) -> bool:
    """Whether a shell asks what the word that is being typed may become."""
    return f"_{name.upper()}_COMPLETE" in os.environ


def _words(name: str) -> list[str]:
    """Return the words of the command line, or of the one that a shell asks about."""
    if not _completes(name):
        return sys.argv[1:]
    asked = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or ""
    return asked.split()[1:]


def _keep_answers_apart(command: Any) -> None:
    """Have all that is printed while a command runs, by a user's code too, go to stderr, but for its answer."""
    for each in getattr(command, "commands", {}).values():
        _keep_answers_apart(each)
    if command.callback is not None:
        command.callback = _printing_on_stderr(command.callback)


def _printing_on_stderr(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def called(*arguments: Any, **options: Any) -> Any:
        _answers.append(sys.stdout)
        try:
            # Around the whole command: users' code is called in a dozen places, importing a file
            # among them, and its prints would break --json.
            with contextlib.redirect_stdout(sys.stderr):
                return function(*arguments, **options)
        except typer.Exit as stop:
            if place_in_users_code(stop):
                # Typer would end the command with this exit code, even 0.
                raise SystemExit(stop.exit_code).with_traceback(stop.__traceback__) from None
            raise
        finally:
            _answers.pop()

    return called


NUMBER: Mapping[object, re.Pattern[str]] = {
    int: re.compile(r"-?[0-9]{1,18}"),
    float: re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,15})?"),
}
"""What is surely a number, of those that are taken without pydantic."""


@dataclass(frozen=True)
class _PlainParameter(RuntimeParam):
    """A parameter whose value is plain: text, texts, whether a flag was typed, a path, or a number in its range.

    What is not so plain, and what is wrong, is typer's to say: then pydantic is loaded.
    """

    descriptor: TypeDescriptor

    def _coerce_value(self, value: Any, param: Any, ctx: Any) -> Any:
        try:
            return self._coerced(value, param, ctx)
        except typer.BadParameter as error:
            error.rejected_value = value  # type: ignore[attr-defined]
            raise

    def _coerced(self, value: Any, param: Any, ctx: Any) -> Any:
        kind: Any = self.annotation
        if kind in {str, bool} or (kind in NUMBER and type(value) is kind and self._fits(value)):
            return value
        if kind in NUMBER and isinstance(value, str) and NUMBER[kind].fullmatch(value):
            number = kind(value)
            if self._fits(number):
                return number
        if kind is Path:
            return coerce_cli_path(
                Path(value), self.parameter_info, path_type=Path, param=param, ctx=ctx
            )
        if kind == list[str] and all(isinstance(one, str) for one in value):
            return [*value]
        made = build_runtime_param(self.descriptor)._coerce_value(value, param, ctx)
        if isinstance(made, float) and not math.isfinite(made):
            raise typer.BadParameter(f"{value!r} is not a finite number", ctx=ctx, param=param)
        return made

    def _fits(self, number: float) -> bool:
        """Whether a number is in the parameter's range."""
        least, most = self.parameter_info.min, self.parameter_info.max
        return (least is None or number >= least) and (most is None or number <= most)


def _coercion(descriptor: TypeDescriptor) -> RuntimeParam:
    """Return what makes a value of a parameter's text, without pydantic where it is plain.

    Loading pydantic, which typer does for every parameter, is half of the start of `apples jobs`.
    """
    info = descriptor.parameter_info
    if info.parser is not None:
        return build_runtime_param(descriptor)
    return _PlainParameter(info, descriptor.annotation, descriptor)


def _misused(name: str, error: typer.TyperException) -> int:
    """Print why the command line is not accepted, with its usage; return the exit code."""
    unknown = str(error).startswith("No such command")
    parameter = getattr(error, "param", None)
    is_argument = getattr(parameter, "param_type_name", "option") == "argument"
    kind = "NoSuchCommand" if unknown else type(error).__name__
    code = MISUSE_CODES.get(
        "MissingArgument" if kind == "MissingParameter" and is_argument else kind, "usage"
    )
    exit_code = int(getattr(error, "exit_code", 2))
    show_usage = getattr(error, "show", None)
    message = str(getattr(error, "message", "") or error)
    if _wants_json(name):
        option = _option_of(error)
        message = f"{option}: {message}" if option and option not in message else message
        fields = {"argument" if is_argument else "option": option} if option else {}
        if hasattr(error, "rejected_value"):
            fields["value"] = error.rejected_value
        _print_failure(Failure(message, exit_code, code, fields))
    elif show_usage:
        words = io.StringIO()
        show_usage(file=words)
        text = bounded_message(words.getvalue().rstrip("\n"))
        _print_error(f"{text} [{code}]" if "\nError:" in f"\n{text}" else text)
    else:
        _print_error(f"{name}: {bounded_message(message)} [{code}]")
    return exit_code


def _option_of(error: typer.TyperException) -> str:
    """Return the option, or the name of the argument, that a mistake on the command line is about."""
    option = getattr(error, "option_name", None) or getattr(error, "param_hint", None)
    parameter = getattr(error, "param", None)
    if option is None and parameter is not None:
        option = max([*getattr(parameter, "opts", ()), parameter.name], key=len)
    return str(option or "")


MISUSE_CODES: Mapping[str, str] = {
    "NoSuchCommand": "command-unknown",
    "NoSuchOption": "option-unknown",
    "MissingParameter": "option-missing",
    "MissingArgument": "argument-missing",
    "BadParameter": "option-invalid",
    "BadOptionUsage": "option-invalid",
    "BadArgumentUsage": "option-invalid",
}
"""The code of each kind of mistake on a command line that typer finds."""


def _wants_json(name: str) -> bool:
    """Return whether the command line has ``--json`` before a ``--``."""
    words = _words(name)
    return "--json" in (words[: words.index("--")] if "--" in words else words)


def _print_failure(failure: Failure) -> None:
    """Print a failure on stderr as one JSON line, ``apples.error/1``."""
    document = {"schema": "apples.error/1", **failure.document()}
    _print_error(json.dumps(document, allow_nan=False))


def _print_error(text: str) -> None:
    """Print an error on stderr; if that is closed or on a full disk, only the exit code remains."""
    try:
        say(text)
    except (OSError, ValueError):  # a user's code may have closed it
        with contextlib.suppress(
            OSError, ValueError
        ):  # what the stream holds would fail again as Python ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def _not_asked_for() -> None:
    """Stand for a command whose module is not imported."""


def _refused(name: str, error: BaseException) -> int:
    """Print a failure, one line a problem and each with its code, and return the exit code."""
    failure = failure_of(error)
    if _wants_json(name):
        _print_failure(failure)
    elif isinstance(
        error, getattr(sys.modules.get("hat.problem"), "DocumentError", ())
    ):  # each names its file
        for problem, line in zip_longest(
            getattr(error, "problems", ()), failure.message.splitlines()
        ):
            if line is not None:
                code = problem.code if line == str(problem) else failure.code
                _print_error(f"{line} [{code}]")
    else:
        hint = " (APPLES_DEBUG=1 shows where)" if failure.code == "internal-error" else ""
        _print_error(f"{name}: {failure.message}{hint} [{failure.code}]")
    return failure.exit_code


# ---------------------------------------------------------------------------- printing
_answers: list[TextIO] = []
"""Where a running command's answer goes."""


def say(line: str) -> None:
    """Print talk on stderr; what would steer a terminal is escaped."""
    print(escaped(line), file=sys.stderr, flush=True)  # noqa: T201 - the one place that talks


def show(text: str) -> None:
    """Print data on stdout; what would steer a terminal is escaped."""
    try:
        print(escaped(text), file=_answer(), flush=True)
    except OSError as error:
        error.filename = error.filename or "stdout"
        raise


def repaint(text: str) -> None:
    """Show a text in place of all that is on the terminal."""
    answer = _answer()
    answer.write(HOME_AND_CLEAR + escaped(text))
    answer.flush()


def answers_a_terminal() -> bool:
    """Return whether a command's answer goes to a terminal; `sys.stdout` is stderr while a command runs."""
    return _answer().isatty()


def show_json(document: Mapping[str, Any]) -> None:
    """Print a JSON document on stdout; NaN and infinity are refused."""
    show(json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False))


def show_answer(document: Mapping[str, Any], text: str | Callable[[], str], as_json: bool) -> None:
    """Print the answer of a command: its JSON document, or the text (made only then)."""
    if as_json:
        show_json(document)
    elif answer := text if isinstance(text, str) else text():
        show(answer)


def pass_through(text: str) -> None:
    """Print what another program wrote: as it wrote it, but that no terminal is steered by it."""
    answer = _answer()
    answer.write(escaped(text) if answer.isatty() else text)
    answer.flush()


def _answer() -> TextIO:
    return _answers[-1] if _answers else sys.stdout
