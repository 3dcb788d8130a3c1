"""A command that fails prints one error with a code, whatever raised it, and ends with that error's exit code."""

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from commands import command, files, planned, refused

from apples.errors import (
    MAX_LINE_CHARACTERS,
    Failure,
    LaunchError,
    UsageError,
    coded,
    failure_of,
    plain_fields,
)

LONGEST = 100_000
"""Characters that an error may have."""
HOSTILE = {
    "own code and fields": """
class Broken(Exception):
    code, fields, problems = "Not A Code", {"a": float("nan"), (1,): object()}, 3
raise Broken("why")
""",
    "properties that raise": """
class Broken(Exception):
    code = fields = problems = property(lambda self: 1 / 0)
raise Broken("why")
""",
    "no message": """
class Broken(Exception):
    def __str__(self):
        return self.missing
raise Broken
""",
    "http": """
import io, urllib.error
raise urllib.error.HTTPError("http://x", 404, "no", {}, io.BytesIO())
""",
    "exit": "raise SystemExit(0)",
    "exit with an object": "raise SystemExit({})",
    "click exit": "import click; raise click.exceptions.Exit(0)",
    "click abort": "import click; raise click.Abort",
    "click parameter": "import click; raise click.BadParameter('x')",
    "broken pipe": "raise BrokenPipeError",
    "cancelled": "import asyncio; raise asyncio.CancelledError",
    "base": "raise BaseException('x')",
    "group": "raise BaseExceptionGroup('g', [KeyboardInterrupt()])",
    "long": "raise ValueError('x' * 5_000_000)",
    "recursion": "def g(): g()\ng()",
}


@pytest.mark.parametrize("inside", [True, False], ids=["called", "imported"])
@pytest.mark.parametrize("code", HOSTILE.values(), ids=HOSTILE)
def test_any_exception_of_users_code_ends_a_plan_with_one_error(tmp_path, code, inside):
    text = (
        "def plan(coordinator):\n" + re.sub("^", "    ", code, flags=re.MULTILINE)
        if inside
        else code
    )
    own = tmp_path / "own.py"
    own.write_text(text)
    done = planned(tmp_path, "--blueprint", f"{own}:plan", "--json")
    assert done.failure["code"] == "user-code-failed"
    assert (done.out, done.err.count("\n")) == ("", 1)
    assert len(done.err) < LONGEST
    plain = planned(tmp_path, "--blueprint", f"{own}:plan")
    assert (plain.code, plain.error_codes) == (done.code, ["user-code-failed"])


def test_interrupted_command_prints_its_code(tmp_path):
    (tmp_path / "own.py").write_text("def plan(coordinator):\n    raise KeyboardInterrupt\n")
    done = planned(tmp_path, "--blueprint", f"{tmp_path / 'own.py'}:plan", "--json")
    assert (done.failure["code"], done.code) == ("command-interrupted", 130)
    plain = planned(tmp_path, "--blueprint", f"{tmp_path / 'own.py'}:plan")
    assert (plain.error_codes, plain.code) == (["command-interrupted"], 130)


def test_users_error_of_ours_with_strange_code_and_fields_is_one_json_line(tmp_path):
    (tmp_path / "own.py").write_text("""
from apples.errors import UsageError
def plan(coordinator):
    raise UsageError("x", code="My Code", nan=float("nan"), big=10**5000, long="y" * 10**6, deep=object())
""")
    done = planned(tmp_path, "--blueprint", f"{tmp_path / 'own.py'}:plan", "--json")
    assert done.failure["code"] == "usage"
    assert len(done.err) < LONGEST


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), 10**5000, "x" * 10**6, b"\xff", object(), {1: {2: {3: 4}}}, [[[[[[[[1]]]]]]]],
     {"a": [float("-inf")] * 10**5}, {f"k{i}": "v" for i in range(10**5)}, {(1, 2)}],
    ids=range(11),
)  # fmt: skip
def test_fields_of_any_value_are_bounded_json(value):
    printed = json.dumps(plain_fields({"value": value}), allow_nan=False)
    assert len(printed) < LONGEST


@pytest.mark.parametrize("exit_code", [0, True, -1, 256, 99, "2", None, 2.0, [2]])
def test_failure_of_another_process_never_has_the_exit_code_of_success(exit_code):
    document = {
        "exit_code": exit_code,
        "code": "x" * 10**6,
        "message": "y" * 10**6,
        "fields": {"a": [[]]},
    }
    failure = failure_of(Failure.of_document(document).error())
    assert failure.exit_code == 4
    assert len(failure.code) < 64
    assert len(failure.message) <= MAX_LINE_CHARACTERS


def test_fields_may_have_the_names_of_arguments():
    error = UsageError("x", code="value-range", message=1, self=2)
    error.fields = {**error.fields, "code": "other"}
    assert coded(LaunchError("y", **coded(error))) == {
        "message": 1,
        "self": 2,
        "code": "value-range",
    }


def test_code_and_fields_of_other_libraries_are_ignored():
    error = ValueError("x")
    error.code, error.fields = 404, [1]
    assert coded(error, code="answer-invalid") == {"code": "answer-invalid"}
    assert failure_of(error).code == "internal-error"


def test_option_of_a_wrong_value_is_a_field():
    found = refused("apples", "simulate", "nolog.swf", "--processors", "q")
    wrong = {"option": "--processors", "value": "q"}
    assert (found["code"], found["fields"]) == ("option-invalid", wrong)
    assert "--processors" in found["message"]


@pytest.mark.parametrize("value", ["nan", "-1"])
def test_number_out_of_range_is_a_field(value):
    found = refused("nws", "forecast", "cpu.ada", "--over", value)
    assert (found["code"], found["fields"]) == (
        "option-invalid",
        {"option": "--over", "value": value},
    )


@pytest.mark.parametrize(
    ("words", "code", "fields"),
    [
        (("resize", "job"), "option-missing", {"options": ["--on", "--from", "--balance"]}),
        (("report",), "argument-missing", {"argument": "names"}),
    ],
)
def test_missing_option_and_missing_argument_differ(words, code, fields):
    found = refused("apples", *words)
    assert (found["exit_code"], found["code"], found["fields"]) == (2, code, fields)


@pytest.mark.parametrize("option", ["--set", "--planner", "--rows", "--hosts"])
def test_error_of_a_long_value_is_short(tmp_path, option):
    words = files(tmp_path)
    done = command("apples", "calibrate", *words, option, "x" * 100_000)
    assert done.code == 2
    assert len(done.err) < LONGEST // 10
    assert done.error_codes


def test_last_line_of_many_problems_has_a_code(tmp_path):
    done = planned(tmp_path, hosts="".join(f"[[host]]\nbad{i} = 1\n" for i in range(100)))
    assert len(done.error_codes) == len(done.err.splitlines())


def test_name_that_is_no_utf8_is_a_usage_error(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    error = UnicodeEncodeError("utf-8", "a\udcff", 1, 2, "surrogates not allowed")
    assert (failure_of(error).code, failure_of(error).exit_code) == ("name-not-utf8", 2)
    assert failure_of(UsageError("x", code="value-range")).code == "value-range"


def redirected(folder, words):
    """Run the command in a shell, which redirects or closes its streams."""
    main = "import sys; from apples.__main__ import main; sys.argv[0] = 'apples'; main()"
    own = {"PYTHON": sys.executable, "MAIN": main, "XDG_STATE_HOME": str(folder)}
    return subprocess.run(
        ["/bin/sh", "-c", f'"$PYTHON" -c "$MAIN" {words}'],
        env={**os.environ, **own},
        capture_output=True,
        check=False,
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("redirection", ["2>/dev/full", "2>&-", "2>&- >&-", ">/dev/full 2>&1"])
@pytest.mark.parametrize("words", ["queue x", "queue x --json", "nonsense", "simulate x --seed q"])
def test_exit_code_is_kept_if_the_error_cannot_be_printed(tmp_path, words, redirection):
    done = redirected(tmp_path, f"{words} {redirection}")
    assert done.returncode == (4 if words.startswith("queue") else 2), done.stderr
    assert done.stderr == b""


NONSENSE = [
    b"{}",
    b'{"forecasts": [1]}',
    b'{"forecasts": {"a": 1}}',
    b'{"reason": "no", "transient": false, "code": "No Code", "fields": {"message": 1, "self": 2, "code": 3}}',
    b'{"reason": "no", "transient": false, "code": [1], "fields": [1]}',
]


@pytest.mark.parametrize("status", [200, 400, 500])
@pytest.mark.parametrize("body", NONSENSE, ids=range(len(NONSENSE)))
def test_weather_service_of_nonsense_is_no_internal_error(tmp_path, status, body):
    class Nonsense(BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    (tmp_path / "token").touch(0o600)
    (tmp_path / "token").write_text("s" * 43)
    with HTTPServer(("127.0.0.1", 0), Nonsense) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        found = refused(
            "nws", "forecast", "cpu/ada", "--service", url, "--token-file", tmp_path / "token"
        )
        server.shutdown()
    assert found["code"] in {"answer-invalid", "service-refused"}
    assert found["exit_code"] in {2, 4}
    assert "s" * 43 not in json.dumps(found)


@pytest.mark.parametrize(
    "answer",
    [
        {"ok": True},
        {"ok": False, "error": "x", "code": 0, "error_code": "My Code", "fields": {"message": 1, "self": 2}},
        {"ok": False, "error": "x", "code": [2], "error_code": {}, "fields": [1]},
    ],
    ids=["empty", "names of arguments", "types"],
)  # fmt: skip
def test_topology_daemon_of_nonsense_is_a_launch_error(tmp_path, answer):
    place = tmp_path / "daemon.sock"

    def serve():
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(json.dumps(answer).encode() + b"\n")

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place))
        listener.listen()
        threading.Thread(target=serve, daemon=True).start()
        done = command("apples", "exec", "--socket", place, "--", "true", "--json")
    assert done.code == 4, done.err
    assert done.error_codes in (["topology-daemon-invalid"], ["launch-failed"])


@pytest.mark.parametrize(
    "verb", [["queue"], ["queue", "x"], ["drain", "ada"], ["queue", "--all"]], ids=str
)
@pytest.mark.parametrize("status", [200, 400])
@pytest.mark.parametrize(
    "body", [b"[]", b"null", b"x", b'{"a": NaN}', b"[" * 100_000, b'{"exit_code": 0, "fields": [1], "code": []}']
)  # fmt: skip
def test_scheduler_of_nonsense_is_a_launch_error(tmp_path, verb, status, body):
    if verb[0] == "drain" and body.startswith(b'{"exit') and status == 200:
        pytest.skip("the verb prints the document that it gets")

    def serve():
        connection, _ = listener.accept()
        with connection, contextlib.suppress(OSError):
            connection.recv(65536)
            head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n\r\n"
            connection.sendall(head.encode() + body)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()
        threading.Thread(target=serve, daemon=True).start()
        found = refused("apples", *verb, "--scheduler", tmp_path)
    assert found["exit_code"] == 4
    assert found["code"] in {"answer-invalid", "launch-failed"}


def test_check_of_files_prints_one_json_line(tmp_path):
    (tmp_path / "hosts.toml").write_text("x = 1\ny = 2\n")
    done = command("hat", "check", tmp_path / "hosts.toml", tmp_path / "missing.toml", "--json")
    assert done.err.count("\n") == 1
    assert done.failure["exit_code"] == done.code == 2
    assert len(done.failure["fields"]["problems"]) == sum(
        len(each["problems"]) for each in done.document["files"]
    )


@pytest.mark.parametrize(("words", "closed"), [("check --schema run", ">&-"), ("queue x", "2>&-")])
def test_closed_stream_is_not_replaced_by_the_other(tmp_path, words, closed):
    done = redirected(tmp_path, f"{words} {closed}")
    assert (done.stdout, done.stderr) == (b"", b"")
