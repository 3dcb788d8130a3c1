"""What there is to know of a peer that is silent, beside its silence: its process, and the connection to it.

A process on a loaded machine may not run for many seconds, and is neither lost nor stopped. Where it is on this
machine the kernel says which. Where a TCP connection leads to it, the other machine's kernel acknowledges what is
sent whether or not its processes run: only a machine that is gone, or cut off, lets segments be sent again.

Standard library only, and little of it: a node supervisor loads this.
"""

from __future__ import annotations

import contextlib
import os

from apples.launch.job_processes import read, state_of

SILENCE_SECONDS = 3.0
"""Who is silent for so long is looked at; one that reports does so several times meanwhile."""
UNSEEN_SECONDS = 10.0
"""Who is silent for so long is lost, where nothing else can be known of it."""
PATIENCE_SECONDS = 60.0
"""Who is silent for so long is lost, whatever else is known of it."""
HOLD_SECONDS = 15.0
"""Who is at the far end of a connection that can be taken up again is lost after so long without a word, and ends
what it has there itself."""
RETRANSMITTED = 3
"""A segment that was sent again so often, within 1.4 s, is taken for one that nobody receives."""
LONGEST_LOOK = 1.0
"""Seconds that count at most between two looks at a silent peer."""
ESTABLISHED = "01"


class Silence:
    """How long a peer has been silent while this process ran and could have heard it.

    Between two looks at most `LONGEST_LOOK` seconds count: who looks later than that got no CPU itself, or its
    machine stood still, and knows nothing of the peer from that time.

    Examples
    --------
    >>> silence = Silence(now=0.0)
    >>> silence.seconds(0.5), silence.seconds(100.0)
    (0.5, 1.5)
    >>> silence.broken(100.5)
    >>> silence.seconds(100.75)
    0.25
    """

    def __init__(self, now: float) -> None:
        self._counted, self._looked = 0.0, now

    def broken(self, now: float) -> None:
        """Take in that the peer was heard."""
        self._counted, self._looked = 0.0, now

    def seconds(self, now: float) -> float:
        """Return how long it has been silent; asked several times a second."""
        self._counted += min(now - self._looked, LONGEST_LOOK)
        self._looked = now
        return self._counted


def lost(silent: float, there: bool | None) -> bool:
    """Return whether a peer is lost that was silent for so long.

    Parameters
    ----------
    there
        What else is known: it is there, or not; None: nothing.

    Examples
    --------
    >>> lost(2.0, False), lost(5.0, False), lost(5.0, None), lost(59.0, True)
    (False, True, False, False)
    """
    limits = {True: PATIENCE_SECONDS, False: SILENCE_SECONDS, None: UNSEEN_SECONDS}
    return silent > limits[there]


def started(pid: int, *, elsewhere: bool) -> bool | None:
    """Return whether a peer that was started here is there; None: nobody knows.

    Parameters
    ----------
    elsewhere
        Whether the process is but the way to it, as ssh is: then what counts is the machine at the far end.
    """
    if not process_runs(pid):
        return False
    return connection_of(pid) if elsewhere else True


def process_runs(pid: int) -> bool:
    """Return whether a process of this machine is there and not stopped, however rarely it gets a CPU."""
    return state_of(pid) not in "XZTt"


def connection_of(pid: int) -> bool | None:
    """Return whether the machine at the far end of a process's TCP connections answers; None: it has none."""
    inodes = _sockets(pid)
    return _answers([row for row in _connections(f"/proc/{pid}/net") if row[9] in inodes])


def login_connection(
    words: str, *, dialed: bool = False, tables: str = "/proc/self/net"
) -> bool | None:
    """Return the same of the connection of a login, as ``SSH_CONNECTION`` names it; None: there is none.

    Parameters
    ----------
    words
        Who logged in, and to what: address and port of each.
    dialed
        Whether this is the machine from which the login was made, and not the one to which. Then it is not there
        either where the process that holds the connection is stopped.
    tables
        The folder with the kernel's tables of connections, ``tcp`` and ``tcp6``.
    """
    parts = words.split()
    if len(parts) != 4 or not all(one.isdecimal() and len(one) <= 5 for one in parts[1::2]):
        return None
    ports = f"{int(parts[3]):04X}", f"{int(parts[1]):04X}"
    if dialed:
        ports = ports[::-1]
    rows = [
        r
        for r in _connections(tables)
        if (r[1].rpartition(":")[2], r[2].rpartition(":")[2]) == ports
    ]
    if dialed and rows and _stopped_holder({row[9] for row in rows}):
        return False
    return _answers(rows)


def _stopped_holder(inodes: set[str]) -> bool:
    """Return whether a process of this user that has one of these sockets is stopped."""
    return any(
        not process_runs(pid) and not inodes.isdisjoint(_sockets(pid))
        for pid in map(int, filter(str.isdecimal, os.listdir("/proc")))  # noqa: PTH208 - as below
    )


def _sockets(pid: int) -> set[str]:
    """Return the inodes of a process's sockets, as far as one may know them."""
    inodes = set()
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208 - pathlib is slow to load
            with contextlib.suppress(OSError):  # it has just been closed
                target = os.readlink(f"/proc/{pid}/fd/{name}")  # noqa: PTH115
                inodes.add(target.removeprefix("socket:[").removesuffix("]"))
    return inodes


def _connections(tables: str) -> list[list[str]]:
    """Return the TCP connections in a folder of tables, as ``/proc/net/tcp`` has them."""
    rows = []
    for table in ("tcp", "tcp6"):
        text = read(f"{tables}/{table}").decode("ascii", "replace")
        rows += [row for row in map(str.split, text.splitlines()[1:]) if len(row) > 9]
    return [row for row in rows if row[3] == ESTABLISHED]


def _answers(rows: list[list[str]]) -> bool | None:
    """Return whether none of these connections sends the same again and again; None: there is none."""
    return all(int(row[6], 16) < RETRANSMITTED for row in rows) if rows else None
