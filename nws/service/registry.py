"""The name service: registrations that expire unless renewed. A pure state machine."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from nws.errors import CodedError

MOST_LEASES: Final = 10_000
LONGEST: Final = 3600.0
SHORTEST: Final = 1.0


class LeaseError(CodedError, ValueError):
    """A lease is refused: it is too short or too long, there are too many, or another token owns the name."""

    code = "lease-refused"


@dataclass(frozen=True, slots=True)
class Registration:
    """The description of a process that registers.

    Attributes
    ----------
    name
        Its name, unique in the service.
    kind
        What it is: ``sensor`` or anything else.
    host, site
        Where it runs.
    address
        Where its endpoint listens, ``host:port``; empty if nowhere.
    resources
        What it measures.
    owner
        The token it came with: only that may renew or end it before it runs out.
    """

    name: str
    kind: str
    host: str
    site: str
    address: str
    resources: tuple[str, ...]
    owner: str


@dataclass(frozen=True, slots=True)
class Lease:
    """A registration and until when it holds, in seconds of the monotonic clock."""

    registration: Registration
    expires: float
    since: float


class LeaseRegistry:
    """Registrations that run out unless renewed. Time is an argument, never the wall clock's.

    Examples
    --------
    >>> leases = LeaseRegistry()
    >>> ada = Registration("ada", "sensor", "ada", "local", "", ("availableCpu",), "operator")
    >>> leases.renew(ada, seconds=30.0, now=0.0).expires
    30.0
    >>> sorted(leases.alive(now=29.0)), sorted(leases.alive(now=31.0))
    (['ada'], [])
    """

    def __init__(self, most: int = MOST_LEASES) -> None:
        self._most = most
        self._leases: dict[str, Lease] = {}

    def renew(self, registration: Registration, seconds: float, now: float) -> Lease:
        """Register or renew for `seconds` from `now`.

        Raises
        ------
        LeaseError
            Permanent: `seconds` is out of range. Transient: the name is another owner's, or there
            are too many.
        """
        if not SHORTEST <= seconds <= LONGEST:
            raise LeaseError(
                f"a lease lasts {SHORTEST:.0f} to {LONGEST:.0f} s, not {seconds}",
                code="value-range",
                field="seconds",
                value=seconds,
                bound=LONGEST,
            )
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
        """Return the leases that hold, by name; those that ran out are forgotten."""
        for name in [name for name, lease in self._leases.items() if lease.expires <= now]:
            del self._leases[name]
        return dict(self._leases)


def _taken(name: str) -> LeaseError:
    return LeaseError(f"{name} is registered by another token", code="name-taken", value=name)
