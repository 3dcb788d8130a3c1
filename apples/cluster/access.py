"""Access to a live scheduler: principals, scopes, the table of routes (`ROUTES`) and the request rate.

A route that is not in the table does not exist. The kernel identifies a caller on the UNIX socket,
a token identifies a caller over TLS.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import nws
from apples.errors import UsageError, coded

REQUESTS_A_SECOND: Final = 50.0
REQUESTS_AT_ONCE: Final = 100.0
MAX_REMEMBERED: Final = 1000


class Scope(StrEnum):
    """A permission that a request requires and a token can have."""

    READ = "read"
    """Read hosts, jobs and the history, of all users."""
    SUBMIT = "submit"
    """Submit jobs, which run with the rights of the scheduler's user."""
    OWN = "own"
    """Cancel and resize the jobs that were submitted under the same name."""
    SERVE = "serve"
    """Carry out the orders to one's own jobs, as a user's job runner, on the socket of a shared scheduler."""
    OPERATOR = "operator"
    """Drain and resume hosts, and do to every job all that its user may do."""


EVERYTHING: Final = frozenset(Scope)
GIVEN: Final = tuple(scope for scope in Scope if scope is not Scope.SERVE)
"""Scopes that a token can have."""
USERS: Final = EVERYTHING - {Scope.OPERATOR}
"""Scopes of any user of this machine at a shared scheduler."""


class ForbiddenError(UsageError):
    """The caller is known, but its scopes do not allow the request. Permanent."""

    code = "permission-denied"


class UnknownCallerError(UsageError):
    """The caller showed no token, or an invalid one. Permanent."""

    code = "token-invalid"


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated caller.

    Attributes
    ----------
    name
        ``uid:1000`` or ``token:ada``; the user of the jobs that it submits.
    """

    name: str
    scopes: frozenset[Scope]

    @property
    def is_operator(self) -> bool:
        """Whether it may do to every job all that its user may do."""
        return Scope.OPERATOR in self.scopes

    def check(self, scope: Scope) -> None:
        """Raise `ForbiddenError` unless it has this scope; for `OWN`, being the operator suffices."""
        if scope not in self.scopes and not (scope is Scope.OWN and self.is_operator):
            raise ForbiddenError(
                f"{self.name} lacks the scope {scope}, which this request needs",
                principal=self.name, scope=str(scope),
            )  # fmt: skip

    def check_policy(self, policy: str) -> None:
        """Raise `ForbiddenError` unless it may use this policy; only the operator may use a file of code."""
        if ":" in policy and not self.is_operator:
            raise ForbiddenError(
                f"{self.name} lacks the scope {Scope.OPERATOR}, which a policy from a file needs",
                principal=self.name, scope=str(Scope.OPERATOR), policy=policy,
            )  # fmt: skip

    def check_priority(self, priority: float) -> None:
        """Raise `ForbiddenError` if it may not submit a job of this priority: only the operator goes above 0."""
        if priority > 0 and not self.is_operator:
            raise ForbiddenError(
                f"--priority {priority:g}: must be at most 0; {self.name} lacks the scope {Scope.OPERATOR}, "
                "which a higher priority needs",
                principal=self.name, scope=str(Scope.OPERATOR), bound=0,
            )  # fmt: skip

    def check_owner(self, job: str, owner: str) -> None:
        """Raise `ForbiddenError` unless it may change a job of this owner."""
        if owner != self.name and not self.is_operator:
            raise ForbiddenError(
                f"{job} belongs to {owner}, not to {self.name}",
                principal=self.name, job=job, owner=owner,
            )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Route:
    """A request that the service answers.

    Attributes
    ----------
    path
        With ``{job}`` or ``{host}`` for a name.
    call
        The method of `SchedulerService` that answers; ``events`` is a stream.
    """

    method: str
    path: str
    scope: Scope
    call: str


ROUTES: Final = (
    Route("GET", "/v1/queue", Scope.READ, "queue"),
    Route("GET", "/v1/jobs/{job}", Scope.READ, "job"),
    Route("GET", "/v1/jobs/{job}/why", Scope.READ, "why"),
    Route("GET", "/v1/history", Scope.READ, "history"),
    Route("GET", "/v1/events", Scope.READ, "events"),
    Route("GET", "/metrics", Scope.READ, "metrics"),
    Route("POST", "/v1/whatif", Scope.READ, "what_if"),
    Route("POST", "/v1/prediction", Scope.SUBMIT, "predict"),
    Route("POST", "/v1/jobs", Scope.SUBMIT, "submit"),
    Route("POST", "/v1/jobs/{job}/cancel", Scope.OWN, "cancel"),
    Route("POST", "/v1/jobs/{job}/resize", Scope.OWN, "resize"),
    Route("POST", "/v1/job-runner/orders", Scope.SERVE, "job_runner_orders"),
    Route("POST", "/v1/job-runner/reports", Scope.SERVE, "job_runner_reports"),
    Route("POST", "/v1/hosts/{host}/drain", Scope.OPERATOR, "drain"),
    Route("POST", "/v1/hosts/{host}/resume", Scope.OPERATOR, "resume"),
)


def local_principal(uid: int, shared: bool) -> Principal:
    """Return the principal of a peer of the UNIX socket: the scheduler's own user and root are its operators.

    Parameters
    ----------
    uid
        The peer's user, from the kernel.
    shared
        Whether the scheduler serves several users.

    Raises
    ------
    ForbiddenError
        Another user calls a scheduler of one user.
    """
    operator = uid in {0, os.geteuid()}
    if not operator and not shared:
        raise ForbiddenError(
            f"this scheduler belongs to uid {os.geteuid()}, not to uid {uid}",
            principal=f"uid:{uid}", owner=f"uid:{os.geteuid()}",
        )  # fmt: skip
    scopes = EVERYTHING if operator else USERS
    return Principal(f"uid:{uid}", scopes if shared else scopes - {Scope.SERVE})


MAX_TOKEN: Final = 200


def bearer(authorization: str, tokens: nws.TokenFile) -> Principal:
    """Return the principal of a request by its ``Authorization`` header.

    Raises
    ------
    UnknownCallerError
        The header has no valid token.
    """
    kind, _, secret = authorization.partition(" ")
    token = None
    if kind.lower() == "bearer" and len(secret) < MAX_TOKEN:
        try:
            token = tokens.find(secret.strip())
        except nws.TokenFileError as error:
            raise UnknownCallerError(
                f"no token can be looked up: {error}", **coded(error, code="file-invalid")
            ) from None
    if token is None:
        raise UnknownCallerError(
            "a valid bearer token is required", code="token-invalid" if secret else "token-missing"
        )
    known = {str(scope) for scope in GIVEN}
    return Principal(
        f"token:{token.name}", frozenset(map(Scope, known.intersection(token.scopes)))
    )


class RequestRate:
    """A token bucket for each principal; safe to be used from threads.

    Parameters
    ----------
    clock
        Monotonic, in seconds.
    at_once
        Requests that one principal can send at once.
    most_remembered
        Number of principals; the oldest is forgotten first, and starts anew with its next request.

    Examples
    --------
    >>> rate = RequestRate(lambda: 0.0)
    >>> sum(rate.admits("uid:1001") for _ in range(1000)), rate.admits("uid:1002")
    (100, True)
    """

    def __init__(
        self,
        clock: Callable[[], float],
        at_once: float = REQUESTS_AT_ONCE,
        most_remembered: int = MAX_REMEMBERED,
    ) -> None:
        self._clock = clock
        self._at_once, self._most_remembered = at_once, most_remembered
        self._left: OrderedDict[str, tuple[float, float]] = (
            OrderedDict()
        )  # requests that remain, and the time of that count
        self._lock = threading.Lock()

    def admits(self, principal: str) -> bool:
        """Return whether a principal may send a request now, and count the request."""
        with self._lock:
            now = self._clock()
            left, since = self._left.pop(principal, (self._at_once, now))
            left = min(self._at_once, left + REQUESTS_A_SECOND * (now - since))
            self._left[principal] = max(0.0, left - 1.0) if left >= 1.0 else left, now
            if len(self._left) > self._most_remembered:
                self._left.popitem(last=False)
            return left >= 1.0
