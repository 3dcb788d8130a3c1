"""Slow and obvious answers to compare the planner, the selector and the placement with: all there are, HiGHS."""

import heapq
from itertools import pairwise, permutations, product

import highspy
import numpy as np


def whole_row_seconds(p, border, cap, total):
    """Least T for whole rows 1..cap on each of many chains at once; inf where the caps are too small.

    Arrays of shape (chains, hosts); C_i in `border`.
    """
    least = (border + p).max(axis=1)
    low, high = np.zeros(len(p)), np.maximum(least, (border + p * cap).max(axis=1))
    impossible = cap.sum(axis=1) < total
    for _ in range(100):
        middle = (low + high) / 2
        rows = np.clip(np.floor((middle[:, None] - border) / p * (1 + 1e-13)), 1, cap)
        enough = rows.sum(axis=1) >= total
        high = np.where(enough, middle, high)
        low = np.where(enough, low, middle)
    seconds = np.maximum(high, least)
    return np.where(impossible, np.inf, seconds)


def paper_border(pair):
    """Return a function from chains to C_i: the sum of a host's borders, `pair[i, j]` between i and j."""

    def border(chains):
        step = pair[chains[:, :-1], chains[:, 1:]]
        found = np.zeros(chains.shape)
        found[:, :-1] += step
        found[:, 1:] += step
        return found

    return border


def shared_border(messages, size, link):
    """Return the same where a host's borders go at once and share the links they cross.

    `messages[i, j]` and `size[i, j]` are the two parts of the border between i and j; `link[i, j]` names what
    it crosses, negative where nothing is shared.
    """

    def border(chains):
        a, b = chains[:, :-1], chains[:, 1:]
        crossed = link[a, b]
        count = (crossed[:, :, None] == crossed[:, None, :]).sum(axis=2)
        step = messages[a, b] + np.where(crossed < 0, 1, count) * size[a, b]
        found = np.zeros(chains.shape)
        found[:, :-1] = step
        found[:, 1:] = np.maximum(found[:, 1:], step)
        return found

    return border


def best_of_all_ordered_subsets(p, border, cap, total, value=lambda seconds, _: seconds):
    """Least value over every ordered subset of the hosts; `border` makes C_i of chains.

    `value` is handed the seconds of many chains and their hosts, shape (chains, hosts); it never falls as the
    seconds grow.
    """
    best = np.inf
    usable = [i for i in range(len(p)) if cap[i] >= 1]
    for size in range(1, len(usable) + 1):
        if size > total:
            break
        chains = np.array([c for c in permutations(usable, size) if c[0] <= c[-1]])
        seconds = whole_row_seconds(p[chains], border(chains), cap[chains], total)
        able = np.isfinite(seconds)
        if able.any():
            best = min(best, value(seconds[able], chains[able]).min())
    return best


def highs_seconds(p, border, cap, total):
    """Least T by HiGHS, evaluated exactly at the whole rows it found; and its proven bound."""
    unit = float(p.min() * total)
    model = highspy.Highs()
    model.setOptionValue("output_flag", False)
    model.setOptionValue("mip_rel_gap", 0.0)
    model.setOptionValue("mip_abs_gap", 1e-12)
    longest = model.addVariable(lb=0.0, obj=1.0)
    rows = [model.addIntegral(lb=1.0, ub=float(c)) for c in cap]
    for r, q, c in zip(rows, p / unit, border / unit, strict=True):
        model.addConstr(q * r + c <= longest)
    model.addConstr(sum(rows) == float(total))
    model.minimize()
    found = np.array([round(model.val(r)) for r in rows])
    assert found.sum() == total
    return float((p * found + border).max()), model.getInfo().mip_dual_bound * unit


def cost_bound(p, inner, outer, site, cap, rates, total, longest=np.inf, ratio=1.001):
    """A cost of an iteration (the sum of rates times seconds) that no set of hosts can undercut.

    `inner[i]` and `outer[i]` are the least borders that host i can have with one of its own site and of another.
    One host alone is worked out. Several that take T cost T sum c_i and hold `total` rows, host i at most
    g_i = min(cap_i, (T - C_i) / p_i). For any price x of a row that is at least T (x total - sum (x g_i - c_i)),
    and the sum is at most what the best set of hosts makes of it, site by site: in a site that the chain passes
    two borders lead outside, in its first and last one; the others are inside. On times from a to b, T is at
    least a and every g_i at most that at b; intervals are halved where the bound is least until they are narrow.
    """
    able = cap >= 1
    p, inner, outer, site, cap, rates = (x[able] for x in (p, inner, outer, site, cap, rates))
    order = np.argsort(site, kind="stable")
    p, inner, outer, site, cap, rates = (x[order] for x in (p, inner, outer, site, cap, rates))
    alone = (cap >= total) & (p * total <= longest)
    best = float((rates * p * total)[alone].min()) if alone.any() else np.inf
    first = np.flatnonzero(np.concatenate([[True], site[1:] != site[:-1]]))
    size = np.diff(np.append(first, len(site)))
    chains = _Chains(p, inner, outer, cap, rates, total, first, size)
    edges = np.geomspace(
        total / (1 / p).sum(), min(longest, float((2 * outer + p * cap).max()) * 1.01), 33
    )
    heap = [(chains.bound(a, b), a, b) for a, b in pairwise(edges.tolist())]
    heapq.heapify(heap)
    while heap[0][0] < best and heap[0][2] > heap[0][1] * ratio:
        _, a, b = heapq.heappop(heap)
        middle = (a * b) ** 0.5
        for one in ((a, middle), (middle, b)):
            heapq.heappush(heap, (chains.bound(*one), *one))
    return min(best, heap[0][0])


class _Chains:
    """What several hosts in a chain cost at least, between two times; hosts are sorted by their sites."""

    def __init__(self, p, inner, outer, cap, rates, total, first, size):
        self.p, self.inner, self.outer, self.cap, self.rates = p, inner, outer, cap, rates
        self.total, self.first, self.size = total, first, size

    def bound(self, a, b):
        def most(border):
            return np.minimum(self.cap, np.maximum((b - border) / self.p, 0))

        i, o = self.inner, self.outer
        rows = {name: most(c) for name, c in {
            "inside": 2 * i, "tip": i, "way out": i + o, "passed": 2 * o, "end": o,
        }.items()}  # fmt: skip
        if rows["end"].sum() < self.total and rows["tip"].sum() < self.total:
            return np.inf
        per_row = self.rates / np.maximum(rows["tip"], 1e-300)
        prices = np.unique(np.quantile(per_row[rows["tip"] > 0], np.linspace(0, 1, 25)))
        values = np.array([self._value(x, rows) for x in prices])
        one, several = values[:, 1:].max(axis=0).min(), values[:, 0].max()
        k = int(values[:, 0].argmax())
        if several > 0 and len(prices) > 1:  # the dual is concave: look closer about its maximum
            low, high = prices[max(0, k - 1)], prices[min(len(prices) - 1, k + 1)]
            finer = np.array([self._value(x, rows) for x in np.linspace(low, high, 25)])
            several = max(several, finer[:, 0].max())
            one = np.maximum(values[:, 1:].max(axis=0), finer[:, 1:].max(axis=0)).min()
        return a * max(0.0, min(one, several))

    def _value(self, price, rows):
        """The dual at a price of a row: of sets of several sites, then of each site alone."""
        worth = {name: price * r - self.rates for name, r in rows.items()}
        free = np.maximum(worth["inside"], 0)
        base = np.add.reduceat(free, self.first)
        tip = self._top(np.maximum(worth["tip"], 0) - free)
        way, passed, end = (self._top(worth[name] - free) for name in ("way out", "passed", "end"))
        through = base + np.maximum(way.sum(axis=0), passed[0])
        at_end = base + np.maximum(way[0] + np.maximum(tip[0], 0), end[0])
        through, at_end = np.maximum(through, 0), np.maximum(at_end, 0)
        gain = np.sort(np.maximum(at_end - through, 0))[-2:].sum()
        several = price * self.total - through.sum() - gain
        if len(self.first) < 2:
            several = np.inf
        alone = price * self.total - (base + np.maximum(tip, 0).sum(axis=0))
        return np.append(several, alone)

    def _top(self, values):
        """The largest two of each site, -inf where there is but one."""
        largest = np.maximum.reduceat(values, self.first)
        rest = values.copy()
        place = np.array(
            [
                f + int(values[f : f + s].argmax())
                for f, s in zip(self.first, self.size, strict=True)
            ]
        )
        rest[place] = -np.inf
        return np.array([largest, np.maximum.reduceat(rest, self.first)])


def seconds_under_quotas(quotas, compute, wait, period, begin, iterations=400):
    """Mean iteration of hosts in lockstep: each computes, all wait for the last, then for `wait` more.

    Every host may compute for quota * period in each of its periods, the first from `begin` on; what is not used
    in one is lost.
    """
    left, ends = [q * period for q in quotas], [b + period for b in begin]
    now = 0.0
    for _ in range(iterations):
        done = []
        for i, quota in enumerate(quotas):
            time, work = now, compute[i]
            while work > 1e-12:
                if time >= ends[i] - 1e-12:
                    ends[i] += period * (1 + (time - ends[i]) // period)
                    left[i] = quota * period
                step = min(work, left[i], ends[i] - time)
                time, work, left[i] = time + step, work - step, left[i] - step
                if work > 1e-12 and left[i] <= 1e-15:
                    time = ends[i]
            done.append(time)
        now = max(done) + wait
    return now / iterations


def placement_optimum(problem):
    """Return the least cost of a placement of tasks (`PlacementProblem`), by trying all."""
    tasks, hosts = len(problem.loads), len(problem.speeds)
    every = np.array(list(product(range(hosts), repeat=tasks)))
    if problem.room:
        used = np.stack([(every == host).sum(axis=1) for host in range(hosts)], axis=1)
        every = every[(used <= np.array(problem.room)).all(axis=1)]
    cost = np.zeros(len(every))
    for a in range(tasks):
        for b in range(a):
            cost += problem.tie[a, b] * problem.distance[every[:, a], every[:, b]]
    work = np.stack([((every == host) @ np.array(problem.loads)) for host in range(hosts)], axis=1)
    step = np.maximum((work / np.array(problem.speeds)).max(axis=1), problem.tolerated)
    return float((cost + problem.weight * step).min())
