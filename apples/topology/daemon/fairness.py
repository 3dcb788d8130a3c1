"""What one principal may take of the daemon's one thread: its part of the connections, and one turn in a round.

Both are max-min fair: nobody has less because others ask for more than their part. The operator is served first.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, Generic, Protocol, TypeVar

from apples.topology.daemon.protocol import Caller

MOST_CONNECTIONS: Final = 512
MOST_OF_ONE: Final = 256
"""Connections of one principal, the operator's not counted."""
RESERVED: Final = 32
"""Connections that only the operator has, beyond those of all others."""
# Requests are bounded, so others wait for the number of requests that begin between two polls of
# the sockets, not for their cost. Weights by CPU time would need a meter in every request.
HEAD_START: Final = 4
"""Passes of the event loop in which nobody else begins a request once the operator has asked."""


class Served(Protocol):
    """What serves a connection: a task, for one."""

    def cancel(self) -> object:
        """Have it end soon."""


Task = TypeVar("Task", bound=Served)


class ConnectionTable(Generic[Task]):
    """Who has how many connections; the tasks that serve them, oldest first.

    Parameters
    ----------
    most, most_of_one
        Connections of all but the operator together, and of one of them.
    reserved
        Those that only the operator has, beyond them.
    """

    def __init__(
        self,
        most: int = MOST_CONNECTIONS,
        most_of_one: int = MOST_OF_ONE,
        reserved: int = RESERVED,
    ) -> None:
        self._most, self._most_of_one, self._reserved = most, most_of_one, reserved
        self._open: dict[str, dict[Task, None]] = {}
        self._operators: set[Task] = set()
        self._ending: set[Task] = set()

    def tasks(self) -> set[Task]:
        """Return all tasks that serve a connection."""
        return self._operators.union(self._ending, *self._open.values())

    def admit(self, caller: Caller, task: Task) -> str:
        """Take a connection in; return why not, or nothing.

        Where all are taken, whoever has the most loses the oldest, unless the caller would then have as many.
        """
        if caller.operator:
            if len(self._operators) >= self._most + self._reserved:
                return f"the operator has {self._most + self._reserved} connections already"
            self._operators.add(task)
            return ""
        own = self._open.get(caller.principal, {})
        if len(own) >= self._most_of_one:
            return f"{caller.principal} has {self._most_of_one} connections already"
        if sum(map(len, self._open.values())) >= self._most:
            most = max(self._open.values(), key=len)
            if len(most) <= len(own) + 1:
                return f"all {self._most} connections are taken, {len(own)} of them by {caller.principal}"
            oldest = next(iter(most))
            del most[oldest]
            self._ending.add(oldest)
            oldest.cancel()
        self._open.setdefault(caller.principal, {})[task] = None
        return ""

    def leave(self, caller: Caller, task: Task) -> None:
        """Let a connection go; nothing happens where it has been let go."""
        self._operators.discard(task)
        self._ending.discard(task)
        own = self._open.get(caller.principal, {})
        own.pop(task, None)
        if not own:
            self._open.pop(caller.principal, None)


class FairTurns:
    """Lets one request begin in a pass of the event loop, of each principal that waits in turn.

    A request is served in steps of the one thread, each of which is short and bounded. What makes others wait is
    how many of them are begun between two looks at the sockets.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._giving: asyncio.Task[None] | None = None
        self._held = 0

    async def turn(self, caller: Caller) -> None:
        """Return when the caller may begin a request: the operator at once."""
        if caller.operator:
            self._held = HEAD_START
            return
        future = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(caller.principal, deque()).append(future)
        if self._giving is None:
            self._giving = asyncio.create_task(self._give())
        await future

    async def _give(self) -> None:
        while self._waiting:
            if self._held:
                self._held -= 1
            else:
                principal = next(iter(self._waiting))
                queue = self._waiting.pop(principal)
                future = queue.popleft()
                if queue:
                    self._waiting[principal] = queue  # behind all others
                if not future.done():
                    future.set_result(None)
            await asyncio.sleep(0)
        self._giving = None
