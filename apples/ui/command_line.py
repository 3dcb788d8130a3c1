"""The common part of all console scripts: lazy commands, errors as one line, exit codes, JSON printing."""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, TextIO

import click
import click.shell_completion

from apples.errors import Failure, UsageError, bounded_message, failure_of, place_in_users_code
from apples.ui.parameters import Rule
from apples.ui.terminal import escaped

INTERRUPTED = 130
NON_BREAKING_HYPHEN = "\N{NON-BREAKING HYPHEN}"
HOME_AND_CLEAR = "\x1b[H\x1b[2J"


@dataclass(frozen=True, slots=True)
class Entry:
    """A command: the location of its object, its line in the help, and its section there."""

    place: str
    help: str
    section: str = "Commands"

    def load(self) -> click.Command:
        """Import the command."""
        module, _, attribute = self.place.partition(":")
        loaded: click.Command = getattr(importlib.import_module(module), attribute)
        loaded.short_help = self.help
        if isinstance(loaded, click.Group):
            loaded.help = self.help
        return loaded


def _print_version(ctx: click.Context, _parameter: click.Parameter, asked: bool) -> None:
    if asked and not ctx.resilient_parsing:
        from importlib import metadata  # noqa: PLC0415 - slow to load, for this option only

        show(f"apples {metadata.version('apples')}")
        ctx.exit()


def _version_option(hidden: bool) -> click.Option:
    return click.Option(
        ["--version"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        hidden=hidden,
        callback=_print_version,
        help="Print the version.",
    )


class HelpFormatter(click.HelpFormatter):
    """Wraps help at spaces only, so that a name such as ``--cores-per-node`` stays on one line."""

    def write_text(self, text: str) -> None:
        """Write a paragraph."""
        super().write_text(_unbreakable(text))

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        """Write a list of terms, each with its text beside it."""
        super().write_dl([(term, _unbreakable(text)) for term, text in rows], col_max, col_spacing)

    def getvalue(self) -> str:
        """Return the help."""
        return super().getvalue().replace(NON_BREAKING_HYPHEN, "-")


def _unbreakable(text: str) -> str:
    return text.replace("-", NON_BREAKING_HYPHEN)


class Context(click.Context):
    """The context of a command."""

    formatter_class: type[click.HelpFormatter] = HelpFormatter


class Command(click.Command):
    """A command that prints its answer on stdout and all other output on stderr, with rules between its options.

    Parameters
    ----------
    rules
        Checked in this order before the function runs.
    """

    context_class: type[click.Context] = Context

    def __init__(self, *arguments: Any, rules: tuple[Rule, ...] = (), **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.rules = rules
        # A command that passes options to another program passes this option, too.
        if not self.context_settings.get("ignore_unknown_options"):
            self.params.append(_version_option(hidden=True))

    def invoke(self, ctx: click.Context) -> Any:
        """Check the rules and call the function; its prints go to stderr, except its answer."""
        for rule in self.rules:
            rule.check(self, ctx)
        _answers.append(sys.stdout)
        try:
            # Around the whole command: users' code is called in a dozen places, also when a file is
            # imported, and its prints would break --json.
            with contextlib.redirect_stdout(sys.stderr):
                return super().invoke(ctx)
        finally:
            _answers.pop()


class CommandGroup(click.Group):
    """A command of sub-commands."""

    command_class: type[click.Command] | None = Command
    context_class: type[click.Context] = Context

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **{"no_args_is_help": True, **settings})
        self.params.append(_version_option(hidden=True))


def command(
    name: str | None = None, **settings: Any
) -> Callable[[Callable[..., Any]], click.Command]:
    """Return the decorator that makes a function a `Command`; settings as of `click.command`."""
    return click.command(name, cls=Command, **settings)


class LazyGroup(click.Group):
    """The commands of a console script; a command's module is imported when the command is used."""

    context_class: type[click.Context] = Context

    def __init__(
        self, name: str, entries: Mapping[str, Entry], renamed: Mapping[str, str], **settings: Any
    ) -> None:
        super().__init__(name, **settings)
        self.entries, self.renamed = entries, renamed

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, in the order of the table."""
        del ctx
        return [*self.entries]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command of this name."""
        del ctx
        entry = self.entries.get(cmd_name)
        if entry is None:
            return None
        gc.disable()  # imported objects stay, so collecting garbage now would take a tenth of the start
        try:
            return entry.load()
        finally:
            gc.freeze()  # later collections, also at exit, skip these objects
            gc.enable()

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; the error of an unknown name suggests names of the table.

        Raises
        ------
        UsageError
            The command, its sub-command, or its option was renamed.
        """
        own = (
            args[: args.index("--")] if "--" in args else args
        )  # arguments after -- belong to another program
        words = [word for word in own if not word.startswith("-")]
        options = [f"{own[0]} {word}" for word in own[1:] if word.startswith("--")]
        for old in (" ".join(words[:2]), words[0] if words else "", *options):
            if old in self.renamed and not ctx.resilient_parsing:
                raise UsageError(
                    f"'{old}' was replaced: {self.renamed[old]}",
                    code="command-renamed",
                    value=old,
                    suggestion=self.renamed[old],
                )
        if not ctx.resilient_parsing and args[0] not in self.entries and args[0][:1] != "-":
            raise click.exceptions.NoSuchCommand(args[0], possibilities=self.entries, ctx=ctx)
        return super().resolve_command(ctx, args)

    def shell_complete(
        self, ctx: click.Context, incomplete: str
    ) -> list[click.shell_completion.CompletionItem]:
        """Return the names and options that begin with a text, without importing a command."""
        return [
            *(
                click.shell_completion.CompletionItem(name, help=entry.help)
                for name, entry in self.entries.items()
                if name.startswith(incomplete)
            ),
            *click.Command.shell_complete(self, ctx, incomplete),
        ]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
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
    renamed: Mapping[str, str] | None = None,
) -> None:
    """Run a console script to its end; never returns.

    Parameters
    ----------
    tables
        `click.Context.obj` of every command: names of modules that commands load without importing them here.
    renamed
        By a dropped COMMAND, COMMAND SUB-COMMAND or COMMAND --OPTION: the command line that replaces it.
    """
    _open_standard_files()
    group = LazyGroup(
        name,
        entries,
        renamed or {},
        help=summary,
        epilog=epilog,
        no_args_is_help=True,
        params=[_version_option(hidden=False)],
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    sys.exit(_outcome(name, group, tables or {}))


def _open_standard_files() -> None:
    """Open closed standard streams, because otherwise the next opened file would take their place."""
    while (handle := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(handle, True)
    os.close(handle)
    # Python has None for a closed stream, and `print(file=None)` prints on another one.
    sys.stdin = sys.stdin or os.fdopen(0, closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)


def _outcome(name: str, group: click.Group, tables: Mapping[str, object]) -> int:
    """Return the exit code of the command line, and print the error that ends it."""
    if instruction := os.environ.get(f"_{name.upper()}_COMPLETE"):
        variable = f"_{name.upper()}_COMPLETE"
        return click.shell_completion.shell_complete(group, {}, name, variable, instruction)
    try:
        with group.make_context(name, sys.argv[1:], obj=tables) as ctx:
            result = group.invoke(ctx)
    except BaseException as error:
        if os.environ.get("APPLES_DEBUG") and not isinstance(error, _EXPECTED):
            raise
        return _ended(name, error)
    return result if isinstance(result, int) else 0


_EXPECTED = (
    click.exceptions.Exit,
    click.ClickException,
    click.Abort,
    KeyboardInterrupt,
    BrokenPipeError,
)
"""Exceptions that end a command normally."""


def _ended(name: str, error: BaseException) -> int:
    """Return the exit code of a command that an exception ended, and print the error."""
    if isinstance(error, KeyboardInterrupt):
        code = _interrupted(name)
    elif place_in_users_code(error):  # also if it raised `click.Abort` or `BrokenPipeError`
        code = _refused(name, error)
    elif isinstance(error, click.exceptions.Exit):
        code = error.exit_code
    elif isinstance(error, click.ClickException):
        code = _misused(name, error)
    elif isinstance(error, click.Abort):
        code = _interrupted(name)
    elif isinstance(error, BrokenPipeError):
        code = _discard_answer()
    else:
        code = _refused(name, error)
    return code


def _interrupted(name: str) -> int:
    """Print that a signal ended the command; return the exit code."""
    failure = Failure("interrupted", INTERRUPTED, "command-interrupted", {})
    if _wants_json():
        _print_failure(failure)
    else:
        _print_error(f"{name}: {failure.line}")
    return INTERRUPTED


def _discard_answer() -> int:
    """Discard further output after the reader closed the pipe; return exit code 0, because this is no error."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, _answer().fileno())
    os.close(null)
    return 0


def _misused(name: str, error: click.ClickException) -> int:
    """Print the error of a command line with its usage; return the exit code."""
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
    if _wants_json():
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


def _option_of(error: click.ClickException) -> str:
    """Return the option or argument that an error of the command line is about."""
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
"""Type of a click error -> code of our error."""


def _wants_json() -> bool:
    """Return whether the command line has ``--json`` before a ``--``."""
    words = sys.argv[1:]
    return "--json" in (words[: words.index("--")] if "--" in words else words)


def _print_failure(failure: Failure) -> None:
    """Print a failure on stderr as one JSON line, ``apples.error/1``."""
    document = {"schema": "apples.error/1", **failure.document()}
    _print_error(json.dumps(document, allow_nan=False))


def _print_error(text: str) -> None:
    """Print an error on stderr. If stderr is closed or on a full disk, the command has only its exit code."""
    try:
        say(text)
    except (OSError, ValueError):  # a user's code may have closed stderr
        with contextlib.suppress(
            OSError, ValueError
        ):  # else the content of the stream's buffer would fail again at Python's exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def _refused(name: str, error: BaseException) -> int:
    """Print a failure, one line for each problem with its code; return the exit code."""
    failure = failure_of(error)
    if _wants_json():
        _print_failure(failure)
    elif isinstance(
        error, getattr(sys.modules.get("hat.problem"), "DocumentError", ())
    ):  # each problem has its file
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
"""The stream of a running command's answer."""


def say(line: str) -> None:
    """Print a message on stderr; control characters are escaped."""
    print(escaped(line), file=sys.stderr, flush=True)  # noqa: T201 - the one place that talks


def show(text: str) -> None:
    """Print data on stdout; control characters are escaped.

    If the reader has closed the pipe, the command continues, so that its exit code is that of its work.
    """
    try:
        print(escaped(text), file=_answer(), flush=True)
    except BrokenPipeError:
        _discard_answer()
    except OSError as error:
        error.filename = error.filename or "stdout"
        raise


def repaint(text: str) -> None:
    """Replace the whole content of the terminal by a text."""
    answer = _answer()
    answer.write(HOME_AND_CLEAR + escaped(text))
    answer.flush()


def answers_a_terminal() -> bool:
    """Return whether a command's answer goes to a terminal; `sys.stdout` is stderr while a command runs."""
    return _answer().isatty()


def show_json(document: Mapping[str, Any]) -> None:
    """Print a JSON document on stdout; NaN and infinity raise an error."""
    show(json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False))


def show_answer(document: Mapping[str, Any], text: str | Callable[[], str], as_json: bool) -> None:
    """Print the answer of a command: its JSON document or its text (a function makes the text only if needed)."""
    if as_json:
        show_json(document)
    elif answer := text if isinstance(text, str) else text():
        show(answer)


def pass_through(text: str) -> None:
    """Print the output of another program unchanged, except for escaped control characters."""
    answer = _answer()
    try:
        answer.write(escaped(text) if answer.isatty() else text)
        answer.flush()
    except BrokenPipeError:
        _discard_answer()


def _answer() -> TextIO:
    return _answers[-1] if _answers else sys.stdout
