"""`ConnectionTable` and `Turns`: they give each user a fair part of a server's connections and requests.

Without them a user that floods the socket delays all others. Root has its own connections and never waits.
"""

from __future__ import annotations

import asyncio
from typing import Final, Generic, Protocol, TypeVar
from weakref import WeakValueDictionary

from apples.topology.daemon.protocol import Caller

MAX_CONNECTIONS: Final = 512
MAX_CONNECTIONS_OF_USER: Final = 256
"""Connections of all users except the operator, and of one user."""
OPERATOR_CONNECTIONS: Final = 32
"""Connections that only the operator can have, beyond `MAX_CONNECTIONS`."""


class Served(Protocol):
    """The server's side of a connection, for example a task."""

    def cancel(self) -> object:
        """End the connection soon."""


Task = TypeVar("Task", bound=Served)


class ConnectionTable(Generic[Task]):
    """The open connections of each user, oldest first.

    Parameters
    ----------
    total, of_user
        Maximum for all users except the operator, and for one user.
    operators
        Connections that only the operator can have, beyond `total`.
    """

    def __init__(
        self,
        total: int = MAX_CONNECTIONS,
        of_user: int = MAX_CONNECTIONS_OF_USER,
        operators: int = OPERATOR_CONNECTIONS,
    ) -> None:
        self._total, self._of_user, self._operators = total, of_user, total + operators
        self._open: dict[str, dict[Task, None]] = {}
        self._ending: set[Task] = set()

    def tasks(self) -> set[Task]:
        """Return all open connections."""
        return self._ending.union(*self._open.values())

    def admit(self, caller: Caller, task: Task) -> str:
        """Add a connection; return the reason of a refusal, empty if it is admitted.

        If the table is full, the user with the most connections loses the oldest, unless the caller has as many.
        """
        key = "operator" if caller.operator else caller.principal
        own = self._open.get(key, {})
        limit = self._operators if caller.operator else self._of_user
        if len(own) >= limit:
            return f"{key} has {limit} connections already"
        users = [tasks for user, tasks in self._open.items() if user != "operator"]
        if not caller.operator and sum(map(len, users)) >= self._total:
            most = max(users, key=len)
            if len(most) <= len(own) + 1:
                return f"all {self._total} connections are taken, {len(own)} of them by {key}"
            oldest = next(iter(most))
            del most[oldest]
            self._ending.add(oldest)
            oldest.cancel()
        self._open.setdefault(key, {})[task] = None
        return ""

    def leave(self, caller: Caller, task: Task) -> None:
        """Remove a connection, if it is in the table."""
        self._ending.discard(task)
        key = "operator" if caller.operator else caller.principal
        own = self._open.get(key, {})
        own.pop(task, None)
        if not own:
            self._open.pop(key, None)


class Turns:
    """Lets one request begin in a pass of the event loop, users in turn.

    Each step of a request is short, so root waits only for the requests that began after its own arrived. Without
    turns, that is one request of each connection of all users.
    """

    def __init__(self) -> None:
        self._all = asyncio.Lock()
        self._of_user = WeakValueDictionary[str, asyncio.Lock]()

    async def wait(self, caller: Caller) -> None:
        """Return when the caller may begin a request; the operator never waits.

        A lock serves in the order of arrival, and a user has at most one request in the queue of all users.
        """
        if not caller.operator:
            own = self._of_user.setdefault(caller.principal, asyncio.Lock())
            async with own, self._all:
                await asyncio.sleep(0)
