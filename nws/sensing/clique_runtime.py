"""A host's part in a clique: the pure state machine of `nws.clique`, with sockets, clocks and probes.

`MembershipView` decides which list of members may be used. A majority of one list and a majority of
another may have no member in common, so the grants of `nws.clique.grants` exclude nothing while
members use different lists. The lists come from the service, which has one at a time. Hence a list
is used only while the service has confirmed it lately, and a new one only after every member that
still uses the old one must have stopped.
"""

import contextlib
import queue
import secrets
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from nws.clique.grants import Timing
from nws.clique.member import CliqueMember, Effect, ProbePeers, SendMessage
from nws.clique.messages import Message, encode
from nws.measurement import Measurement
from nws.sensing.budget import Budget
from nws.sensor import SensorError
from nws.sensors.link_protocol import TELL, probing
from nws.sensors.links import BandwidthSensor, ConnectTimeSensor, LatencySensor, UdpSensor

CONFIRMED_FOR: Final = 60.0
"""Seconds that a list holds without the service saying so again."""
FETCH_EVERY: Final = 20.0


@dataclass(frozen=True, slots=True)
class MemberAddress:
    """A member and where its endpoint listens."""

    name: str
    address: tuple[str, int]


class MembershipView:
    """The members of one clique, as this process may believe them.

    Examples
    --------
    >>> view = MembershipView()
    >>> ada, bob = MemberAddress("ada", ("10.0.0.1", 9)), MemberAddress("bob", ("10.0.0.2", 9))
    >>> view.confirm((ada, bob), turn=10.0, now=0.0)
    >>> view.members(now=69.0), len(view.members(now=71.0) or ())
    (None, 0)
    >>> for now in (20.0, 40.0, 60.0, 80.0):
    ...     view.confirm((ada, bob), turn=10.0, now=now)
    >>> [member.name for member in view.members(now=90.0)]
    ['ada', 'bob']
    """

    def __init__(self) -> None:
        self._members: tuple[MemberAddress, ...] = ()
        self._valid_from = float("inf")
        self._confirmed = float("-inf")

    def confirm(self, members: tuple[MemberAddress, ...], turn: float, now: float) -> None:
        """Take in what the service says now; `turn` is the longest a probe may still go on."""
        stale = now - self._confirmed > CONFIRMED_FOR
        if members != self._members or stale:
            self._members = members
            # Majorities of two lists need have no member in common, so the old list must have
            # expired everywhere, with its last probe.
            self._valid_from = now + CONFIRMED_FOR + turn
        self._confirmed = now

    def members(self, now: float) -> tuple[MemberAddress, ...] | None:
        """Return the members that may be gone by now; None if there is no such list."""
        fresh = now - self._confirmed <= CONFIRMED_FOR
        return self._members if fresh and now >= self._valid_from else None


SEND_SECONDS: Final = 2.0
SHORTEST_PROBE: Final = 0.1
"""Seconds that must be left of a turn for another probe."""
MOST_WAITING: Final = 1000


class CliqueRuntime:
    """This host's part in one clique.

    Messages go out, and probes run, in threads of their own; what they bring comes back through
    `inbox`, so that the member itself is touched by one thread only.

    Parameters
    ----------
    clique, name
        Which clique, and who we are in it.
    period, secret
        As the service says.
    budget
        What bandwidth probes may cost.
    inbox
        Called, from any thread, with what is to be done in the main one.
    take
        Where measurements go; called in the main thread.
    udp
        Whether losses, latency and jitter of datagrams are measured too.
    """

    def __init__(
        self,
        clique: str,
        name: str,
        period: float,
        secret: str,
        budget: Budget,
        inbox: Callable[[Callable[[], object]], object],
        take: Callable[[list[Measurement]], object],
        clock: Callable[[], float] = time.monotonic,
        *,
        udp: bool = False,
    ) -> None:
        self.clique = clique
        self.name = name
        self.period = period
        self.membership = MembershipView()
        self._secret = secret
        self._budget = budget
        self._inbox = inbox
        self._take = take
        self._clock = clock
        self._udp = udp
        self._member: CliqueMember | None = None
        self._members_used: tuple[MemberAddress, ...] | None = None
        self._outbox: queue.Queue[SendMessage | None] = queue.Queue(MOST_WAITING)
        self._sender = threading.Thread(target=self._send_all, daemon=True)
        self._sender.start()

    @property
    def wake_at(self) -> float:
        """When `tick` is due."""
        return float("inf") if self._member is None else self._member.wake_at

    def confirm(self, members: tuple[MemberAddress, ...], now: float) -> None:
        """Take in the members as the service has them now."""
        self.membership.confirm(members, Timing(self.period, max(1, len(members))).turn, now)

    def tick(self, now: float) -> None:
        """Do what is due; leave off, or begin anew, when the list of members changed."""
        members = self.membership.members(now)
        if members != self._members_used:
            self._members_used = members
            self._member = None
            if members is not None and self.name in {member.name for member in members}:
                names = [member.name for member in members]
                life = secrets.token_hex(8)
                self._member = CliqueMember(self.name, names, self.period, life, now)
        if self._member is not None:
            self._carry_out(self._member.tick(now))

    def receive(self, message: Message, now: float) -> None:
        """Take in what another member says."""
        if self._member is not None and self.membership.members(now) is not None:
            self._carry_out(self._member.receive(message, now))

    def close(self) -> None:
        """Stop sending."""
        self._member = None
        with contextlib.suppress(queue.Full):
            self._outbox.put_nowait(None)

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, SendMessage):
                with contextlib.suppress(queue.Full):  # the network may lose messages, so may we
                    self._outbox.put_nowait(effect)
            else:
                prober = threading.Thread(target=self._probe, args=(effect,), daemon=True)
                prober.start()

    def _send_all(self) -> None:
        while (effect := self._outbox.get()) is not None:
            address = self._address(effect.to)
            if address is None:
                continue
            data = encode(self.clique, effect.message)
            with (
                contextlib.suppress(SensorError),
                probing(address, self._secret, TELL, SEND_SECONDS) as channel,
            ):
                channel.send(len(data).to_bytes(8) + data)
                channel.receive(8)

    def _address(self, name: str) -> tuple[str, int] | None:
        going_by = self._members_used or ()
        return next((member.address for member in going_by if member.name == name), None)

    def _probe(self, probe: ProbePeers) -> None:
        """Measure the links to the peers, one after the other, until the time is up."""
        found: list[Measurement] = []
        for peer in probe.peers:
            address = self._address(peer)
            if address is not None:
                found += self._measure(peer, address, probe.until)
        member = self._member

        def done() -> None:
            self._take(found)
            if member is not None and self._member is member:
                self._carry_out(member.probed(self._clock()))

        self._inbox(done)

    def _measure(self, peer: str, address: tuple[str, int], until: float) -> list[Measurement]:
        """Measure the link to a peer, the cheap first, as long as there is time."""
        here, secret = self.name, self._secret
        kinds: list[Callable[[float], Iterable[Measurement]]] = [
            lambda left: ConnectTimeSensor(here, peer, address, deadline=left).measure(),
            lambda left: LatencySensor(here, peer, address, secret, deadline=left).measure(),
        ]
        kinds.append(lambda left: self._bandwidth(peer, address, left))
        if self._udp:
            kinds.append(
                lambda left: UdpSensor(here, peer, address, secret, deadline=left).measure()
            )
        found: list[Measurement] = []
        for measure in kinds:
            left = until - self._clock()
            if left < SHORTEST_PROBE:
                break
            with contextlib.suppress(SensorError):
                found += measure(left)
        return found

    def _bandwidth(
        self, peer: str, address: tuple[str, int], left: float
    ) -> tuple[Measurement, ...]:
        """Measure the bandwidth if the budget has room for it."""
        now, budget = self._clock(), self._budget
        if not (
            budget.may_send(now) and budget.may_use(peer, now) and budget.is_time(time.time())
        ):
            return ()
        wide = BandwidthSensor(self.name, peer, address, self._secret, deadline=left)
        try:
            return wide.measure()
        finally:
            budget.sent(wide.sent, now)
            budget.busy(peer, wide.seconds, now)
