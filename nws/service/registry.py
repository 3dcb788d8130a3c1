"""The name service: registrations that expire unless renewed. A pure state machine."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from nws.errors import CodedError

MAX_LEASES: Final = 10_000


class LeaseError(CodedError, ValueError):
    """A lease is refused: their number is at its limit, or another token owns the name."""

    code = "lease-refused"


@dataclass(frozen=True, slots=True)
class Registration:
    """The description of a process that registers.

    Attributes
    ----------
    name
        Its name, unique in the service.
    kind
        ``sensor``, or another kind of process.
    host, site
        Its host, and the site of the host.
    address
        Address of its endpoint, ``host:port``; empty without an endpoint.
    machine
        The loopback network of an endpoint that listens on loopback; else empty.
    resources
        The resources that it measures.
    owner
        Name of the token of the request: only this token may renew or end it before it expires.
    """

    name: str
    kind: str
    host: str
    site: str
    address: str
    resources: tuple[str, ...]
    owner: str
    machine: str = ""


@dataclass(frozen=True, slots=True)
class Lease:
    """A registration, and its expiry in seconds of the monotonic clock."""

    registration: Registration
    expires: float
    since: float


class LeaseRegistry:
    """Registrations that expire unless renewed. Time is an argument.

    Examples
    --------
    >>> leases = LeaseRegistry()
    >>> ada = Registration("ada", "sensor", "ada", "local", "", ("availableCpu",), "operator")
    >>> leases.renew(ada, seconds=30.0, now=0.0).expires
    30.0
    >>> sorted(leases.alive(now=29.0)), sorted(leases.alive(now=31.0))
    (['ada'], [])
    """

    def __init__(self, most: int = MAX_LEASES) -> None:
        self._most = most
        self._leases: dict[str, Lease] = {}

    def renew(self, registration: Registration, seconds: float, now: float) -> Lease:
        """Register or renew for `seconds` from `now`.

        Raises
        ------
        LeaseError
            Transient: another token owns the name, or the number of leases is at its limit.
        """
        alive = self.alive(now)
        held = alive.get(registration.name)
        if held is not None and held.registration.owner != registration.owner:
            raise _taken(registration.name)
        if held is None and len(alive) >= self._most:
            raise LeaseError(
                f"there are {self._most} registrations already",
                code="too-many-registrations",
                bound=self._most,
            )
        since = now if held is None else held.since
        lease = self._leases[registration.name] = Lease(registration, now + seconds, since)
        return lease

    def end(self, name: str, owner: str, now: float) -> bool:
        """End a lease; return whether there was one. LeaseError if it is another's."""
        held = self.alive(now).get(name)
        if held is None:
            return False
        if held.registration.owner != owner:
            raise _taken(name)
        del self._leases[name]
        return True

    def alive(self, now: float) -> Mapping[str, Lease]:
        """Return the leases that hold, by name, and remove expired leases."""
        for name in [name for name, lease in self._leases.items() if lease.expires <= now]:
            del self._leases[name]
        return dict(self._leases)


def _taken(name: str) -> LeaseError:
    return LeaseError(f"{name} is registered by another token", code="name-taken", value=name)
