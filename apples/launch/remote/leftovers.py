"""What is left of jobs on another machine: that machine's own word, over a login that this user's jobs share."""

from __future__ import annotations

import re
from collections.abc import Mapping

from apples.errors import LaunchError
from apples.launch import job_processes
from apples.launch.host_spec import SSH_FAILED
from apples.launch.remote import bootstrap, sharing, ssh
from apples.launch.remote.ask import RemoteAnswer, RemoteQuestion, ask
from apples.resources import Host, HostList

LOOK_SECONDS = 6.0
"""For a host to answer."""
BUSY_SECONDS = 6.0
"""More for one that has begun to answer: it is not dead but busy."""
# SIGTERM first: a supervisor that is killed while it cleans up leaves its folder in /tmp.
END_SECONDS = 2.0
"""For what is left of jobs that are over to end when it is asked to, and as much again when it is killed."""
REMAINS = "apples.launch.job_processes:remains"
LINE = re.compile(r"([0-9a-f]{8,32}) ([0-9]{1,9})")


def remains(
    host: Host,
    hosts: HostList,
    jobs: Mapping[str, bool],
    *,
    answer_seconds: float = LOOK_SECONDS,
    end_seconds: float = END_SECONDS,
) -> dict[str, int]:
    """Return how many processes there are on a host of each job, by its id; takes at most 24 s.

    Parameters
    ----------
    jobs
        Whether each of them is over: what is left of such a one is ended first. There may be none: then it is
        only seen whether the host answers.
    answer_seconds, end_seconds
        How long the host may take to answer; how long processes may take to end before they are killed.

    Raises
    ------
    LaunchError
        The host did not say it, and why. Transient.
    """
    reach = ssh.reach(host, hosts)
    told = {"jobs": dict(jobs), "seconds": end_seconds}
    parcel = bootstrap.parcel(REMAINS, told)
    answer = _asked(reach, parcel, sharing.socket_name(reach), answer_seconds)
    found = told_of(answer.output.decode(errors="replace"))
    if answer.code != 0 or found is None or found.keys() != jobs.keys():
        said = answer.last_words or f"its interpreter ended with {answer.code}"
        raise LaunchError(
            f"{host.name}: {'it does not answer' if answer.code is None else said}",
            code="host-unreachable",
            host=host.name,
        )
    return found


def _asked(reach: ssh.Reach, parcel: bytes, shared: str, seconds: float) -> RemoteAnswer:
    def one(socket: str) -> RemoteAnswer:
        argv = ssh.command(reach, bootstrap.words(site=False), socket)
        return ask({"": RemoteQuestion(argv, parcel)}, seconds, BUSY_SECONDS)[""]

    answer = one(shared)
    return one("") if shared and answer.code == SSH_FAILED else answer


def told_of(text: str) -> dict[str, int] | None:
    r"""Return what a host said of each job; None where it did not say all.

    Examples
    --------
    >>> told_of("Welcome!\napples.remains/1\n0000abcd 2\nend\n")
    {'0000abcd': 2}
    >>> told_of("apples.remains/1\n0000abcd 2\n"), told_of("apples.remains/1\nodd\nend\n")
    (None, None)
    """
    before, begun, said = text.rpartition(job_processes.REMAINS)
    lines = said.split("\n")
    if not begun or (before and not before.endswith("\n")) or lines[-2:] != ["end", ""]:
        return None
    matched = [LINE.fullmatch(line) for line in lines[:-2]]
    if None in matched:
        return None
    return {one[1]: int(one[2]) for one in matched if one}
