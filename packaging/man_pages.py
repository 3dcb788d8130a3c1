"""Write the manual pages apples.1, hat.1 and nws.1 from the help of each command.

``make man`` runs it: ``python packaging/man_pages.py FOLDER [PROGRAM ..]``.
"""

from __future__ import annotations

import functools
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

PROGRAMS = ("apples", "hat", "nws")
CITATION = Path(__file__).parents[1] / "CITATION.cff"
DATE = re.compile(r"^date-released: ([0-9-]+)$", re.MULTILINE)
COMMAND = re.compile(r"^  ([a-z][a-z-]*)  ", re.MULTILINE)
"""A line of a list of commands: two spaces, the name, its summary."""


@functools.cache
def help_of(*words: str) -> str:
    """Return the help of a command, 72 columns wide."""
    program = Path(sys.executable).parent / words[0]
    done = subprocess.run(
        [program, *words[1:], "--help"],
        capture_output=True, text=True, check=True, env={"PATH": "/usr/bin:/bin", "COLUMNS": "72"},
    )  # fmt: skip
    return done.stdout


def commands_of(*words: str) -> list[tuple[str, ...]]:
    """Return a program's commands and their sub-commands, in the order of the help."""
    names = COMMAND.findall(help_of(*words)) if "COMMAND [ARGS]" in help_of(*words) else []
    below = [(*words, name) for name in names]
    return [path for command in below for path in (command, *commands_of(*command))]


def literal(text: str) -> str:
    """Return text for an unfilled block of a manual page: backslashes, hyphens and leading dots escaped."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    lines = [f"\\&{line}" if line.startswith(".") else line for line in escaped.splitlines()]
    return "\n".join([".nf", *(line or ".sp" for line in lines), ".fi"])


def page(program: str) -> str:
    """Return the manual page of a program: its own help, then that of each command."""
    usage, _, rest = help_of(program).partition("\n\n")
    summary, _, body = rest.partition("\n\n")
    version = metadata.version("apples")
    date = DATE.search(CITATION.read_text("utf-8"))
    if date is None:
        raise SystemExit(f"{CITATION}: no date-released")
    parts = [
        f'.TH {program.upper()} 1 "{date[1]}" "apples {version}" "User Commands"',
        f".SH NAME\n{program} \\- {summary.strip().rstrip('.')}",
        f".SH SYNOPSIS\n{literal(usage.removeprefix('Usage: '))}",
        f".SH DESCRIPTION\n{literal(body.rstrip())}",
        ".SH COMMANDS",
    ]
    for command in commands_of(program):
        title = " ".join(command).replace("-", "\\-")
        parts.append(f".SS {title}\n{literal(help_of(*command).rstrip())}")
    others = "\n".join(f".BR {name} (1)" for name in PROGRAMS if name != program)
    parts.append(
        f".SH SEE ALSO\n{others}\n.PP\nThe command\n.B apples help\nprints the documentation."
    )
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[2:] or PROGRAMS:
        (folder / f"{name}.1").write_text(page(name), "utf-8")
