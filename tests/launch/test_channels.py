"""The reports of host agents over ssh, and the lines of mpiexec that ask for proxies."""

import base64
import json
from pathlib import Path

import pytest

from apples.launch import HostChannel, LaunchTarget, RankGroup, Reach, hostd, ssh


def reported(*reports):
    return hostd.HELLO + b"".join(json.dumps(report).encode() + b"\n" for report in reports)


def test_lines_are_told_apart_by_their_source():
    channel = HostChannel("ada")
    lines = channel.feed(
        reported(
            {"report": "output", "lines": ["a", "\udcff"]},
            {"report": "error", "lines": ["b"]},
            {"report": "error", "lines": ["c"], "rank": 3},
            {"report": "alive"},
            {"report": "messages", "data": base64.b64encode(b"\0\n\xff").decode()},
            {"report": "rank", "rank": 3, "what": "killed by SIGKILL"},
            {"report": "rank", "rank": 4},
        )
    )
    assert lines == [
        ("output", b"a"),
        ("output", b"\xff"),
        ("error", b"b"),
        ("error-3", b"c"),
        ("messages", b"\0\n\xff"),
        ("report", b"rank 3 killed by SIGKILL"),
        ("report", b"rank 4"),
    ]
    assert (channel.heard, channel.broken, channel.cleared) == (True, "", False)


@pytest.mark.parametrize(
    "report",
    [
        {"report": 1},
        {"report": "output"},
        {"report": "output", "lines": "ab"},
        {"report": "error", "lines": [], "rank": -1},
        {"report": "error", "lines": [], "rank": True},
        {"report": "rank", "rank": 10**20},
        {"report": "rank", "rank": "3"},
        {"report": "messages", "data": "?"},
        {"report": "messages"},
    ],
)
def test_what_is_no_report_breaks_the_channel_and_is_not_kept(report):
    channel = HostChannel("ada")
    assert channel.feed(reported(report)) == []
    assert channel.broken
    assert channel.feed(b'{"report":"output","lines":["late"]}\n') == []


def test_a_login_that_prints_for_ever_breaks_the_channel():
    channel = HostChannel("ada")
    channel.feed(b"Welcome!\n" * (hostd.MAX_GREETING_BYTES // 9 + 2))
    assert channel.broken


@pytest.mark.parametrize(
    "what", ["lost ada", "\n", "killed by " + "x" * 300, 3, "killed by \x1b[31m"]
)
def test_an_end_of_a_rank_that_no_wrapper_reports_is_dropped(what):
    channel = HostChannel("ada")
    assert channel.feed(reported({"report": "rank", "rank": 1, "what": what})) == []
    assert not channel.broken


def test_the_launcher_of_another_host_does_not_end_the_run():
    channel, here = HostChannel("ada"), HostChannel()
    reports = reported({"report": "exit", "code": 0}, {"report": "clear"})
    assert channel.feed(reports) == []
    assert here.feed(reports) == [("report", b"exit 0")]
    assert channel.cleared
    assert here.cleared


def test_each_proxy_belongs_to_the_host_of_its_number():
    def target(name, address, remote):
        reach = Reach(name, address, "/usr/bin/python3") if remote else None
        return LaunchTarget(RankGroup(name, 1, ("true",)), address, reach)

    targets = [
        target("own1", "10.0.0.1", remote=False),
        target("own2", "10.0.0.1", remote=False),
        target("ada", "10.0.0.2", remote=True),
        target("own3", "10.0.0.1", remote=False),
        target("bob", "10.0.0.3", remote=True),
    ]
    order = ssh.command(targets, {}, job="j", here="10.0.0.1", directory=Path("/"))
    assert ssh.remote_hosts(targets) == ["ada", "bob"]
    assert ssh.proxy_hosts(order) == [None, 0, None, 1]


@pytest.mark.parametrize(
    "line",
    [
        b"HYDRA_LAUNCH_END",
        b"HYDRA_LAUNCH: /bin/sh -c true",
        b"hydra_pmi_proxy --proxy-id 1",
        b"HYDRA_LAUNCH: /bin/hydra_pmi_proxy --proxy-id x",
    ],
)
def test_another_line_of_the_launcher_asks_for_no_proxy(line):
    assert ssh.proxy_of(line) is None
