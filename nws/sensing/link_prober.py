"""Link probes of a sensor process: ask the service for a turn, probe the peers while it lasts, end it."""

import ipaddress
import time
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from nws.client import ServiceError
from nws.clique.turns import HeldTurn
from nws.measurement import Measurement
from nws.sensing.budget import Budget
from nws.sensor import SensorError
from nws.sensors.link_protocol import Endpoint
from nws.sensors.links import BandwidthSensor, ConnectTimeSensor, LatencySensor

MIN_PROBE_SECONDS: Final = 0.1
"""A probe starts only if this much is left of the turn."""
RETRY_SECONDS: Final = 10.0
"""Interval between two requests to a service that does not answer."""
MAX_WAIT_SECONDS: Final = 60.0


class TurnService(Protocol):
    """The service side of a prober, such as `nws.client.Client`."""

    def probing_secret(self) -> str:
        """Return the secret of the endpoints."""

    def ask_turn(self, host: str) -> dict[str, Any]:
        """Return a turn, or when to ask again."""

    def end_turn(self, turn: str, probed: Iterable[str]) -> None:
        """End a turn."""


class LinkProber:
    """Measures the links from this host, only while it holds a turn of the service.

    Without the service it measures no link: the exclusive right to probe comes from nowhere else.

    Parameters
    ----------
    host
        The name of this host.
    service
        Grants the turns.
    listen
        Address of the endpoint for the probes of others.
    budget
        Limits of bandwidth probes.
    take
        Called with the measurements of each turn.
    log
        Called with a name and its state, to log the state when it changes.
    clock
        Seconds that only go forward.
    """

    def __init__(
        self,
        host: str,
        service: TurnService,
        listen: tuple[str, int],
        budget: Budget,
        take: Callable[[list[Measurement]], object],
        log: Callable[[str, str], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._host = host
        self._service = service
        self._listen = listen
        self._budget = budget
        self._take = take
        self._log = log
        self._clock = clock
        self._secret = ""
        self.endpoint: Endpoint | None = None

    def step(self) -> float:
        """Ask for a turn, use it, and return the seconds to wait before the next call."""
        try:
            if self.endpoint is None:
                self._secret = self._service.probing_secret()
                self.endpoint = Endpoint(self._secret, self._listen)
            asked = self._clock()
            answer = self._service.ask_turn(self._host)
            self._log("turns", "are granted")
            if answer["turn"] is None:
                return min(MAX_WAIT_SECONDS, max(0.1, float(answer["retry_after"])))
            self._use(answer, asked)
        except (ServiceError, OSError, KeyError, TypeError, ValueError) as error:
            self._log("turns", str(error))
            return RETRY_SECONDS
        return 0.1

    def close(self) -> None:
        """Close the endpoint."""
        if self.endpoint is not None:
            self.endpoint.close()

    def _use(self, answer: dict[str, Any], asked: float) -> None:
        """Probe the peers one after the other until the turn ends, then give it back."""
        turn = HeldTurn.of(str(answer["turn"]), float(answer["seconds"]), asked)
        measurements: list[Measurement] = []
        probed: list[str] = []
        for peer in answer["peers"]:
            address = self._dialled(str(peer["address"]))
            if address is None or turn.left(self._clock()) < MIN_PROBE_SECONDS:
                continue
            measurements += self._measure(str(peer["name"]), address, turn)
            probed.append(str(peer["name"]))
        self._take(measurements)
        self._service.end_turn(turn.id, probed)

    def _dialled(self, text: str) -> tuple[str, int] | None:
        """Return the address to probe; None for an address that would lead to this machine by mistake.

        It must be an IP address: a name would be looked up within the turn, without a time limit.
        """
        host, _, port = text.rpartition(":")
        try:
            address, number = ipaddress.ip_address(host.strip("[]")), int(port)
        except ValueError:
            self._log(f"link to {text}", "is not probed: must be an IP address and a port")
            return None
        own = ipaddress.ip_address(self.endpoint.address[0]) if self.endpoint else address
        if address.is_unspecified or (address.is_loopback and not own.is_loopback):
            self._log(f"link to {text}", "is not probed: it leads to this host itself")
            return None
        return str(address), number

    def _measure(self, peer: str, address: tuple[str, int], turn: HeldTurn) -> list[Measurement]:
        """Measure the link to a peer, the cheapest probe first, as long as the turn lasts."""
        here, secret = self._host, self._secret
        kinds: list[Callable[[float], Iterable[Measurement]]] = [
            lambda left: ConnectTimeSensor(here, peer, address, deadline=left).measure(),
            lambda left: LatencySensor(here, peer, address, secret, deadline=left).measure(),
            lambda left: self._bandwidth(peer, address, left),
        ]
        measurements: list[Measurement] = []
        state = "is measured"
        for measure in kinds:
            left = turn.left(self._clock())
            if left < MIN_PROBE_SECONDS:
                break
            try:
                measurements += measure(left)
            except SensorError as error:
                state = str(error)
        self._log(f"link to {peer}", state)
        return measurements

    def _bandwidth(
        self, peer: str, address: tuple[str, int], left: float
    ) -> tuple[Measurement, ...]:
        """Measure the bandwidth if the budget has room for it."""
        now, budget = self._clock(), self._budget
        if not (budget.may_send(now) and budget.may_use(peer, now)):
            return ()
        sensor = BandwidthSensor(self._host, peer, address, self._secret, deadline=left)
        try:
            return sensor.measure()
        finally:
            budget.sent(sensor.sent, now)
            budget.busy(peer, sensor.seconds, now)
