"""The protocol between a host agent and the process that started it, at its public door: a child process."""

import contextlib
import json
import os
import signal
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from waiting import until

from apples.io import LineError
from apples.launch import HostReports, hostd

AGENT = """
import os, subprocess, sys
from apples.launch import hostd

class Echo(hostd.HostAgent):
    beat_seconds = 60.0

    def open(self):
        super().open()
        os.mkfifo(sys.argv[1])
        self.forward(os.open(sys.argv[1], os.O_RDWR | os.O_NONBLOCK), "output", rank=3)

    def handle(self, order):
        if order["order"] == "start":
            child = subprocess.Popen(order["argv"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            self.report("started", pid=child.pid)
        elif order["order"] == "finish":
            self.drain_forwarded()
            self.finish()
        else:
            self.report("echo", order=order)

    def close(self):
        super().close()
        self.report("clear")

Echo().run()
"""


@pytest.fixture
def agent(tmp_path):
    """A host agent with its orders, its reports, and the pipe that it forwards."""
    words = [sys.executable, "-c", AGENT, str(tmp_path / "fifo")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.fifo = tmp_path / "fifo"
        yield process
        process.kill()


def order(agent, **fields):
    agent.stdin.write(json.dumps(fields).encode() + b"\n")
    agent.stdin.flush()


def all_reports(agent):
    return HostReports().feed(agent.stdout.read())


def is_there(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_reports_answer_orders_in_their_order(agent):
    for number in range(3):
        order(agent, order="say", number=number)
    order(agent, order="finish")
    reports = all_reports(agent)
    assert [report["order"]["number"] for report in reports[:3]] == [0, 1, 2]
    assert reports[3:] == [{"report": "clear"}]
    assert agent.wait() == 0


@pytest.mark.parametrize("how", ["end of input", "no order", signal.SIGTERM, signal.SIGHUP])
def test_no_child_survives_the_end_of_a_host_agent(agent, how):
    order(agent, order="start", argv=["sh", "-c", "sleep 1000 & sleep 1000"])
    line = b"".join(agent.stdout.readline() for _ in range(2))
    (started,) = HostReports().feed(line)
    if how == "end of input":
        agent.stdin.close()
    elif how == "no order":
        order(agent, order="say", deep=json.loads("[" * 40 + "]" * 40))
    else:
        agent.send_signal(how)
    assert agent.stdout.read() == b'{"report":"clear"}\n'
    assert agent.wait() == 0
    assert not is_there(started["pid"])


def test_an_agent_that_nobody_reads_pauses_the_output_and_loses_none(agent):
    until(agent.fifo.exists)
    line = b"x" * 999 + b"\n"
    with agent.fifo.open("wb", buffering=0) as pipe:
        os.set_blocking(pipe.fileno(), False)
        sent = 0

        def fills():
            nonlocal sent
            with contextlib.suppress(BlockingIOError):
                while True:
                    sent += os.write(pipe.fileno(), line)
            return sent > hostd.PAUSE_BYTES

        until(fills)
    order(agent, order="finish")
    lines = [line for report in all_reports(agent) for line in report.get("lines", ())]
    assert (len(lines), set(map(len, lines[:-1]))) == (-(-sent // 1000), {999})


def test_output_that_is_not_utf8_arrives_as_it_was_written(agent):
    until(agent.fifo.exists)
    agent.fifo.write_bytes(b"caf\xc3\xa9 \xff\xfe\x80\nno end of line")
    order(agent, order="finish")
    reports = all_reports(agent)
    lines = [
        line
        for report in reports
        if report["report"] == "output"
        for line in hostd.output_lines(report)
    ]
    assert lines == [b"caf\xc3\xa9 \xff\xfe\x80", b"no end of line"]
    assert {report["rank"] for report in reports[:-1]} == {3}


@given(
    st.lists(st.dictionaries(st.text(max_size=3), st.text(max_size=9), max_size=3), max_size=6),
    st.lists(st.integers(1, 40), max_size=60),
    st.binary(max_size=30),
)
def test_reports_do_not_depend_on_how_the_stream_was_cut(fields, cuts, login):
    sent = [{**one, "report": "x"} for one in fields]
    stream = login.replace(b"apples", b"") + b"\n" + hostd.HELLO
    stream += b"".join(json.dumps(one).encode() + b"\n" for one in sent)
    reports, received, at = HostReports(), [], 0
    for size in [*cuts, len(stream)]:
        received += reports.feed(stream[at : at + size])
        at += size
    assert (received, reports.heard) == (sent, True)


@pytest.mark.parametrize(
    "line", [b"x", b"[]", b"{}", b'{"report":3}', b'{"report":"a","report":"b"}']
)
def test_a_line_that_is_no_report_is_an_error(line):
    with pytest.raises(LineError):
        HostReports().feed(hostd.HELLO + line + b"\n")


@pytest.mark.parametrize("lines", [None, "text", [3], ["\ud800"]])
def test_a_report_of_output_has_lines_of_text(lines):
    with pytest.raises(LineError):
        hostd.output_lines({"report": "output", "lines": lines})


def test_a_login_may_print_a_banner_but_not_for_ever():
    reports = HostReports()
    reports.feed(b"Welcome!\n" * (hostd.MAX_GREETING_BYTES // 9 - 1))
    with pytest.raises(LineError):
        reports.feed(b"Welcome!\n" * 2)
