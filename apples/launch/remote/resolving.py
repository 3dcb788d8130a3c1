"""What number an address of a host list stands for: ssh's configuration is asked first, then the resolver."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait

from apples.launch.remote import ssh
from apples.launch.remote.addresses import is_number
from apples.launch.remote.ask import Question, ask
from apples.launch.remote.ssh import Reach

SECONDS = 2.0
"""For each of the two; who is slower is not known."""


def numbers(reaches: Mapping[str, Reach]) -> dict[str, str]:
    """Return the number of each host that one is known for, by name; takes at most 4 s."""
    found = {name: one.address for name, one in reaches.items() if is_number(one.address)}
    named = {name: one for name, one in reaches.items() if name not in found}
    if not named:
        return found
    answers = ask({n: Question(ssh.configured(one), b"") for n, one in named.items()}, SECONDS)
    meant = {name: _hostname(answer.output) for name, answer in answers.items()}
    found |= {name: word for name, word in meant.items() if is_number(word)}
    return found | _looked_up({n: word for n, word in meant.items() if word and n not in found})


def _hostname(output: bytes) -> str:
    """Return the ``hostname`` of what ``ssh -G`` prints."""
    for line in output.decode(errors="replace").splitlines():
        if line.startswith("hostname "):
            return line.removeprefix("hostname ").strip()
    return ""


def _looked_up(named: Mapping[str, str]) -> dict[str, str]:
    """Return what the resolver says in time; threads that still wait end with the process."""
    pool = ThreadPoolExecutor(max(1, min(32, len(named))))
    asked: dict[Future[str], str] = {pool.submit(_number, w): name for name, w in named.items()}
    done, _ = wait(asked, SECONDS)
    pool.shutdown(wait=False, cancel_futures=True)
    return {asked[one]: number for one in done if (number := one.result())}


def _number(name: str) -> str:
    try:
        return str(socket.getaddrinfo(name, None)[0][4][0])
    except (OSError, UnicodeError):
        return ""
