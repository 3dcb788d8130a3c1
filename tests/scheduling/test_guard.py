"""A user's policy under guard: whatever it does costs its pass, and the state it sees is the ledger's."""

import os
import re
import signal
import threading
from pathlib import Path

import hostile
import numpy as np
import pytest
from coding import with_code
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from apples.errors import UsageError
from apples.scheduling import (
    HEADER,
    LOOK_SECONDS,
    POLICIES,
    Easy,
    FirstComeFirstServed,
    GuardedPolicy,
    Wake,
)
from apples.simulation import NodeFailure, SimulationConfig, mark_malleable, rigid, simulate

KINDS = [
    kind
    for kind in vars(hostile).values()
    if isinstance(kind, type) and issubclass(kind, hostile.Policy) and kind is not hostile.Policy
]
#: What each kind is counted as where it is not `raises`.
COUNTED = {
    "Interrupts": "exits", "Leaves": "exits", "LeavesAtOnce": "exits", "Crashes": "exits",
    "ClosesEverything": "exits", "KillsItself": "starts processes",
    "KillsItsParent": "starts processes", "Loops": "loops", "LoopsWhateverComes": "loops",
    "Sleeps": "loops", "LoopsInC": "loops", "WritesToEverything": "loops",
    "EndsNever": "too many", "AMillion": "too many", "EatsMemory": "memory",
    "EatsMemoryInBites": "memory", "Forks": "starts processes",
    "StartsPrograms": "starts processes", "AsksTheShell": "starts processes",
    "BecomesAnother": "starts processes", "NoDecision": "no decision",
    "NotDecisions": "no decision", "HalfANode": "no decision", "NoNumber": "no decision",
    "NumberOfAnotherKind": "no decision", "JobOfAnotherKind": "no decision",
    "HoldsWithoutReason": "no decision", "ReasonsAtLength": "no decision",
    "RejectsWithAPicture": "no decision", "UnknownJob": "refused", "OthersJob": "refused",
    "NegativeNodes": "refused", "TooMany": "refused", "Twice": "refused",
    "NodesThatAreNot": "refused", "Past": "refused", "WakesInThePast": "refused",
    "RequeuesWhatDoesNotRun": "refused", "ChangesAJobByForce": "refused", "Idle": "idle",
    "PromisesOnly": "idle", "HoldsAll": "idle",
}  # fmt: skip
JOBS = rigid(np.arange(6.0), np.full(6, 4.0), np.array([3, 2, 4, 1, 2, 4]), np.full(6, 5.0))
MACHINE = SimulationConfig(4)


def children():
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


def test_there_are_forty_kinds_of_hostile_policies():
    assert len(KINDS) >= 40


@pytest.mark.more
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_hostile_policy_costs_its_pass_and_is_named_with_its_line_and_the_run_goes_on(
    kind, capfd
):
    before = children()
    # What needs no end comes to one soon; the others have as long as they need on a loaded machine.
    seconds = 0.1 if COUNTED.get(kind.__name__) == "loops" else 20.0
    guard = GuardedPolicy(kind, f"hostile.py:{kind.__name__}", seconds=seconds, patience=0.05)
    try:
        result = simulate(JOBS, guard, MACHINE)
    finally:
        guard.close()
    first, count = result.failures[0]
    assert first.kind == COUNTED.get(kind.__name__, "raises"), str(first)
    assert result.failed_passes >= count > 0
    assert "\n" not in str(first)
    assert str(first).startswith(f"policy hostile.py:{kind.__name__} at ")
    file, line = first.where.rsplit(":", 1)
    assert Path(file) == Path(hostile.__file__)
    assert 0 < int(line) <= len(Path(file).read_text().splitlines())
    assert len(str(first)) < 700
    assert result.completed.all()
    if first.kind != "idle" and kind is not hostile.ChangesAJobByForce:
        plain = simulate(JOBS, FirstComeFirstServed(), MACHINE)
        assert result.start.tolist() == plain.start.tolist()
    assert children() <= before
    assert capfd.readouterr().out == ""


def test_a_policy_that_fails_now_and_then_decides_the_other_passes():
    class Moody(Easy):
        def decide(self, cluster):
            if int(cluster.time) % 3 == 1:
                raise ValueError("not at such a time")
            return super().decide(cluster)

    guard = GuardedPolicy(Moody, "Moody")
    result = simulate(JOBS, guard, MACHINE)
    guard.close()
    assert 0 < result.failed_passes < result.passes
    assert result.put_aside is None
    assert result.completed.all()


def test_a_policy_that_is_never_right_is_put_aside():
    before = children()
    guard = GuardedPolicy(hostile.Raises, "Raises")
    many = rigid(np.arange(300.0), np.ones(300), np.ones(300, dtype=int), np.ones(300))
    result = simulate(many, guard, MACHINE)
    assert result.put_aside is not None
    assert sum(count for _, count in result.failures) == result.failed_passes == result.passes
    assert children() <= before


def test_a_policy_that_wakes_for_ever_while_nothing_happens_is_stopped():
    class Insomniac(Easy):
        pause = 0.001

        def decide(self, cluster):
            yield from super().decide(cluster)
            yield Wake(cluster.time + self.pause)

    class Patient(Insomniac):
        pause = 1.0

    for kind, failed in ((Insomniac, True), (Patient, False)):
        guard = GuardedPolicy(kind, kind.__name__, patience=60.0, wakes_in_a_row=50)
        jobs = rigid(np.zeros(1), np.full(1, 200.0), np.ones(1, dtype=int), np.full(1, 200.0))
        result = simulate(jobs, guard, MACHINE)
        guard.close()
        assert result.completed.all()
        assert [first.kind for first, _ in result.failures] == (["wakes"] if failed else [])
        if failed:
            assert re.findall(r"[\d.]+", result.failures[0][0].reason) == ["50", "0.049"]


def test_what_a_policy_prints_goes_to_stderr_up_to_a_bound(capfd):
    class Prints(Easy):
        def decide(self, cluster):
            print("a" * 10_000)
            return super().decide(cluster)

    guard = GuardedPolicy(Prints, "Prints")
    result = simulate(JOBS, guard, MACHINE)
    guard.close()
    assert result.failed_passes == 0
    shown = capfd.readouterr()
    assert shown.out == ""
    assert 64 << 10 <= len(shown.err) < 70_000


def test_a_policy_that_cannot_be_made_is_one_line():
    before = children()

    def make():
        raise RuntimeError("no such licence")

    line = make.__code__.co_firstlineno + 1
    fails = with_code("policy-failed", policy="mine", kind="starts", file=__file__, line=line)
    with pytest.raises(UsageError, check=fails):
        GuardedPolicy(make, "mine")
    assert children() <= before


@pytest.mark.parametrize("given", ["week", -1.0, float("nan")])
def test_a_half_life_that_is_none_is_refused_before_the_first_pass(given):
    class Forgets(Easy):
        usage_half_life = given

    with pytest.raises(
        UsageError, check=with_code("value-invalid", policy="Forgets", value=repr(given))
    ):
        GuardedPolicy(Forgets, "Forgets")


def test_a_policy_that_is_asked_strictly_ends_the_run():
    guard = GuardedPolicy(hostile.Raises, "Raises")
    with pytest.raises(
        UsageError, check=with_code("policy-failed", policy="Raises", kind="raises", time=0.0)
    ):
        simulate(JOBS, guard, SimulationConfig(4, strict=True))
    guard.close()


def own(kind):
    """Return the policy as a user's own class."""
    return type(f"Own{kind.__name__}", (kind,), {})


@pytest.mark.more
@settings(max_examples=examples(8), deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from(["fcfs", "first_fit", "sjf", "easy", "conservative", "equipartition"]),
    st.sampled_from(["instant", "event"]),
)
def test_a_policy_decides_the_same_under_guard_as_in_this_process(seed, name, ties):
    """Failures, repairs, evolving and malleable jobs: the child has the very state of the ledger."""
    rng = np.random.default_rng(seed)
    count = 40
    run = rng.integers(1, 20, count).astype(float)
    jobs = rigid(
        rng.integers(0, 60, count).astype(float), run, rng.integers(1, 9, count),
        run + rng.choice([0, 0, 5, 20], count),
    )  # fmt: skip
    jobs = mark_malleable(jobs, 0.5, seed, minimum=0.3, maximum=2.0, most=8)
    at = np.cumsum(rng.integers(5, 40, 4))
    failures = tuple(NodeFailure(float(t), int(rng.integers(8)), float(t) + 30.5) for t in at)
    config = SimulationConfig(
        8, ties=ties, failures=failures,
        demands=dict.fromkeys(range(1, count, 7), ((0.5, 3),)),
        cancellations={5: 30.0, 6: 31.0},
    )  # fmt: skip
    here = simulate(jobs, POLICIES[name](), config, engine="events")
    guard = GuardedPolicy(own(POLICIES[name]), name)
    there = simulate(jobs, guard, config)
    guard.close()
    assert there.failures == ()
    for what in ("start", "end", "resizes", "completed"):
        assert np.array_equal(getattr(here, what), getattr(there, what), equal_nan=True), what


def test_a_child_that_gets_no_cpu_for_a_while_takes_a_large_state_later():
    state = b" " * (4 << 20)  # more than a socket holds
    for clock in (0.0, 300.0):
        guard = GuardedPolicy(own(Easy), "OwnEasy")
        child = guard.child
        os.kill(child.pid, signal.SIGSTOP)
        later = threading.Timer(4 * LOOK_SECONDS, os.kill, (child.pid, signal.SIGCONT))
        if clock:
            later.start()
        assert child.tell(len(state).to_bytes(HEADER, "big") + state, clock) == (clock > 0)
        guard.close()


def test_the_child_is_told_the_whole_state_again_after_it_died():
    class Dies(Easy):
        def decide(self, cluster):
            if cluster.time == 2.0:
                os._exit(1)
            return super().decide(cluster)

    guard = GuardedPolicy(Dies, "Dies")
    result = simulate(JOBS, guard, MACHINE)
    guard.close()
    assert [(one.kind, one.time, count) for one, count in result.failures] == [("exits", 2.0, 1)]
    assert result.completed.all()
