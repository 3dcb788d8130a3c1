"""The budget of probes: a share of a CPU and of a link, and bytes a day."""

from typing import Final

from nws.errors import InputError

DAY_SECONDS: Final = 86400.0
CPU_SHARE: Final = 0.005
"""CPU seconds a second that CPU probes may use."""
LINK_SHARE: Final = 0.01
"""Share of a link's time that bandwidth probes may keep it busy: bytes a day alone do not protect a slow link."""


class Budget:
    """Allows probes as long as all earlier probes together cost less than the limits.

    A bucket for each limit fills at the allowed rate and holds the amount of an hour of CPU time, or of a day
    of bytes. A probe takes out its cost, and the level may become negative; the next probe waits until it is
    positive. So the average keeps to the limit, at any cost of a single probe.

    Parameters
    ----------
    bytes_per_day
        Bytes that bandwidth probes may send.

    Examples
    --------
    >>> budget = Budget(bytes_per_day=1e9)
    >>> budget.may_send(now=0.0)
    True
    >>> budget.busy("bob", 2.0, now=0.0)  # it may be probed again when that was 1 % of the time
    >>> [budget.may_use("bob", now) for now in (199.0, 201.0)], budget.may_use("cyd", 0.0)
    ([False, True], True)
    >>> budget.sent(5e9, now=0.0)
    >>> budget.may_send(now=86400.0), budget.may_send(now=5 * 86400.0)
    (False, True)
    """

    def __init__(self, bytes_per_day: float = 4e9) -> None:
        if not 0 <= bytes_per_day <= 1e18:
            raise InputError(
                f"bytes_per_day: must be in 0..1e18 (is {bytes_per_day})",
                code="value-range",
                field="bytes_per_day",
                value=bytes_per_day,
                bound=1e18,
            )
        self._due: dict[str, float] = {}
        self._spinning = _Bucket(CPU_SHARE, CPU_SHARE * 3600)
        self._sending = _Bucket(bytes_per_day / DAY_SECONDS, bytes_per_day)

    def may_spin(self, now: float) -> bool:
        """Return whether a CPU may be probed now."""
        return self._spinning.level(now) > 0

    def may_send(self, now: float) -> bool:
        """Return whether bandwidth may be probed now, as far as bytes go."""
        return self._sending.level(now) > 0

    def may_use(self, peer: str, now: float) -> bool:
        """Return whether the link to a peer may be kept busy now."""
        return now >= self._due.get(peer, now)

    def busy(self, peer: str, seconds: float, now: float) -> None:
        """Record that a probe, begun at `now`, kept the link to a peer busy for some seconds."""
        self._due[peer] = now + seconds / LINK_SHARE

    def spun(self, seconds: float, now: float) -> None:
        """Record the CPU time of a CPU probe."""
        self._spinning.take(seconds, now)

    def sent(self, count: float, now: float) -> None:
        """Record the bytes of a bandwidth probe."""
        self._sending.take(count, now)


class _Bucket:
    def __init__(self, rate: float, capacity: float) -> None:
        self._rate = rate
        self._capacity = capacity
        self._level = capacity
        self._at: float | None = None

    def level(self, now: float) -> float:
        if self._at is not None:
            filled = self._level + self._rate * max(0.0, now - self._at)
            self._level = min(self._capacity, filled)
        self._at = now
        return self._level

    def take(self, amount: float, now: float) -> None:
        self._level = self.level(now) - amount
