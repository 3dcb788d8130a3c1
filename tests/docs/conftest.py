"""The runner of the documentation: commands are typed, files saved, Python run.

A page's blocks share a folder (a copy of the examples), in order. A block that begins with ``# NAME.EXT``
is only saved there. In expected output ``...`` is anything; alone on a line, any lines; in a block marked
``timed`` times and percentages are masked, in one marked ``measured`` all numbers. A command
that fails shows its talk, and ``echo $?`` must follow it.
"""

import contextlib
import re
import subprocess
from pathlib import Path

import pytest

FENCE = re.compile(r"^```(\w+) ?(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"[-+]?\b\d[\d.,]*(e-?\d+)?( ?([num]?s|[kMGT]?B|%))?(?!\w)")
TIME = re.compile(r"[-+]?\b\d[\d.]*(e-?\d+)?( [num]?s\b|%)")
MASKS = {"": None, "timed": TIME, "measured": NUMBER}
TYPED = """cd "$(cat {0}/.cwd)"; (exit {1})\n{2}\nstatus=$?; pwd >{0}/.cwd; exit $status"""


def type_in(command, folder, status):
    shell = ["/bin/bash", "-c", TYPED.format(folder, status, command)]
    done = subprocess.run(shell, capture_output=True, text=True, timeout=240, check=False)
    return done.stdout + (done.stderr if done.returncode else ""), done.returncode


def alike(shown, real, mask):
    if mask is not None:
        shown, real = (re.sub(" +", " ", mask.sub("#", text)) for text in (shown, real))
    lines = [re.escape(line).replace(r"\.\.\.", ".*") + "\n" for line in shown.splitlines()]
    pattern = "".join(r"(?:.*\n)*?" if line == ".*\n" else line for line in lines)
    return re.fullmatch(pattern.rstrip("\n"), real.rstrip("\n")) or re.fullmatch(pattern, real)


def converse(text, folder, mask):
    status = 0
    for exchange in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, shown = exchange.partition("\n")
        assert status == 0 or command == "echo $?", f"exit code {status} before $ {command}"
        real, status = type_in(command, folder, status)
        assert alike(shown, real, mask), f"$ {command}\n{real}\n--- but shown is\n{shown}"


@pytest.fixture
def follow():
    """Return what does everything that a page's text shows, in a folder, block by block."""

    def follow(page, folder):
        (folder / ".cwd").write_text(str(folder))
        for kind, word, text in FENCE.findall(page):
            here = Path((folder / ".cwd").read_text().strip())
            if kind == "console":
                converse(text, folder, MASKS[word])
            elif saved := re.match(r"# (\w[\w.-]*\.\w+)\n", text):
                (here / saved[1]).write_text(text)
            elif kind == "python":
                with contextlib.chdir(here):
                    exec(compile(text, "a block", "exec"), {})  # noqa: S102 - our own pages

    return follow
