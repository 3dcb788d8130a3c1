"""State a change of hosts would lose is named before anything runs."""

import sys

import pytest

from apples.malleable import carried


class Asked:
    """Stands for a job: remembers what its first safe point found."""

    def __init__(self, *declared):
        self.declared, self.found = declared, None

    changed = True

    def iterations(self):
        caller = sys._getframe(1)
        self.found = [name for name, _ in carried(caller, self.declared)]
        yield from range(2)

    def safepoint(self):
        if self.found is None:
            self.found = [name for name, _ in carried(sys._getframe(1), self.declared)]


def found(body, *declared, job=None):
    job = job or Asked("job", *declared)
    body(job)
    return job.found


def counter(job):
    step = 0
    while step < 2:
        job.safepoint()
        step += 1


def swapped(job):
    old, new, turns = [0], [1], 2
    while turns:
        job.safepoint()
        old, new = new, old
        turns = turns - 1


def for_loop(job):
    for step in range(2):
        job.safepoint()
        print(step)


def local_only(job, state=None):
    state = state or {"n": 0}
    while state["n"] < 2:
        change = job.safepoint()
        if change:
            views = [1]
        residual = 0.0
        for part in (1, 2):
            residual = residual + part
        state["n"] += 1
    return state, residual, "views" in locals() and views


def mutated(job):
    counts, left = [0, 0], [0, 0]
    while len(left) < 4:
        job.safepoint()
        counts[0] += 1
        left = [*left, 1]


def counted(job):
    for _ in job.iterations():
        if job.changed:
            halo = object()
        print(halo)


def counted_with_more(job):
    total = 0
    for step in job.iterations():
        total = total + step


def rebuilt(job):
    halo, state = None, [0]
    while state[0] < 2:
        if job.safepoint():
            halo = object()
        print(halo)
        state[0] += 1


@pytest.mark.parametrize(
    ("body", "declared", "names"),
    [
        (counter, (), ["step"]),
        (counter, ("step",), []),
        (swapped, (), ["new", "old", "turns"]),
        (for_loop, (), ["the position of `for step`"]),
        (local_only, ("state",), []),
        (mutated, (), ["counts[0]", "left"]),
        (rebuilt, ("state",), []),
        (counted, (), []),
        (counted_with_more, (), ["total"]),
    ],
)
def test_what_a_loop_carries_and_nobody_declared_is_found(body, declared, names):
    assert found(body, *declared) == names
