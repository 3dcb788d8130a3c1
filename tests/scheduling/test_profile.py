"""The availability profile: its reservations moved up as values, and by loops over blocks of steps."""

import math

import numpy as np
import pytest

from apples.scheduling import Profile, instant
from apples.scheduling import profile as profiles

NODES = 16


def drawn(seed, jobs, longest):
    """Running jobs and promises made in order, of which some running ones have just ended early."""
    rng = np.random.default_rng(seed)
    free, now = NODES, 5.0
    running = []
    while free:
        width = int(rng.integers(1, free + 1))
        running.append((now + float(rng.integers(1, longest)), width))
        free -= width
    profile = Profile(0.0, 0, running)
    reserved = []
    for _ in range(jobs):
        nodes, seconds = int(rng.integers(1, NODES + 1)), float(rng.integers(1, longest))
        seconds += rng.choice([0.0, 0.1, 0.333333])
        begin = profile.earliest(nodes, seconds)
        profile.reserve(begin, begin + seconds, nodes)
        reserved.append((begin, seconds, nodes))
    ended = rng.random(len(running)) < 0.6
    free = sum(width for (_, width), early in zip(running, ended, strict=True) if early)
    running = [one for one, early in zip(running, ended, strict=True) if not early]
    waiting = [one for one in reserved if one[0] > now]
    running += [
        (instant(begin + seconds), nodes) for begin, seconds, nodes in reserved if begin <= now
    ]
    return (now, free, running), waiting


def held(machine, reserved):
    return Profile(
        *machine, [(begin, instant(begin + seconds), n) for begin, seconds, n in reserved]
    )


def plain_compression(machine, reserved):
    """Each in turn is taken out of a profile drawn anew, and put where it fits first."""
    reserved = list(reserved)
    for k, (_, seconds, nodes) in enumerate(reserved):
        others = held(machine, reserved[:k] + reserved[k + 1 :])
        reserved[k] = (others.earliest(nodes, seconds), seconds, nodes)
    return [begin for begin, _, _ in reserved]


def level(profile, time):
    return profile.least_between(time, math.nextafter(time, math.inf))


def assert_moved_alike(seed, jobs, longest, expected):
    machine, waiting = drawn(seed, jobs, longest)
    profile = held(machine, waiting)
    moved = profile.plan([b for b, _, _ in waiting], [(s, n) for _, s, n in waiting], moves=True)
    assert moved == expected(machine, waiting)
    again = held(machine, [(b, s, n) for b, (_, s, n) in zip(moved, waiting, strict=True)])
    for time in [*profile.times, *again.times]:
        assert level(profile, time) == level(again, time)
    return sum(new < old for new, (old, _, _) in zip(moved, waiting, strict=True))


def test_reservations_are_moved_up_as_by_drawing_the_profile_anew_for_each():
    moves = [assert_moved_alike(seed, 25, 30, plain_compression) for seed in range(40)]
    assert sum(moves) > 200


@pytest.fixture
def loops(monkeypatch):
    """The compiled loops over blocks, however few reservations there are."""
    pytest.importorskip("numba")
    monkeypatch.setattr(profiles, "MANY_WAITING", 1)


def by_values(machine, waiting):
    one_by_one = held(machine, waiting)
    begins = []
    for old, seconds, nodes in waiting:
        one_by_one.reserve(old, old + seconds, -nodes)
        begins.append(one_by_one.earliest(nodes, seconds))
        one_by_one.reserve(begins[-1], begins[-1] + seconds, nodes)
    return begins


@pytest.mark.usefixtures("loops")
@pytest.mark.parametrize(("jobs", "longest"), [(25, 30), (120, 12), (400, 3000)])
def test_loops_over_blocks_move_reservations_where_values_do(jobs, longest):
    moves = [assert_moved_alike(seed, jobs, longest, by_values) for seed in range(1000 // jobs)]
    assert sum(moves) > 100


@pytest.mark.parametrize("moves", [True, False])
def test_both_forms_of_a_conservative_pass_are_equal(monkeypatch, moves):
    """With promises that are kept or moved, new jobs behind them, and jobs that are too wide for the machine."""
    pytest.importorskip("numba")
    new = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        machine, waiting = drawn(seed, int(rng.integers(2, 90)), int(rng.choice([12, 300, 5000])))
        kept = waiting[: int(rng.integers(0, len(waiting) + 1))]
        jobs = [(seconds, nodes) for _, seconds, nodes in waiting]
        jobs += [(float(rng.integers(1, 99)), int(rng.integers(1, NODES + 3))) for _ in range(9)]
        forms = []
        for many in (1, 10**9):
            monkeypatch.setattr(profiles, "MANY_WAITING", many)
            profile = held(machine, kept)
            begins = profile.plan([begin for begin, _, _ in kept], jobs, moves=moves)
            forms.append((begins, [(time, level(profile, time)) for time in profile.times]))
        (compiled, steps), (values, others) = forms
        assert compiled == values
        assert dict(others).items() >= dict(steps).items()
        new += len(jobs) - len(kept)
    assert new > 1000
