"""Write the current help of each command into ``docs/reference/cli.md``.

``make reference`` runs it. Each block ``text`` of the page begins with a line ``$ COMMAND``; the help of the
command follows. The block below ``Shared options`` has the options that several commands have in common. The
text around the blocks stays.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PAGE = Path(__file__).parent / "reference" / "cli.md"
BLOCK = re.compile(
    r"(?<=```text\n)\$ ([a-z-]+(?: [a-z-]+)*)(?: [A-Z\[].*)?\n(?:(?!```).*\n)*(?=```)"
)
SHARED = re.compile(r"(?<=## Shared options\n)(.*?```text\n).*?(?=```)", re.DOTALL)
OPTION = re.compile(r"^  (\S.*?)(?:  +(\S.*))?$")
PROGRAMS = ("apples", "nws")
WIDTH = 110
"""Columns of a block."""


@dataclass(frozen=True)
class Help:
    """The help of a command: its arguments, its text, and its parameters with their descriptions."""

    usage: str
    text: tuple[str, ...]
    parameters: tuple[tuple[str, str], ...]


@cache
def help_of(words: str) -> Help:
    """Return the help of a command.

    Raises
    ------
    SystemExit
        The command does not exist.
    """
    program, *verbs = words.split()
    done = subprocess.run(
        [Path(sys.executable).parent / program, *verbs, "--help"],
        capture_output=True, text=True, check=False, env={**os.environ, "COLUMNS": "80"},
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{PAGE}: {words} --help: exit code {done.returncode}\n{done.stderr}")
    head, *sections = re.split(
        r"^(?:Positional arguments|Options|Commands):\n", done.stdout, flags=re.MULTILINE
    )
    usage, *paragraphs = head.strip().split("\n\n")
    parameters = [each for section in sections for each in _parameters(section)]
    return Help(
        " ".join(usage.removeprefix(f"Usage: {words}").replace("[OPTIONS]", "").split()),
        tuple(_joined(each) for each in paragraphs if not each.strip().startswith("Example:")),
        tuple(each for each in parameters if not each[0].startswith("-h, --help")),
    )


def _joined(paragraph: str) -> str:
    """Return a paragraph as one line."""
    return " ".join(paragraph.split())


def _filled(text: str, indent: str) -> str:
    """Return the lines of a text, divided at spaces; `indent` precedes each line after the first."""
    return textwrap.fill(
        text, WIDTH, initial_indent="  ", subsequent_indent=indent, break_on_hyphens=False
    )


def _parameters(section: str) -> Iterator[tuple[str, str]]:
    """Yield the parameters of a section of a help with their descriptions, which may have several lines."""
    name, words = "", list[str]()
    for line in section.splitlines():
        if line.startswith("   ") and name:
            words.append(line.strip())
        elif found := OPTION.match(line):
            if name:
                yield name, " ".join(" ".join(words).split())
            name, words = found[1], [found[2] or ""]
    if name:
        yield name, " ".join(" ".join(words).split())


def written(page: str) -> str:
    """Return the page with the current help in each block."""
    commands = [found[1] for found in BLOCK.finditer(page)]
    shared = {
        program: _shared(words for words in commands if words.startswith(program))
        for program in PROGRAMS
    }
    entries = [f"Of {program}:\n" + "".join(map(_entry, shared[program])) for program in PROGRAMS]
    page = SHARED.sub(lambda found: found[1] + "".join(entries), page)
    return BLOCK.sub(lambda found: _block(found[1], {*shared.get(found[1].split()[0], ())}), page)


def _shared(commands: Iterable[str]) -> list[tuple[str, str]]:
    """Return the options that several commands have with the same description."""
    uses = Counter(each for words in commands for each in set(help_of(words).parameters))
    return sorted(each for each, number in uses.items() if number > 1 and each[0].startswith("-"))


def _block(words: str, shared: set[tuple[str, str]]) -> str:
    """Return the block of a command; of an option that other commands have too, it has the name alone."""
    of_command = help_of(words)
    lines = [_filled(each, "  ") for each in of_command.text]
    names = " ".join(
        name.split()[0] for name, text in of_command.parameters if (name, text) in shared
    )
    entries = [_entry(each) for each in of_command.parameters if each not in shared]
    if names:
        entries.append(_filled(f"Shared: {names}", "    ") + "\n")
    return (
        f"$ {words} {of_command.usage}".rstrip()
        + "\n"
        + "".join(f"{each}\n" for each in lines)
        + "".join(entries)
    )


def _entry(parameter: tuple[str, str]) -> str:
    """Return the lines of a parameter."""
    name, text = parameter
    return _filled(f"{name}  {text}", "      ") + "\n"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text("utf-8")), "utf-8")
