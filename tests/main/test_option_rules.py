"""Options that exclude or need each other are rejected before a command does anything."""

import re
import shlex
from itertools import combinations

import click
import pytest
from commands import MAINS, command

from apples.__main__ import COMMANDS as APPLES
from apples.applications.commands import COMMANDS as HAT
from apples.ui import Excludes, Only, Requires, parameter_of
from apples.weather.commands.nws import COMMANDS as NWS

TABLES = {"apples": APPLES, "hat": HAT, "nws": NWS}


def commands(path, found):
    """Yield the words and the object of a command, or of each of its sub-commands."""
    if isinstance(found, click.Group):
        for name, below in found.commands.items():
            yield from commands((*path, name), below)
    else:
        yield path, found


def every_command():
    """Yield words and object of each command."""
    for program, table in TABLES.items():
        for name, entry in table.items():
            yield from commands((program, name), entry.load())


COMMANDS = [pytest.param(*each, id=" ".join(each[0])) for each in every_command()]


def cases():
    """Yield words, command, rule, and the names of the parameters that break the rule."""
    for path, found in every_command():
        for rule in found.rules:
            if isinstance(rule, Requires):
                yield path, found, rule, (rule.name,)
            elif isinstance(rule, Only):
                for other in rule.rejected(found):
                    yield path, found, rule, (rule.name, other)
            else:
                yield from ((path, found, rule, pair) for pair in combinations(rule.names, 2))


CASES = [pytest.param(*case, id=f"{' '.join(case[0])}: {' '.join(case[3])}") for case in cases()]


def words_of(parameters):
    """Return options, then arguments after a ``--``, with a value of each type."""
    options, arguments = [], []
    for parameter in parameters:
        if isinstance(parameter, click.Argument):
            arguments.append("1")
        elif parameter.is_flag:
            options.append(max(parameter.opts, key=len))
        else:
            least = getattr(parameter.type, "min", None) or 1
            options += [max(parameter.opts, key=len), str(least)]
    return [*options, *(["--", *arguments] if arguments else [])]


@pytest.mark.parametrize(("path", "found", "rule", "names"), CASES)
def test_rule_between_options_is_kept(path, found, rule, names, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NWS_SERVICE", raising=False)
    typed = [parameter_of(found, name) for name in names]
    needed = [each for each in found.params if each.required and each not in typed]
    done = command(*path, *words_of([*typed, *needed]))
    code = "option-not-applicable" if isinstance(rule, Requires) else "option-conflict"
    assert (done.code, done.out) == (2, "")
    printed = [done.failure["code"]] if "--json" in names else done.error_codes
    assert printed == [code]


def test_each_rule_names_parameters_of_its_command():
    for _, found, rule, _ in (case.values for case in CASES):
        names = getattr(rule, "names", None) or [rule.name]
        names = [*names, *getattr(rule, "needs", ()), *getattr(rule, "others", ())]
        assert all(parameter_of(found, name) for name in names)


def test_rule_of_an_unknown_option_is_an_error():
    with pytest.raises(LookupError):
        parameter_of(click.Command("x"), "--missing")


def test_every_program_is_looked_at():
    assert set(TABLES) == set(MAINS)
    assert any(isinstance(case.values[2], Excludes) for case in CASES)


@pytest.mark.parametrize(("path", "found"), COMMANDS)
def test_examples_in_the_help_keep_the_rules(path, found):
    examples = re.search(r"Example: (.+?)(?:\n\n|$)", found.help, re.DOTALL).group(1)
    for example in re.split(r";\s+", examples):
        words = shlex.split(example.partition(" >")[0])
        assert words[1 : len(path)] == [*path[1:]]
        with found.make_context(path[-1], words[len(path) :]) as context:
            for rule in found.rules:
                rule.check(found, context)


@pytest.mark.parametrize(("path", "found"), COMMANDS)
def test_help_marks_what_is_required(path, found):
    shown = " ".join(command(*path, "--help").out.split())
    required = [each for each in found.params if each.required]
    assert shown.count("[required]") == len(required)
    assert not re.search(
        r"<[a-z]+|\[str\]|\b(TEXT|INTEGER|FLOAT|PATH)\b", shown.replace("<=x", "")
    )
