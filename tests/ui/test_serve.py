"""`apples serve` as it is typed: what it prints, and how it ends."""

import errno
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import requests
from commands import command

APPLES = Path(sys.executable).with_name("apples")


@pytest.mark.more
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_prints_a_link_that_works_and_ends_in_peace(own_state, number):
    words = [APPLES, "serve", "--listen", "127.0.0.1:0", "--folder", own_state]
    server = subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        link = re.fullmatch(r"apples serve: open (http://127\.0\.0\.1:\d+/enter\?key=\S+)\n", server.stderr.readline())[1]  # fmt: skip  # noqa: E501
        browser = requests.Session()
        assert browser.get(link, timeout=60).status_code == 200
        root = link.partition("/enter")[0]
        assert "recorded" in browser.get(root + "/", timeout=60).text
        assert server.stderr.readline().startswith("apples serve: open http")
        server.send_signal(number)
        assert server.wait(60) == 0
        assert server.stdout.read() == ""
    finally:
        server.kill()
        server.wait()
        server.stderr.close()
        server.stdout.close()


@pytest.mark.parametrize(
    ("words", "exit_code", "code", "fields"),
    [
        (["--listen", "0.0.0.0:0"], 2, "tls-missing", {}),
        (["--listen", "8080"], 2, "address-invalid", {"value": "8080"}),
        (
            ["--folder", "/nowhere"],
            2,
            "directory-missing",
            {"option": "--folder", "file": "/nowhere"},
        ),
        (["--scheduler", "/nowhere"], 4, "scheduler-missing", {"file": "/nowhere"}),
        (["--certificate", "c.pem"], 2, "option-missing", {"option": "--key"}),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, list) else "",
)
@pytest.mark.usefixtures("own_state")
def test_what_it_will_not_do_is_one_line(words, exit_code, code, fields):
    done = command("apples", "serve", *words)
    assert (done.code, done.out, done.error_codes) == (exit_code, "", [code])
    assert done.err.count("\n") == 1
    assert all(value in done.err for value in fields.values())


@pytest.mark.usefixtures("own_state")
def test_an_address_that_is_taken_is_said():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        done = command("apples", "serve", "--listen", place)
    assert (done.code, done.error_codes) == (4, ["address-unusable"])
    assert place in done.err
    assert os.strerror(errno.EADDRINUSE) in done.err
