"""The wording of each verb: what it prints, compared with ``tests/golden/VERB.txt``.

A golden file is a session: each ``$ `` line is typed in this process, in a folder that begins as a copy of
``tests/golden/files``, and what it prints follows: stdout, then stderr behind ``[stderr]``, then ``[exit N]``
where N is not 0. ``make golden`` runs all sessions and writes what they print now; read the difference before
committing it.
"""

import os
import re
import shlex
import shutil
from importlib import metadata
from pathlib import Path

import pytest
from commands import command

GOLDEN = Path(__file__).parents[1] / "golden"
SESSIONS = sorted(GOLDEN.glob("*.txt"))


def session(text, folder, state):
    """Return the session with what its commands print now."""
    lines = []
    for line in text.splitlines():
        if line.startswith("# "):
            lines.append(line)
        if not line.startswith("$ "):
            continue
        done = command(*shlex.split(line[2:]))
        lines += ["", line, *plain(done.out, folder, state).splitlines()]
        if done.err:
            lines += ["[stderr]", *plain(done.err, folder, state).splitlines()]
        if done.code:
            lines.append(f"[exit {done.code}]")
    return "\n".join(line.rstrip() for line in lines).strip("\n") + "\n"


def plain(text, folder, state):
    """Return printed text without what differs from one run to the next."""
    for path, name in ((folder, "FOLDER"), (state, "STATE"), (Path.home(), "HOME")):
        text = text.replace(str(path), name)
    text = text.replace(metadata.version("apples"), "VERSION")
    text = re.sub(r"(?<=\d)T\d\d:\d\d:\d\d\S*", "T..", text)
    # "numba" or "python": numba is loaded for a long queue, or by an earlier test of this process.
    text = re.sub(r'("engine": )"\w+"', r"\1..", text)
    return re.sub(r'("(?:simulation|read)_seconds": )[\d.e-]+', r"\1..", text)


@pytest.mark.parametrize("path", SESSIONS, ids=lambda path: path.stem)
def test_what_a_verb_prints_is_as_written(path, tmp_path, state, monkeypatch):
    folder = tmp_path / "work"
    shutil.copytree(GOLDEN / "files", folder)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("APPLES_SCHEDULER", raising=False)
    printed = session(path.read_text(), folder, state)
    if os.environ.get("GOLDEN") == "write":
        path.write_text(printed)
    assert path.read_text() == printed
