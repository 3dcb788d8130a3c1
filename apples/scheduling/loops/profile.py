"""The availability profile in blocks: free units over time, for thousands of waiting jobs.

`apples.scheduling.profile` has the same profile as a value. Each block holds at most `BLOCK` steps, with its
lowest and highest level. A search skips a block where nothing fits, or everything, in one comparison, and a change
of a whole block is entered once. Small neighbouring blocks are merged, so that a block has at least a quarter of
`BLOCK` steps on average.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from apples.scheduling.instants import HALF_INSTANT
from apples.scheduling.loops.compiled import (
    FOREVER,
    Numbers,
    inlined,
    inner,
    integers,
    zeros,
)

BLOCK = 64  # maximum steps of a block
#: Layout of a block: count of steps, lowest and highest level, shift of all levels, then the steps.
COUNT, LOW, HIGH, SHIFT, FIRST = range(5)
ROW = FIRST + BLOCK


class BlockedProfile(NamedTuple):
    """A step function: free units over time; the last level lasts for ever.

    It has few arrays since each array argument of a compiled function costs two atomic counts.

    Attributes
    ----------
    order
        The number of blocks in use, the blocks in the order of time, and those not in use. A block is the offset
        of its row in `cell` and `time`.
    cell
        Rows with COUNT, LOW, HIGH and SHIFT, then the levels.
    time
        Rows with the start times of the steps, at the positions of their levels.
    """

    order: Numbers
    cell: Numbers
    time: Numbers


def blocked_profile(capacity: int, steps: int) -> BlockedProfile:
    """Return a profile of one level, with room for `steps` steps."""
    blocks = 4 * steps // BLOCK + 4
    order = np.arange(-1, blocks) * ROW
    order[0] = 1
    profile = BlockedProfile(order, integers(blocks * ROW), zeros(blocks * ROW))
    profile.cell[COUNT] = 1
    profile.cell[LOW] = profile.cell[HIGH] = profile.cell[FIRST] = capacity
    profile.time[FIRST] = -FOREVER
    return profile


def profile_of(times: NDArray[np.float64], levels: NDArray[np.int64], more: int) -> BlockedProfile:
    """Return the profile of these steps, with room for `more` further steps."""
    profile = blocked_profile(0, len(times) + more)
    half = BLOCK // 2
    blocks = -(-len(times) // half)
    profile.order[0] = blocks
    for i in range(blocks):
        part = slice(i * half, min((i + 1) * half, len(times)))
        count, block = part.stop - part.start, i * ROW
        steps = slice(block + FIRST, block + FIRST + count)
        profile.time[steps], profile.cell[steps] = times[part], levels[part]
        profile.cell[block + COUNT] = count
        profile.cell[block + LOW] = int(levels[part].min())
        profile.cell[block + HIGH] = int(levels[part].max())
    return profile


def steps_of(profile: BlockedProfile) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the start times of the steps of a profile, and their levels."""
    times, levels = [], []
    for block in profile.order[1 : profile.order[0] + 1]:
        steps = slice(block + FIRST, block + FIRST + profile.cell[block + COUNT])
        times.append(profile.time[steps])
        levels.append(np.asarray(profile.cell[steps]) + profile.cell[block + SHIFT])
    return np.concatenate(times), np.concatenate(levels)


@inlined
def block_at(p: BlockedProfile, time: float) -> int:
    """Return the position of the block that holds a time."""
    low, high = 1, p.order[0] + 1
    while high - low > 1:
        middle = (low + high) >> 1
        if p.time[p.order[middle] + FIRST] <= time:
            low = middle
        else:
            high = middle
    return low


@inlined
def step_at(p: BlockedProfile, block: int, time: float) -> int:
    """Return the last step of a block that does not begin after a time."""
    low = block + FIRST
    high = low + p.cell[block + COUNT]
    while high - low > 1:
        middle = (low + high) >> 1
        if p.time[middle] <= time:
            low = middle
        else:
            high = middle
    return low


@inlined
def measure(p: BlockedProfile, block: int) -> None:
    """Compute a block's lowest and highest level."""
    first = block + FIRST
    low = high = p.cell[first]
    for k in range(first + 1, first + p.cell[block + COUNT]):
        low = min(low, p.cell[k])
        high = max(high, p.cell[k])
    p.cell[block + LOW] = low + p.cell[block + SHIFT]
    p.cell[block + HIGH] = high + p.cell[block + SHIFT]


@inner
def remove_block(p: BlockedProfile, at: int) -> None:
    """Remove the block at a position."""
    block, last = p.order[at], p.order[0]
    for i in range(at, last):
        p.order[i] = p.order[i + 1]
    p.order[last] = block
    p.order[0] -= 1


@inner
def split(p: BlockedProfile, at: int) -> None:
    """Split the full block at a position: move the later half of its steps to a new block after it."""
    last = p.order[0] + 1
    block, new = p.order[at], p.order[last]
    for i in range(last, at + 1, -1):
        p.order[i] = p.order[i - 1]
    p.order[at + 1] = new
    p.order[0] += 1
    half = BLOCK // 2
    for k in range(FIRST, FIRST + half):
        p.time[new + k] = p.time[block + half + k]
        p.cell[new + k] = p.cell[block + half + k]
    p.cell[block + COUNT] = p.cell[new + COUNT] = half
    p.cell[new + SHIFT] = p.cell[block + SHIFT]
    measure(p, block)
    measure(p, new)


@inner
def merge(p: BlockedProfile, at: int) -> None:
    """Merge the block at a position with the next."""
    block, other = p.order[at], p.order[at + 1]
    count = p.cell[block + COUNT]
    more = p.cell[other + SHIFT] - p.cell[block + SHIFT]
    for k in range(FIRST, FIRST + p.cell[other + COUNT]):
        p.time[block + count + k] = p.time[other + k]
        p.cell[block + count + k] = p.cell[other + k] + more
    p.cell[block + COUNT] += p.cell[other + COUNT]
    p.cell[block + LOW] = min(p.cell[block + LOW], p.cell[other + LOW])
    p.cell[block + HIGH] = max(p.cell[block + HIGH], p.cell[other + HIGH])
    remove_block(p, at + 1)


@inlined
def begin_step(p: BlockedProfile, time: float) -> None:
    """Insert a step that begins at a time, unless one exists."""
    at = block_at(p, time)
    if p.cell[p.order[at] + COUNT] == BLOCK:
        split(p, at)
        at = block_at(p, time)
    block = p.order[at]
    k = step_at(p, block, time)
    if p.time[k] != time:
        for i in range(block + FIRST + p.cell[block + COUNT], k + 1, -1):
            p.time[i] = p.time[i - 1]
            p.cell[i] = p.cell[i - 1]
        p.time[k + 1] = time
        p.cell[k + 1] = p.cell[k]
        p.cell[block + COUNT] += 1


@inlined
def end_step(p: BlockedProfile, time: float) -> None:
    """Remove the step that begins at a time if it has the level of the step before."""
    at = block_at(p, time)
    block = p.order[at]
    k = step_at(p, block, time)
    level = p.cell[k] + p.cell[block + SHIFT]
    first = k == block + FIRST
    if first:
        if at == 1:
            return
        before = p.order[at - 1]
        last = before + FIRST + p.cell[before + COUNT] - 1
        if p.cell[last] + p.cell[before + SHIFT] != level:
            return
    elif p.cell[k - 1] + p.cell[block + SHIFT] != level:
        return
    p.cell[block + COUNT] -= 1
    for i in range(k, block + FIRST + p.cell[block + COUNT]):
        p.time[i] = p.time[i + 1]
        p.cell[i] = p.cell[i + 1]
    if p.cell[block + COUNT] == 0:
        remove_block(p, at)
        return
    if first:
        measure(p, block)
    # Merging small neighbours keeps the number of blocks within the allocated room.
    count, few = p.cell[block + COUNT], BLOCK // 2
    if at < p.order[0] and count + p.cell[p.order[at + 1] + COUNT] <= few:
        merge(p, at)
        count = p.cell[block + COUNT]
    if at > 1 and count + p.cell[p.order[at - 1] + COUNT] <= few:
        merge(p, at - 1)


@inner
def take(p: BlockedProfile, begin: float, end: float, units: int) -> None:
    """Take units from [begin, end); a negative number gives them back."""
    begin_step(p, begin)
    begin_step(p, end)
    at = block_at(p, begin)
    block = p.order[at]
    k = step_at(p, block, begin)
    while True:
        last = block + FIRST + p.cell[block + COUNT]
        if p.time[last - 1] >= end:
            break
        if k == block + FIRST:  # the whole block
            p.cell[block + SHIFT] -= units
            p.cell[block + LOW] -= units
            p.cell[block + HIGH] -= units
        else:
            for i in range(k, last):
                p.cell[i] -= units
            measure(p, block)
        at += 1
        block = p.order[at]
        k = block + FIRST
    if p.time[k] < end:
        while p.time[k] < end:
            p.cell[k] -= units
            k += 1
        measure(p, block)
    end_step(p, end)
    end_step(p, begin)


@inlined
def most_between(p: BlockedProfile, begin: float, end: float) -> int:
    """Return an upper bound of the units that are free at any time in [begin, end)."""
    at = block_at(p, begin)
    most = p.cell[p.order[at] + HIGH]
    while at < p.order[0] and p.time[p.order[at + 1] + FIRST] < end:
        at += 1
        most = max(most, p.cell[p.order[at] + HIGH])
    return int(most)


@inlined
def forget_before(p: BlockedProfile, now: float) -> None:
    """Remove the blocks that lie before `now`."""
    while p.order[0] > 1 and p.time[p.order[2] + FIRST] <= now:
        remove_block(p, 1)


@inner
def earliest(
    p: BlockedProfile,
    now: float,
    after: float,
    until: float,
    onward: float,
    seconds: float,
    units: int,
    by: float,
) -> float:
    """Return the first time from `now` on from which the units are free for `seconds`.

    If no such place ends by the time `by`, any lower bound of the first time may be returned.

    Parameters
    ----------
    after
        No place begins before this time.
    until, onward
        No place begins at or after `until` and before `onward`.
    """
    at = block_at(p, max(now, after))
    block = p.order[at]
    k = step_at(p, block, max(now, after))
    fits = False
    begin = now
    seconds -= HALF_INSTANT  # the step may end in the same instant
    while True:
        last = block + FIRST + p.cell[block + COUNT]
        if fits and p.time[k] >= begin + seconds:
            return begin
        reached = begin if fits else max(now, p.time[k])
        if reached + seconds > by:
            return reached
        if not (p.cell[block + LOW] >= units if fits else p.cell[block + HIGH] < units):
            least = units - p.cell[block + SHIFT]
            while k < last:
                if fits:
                    if p.time[k] >= begin + seconds:
                        return begin
                    fits = p.cell[k] >= least
                elif p.cell[k] >= least:
                    fits = True
                    begin = max(now, p.time[k])
                k += 1
        if at == p.order[0]:
            return begin if fits else FOREVER
        at += 1
        block = p.order[at]
        k = block + FIRST
        if not fits and until <= p.time[k] < onward:
            at = block_at(p, onward)
            block = p.order[at]
            k = step_at(p, block, onward)


@inlined
def free_before(p: BlockedProfile, time: float) -> int:
    """Return the units that are free just before a time, which is not the first."""
    at = block_at(p, time)
    block = p.order[at]
    k = step_at(p, block, time)
    if p.time[k] == time:
        if k == block + FIRST:
            block = p.order[at - 1]
            k = block + FIRST + p.cell[block + COUNT]
        k -= 1
    return int(p.cell[k] + p.cell[block + SHIFT])


@inner
def run_before(p: BlockedProfile, now: float, end: float, units: int) -> float:
    """Return the time from which the units are free up to `end`; `end` if they are not free just before it."""
    at = block_at(p, end)
    block = p.order[at]
    k = step_at(p, block, end)
    begin = end
    if p.time[k] < end:
        k += 1
    while begin > now:
        if k == block + FIRST:
            if at == 1:
                break
            at -= 1
            block = p.order[at]
            k = block + FIRST + p.cell[block + COUNT]
            if p.cell[block + LOW] >= units:
                k = block + FIRST
                begin = p.time[k]
                continue
        k -= 1
        if p.cell[k] + p.cell[block + SHIFT] < units:
            break
        begin = p.time[k]
    return max(now, begin)
