"""Count and end the remaining processes of jobs on another machine, over a login that this user's jobs share."""

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
"""Time limit for a host to answer."""
BUSY_SECONDS = 6.0
"""Extension of the time limit if the host has begun to answer: it is busy, not dead."""
# SIGTERM first: a supervisor that is killed during its cleanup leaves its folder in /tmp.
END_SECONDS = 2.0
"""Time limit for processes of ended jobs to end after SIGTERM, and again after SIGKILL."""
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
    """Return the number of processes of each job on a host, by job id; takes at most 24 s.

    Parameters
    ----------
    jobs
        Job id -> whether the job is over. The processes of a job that is over are ended first. Empty: only check
        whether the host answers.
    answer_seconds
        Time limit for the host to answer.
    end_seconds
        Time limit for processes to end before they are killed.

    Raises
    ------
    LaunchError
        The host did not answer; the message has the reason. Transient.
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
    r"""Return the number of processes of each job from a host's answer; None if the answer is incomplete.

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
