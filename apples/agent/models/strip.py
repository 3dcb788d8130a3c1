"""`StripModel`: T_i = A_i P_i + C_i for a grid of strips, one per host (Berman et al. 1996, section 2.1).

A_i = columns * rows_i; P_i = seconds_per_point / (cpu * slots); C_i is the sum over the strip's neighbours of
sending and receiving one border row. (Section 4.6 of the paper prints A_i (P_i + C_i), but sections 2.1 and
4.3.4 and the linearity of the system require C_i outside.)
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from apples.agent.models.links import NO_LINKS, LearnedLinks, Pair, crossings, pair_of
from apples.agent.models.model import (
    CommunicationOf,
    ModelTemplate,
    Orders,
    Rows,
    RowsWithin,
    Seconds,
    SpeedFunction,
    rows_by_bisection,
    set_straggler_factor,
)
from apples.resources import Host
from apples.weather.conditions import (
    MIN_SHARE,
    NOT_SHARED,
    Conditions,
    SharedMachine,
    co_located,
    error_of,
    shared_machines,
    shortfall_of,
)
from hat import Application
from nws import available_share

DUTY_ROUNDS = 2
"""Rounds of the fixed point between CPU shares and the part of an iteration in which each host computes."""
KEPT_SHARES = 64
"""Sets in the cache of CPU shares: a planner asks for the same sets repeatedly."""
EPSILON_SECONDS = 1e-12
"""Lower bound of a divisor: shorter than any computation."""
MEAN_ABSOLUTE_TO_SD = 1.2533141373155003
"""sqrt(pi / 2): standard deviation of a normal error over its mean absolute value."""


@dataclass(frozen=True, slots=True)
class _Border:
    """Seconds at the border of two hosts: seconds of its messages, and seconds of its bytes.

    Attributes
    ----------
    error
        Relative standard deviation of both, from runs.
    """

    messages: float
    size: float
    error: float

    def seconds(self, borders: int) -> float:
        """Return the seconds of the border if `borders` borders share its link."""
        return self.messages + borders * self.size


SLICE_SECONDS = 0.004
"""A process that shares its CPU may wait this long for its turn: a slice of the Linux scheduler (CFS, EEVDF)."""
OWN_CPU = 0.95
"""A process with at least this share has its CPU to itself."""


def standstill(conditions: Conditions, host: Host) -> float:
    """Return the longest time for which a process on a host may not run, in seconds.

    Under a quota q, a process stops for at most 1 - q of the period. Beside other processes on its CPU, it
    waits for a slice of the scheduler. On a CPU of its own, the time is 0.
    """
    quota = conditions.quota(host, host.slots)
    if quota is not None:
        return (1.0 - quota[0]) * quota[1]
    return 0.0 if conditions.share(host, host.slots) >= OWN_CPU else SLICE_SECONDS


def no_stragglers(resources: Sequence[Host]) -> float:
    """Return 1, the straggler factor of a set without learned runs."""
    del resources
    return 1.0


@dataclass(frozen=True)
class StripModel(ModelTemplate):
    """The strip model with latency, under one set of conditions.

    Attributes
    ----------
    application
        Grid, element size and border traffic (`hat.Application`).
    conditions
        CPU, memory and links.
    speeds
        `SpeedFunction` of each host, by name.
    links
        Links measured by runs. With any link in use, borders follow the measured transfers: both directions
        overlap, a host's two borders overlap, and borders between the same two sites share the link. Without
        measured links, borders are the paper's sums.
    border_waits
        Learned wait of each border of a throttled host, by host name, in seconds; at most one standstill of the
        host. 0 for others.
    straggler_factor_of
        Returns the learned factor on the iteration of a set of hosts that finish together: every iteration
        waits for its latest host. `model.set_straggler_factor` has the other cases.
    co_run_slowdown
        Factor on a host's computing if it is not alone, by name; 1 for others.
    share_bias
        Learned factor on the CPU share of a process of a host, by name; 1 for others.
    risk
        Mean absolute forecast errors that are added to the mean.
    memory_limit
        The user's own bound on the bytes of a strip.
    sweeps
        Iterations between two exchanges of borders. Borders then have as many rows: the same bytes per
        iteration in fewer messages. The speeds include the rows that neighbours compute twice, because
        calibration measures such an implementation between two other strips.
    """

    application: Application
    conditions: Conditions
    speeds: Mapping[str, SpeedFunction]
    links: LearnedLinks = NO_LINKS
    border_waits: Mapping[str, float] = field(default_factory=dict)
    straggler_factor_of: Callable[[Sequence[Host]], float] = no_stragglers
    risk: float = 0.0
    memory_limit: float | None = None
    sweeps: int = 1
    co_run_slowdown: Mapping[str, float] = field(default_factory=dict)
    share_bias: Mapping[str, float] = field(default_factory=dict)
    _co_located: dict[str, frozenset[str]] = field(default_factory=dict, init=False, repr=False)
    _shared: dict[str, SharedMachine] = field(default_factory=dict, init=False, repr=False)
    _seconds_per_row: dict[str, float] = field(default_factory=dict, init=False, repr=False)
    _free_memory: dict[tuple[str, float | None], float] = field(
        default_factory=dict, init=False, repr=False
    )
    _borders: dict[tuple[str, str], _Border] = field(default_factory=dict, init=False, repr=False)
    _shares: dict[frozenset[str], dict[str, float]] = field(
        default_factory=dict, init=False, repr=False
    )
    _own_links: set[str] = field(default_factory=set, init=False, repr=False)

    def __post_init__(self) -> None:
        self._co_located.update(co_located(self.conditions))
        self._shared.update(shared_machines(self.conditions))
        self._own_links.update(self.conditions.hosts_with_own_links())
        measured = {identity for pair in self.links.hosts for identity in pair}
        if measured:
            self._own_links.update(
                host.name for host in self.conditions.hosts if host.identity in measured
            )
        self._own_links.update(self.border_waits)

    @property
    def knows_co_run_slowdown(self) -> bool:
        """True: the model has a separate factor for hosts that are not alone."""
        return True

    @property
    def shares_processors(self) -> bool:
        """Whether two hosts of the list represent the same CPUs of one machine."""
        return bool(self._co_located)

    # ---------------------------------------------------------------- computation
    def share(
        self, host: Host, present: frozenset[str], duty: Mapping[str, float] | None = None
    ) -> float:
        """Return the CPU share of one process of the application on `host` beside the other hosts `present`.

        The weather gives the share of one new process. The application has several: the host's own slots, the
        ranks of other hosts on the same CPUs, and ranks on other CPUs of the same machine.

        Parameters
        ----------
        duty
            The part of an iteration in which a host computes, by host; 1 for others.
        """
        return self._shares_of(present | {host.name}, duty or {})[host.name]

    def _shares_of(self, present: frozenset[str], duty: Mapping[str, float]) -> dict[str, float]:
        """Return `share` of each host of a set, by name."""
        hosts = self.conditions.hosts
        busy: dict[frozenset[str], float] = {}
        shares = {name: self._wanted(hosts[name], present, duty, busy) for name in present}
        within = dict(shares)
        for name in present & self._shared.keys():
            own = hosts[name]
            if not self.conditions.emulated(own):
                others = (self._shared[name].quota & present) - {name}
                busy_there = [(hosts[n].slots * duty.get(n, 1.0), shares[n]) for n in others]
                wants = [(float(own.slots), shares[name]), *busy_there]
                most = self.conditions.most_within_quota(own, wants)
                within[name] = max(MIN_SHARE, min(shares[name], most))
        return within

    def _wanted(
        self,
        host: Host,
        present: frozenset[str],
        duty: Mapping[str, float],
        busy: dict[frozenset[str], float],
    ) -> float:
        """Return the share before the limit of a quota shared with other hosts.

        `busy` caches the busy processes by machine.
        """
        hosts = self.conditions.hosts
        neighbours = self._co_located.get(host.name, frozenset()) & present
        ours = host.slots + sum(hosts[name].slots for name in neighbours)
        around = self._shared.get(host.name)
        if around is None:
            return self.conditions.share(host, ours)

        def processes(names: Iterable[str]) -> float:
            return math.fsum(hosts[name].slots * duty.get(name, 1.0) for name in names)

        machine = around.machine
        if machine not in busy:
            busy[machine] = processes(machine & present)
        elsewhere = busy[machine] - processes((neighbours | {host.name}) & machine)
        return self.conditions.share(host, ours, max(0.0, elsewhere), sharing=0)

    def _together(self, host: Host, resources: Sequence[Host]) -> list[int]:
        """Return the indices in the set of `host` and of the hosts that share its CPUs."""
        names = self._co_located[host.name] | {host.name}
        return [i for i, one in enumerate(resources) if one.name in names]

    def _row_seconds(self, host: Host, share: float, rows: float) -> float:
        """Return p_i: seconds of one row if the strip has `rows` rows and each process gets this CPU share."""
        cpu = self.conditions.cpu(host)
        speed = self.speeds[host.name].at(rows / host.slots)
        mean = self.application.columns * speed * self._beside_others(host)
        mean /= self._biased(host, share) * host.slots
        return mean * (1.0 + self.risk * shortfall_of(cpu) / max(cpu.value, MIN_SHARE))

    def _biased(self, host: Host, share: float) -> float:
        """Return a share times its learned bias, limited to one CPU and to the quota."""
        bias = self.share_bias.get(host.name, 1.0)
        if bias == 1.0:
            return share
        quota, _ = self.conditions.quota(host, host.slots) or (1.0, 0.0)
        return max(MIN_SHARE, min(quota, share * bias))

    def _beside_others(self, host: Host) -> float:
        """Return the co-run slowdown of a host beside other hosts of its set."""
        return self.co_run_slowdown.get(host.name, 1.0)

    def _constant_row_seconds(self, host: Host) -> float | None:
        """Return p_i if it depends only on the host, else None."""
        shared = host.name in self._co_located or host.name in self._shared
        if shared or len(self.speeds[host.name].rows) > 1:
            return None
        known = self._seconds_per_row.get(host.name)
        if known is None:
            known = self._row_seconds(host, self.share(host, frozenset()), 1.0)
            self._seconds_per_row[host.name] = known
        return known

    def computation(self, resources: Sequence[Host], rows: Rows) -> Seconds:
        """Return A_i P_i; a host that finishes early leaves shared CPUs to the others and causes no lateness."""
        seconds = self._under_full_contention(resources, rows)
        if len(resources) > 1 and any(host.name in self._shared for host in resources):
            for _ in range(DUTY_ROUNDS):  # a waiting host leaves CPU time to others of its machine
                duty = seconds / max(float(seconds.max()), EPSILON_SECONDS)
                busy = dict(zip((h.name for h in resources), duty.tolist(), strict=True))
                seconds = self._under_full_contention(resources, rows, busy)
        done: set[str] = set()
        for host in resources:
            if host.name in self._co_located and host.name not in done:
                places = self._together(host, resources)
                done.update(resources[i].name for i in places)
                if len(places) > 1:
                    seconds[places] = self._processor_sharing_finish(
                        [resources[i] for i in places], seconds[places]
                    )
        return seconds

    def lateness(self, resources: Sequence[Host], busy: Seconds) -> float:
        """Return the straggler factor of this plan; for one host, the factor of waits between its ranks."""
        factor = self.straggler_factor_of(resources)
        return factor if len(resources) == 1 else set_straggler_factor(busy, factor)

    def _processor_sharing_finish(self, hosts: Sequence[Host], crowded: Seconds) -> Seconds:
        """Return the finish time of each host on the same CPUs, given its time if no host ever finished.

        Processor sharing: while k processes of the application run beside m others, each gets width / (m + k).
        A host that finishes leaves its part to the rest.
        """
        width = self.conditions.width(hosts[0])
        others = self.conditions.competitors(hosts[0])
        slots = np.array([host.slots for host in hosts])
        full = available_share(others, width, int(slots.sum()))
        finished, clock, served = np.zeros(len(hosts)), 0.0, 0.0
        order = np.argsort(crowded, kind="stable")
        for place, i in enumerate(order):
            # `served` is the work done so far, in seconds under full contention; fewer processes are faster.
            left = int(slots[order[place:]].sum())
            speedup = available_share(others, width, left) / full
            clock += (crowded[i] - served) / speedup
            served = crowded[i]
            finished[i] = clock
        return finished

    def seconds_per_row(self, resources: Sequence[Host], total: int) -> Seconds:
        """Return p_i at equal strips, as if no host finished before the others."""
        equal = np.full(len(resources), total / max(1, len(resources)))
        return np.asarray(self._under_full_contention(resources, equal) / equal)

    def _under_full_contention(
        self, resources: Sequence[Host], rows: Rows, duty: Mapping[str, float] | None = None
    ) -> Seconds:
        """Return A_i P_i as if all hosts that share CPUs worked to the end; one host has no co-run slowdown."""
        shares: Mapping[str, float] | None = None
        seconds = np.empty(len(resources))
        for i, (host, strip) in enumerate(zip(resources, np.asarray(rows).tolist(), strict=True)):
            per_row = self._constant_row_seconds(host)
            if per_row is None:
                if shares is None:
                    shares = self._shares_in(resources, duty)
                per_row = self._row_seconds(host, shares[host.name], strip)
            seconds[i] = per_row * strip
        return seconds / self._beside_others(resources[0]) if len(resources) == 1 else seconds

    def _shares_in(
        self, resources: Sequence[Host], duty: Mapping[str, float] | None
    ) -> Mapping[str, float]:
        """Return `share` of each host of a set; cached if no `duty` is given."""
        present = frozenset(host.name for host in resources)
        known = self._shares.get(present) if duty is None else None
        if known is None:
            known = self._shares_of(present, duty or {})
            if duty is None:
                if len(self._shares) >= KEPT_SHARES:
                    self._shares.clear()
                self._shares[present] = known
        return known

    def rows_within(self, resources: Sequence[Host], total: int) -> RowsWithin:
        """Return a function: seconds for each host -> the most whole rows it computes in them, 0 to `total`."""
        if any(len(self.speeds[host.name].rows) > 1 for host in resources):
            return rows_by_bisection(self._under_full_contention, resources, total)
        p = self._under_full_contention(resources, np.ones(len(resources)))

        def rows_within(seconds: Seconds) -> Rows:
            # T - C loses bits that the product keeps: round up a little, then check.
            rows = np.floor(np.clip(seconds / p, 0, total) + 1e-6)
            return np.asarray(np.where(rows * p > seconds, np.maximum(rows - 1, 0), rows))

        return rows_within

    # -------------------------------------------------------------- communication
    @property
    def borders_at_once(self) -> bool:
        """Whether runs measured borders: then the borders of one host overlap."""
        return bool(self.links)

    def border(self, a: Host, b: Host) -> float:
        """Return the seconds `a` (and `b`) spend sending and receiving one border, both ways."""
        return self._border(a, b).seconds(1)

    def _border(self, a: Host, b: Host) -> _Border:
        own = a.name in self._own_links or b.name in self._own_links
        key = (a.name, b.name) if own else (a.site, b.site)
        known = self._borders.get(key)
        if known is None:
            known = self._borders[key] = self._new_border(a, b)
        return known

    def _new_border(self, a: Host, b: Host) -> _Border:
        size, messages = self.application.border_bytes, self._messages
        measured = self.links.of(a, b)
        if measured is None:
            there = self.conditions.link(a, b).seconds(size, messages, self.risk)
            back = self.conditions.link(b, a).seconds(size, messages, self.risk)
            return _Border(self._border_wait(a, b), there + back, 0.0)
        link, longer = measured.under(self.conditions.slower_link(a, b)), 1.0
        longer += self.risk * measured.spread / MEAN_ABSOLUTE_TO_SD
        factor = self.conditions.what_if_latency_factor(a, b)
        return _Border(
            messages * link.latency * factor * longer + self._border_wait(a, b),
            size / link.bandwidth * longer,
            measured.spread,
        )

    def _border_wait(self, a: Host, b: Host) -> float:
        """Return the mean seconds per iteration that a border waits for throttled ends."""
        waits = (
            min(self.border_waits.get(host.name, 0.0), standstill(self.conditions, host))
            for host in (a, b)
        )
        return sum(waits) / self.sweeps

    @property
    def _messages(self) -> float:
        """Messages per border, direction and iteration."""
        return self.application.messages / self.sweeps

    def borders(self, host: Host, others: Sequence[Host]) -> Seconds:
        """Return the border between `host` and each of `others`."""
        return np.array([self.border(host, other) for other in others])

    def communication(self, resources: Sequence[Host]) -> Seconds:
        """Return C_i: the borders with the strips above and below, less the credit of quotas."""
        steps = self.border_seconds(resources)
        seconds = self.at_borders(np.array([0.0, *steps]), np.array([*steps, 0.0]))
        return seconds - self._quota_credit(resources, seconds) if self.links else seconds

    def _quota_credit(self, resources: Sequence[Host], borders: Seconds) -> Seconds:
        """Return the border seconds in which a CPU quota would have stopped the host's computing anyway.

        A process under a quota q of each period stops for 1 - q of its computing time. Its wait at a border
        replaces such stops, up to one period, because unused quota expires with the period. So of a border's C
        seconds, min(C, (1 - q) min(period, T)) are free; T is the computing time. If several sweeps follow an
        exchange, T covers all of them.
        """
        idle, period = self._quotas(resources)
        if not period.any():
            return np.zeros(len(resources))
        total = self.application.rows
        balanced = total / float((1.0 / self.seconds_per_row(resources, total)).sum())
        return np.minimum(borders, idle * np.minimum(period, balanced))

    def _quotas(self, hosts: Sequence[Host]) -> tuple[Seconds, Seconds]:
        """Return the part of a period in which each host stops, and the period per sweep; 0 without a quota."""
        quotas = [self.conditions.quota(host, host.slots) or (1.0, 0.0) for host in hosts]
        share, period = np.array(quotas).reshape(-1, 2).T
        return 1.0 - share, period / self.sweeps

    def communication_among(self, hosts: Sequence[Host]) -> CommunicationOf:
        """Return a function: ordered subsets of `hosts`, by index, shape (sets, size) -> their C_i, same shape."""
        if not self.links or self.shares_processors:
            return super().communication_among(hosts)
        count = len(hosts)
        messages, sizes = np.zeros((count, count)), np.zeros((count, count))
        for i, a in enumerate(hosts):
            for j, b in enumerate(hosts[:i]):
                border = self._border(a, b)
                messages[i, j] = messages[j, i] = border.messages
                sizes[i, j] = sizes[j, i] = border.size
        numbers: dict[Pair | None, int] = {None: 0}  # no link is shared inside a site
        links = np.array(
            [
                [
                    numbers.setdefault(
                        pair_of(a.site, b.site) if a.site != b.site else None, len(numbers)
                    )
                    for b in hosts
                ]
                for a in hosts
            ]
        )
        quota_credit = self._quota_credit_among(hosts)

        def communication(orders: Orders) -> Seconds:
            above, below = orders[:, :-1], orders[:, 1:]
            crossed = links[above, below] + len(numbers) * np.arange(len(orders))[:, None]
            shared = np.bincount(crossed.ravel(), minlength=len(numbers) * len(orders))
            borders = np.where(links[above, below] > 0, shared[crossed], 1)
            steps = np.pad(
                messages[above, below] + borders * sizes[above, below], ((0, 0), (1, 1))
            )
            seconds = self.at_borders(steps[:, :-1], steps[:, 1:])
            return seconds - quota_credit(orders, seconds)

        return communication

    def _quota_credit_among(self, hosts: Sequence[Host]) -> Callable[[Orders, Seconds], Seconds]:
        """Return `_quota_credit` for ordered subsets of `hosts`, by index.

        It compares many sets at once, so it assumes equal strips, and equal parts of a quota that several hosts
        share. The estimate of a plan uses the plan's own rows.
        """
        idle, period = self._quotas(hosts)
        if not period.any():
            return lambda _, borders: np.zeros_like(borders)
        total = self.application.rows
        slots = np.array([host.slots for host in hosts])

        around = [self._shared.get(host.name, NOT_SHARED) for host in hosts]

        def processes(groups: Iterable[frozenset[str]]) -> Orders:
            return np.array(
                [[one.slots * (one.name in names) for one in hosts] for names in groups]
            )

        beside = processes(a.machine - {host.name} for a, host in zip(around, hosts, strict=True))
        sharing = processes(a.quota - {host.name} for a, host in zip(around, hosts, strict=True))
        busiest = int(slots.sum()) + 1
        # By size of the set: p_i by host, number of processes beside it, and of those that share its quota.
        known: dict[int, dict[int, float]] = defaultdict(dict)

        def quota_credit(orders: Orders, borders: Seconds) -> Seconds:
            size = orders.shape[1]
            member = np.zeros((len(orders), len(hosts)), dtype=np.int64)
            np.put_along_axis(member, orders, 1, axis=1)
            places = orders
            for others in (beside, sharing):
                places = places * busiest + np.take_along_axis(member @ others.T, orders, axis=1)
            cases, inverse = np.unique(places, return_inverse=True)
            for case in set(cases.tolist()) - known[size].keys():
                which, elsewhere, with_it = np.unravel_index(case, (len(hosts), busiest, busiest))
                host = hosts[which]
                many = float(host.slots + with_it)
                share = self.conditions.share(host, host.slots, float(elsewhere), many)
                row = self._row_seconds(host, share, total / size)
                known[size][case] = row / self._beside_others(host) if size == 1 else row
            rows = np.array([known[size][case] for case in cases.tolist()])[inverse]
            balanced = total / (1.0 / rows.reshape(orders.shape)).sum(axis=1, keepdims=True)
            return np.asarray(
                np.minimum(borders, idle[orders] * np.minimum(period[orders], balanced))
            )

        return quota_credit

    def border_seconds(self, resources: Sequence[Host]) -> list[float]:
        """Return the seconds of the border between each host of a set and the next, with shared links divided."""
        pairs = list(pairwise(resources))
        if not self.links:
            return [self._border(a, b).seconds(1) for a, b in pairs]
        shared = crossings(resources)
        return [self._border(a, b).seconds(shared[pair_of(a.site, b.site)] or 1) for a, b in pairs]

    # --------------------------------------------------------------------- memory
    def memory(self, rows: float) -> float:
        """Return arrays * (rows + 2) * columns * element_bytes, plus the replicated data."""
        return self.application.strip_memory(rows)

    def free_memory(self, host: Host) -> float:
        """Return the bytes that a part of the grid may take on `host`, in its own memory or a GPU's."""
        known = self._free_memory.get((host.name, host.free_memory))
        if known is None:
            own = self.speeds[host.name].memory
            known = self.conditions.memory_for_strip(host, self.risk, self.memory_limit, own)
            self._free_memory[host.name, host.free_memory] = known
        return known

    def caps(self, resources: Sequence[Host], total: int) -> npt.NDArray[np.int64]:
        """Return the most rows that fit into the forecast free memory, or the GPU's; 0 if no row fits."""
        empty = self.application.strip_memory(0)
        per_row = self.application.strip_memory(1) - empty
        caps = np.full(len(resources), total, dtype=np.int64)
        for i, host in enumerate(resources):
            free = self.free_memory(host)
            if free < self.application.strip_memory(total):
                caps[i] = max(0, min(total, int((free - empty) // per_row)))
        return caps

    def least_rows(self, resources: Sequence[Host], total: int) -> npt.NDArray[np.int64]:
        """Return one row per rank and sweep between two exchanges: fewer rows would need more exchanges.

        If the grid has fewer rows in all, it is 1.
        """
        least = self.sweeps * np.array([host.slots for host in resources], dtype=np.int64)
        if self.sweeps == 1 or least.sum() > total:
            return super().least_rows(resources, total)
        return least

    # ---------------------------------------------------------------- uncertainty
    def draw(
        self, resources: Sequence[Host], rows: Rows, generator: np.random.Generator, count: int
    ) -> Seconds:
        """Return draws of T: CPU shares, speeds and links vary by their errors; the strips are fixed."""
        if self.risk:
            return replace(self, risk=0.0).draw(resources, rows, generator, count)
        compute = self.computation(resources, rows)
        communicate = self.communication(resources)
        late = self.lateness(resources, compute + communicate)
        shares = np.array([max(self.conditions.cpu(h).value, MIN_SHARE) for h in resources])
        cpu_sd = MEAN_ABSOLUTE_TO_SD * np.array(
            [error_of(self.conditions.cpu(h)) for h in resources]
        )
        speed_sd = np.array([self.speeds[h.name].error for h in resources])
        link_sd = self._link_error(resources)
        if not (cpu_sd.any() or speed_sd.any() or link_sd.any()):
            return np.broadcast_to(late * (compute + communicate), (count, len(resources)))
        # Errors are independent between hosts; a CPU share stays between `MIN_SHARE` and 1.
        size = (count, len(resources))
        drawn = np.clip(shares + cpu_sd * generator.standard_normal(size), MIN_SHARE, 1.0)
        slowdown = np.clip(1.0 + speed_sd * generator.standard_normal(size), 0.1, None)
        links = np.clip(1.0 + link_sd * generator.standard_normal(size), 0.0, None)
        return np.asarray(late * (compute * (shares / drawn) * slowdown + communicate * links))

    def _link_error(self, resources: Sequence[Host]) -> Seconds:
        """Return the relative standard deviation of C_i from the errors of its links."""
        steps, error = self.border_seconds(resources), []
        for (a, b), seconds in zip(pairwise(resources), steps, strict=True):
            error.append(seconds * self._relative_error(a, b))
        mean = self.at_borders(np.array([0.0, *steps]), np.array([*steps, 0.0]))
        both = self.at_borders(np.array([0.0, *error]), np.array([*error, 0.0]))
        return np.divide(both, mean, out=np.zeros_like(mean), where=mean > 0)

    def _relative_error(self, a: Host, b: Host) -> float:
        """Return the relative standard deviation of a border, from runs and from the forecasts of its link."""
        relative = self._border(a, b).error
        if self.links.of(a, b):
            return relative
        return float(np.hypot(relative, self._forecast_error(a, b)))

    def _forecast_error(self, a: Host, b: Host) -> float:
        """Return the relative standard deviation of a border from the forecasts of its link."""
        size, messages = self.application.border_bytes, self._messages
        ways = (self.conditions.link(a, b), self.conditions.link(b, a))
        mean = sum(link.seconds(size, messages, 0.0) for link in ways)
        error = sum(link.error(size, messages) for link in ways)
        return MEAN_ABSOLUTE_TO_SD * error / mean if mean > 0 else 0.0
