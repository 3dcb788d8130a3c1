"""Options and arguments of commands: their types, their help, and rules between them."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from apples.errors import UsageError


class _File(click.ParamType[Path]):
    """A path; the command checks whether it exists."""

    name = "file"

    def convert(self, value: Any, param: Any, ctx: Any) -> Path:
        """Return the path."""
        del param, ctx
        return Path(value)


class _Integer(click.types.IntParamType):
    def get_metavar(self, param: Any, ctx: Any) -> str:
        """Return the word for a value in the help."""
        del param, ctx
        return "N"


class _IntegerRange(_Integer, click.IntRange):
    pass


class _Number(click.types.FloatParamType):
    def get_metavar(self, param: Any, ctx: Any) -> str:
        """Return the word for a value in the help."""
        del param, ctx
        return "NUMBER"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        """Return the number; reject NaN and infinity."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return number


class _NumberRange(_Number, click.FloatRange):
    pass


FILE = _File()
INTEGER = _Integer()
NUMBER = _Number()


def integer(least: int | None = None, most: int | None = None) -> click.ParamType[int]:
    """Return the type of an integer in a range."""
    return _IntegerRange(least, most)


def number(least: float | None = None, most: float | None = None) -> click.ParamType[float]:
    """Return the type of a finite number in a range."""
    return _NumberRange(least, most)


class _Checked(click.Parameter):
    """A parameter with the rejected value in its error."""

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        """Convert a value; an error has it as `rejected_value`."""
        try:
            return super().type_cast_value(ctx, value)
        except click.BadParameter as error:
            error.rejected_value = value  # type: ignore[attr-defined]
            raise


class Option(_Checked, click.Option):
    """An option; its help shows its environment variable and its default."""

    def __init__(self, *names: Any, **settings: Any) -> None:
        settings.setdefault("show_envvar", True)
        shown = settings.get("default") not in {None, ""} and not settings.get("is_flag")
        settings.setdefault("show_default", shown)
        super().__init__(*names, **settings)


class Argument(_Checked, click.Argument):
    """An argument; its help shows its default, or that it is required."""

    def make_metavar(self, ctx: click.Context) -> str:
        """Return the name; brackets mean that it is optional."""
        if self.metavar is None or self.required or self.metavar.startswith("["):
            return super().make_metavar(ctx)
        return f"[{self.metavar}]"

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        """Return the name and the help."""
        name, words = super().get_help_record(ctx)
        default = self.get_default(ctx, call=False)
        shown = f"default: {default}" if isinstance(default, str | Path) else ""
        extra = "required" if self.required else shown
        return name, f"{words}  [{extra}]" if extra else words


def option(*names: str, **settings: Any) -> Callable[[Any], Any]:
    """Return the decorator of an option of a command; settings as of `click.option`."""
    return click.option(*names, cls=Option, **settings)


def argument(*names: str, **settings: Any) -> Callable[[Any], Any]:
    """Return the decorator of an argument of a command; settings as of `click.argument`."""
    return click.argument(*names, cls=Argument, **settings)


class Excludes:
    """A rule: at most one of these options and arguments is typed."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def check(self, command: click.Command, ctx: click.Context) -> None:
        """Raise `UsageError` if two of them are typed."""
        typed = [
            _typed_name(parameter_of(command, name), name, ctx)
            for name in self.names
            if _source(command, ctx, name) is TYPED
        ]
        if len(typed) > 1:
            raise UsageError(
                f"{' and '.join(typed)} exclude each other: give one of them",
                code="option-conflict",
                options=typed,
            )


class Requires:
    """A rule: an option or argument requires one of several others, typed or from the environment."""

    def __init__(self, name: str, *needs: str) -> None:
        self.name, self.needs = name, needs

    def check(self, command: click.Command, ctx: click.Context) -> None:
        """Raise `UsageError` if it is typed without any of the others."""
        if _source(command, ctx, self.name) is not TYPED:
            return
        if not any(_source(command, ctx, name) in GIVEN for name in self.needs):
            raise UsageError(
                f"{self.name} does not apply: it needs {' or '.join(self.needs)}",
                code="option-not-applicable",
                option=self.name,
                needs=list(self.needs),
            )


class Only:
    """A rule: an option or argument allows only the listed others.

    For the option of a mode, for example ``--status``: a new option of the command is rejected in that mode until
    the rule names it.
    """

    def __init__(self, name: str, *others: str) -> None:
        self.name, self.others = name, others

    def check(self, command: click.Command, ctx: click.Context) -> None:
        """Raise `UsageError` if it is typed together with an option or argument that does not apply."""
        for name in self.rejected(command):
            Excludes(self.name, name).check(command, ctx)

    def rejected(self, command: click.Command) -> list[str]:
        """Return the options and arguments of the command that do not apply."""
        kept = [parameter_of(command, name) for name in (self.name, *self.others)]
        return [
            name_of(parameter)
            for parameter in command.params
            if parameter.expose_value and parameter not in kept
        ]


Rule = Excludes | Requires | Only
TYPED = ParameterSource.COMMANDLINE
GIVEN = (TYPED, ParameterSource.ENVIRONMENT)


def parameter_of(command: click.Command, name: str) -> click.Parameter:
    """Return the parameter with an option's name or, for an argument, its metavar or upper-case name."""
    for parameter in command.params:
        if name in {name_of(parameter), *parameter.opts, *parameter.secondary_opts}:
            return parameter
    raise LookupError(f"{command.name}: a rule names {name}, which the command does not have")


def name_of(parameter: click.Parameter) -> str:
    """Return the longest name of an option, or the metavar or upper-case name of an argument."""
    if isinstance(parameter, click.Argument):
        return parameter.metavar or str(parameter.name).upper()
    return max(parameter.opts, key=len)


def _source(command: click.Command, ctx: click.Context, name: str) -> ParameterSource | None:
    return ctx.get_parameter_source(str(parameter_of(command, name).name))


def _typed_name(parameter: click.Parameter, name: str, ctx: click.Context) -> str:
    """Return the typed option of a pair ``--x/--no-x``; for other parameters the given name."""
    negated = parameter.secondary_opts and ctx.params[str(parameter.name)] is False
    return parameter.secondary_opts[0] if negated else name


def reject_unused(ctx: click.Context, applicable: Collection[str], subject: str) -> None:
    """Raise `UsageError` for an option on the command line that does not apply to a subject.

    For modes that only the values of arguments select, for example whether a name is a run or a log.
    """
    for parameter in ctx.command.params:
        name = name_of(parameter)
        if (
            isinstance(parameter, click.Option)
            and name not in applicable
            and ctx.get_parameter_source(str(parameter.name)) is TYPED
        ):
            raise UsageError(
                f"{name} does not apply to {subject}",
                code="option-not-applicable",
                option=name,
                value=subject,
            )
