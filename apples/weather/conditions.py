"""`Conditions`: the capacity of each host and link at one moment: its forecast, else the value of the host list.

One object stands for the weather of one decision. `assumptions` lists the values that were neither given nor
measured.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from apples.resources import Host, HostList, Link
from apples.ui.units import SHOWN, listed
from nws import Forecast, Interval, Weather, available_share, competitors_for, most_within

STATIC: Final = "host list"
HERE = "this-machine"
"""Name of the machine of this process in `Conditions.machines`."""
NEGLIGIBLE = 0.01
"""Crowding, in competitors, below which a share changes by less than one percent."""
MIN_SHARE = 0.01
"""Lower bound of a CPU share: with a share of zero, the time would be infinite."""
MIN_BANDWIDTH, MAX_LATENCY = 1e-3, 1e6
"""Bounds of a link in bytes per second and in seconds, also for a link that transfers nothing."""
UNSCORED = 0.1
"""Assumed relative error of a forecast that no measurement has scored yet."""
MIN_SAMPLES = 20
"""Minimum samples behind an interval, per sample of its horizon, before a plan uses the interval."""


def error_of(forecast: Forecast) -> float:
    """Return the mean absolute error of a forecast; a tenth of its value if it has no score yet."""
    return UNSCORED * forecast.value if forecast.error is None else forecast.error


def shortfall_of(forecast: Forecast) -> float:
    """Return the distance of one mean absolute error below the forecast, from its interval if that is usable.

    The interval is measured for the horizon of the run and need not be symmetric. Its lower half counts as many
    mean absolute errors as the half of a normal distribution's interval at this level.
    """
    interval = _believed(forecast)
    if interval is None or interval.lower >= forecast.value:
        return error_of(forecast)
    return (forecast.value - interval.lower) / _errors_in_half(interval.level)


def excess_of(forecast: Forecast) -> float:
    """Return the distance of one mean absolute error above the forecast, as `shortfall_of` does below it."""
    interval = _believed(forecast)
    if interval is None or interval.upper <= forecast.value:
        return error_of(forecast)
    return (interval.upper - forecast.value) / _errors_in_half(interval.level)


def _believed(forecast: Forecast) -> Interval | None:
    """Return the interval once enough values have scored it: before that, its ends are still close to zero."""
    interval = forecast.interval
    met = interval is not None and interval.coverage is not None
    return interval if met and forecast.samples >= MIN_SAMPLES * forecast.horizon else None


def _errors_in_half(level: float) -> float:
    from statistics import NormalDist  # noqa: PLC0415 - slow to load, for measured intervals only

    return NormalDist().inv_cdf((1.0 + level) / 2.0) * math.sqrt(math.pi / 2.0)


def _stated(value: float) -> Forecast:
    return Forecast(value=value, error=0.0, method=STATIC, samples=0, time=0.0)


QUOTA_BINDS = 0.95
"""If a share is at least this part of a quota, the quota limits the share."""


@dataclass(frozen=True)
class LinkForecast:
    """A link, and the mean absolute errors of its two figures (seconds, bytes per second)."""

    link: Link
    latency_error: float = 0.0
    bandwidth_error: float = 0.0
    method: str = STATIC

    def seconds(self, size: float, messages: float, risk: float) -> float:
        """Return the seconds that `size` bytes in `messages` messages take: the mean plus `risk` errors."""
        link = self.link
        mean = messages * link.latency + size / link.bandwidth
        if not risk:
            return mean
        return mean + risk * self.error(size, messages)

    def error(self, size: float, messages: float) -> float:
        """Return the mean absolute error of `seconds`, to first order."""
        share = self.bandwidth_error / self.link.bandwidth
        return messages * self.latency_error + size / self.link.bandwidth * share


@dataclass(frozen=True)
class Conditions:
    """The host list under a weather; an empty weather is the static view.

    Attributes
    ----------
    hosts
        The host list.
    weather
        Forecasts at one moment; the host list supplies the values without a forecast.
    source, notes
        Origin of the weather, and the remarks on it that each decision prints.
    over
        Horizon of the forecasts in seconds from now; None: the next measurement.
    latency_factor, memory_factor
        Host -> factor of a what-if question (when does the decision change?); 1 for hosts not in the table.
    widths
        Host -> its number of CPUs, for hosts that were probed.
    machines
        Host -> the machine that it is a part of; a host not in the table is a machine of its own.
    here
        Capacity of this machine for the hosts that are emulated on it, by their names.
    """

    hosts: HostList
    weather: Weather
    source: str = STATIC
    notes: tuple[str, ...] = ()
    over: float | None = None
    latency_factor: Mapping[str, float] = field(default_factory=dict)
    memory_factor: Mapping[str, float] = field(default_factory=dict)
    widths: Mapping[str, int] = field(default_factory=dict)
    machines: Mapping[str, str] = field(default_factory=dict)
    here: Weather = field(default_factory=Weather)

    def cpu(self, host: Host) -> Forecast:
        """Return the forecast CPU share of one new process on `host`.

        A host that is emulated on this machine has the share of the host list, limited by the machine's share.
        """
        known = self.weather.cpu.get(host.name)
        if known is not None:
            return known
        given = self.here.cpu.get(host.name)
        return given if given is not None and given.value < host.cpu else _stated(host.cpu)

    def emulated(self, host: Host) -> bool:
        """Return whether `host` is emulated on this machine and the weather of this machine is known."""
        return host.name in self.here.cpu and not self.measured(host)

    def quota(self, host: Host, ours: int) -> tuple[float, float] | None:
        """Return the CPU share that quotas allow each of `ours` processes, and the quota period in seconds.

        None if no quota is known, or if the processes get less than the quota for other reasons.
        """
        if self.emulated(host):
            from apples.launch import quota as quotas  # noqa: PLC0415 - for a live weather only

            quota, period = host.cpu, quotas.limits(host.cpu)[1] / 1e6
        else:
            known = self.weather.cpu_quota.get(host.name)
            given = self.weather.quota_period.get(host.name)
            if known is None or given is None:
                return None
            quota, period = known.value / ours, given.value
        binds = self.share(host, ours) >= QUOTA_BINDS * quota
        return (quota, period) if quota < 1.0 and binds else None

    def machine(self, host: Host) -> str:
        """Return the name of the machine that `host` is a part of."""
        return HERE if self.emulated(host) else self.machines.get(host.name, host.name)

    def share(
        self, host: Host, ours: int, elsewhere: float = 0.0, sharing: float | None = None
    ) -> float:
        """Return the share of a CPU that each of `ours` processes gets on `host`.

        Parameters
        ----------
        elsewhere
            Number of our busy processes on other CPUs of its machine. They may share the CPU weight of one
            cgroup with `ours`, and they displace competitors once no other CPU is idle.
        sharing
            Number of all these processes that share the quota of this host; None: all, 0: ignore the quota.
        """
        if self.emulated(host):
            width = self.width(host)
            given = self._shared(host.name, width, self.here, ours + elsewhere)
            return max(MIN_SHARE, min(host.cpu, given))
        forecast = self.cpu(host).value
        if not self.measured(host):
            return forecast
        if ours == 1 and not elsewhere:
            return max(MIN_SHARE, forecast)
        width = self.width(host)
        shared = self._shared(host.name, width, self.weather, ours, elsewhere, sharing)
        if ours == 1:  # the share itself is forecast: our other processes scale it
            shared = forecast * shared / self._shared(host.name, width, self.weather, 1)
        return max(MIN_SHARE, shared)

    def _shared(
        self,
        name: str,
        width: int,
        weather: Weather,
        ours: float,
        elsewhere: float = 0.0,
        sharing: float | None = None,
    ) -> float:
        crowding, spare = weather.crowding.get(name), weather.spare_cpus.get(name)
        share = available_share(
            self._competitors(name, width, weather),
            width,
            ours,
            elsewhere=elsewhere,
            crowding=crowding.value if crowding else 0.0,
            spare=spare.value if spare else 0.0,
        )
        quota = weather.cpu_quota.get(name)
        many = ours + elsewhere if sharing is None else sharing
        return (
            share if quota is None or not many else min(share, max(MIN_SHARE, quota.value) / many)
        )

    def most_within_quota(self, host: Host, wants: Sequence[tuple[float, float]]) -> float:
        """Return the largest share that the quota of `host` allows each of its processes (`nws.most_within`)."""
        quota = self.weather.cpu_quota.get(host.name)
        return 1.0 if quota is None else most_within(max(MIN_SHARE, quota.value), wants)

    def competitors(self, host: Host) -> float:
        """Return the number of other users' processes that compete for the CPUs of a measured `host`."""
        return self._competitors(host.name, self.width(host), self.weather)

    def _competitors(self, name: str, width: int, weather: Weather) -> float:
        known = weather.competitors.get(name)
        if known is not None:
            return known.value
        share = weather.cpu[name].value if name in weather.cpu else self.hosts[name].cpu
        return competitors_for(max(share, MIN_SHARE), width)

    def width(self, host: Host) -> int:
        """Return the number of CPUs of `host`: from its list entry, else from a probe, else of this process."""
        return len(host.cpus) or self.widths.get(host.name) or len(os.sched_getaffinity(0))

    @property
    def horizons(self) -> dict[str, int]:
        """Host -> number of samples that the forecast of its CPU averages."""
        return {name: forecast.horizon for name, forecast in self.weather.cpu.items()}

    def measured(self, host: Host) -> bool:
        """Return whether the weather has a CPU forecast of `host`."""
        return host.name in self.weather.cpu

    def free_memory(self, host: Host) -> Forecast | None:
        """Return the forecast free bytes of `host`; None if unknown, which counts as unlimited."""
        known = self.weather.free_memory.get(host.name)
        if host.free_memory is not None:
            static = _stated(float(host.free_memory))
            known = static if known is None or static.value <= known.value else known
        factor = self.memory_factor.get(host.name, 1.0)
        if known is None or factor == 1.0:
            return known
        return known.scaled(factor)

    def memory_for_strip(
        self, host: Host, risk: float, limit: float | None, own: float = math.inf
    ) -> float:
        """Return the bytes available to a part of the grid: free memory less `risk` errors, at most `limit`.

        Parameters
        ----------
        own
            Free bytes of the implementation's own memory, for example of a GPU.
        """
        free = self.free_memory(host)
        offered = math.inf if free is None else free.value - risk * shortfall_of(free)
        return min(own, max(0.0, min(offered, math.inf if limit is None else limit)))

    def link(self, source: Host, target: Host) -> LinkForecast:
        """Return the forecast of the link from `source` to `target`."""
        latency = self.weather.latency.get((source.name, target.name))
        bandwidth = self.weather.bandwidth.get((source.name, target.name))
        static = self.hosts.network.link(source, target)
        if latency is None and bandwidth is None and not self.latency_factor:
            return LinkForecast(static)
        factor = self.what_if_latency_factor(source, target)
        return LinkForecast(
            Link(
                factor * (min(latency.value, MAX_LATENCY) if latency else static.latency),
                max(bandwidth.value, MIN_BANDWIDTH) if bandwidth else static.bandwidth,
                static.assumed and latency is None,
            ),
            excess_of(latency) if latency else 0.0,
            shortfall_of(bandwidth) if bandwidth else 0.0,
            bandwidth.method if bandwidth else STATIC,
        )

    def bandwidth(self, source: str, target: str) -> float:
        """Return the forecast bytes a second from one host to another, by their names."""
        return self.link(self.hosts[source], self.hosts[target]).link.bandwidth

    def what_if_latency_factor(self, source: Host, target: Host) -> float:
        """Return the factor by which a what-if question multiplies the latency between two hosts."""
        factor = self.latency_factor
        return factor.get(source.name, 1.0) * factor.get(target.name, 1.0)

    def slower_link(self, a: Host, b: Host) -> Link:
        """Return the slower of the two directions between two hosts, without factors of what-if questions."""
        there, back, factor = (
            self.link(a, b).link,
            self.link(b, a).link,
            self.what_if_latency_factor(a, b),
        )
        return Link(
            max(there.latency, back.latency) / factor, min(there.bandwidth, back.bandwidth)
        )

    def hosts_with_own_links(self) -> set[str]:
        """Return the hosts with link values of their own, beyond the values of their whole site."""
        named = {name for name in self.hosts.network.named() if name in self.hosts}
        measured = {
            name for pair in (*self.weather.latency, *self.weather.bandwidth) for name in pair
        }
        return named | measured | set(self.latency_factor)

    def assumptions(self, hosts: Sequence[Host]) -> tuple[str, ...]:
        """Return one line for each assumption about these hosts and their links."""
        return (*self.notes, *self._unknown_memory(hosts), *self.unknown_links(hosts))

    def _unknown_memory(self, hosts: Sequence[Host]) -> Iterator[str]:
        unknown = [host.name for host in hosts if self.free_memory(host) is None]
        if unknown:
            yield f"free memory of {listed(unknown)}: not given, taken as unlimited"

    def unknown_links(self, hosts: Sequence[Host]) -> Iterator[str]:
        """Yield one line for each link between these hosts with assumed values."""
        if len(hosts) <= SHOWN:
            pairs = [(a, b) for i, a in enumerate(hosts) for b in hosts[i + 1 :]]
        else:
            first: dict[str, list[Host]] = {}
            for host in hosts:
                first.setdefault(host.site, []).append(host)
            ends = [members[:2] for members in first.values()]
            pairs = [(e[0], e[1]) for e in ends if len(e) == 2]
            pairs += [(x[0], y[0]) for i, x in enumerate(ends) for y in ends[i + 1 :]]
        by_site = len(hosts) > SHOWN
        for a, b in pairs:
            link = self.link(a, b).link
            if link.assumed:
                who = f"sites {a.site} and {b.site}" if by_site else f"{a.name} and {b.name}"
                yield (
                    f"link between {who}: not given, assumed at the worst known of its sites, "
                    f"{link.latency * 1e3:.3g} ms and {link.bandwidth / 1e6:.3g} MB/s"
                )


def merge_remarks(remarks: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Return remarks on hosts; remarks that differ only in a count become one line with the greatest count.

    Examples
    --------
    >>> merge_remarks([("ada", "2 are not seen"), ("bob", "5 are not seen"), ("ada", "3 are not seen")])
    ('ada, bob: up to 5 are not seen',)
    """
    alike: dict[str, list[tuple[int, str, str]]] = {}
    for host, remark in remarks:
        count = re.search(r"\d+", remark)
        kind = remark if count is None else remark.replace(count[0], "", 1)
        alike.setdefault(kind, []).append((int(count[0]) if count else 0, remark, host))
    lines = []
    for group in alike.values():
        most, words, _ = max(group)
        if len({count for count, _, _ in group}) > 1:
            words = words.replace(str(most), f"up to {most}", 1)
        lines.append(f"{listed(sorted({host for _, _, host in group}))}: {words}")
    return tuple(lines)


def co_located(conditions: Conditions) -> dict[str, frozenset[str]]:
    """Return, for each measured host that has CPUs in common with other hosts, the names of these hosts."""
    by_cpu: dict[int, set[str]] = {}
    for host in conditions.hosts:
        if conditions.measured(host):
            for cpu in host.cpus:
                by_cpu.setdefault(cpu, set()).add(host.name)
    shared: dict[str, set[str]] = {}
    for members in by_cpu.values():
        for name in members:
            if len(members) > 1:
                shared.setdefault(name, set()).update(members - {name})
    return {name: frozenset(others) for name, others in shared.items()}


class SharedMachine(NamedTuple):
    """The hosts on one host's machine, itself included; their busy CPUs change its share.

    Attributes
    ----------
    machine
        Names of all these hosts.
    quota
        Names of the hosts that draw on its CPU quota: the hosts with its address. A container with an address of
        its own has a quota of its own.
    """

    machine: frozenset[str]
    quota: frozenset[str]


NOT_SHARED = SharedMachine(frozenset(), frozenset())


def shared_machines(conditions: Conditions) -> dict[str, SharedMachine]:
    """Return the shared machine of each host that loses share when other CPUs of its machine are busy.

    A host without crowding and with a quota that suffices for all is left out.
    """
    weather = conditions.weather
    machines: dict[str, dict[str | None, list[Host]]] = {}
    for host in conditions.hosts:
        if conditions.measured(host) or conditions.emulated(host):
            parts = machines.setdefault(conditions.machine(host), {})
            parts.setdefault(host.address, []).append(host)
    found: dict[str, SharedMachine] = {}
    for parts in machines.values():
        names = frozenset(host.name for hosts in parts.values() for host in hosts)
        for hosts in parts.values() if len(names) > 1 else ():
            around = SharedMachine(names, frozenset(host.name for host in hosts))
            slots = sum(host.slots for host in hosts)
            for host in hosts:
                crowding, quota = weather.crowding.get(host.name), weather.cpu_quota.get(host.name)
                crowded = crowding is not None and crowding.value >= NEGLIGIBLE
                limited = quota is not None and quota.value < slots
                if crowded or limited or conditions.emulated(host):
                    found[host.name] = around
    return found
