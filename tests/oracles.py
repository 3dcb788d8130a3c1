"""Slow and obvious answers to compare the planner and the selector with: every ordered subset, HiGHS."""

from itertools import permutations

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


def cost_bound(p, border, cap, rates, total, longest=np.inf, ratio=1.002):
    """A number of cost units (rate times seconds) an iteration that no set of hosts can undercut.

    `border[i]` is the cheapest border host i can have with any other. One host alone is worked out. A set S of
    more that takes T seconds costs T sum_S c_i; host i of it computes at most g_i(T) = min(cap_i, (T - b_i) / p_i)
    rows: no less than the fractional knapsack of g_i(T) at prices T c_i, the whole of which must be `total`. On an
    interval a <= T <= b its price is at least that with prices at a and rows at b; the intervals cover every T.
    """
    alone = (cap >= total) & (p * total <= longest)
    best = float((rates * p * total)[alone].min()) if alone.any() else np.inf
    least = (total + (border / p).sum()) / (1 / p).sum() if len(p) > 1 else np.inf
    least = max(least * 0, total / (1 / p).sum())
    most = min(longest, float((border + p * np.minimum(cap, total)).max()))
    edges = [least]
    while edges[-1] < most:
        edges.append(min(edges[-1] * ratio, most))
    bounds = []
    for a, b in zip(edges, [*edges[1:], edges[-1]], strict=True):
        rows = np.minimum(cap, np.maximum((b - border) / p, 0))
        use = rows > 0
        price = a * rates[use] / rows[use]
        order = np.argsort(price)
        taken = np.cumsum(rows[use][order])
        if taken[-1] < total * (1 - 1e-12):
            continue
        k = int(np.searchsorted(taken, total * (1 - 1e-12)))
        part = np.minimum(rows[use][order][: k + 1], total - np.concatenate([[0], taken[:k]]))
        bounds.append(float((price[order][: k + 1] * part).sum()))
    # Beyond `most` every host computes its cap, and the price only rises.
    return min([best, *bounds])


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
