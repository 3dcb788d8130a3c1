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


def best_of_all_ordered_subsets(p, border, cap, total):
    """Least T over every ordered subset of the hosts; `border` makes C_i of chains."""
    best = np.inf
    usable = [i for i in range(len(p)) if cap[i] >= 1]
    for size in range(1, len(usable) + 1):
        if size > total:
            break
        chains = np.array([c for c in permutations(usable, size) if c[0] <= c[-1]])
        best = min(best, whole_row_seconds(p[chains], border(chains), cap[chains], total).min())
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
