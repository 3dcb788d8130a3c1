"""The budget of probes: a share of a CPU and of a link, bytes a day, and the hours in which they may run."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from nws.errors import InputError

DAY: Final = 86400.0
_WINDOW: Final = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)")


@dataclass(frozen=True, slots=True)
class DailyWindow:
    """A part of every day, in minutes of local time; it may go over midnight.

    Examples
    --------
    >>> night = DailyWindow.parse("22:00-06:00")
    >>> night.holds(23 * 60), night.holds(12 * 60)
    (True, False)
    """

    start: int
    stop: int

    @classmethod
    def parse(cls, text: str) -> "DailyWindow":
        """Return the window in ``HH:MM-HH:MM``; ValueError if it is none."""
        found = _WINDOW.fullmatch(text)
        if found is None:
            raise InputError(
                f"a window of time is HH:MM-HH:MM, not {text!r}", code="value-invalid", value=text
            )
        hours = [int(part) for part in found.groups()]
        return cls(60 * hours[0] + hours[1], 60 * hours[2] + hours[3])

    def holds(self, minute: int) -> bool:
        """Return whether a minute of the day is in it."""
        if self.start <= self.stop:
            return self.start <= minute < self.stop
        return minute >= self.start or minute < self.stop


class Budget:
    """Lets probes go on as long as they have cost less than they may.

    A bucket for each limit fills at the allowed rate and holds what an hour, or a day of bytes,
    gives; a probe takes out what it did cost, even into the red, and the next waits until the
    bucket is not empty. So the average keeps to the limit whatever a single probe costs.

    Parameters
    ----------
    cpu_share
        CPU seconds a second that CPU probes may spin.
    bytes_per_day
        What bandwidth probes may send.
    windows
        When bandwidth probes may be made; none: always.
    link_share
        Share of a link's time that bandwidth probes may keep it busy.

    Examples
    --------
    >>> budget = Budget(cpu_share=0.005, bytes_per_day=1e9, link_share=0.01)
    >>> budget.may_send(now=0.0)
    True
    >>> budget.busy("bob", 2.0, now=0.0)  # it may be probed again when that was 1 % of the time
    >>> [budget.may_use("bob", now) for now in (199.0, 201.0)], budget.may_use("cyd", 0.0)
    ([False, True], True)
    >>> budget.sent(5e9, now=0.0)
    >>> budget.may_send(now=86400.0), budget.may_send(now=5 * 86400.0)
    (False, True)
    """

    def __init__(
        self,
        cpu_share: float = 0.005,
        bytes_per_day: float = 4e9,
        windows: Sequence[DailyWindow] = (),
        link_share: float = 0.01,
    ) -> None:
        if not (0 <= cpu_share <= 1 and bytes_per_day >= 0):
            raise InputError(
                f"a budget of {cpu_share} CPUs and {bytes_per_day} bytes a day: use a share in 0..1"
                " and at least 0 bytes",
                code="value-range",
                field="bytes_per_day" if 0 <= cpu_share <= 1 else "cpu_share",
                value=bytes_per_day if 0 <= cpu_share <= 1 else cpu_share,
            )
        if not 0 < link_share <= 1:
            raise InputError(
                f"a share of {link_share} of a link's time: must be more than 0, at most 1",
                code="value-range",
                field="link_share",
                value=link_share,
                bound=1,
            )
        # Bytes a day do not protect a slow link: a probe of few bytes can keep it busy for long.
        self._link_share = link_share
        self._due: dict[str, float] = {}
        self._spinning = _Bucket(cpu_share, cpu_share * 3600)
        self._sending = _Bucket(bytes_per_day / DAY, bytes_per_day)
        self._windows = tuple(windows)

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
        """Take in that a probe, begun at `now`, has kept the link to a peer busy for so long."""
        self._due[peer] = now + seconds / self._link_share

    def is_time(self, when: float) -> bool:
        """Return whether `when` (seconds since the epoch) is in a window, by local time."""
        local = datetime.fromtimestamp(when).astimezone()
        minute = 60 * local.hour + local.minute
        return not self._windows or any(window.holds(minute) for window in self._windows)

    def spun(self, seconds: float, now: float) -> None:
        """Take in what a CPU probe did cost."""
        self._spinning.take(seconds, now)

    def sent(self, count: float, now: float) -> None:
        """Take in what a bandwidth probe did send."""
        self._sending.take(count, now)


class _Bucket:
    def __init__(self, rate: float, most: float) -> None:
        self._rate = rate
        self._most = most
        self._level = most
        self._at: float | None = None

    def level(self, now: float) -> float:
        if self._at is not None:
            filled = self._level + self._rate * max(0.0, now - self._at)
            self._level = min(self._most, filled)
        self._at = now
        return self._level

    def take(self, amount: float, now: float) -> None:
        self._level = self.level(now) - amount
