"""The wording of each verb: what it prints, compared with ``tests/golden/VERB.txt``.

A golden file is a session: each ``$ `` line is typed in this process, in a folder that begins as a copy of
``tests/golden/files``, and what it prints follows: stdout, then stderr behind ``[stderr]``, then ``[exit N]``
where N is not 0. ``make golden`` runs all sessions and writes what they print now; read the difference before
committing it.

No session starts a process or measures the machine. Success is checked in three ways:

- ``XDG_STATE_HOME=$PWD/recorded`` before a command selects the state directory ``files/recorded``. It holds the
  records of finished runs, for example for ``apples runs``, and the addresses of a scheduler and of a weather
  service. `serving` answers there for both, with the documents of ``files/answers.json``.
- ``python FILE`` runs a program of ``files`` that prints a view of fixed values, for example ``apples doctor``'s.
- Every other command computes its answer, for example ``apples simulate log.swf``.

The wall clock stands still at `NOW`, the time of these documents.
"""

import contextlib
import io
import json
import os
import re
import runpy
import shlex
import shutil
import socketserver
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import metadata
from pathlib import Path

import pytest
from commands import MAINS, Done, command, validator

GOLDEN = Path(__file__).parents[1] / "golden"
SESSIONS = sorted(GOLDEN.glob("*.txt"))
ANSWERS = GOLDEN / "files" / "answers.json"
NOW = 1_700_000_000.0
RECORDED = "XDG_STATE_HOME=$PWD/recorded"
COMPILING = re.compile(r"^apples: compiling the .* core, once per machine\n", re.MULTILINE)
"""A line that a machine prints once: in the first test of a fresh clone that simulates."""


def session(text, folder, state):
    """Return the session with what its commands print now."""
    lines = []
    for line in text.splitlines():
        if line.startswith("# "):
            lines.append(line)
        if not line.startswith("$ "):
            continue
        done = typed(*shlex.split(line[2:]))
        lines += ["", line, *plain(done.out, folder, state).splitlines()]
        told = COMPILING.sub("", done.err)
        if told:
            lines += ["[stderr]", *plain(told, folder, state).splitlines()]
        if done.code:
            lines.append(f"[exit {done.code}]")
    return "\n".join(line.rstrip() for line in lines).strip("\n") + "\n"


def typed(*words):
    """Run the words of one line in this process: variables, then a command, or ``python FILE``."""
    with pytest.MonkeyPatch.context() as patch:
        while words[0] not in {*MAINS, "python"}:
            name, value = words[0].split("=", 1)
            patch.setenv(name, value.replace("$PWD", str(Path.cwd())))
            words = words[1:]
        if words[0] != "python":
            return command(*words)
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            runpy.run_path(words[1])
        return Done(0, out.getvalue(), "")


class Answering(BaseHTTPRequestHandler):
    """Answers each request with the document of `ANSWERS` for its method and path."""

    def do_GET(self):
        self.rfile.read(int(self.headers["Content-Length"] or 0))
        asked = f"{self.command} {self.path.partition('?')[0]}"
        document = json.loads(ANSWERS.read_text()).get(asked)
        refusal = {"code": "request-invalid", "reason": f"answers.json has no '{asked}'"}
        body = json.dumps(refusal if document is None else document).encode()
        self.send_response(404 if document is None else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        self.do_GET()

    def log_message(self, *_):
        """Print nothing."""


class UnixServer(socketserver.ThreadingUnixStreamServer):
    """Serves HTTP on a Unix socket, as a scheduler does."""

    def get_request(self):
        connection, _ = super().get_request()
        return connection, ("", 0)


@contextlib.contextmanager
def serving(home):
    """Answer as the scheduler and the weather service of the state directory `home`."""
    for job in (home / "jobs").glob("*/job.json"):
        submitted = json.loads(job.read_text())["submitted"]
        # `apples runs` sorts by this time, and a clone of the repository sets it anew.
        os.utime(job.with_name("order.json"), (submitted, submitted))
    scheduler = home / "schedulers" / "lab"
    scheduler.mkdir(parents=True)
    (scheduler / "journal").mkdir()
    (home / "nws").mkdir()
    with (
        UnixServer(os.path.relpath(scheduler / "socket"), Answering) as local,
        ThreadingHTTPServer(("127.0.0.1", 0), Answering) as service,
    ):
        (home / "nws" / "url").write_text(f"http://127.0.0.1:{service.server_port}")
        (home / "nws" / "token").write_text("token")
        (home / "nws" / "token").chmod(0o600)
        for server in (local, service):
            threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield
        local.shutdown()
        service.shutdown()


def plain(text, folder, state):
    """Return printed text without what differs from one run to the next."""
    for path, name in ((folder, "FOLDER"), (state, "STATE"), (Path.home(), "HOME")):
        text = text.replace(str(path), name)
    text = text.replace(metadata.version("apples"), "VERSION")
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "....-..-.. ..:..:..", text)  # local time
    text = re.sub(r'(html: |"bytes": )\d+', r"\1..", text)  # of a page
    text = re.sub(r"(?<=\d)T\d\d:\d\d:\d\d\S*", "T..", text)
    # "numba" or "python": numba is loaded for a long queue, or by an earlier test of this process.
    text = re.sub(r'("engine": )"\w+"', r"\1..", text)
    text = re.sub(
        r"simulated in \S+ s \(\w+\), read in \S+ s", "simulated in .. s (..), read in .. s", text
    )
    return re.sub(r'("(?:simulation|read)_seconds": )[\d.e-]+', r"\1..", text)


@pytest.mark.parametrize("path", SESSIONS, ids=lambda path: path.stem)
def test_what_a_verb_prints_is_as_written(path, tmp_path, state, monkeypatch):
    folder = tmp_path / "work"
    shutil.copytree(GOLDEN / "files", folder)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("APPLES_SCHEDULER", raising=False)
    monkeypatch.setattr(time, "time", lambda: NOW)
    text = path.read_text()
    with serving(folder / "recorded" / "apples") if RECORDED in text else contextlib.nullcontext():
        printed = session(text, folder, state)
    if os.environ.get("GOLDEN") == "write":
        path.write_text(printed)
    assert path.read_text() == printed


def test_answers_are_documents_of_the_published_schemas():
    for asked, document in json.loads(ANSWERS.read_text()).items():
        if asked != "POST /v1/jobs" and "schema" in document:  # `apples submit` removes its state
            validator(document["schema"].partition("/")[0]).validate(document)
