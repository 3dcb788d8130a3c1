"""What a policy is shown: a frozen value that goes to JSON and back."""

import json
import math
from copy import deepcopy

import pytest
from coding import with_code
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from apples.errors import UsageError
from apples.scheduling import (
    Accepted,
    ClusterLedger,
    ClusterState,
    Events,
    Hold,
    Job,
    JobKind,
    NodeLoad,
    NodeOccupancy,
    ReadOnly,
    Refused,
    Requeue,
    RunningJob,
    Start,
    Wait,
    Wake,
    from_json,
    to_json,
)

TIMES = st.floats(allow_nan=False)
NODES = st.integers(0, 2**40)
NUMBERS = st.integers(-(2**60), 2**60)
JOBS = st.builds(
    Job, NUMBERS, TIMES, NODES, TIMES, NODES, NODES, st.sampled_from(list(JobKind))
)  # fmt: skip
IDS = st.frozensets(st.integers(0, 99), max_size=5)
TUPLES = st.lists(NUMBERS, max_size=3).map(tuple)
RUNNING = st.builds(
    RunningJob, JOBS, TIMES, NODES, TIMES, TIMES, st.none() | NUMBERS, TUPLES, NODES,
    st.floats(0, 1), st.none() | NODES, IDS, st.integers(0, 60), st.integers(0, 9), TIMES, TIMES,
    st.lists(st.tuples(NUMBERS, NUMBERS, TIMES), max_size=2).map(tuple),
    st.lists(st.tuples(NUMBERS, TIMES), max_size=2).map(tuple),
)  # fmt: skip


LOADS = st.builds(
    NodeLoad, st.text(max_size=9), NODES, NODES, TIMES, TIMES, st.booleans(), st.text(max_size=9),
    st.lists(st.tuples(st.text(max_size=9), st.floats(0, 1)), max_size=3).map(tuple), TIMES,
)  # fmt: skip


@st.composite
def states(draw):
    """A state whose jobs have numbers of their own."""
    jobs = draw(st.lists(JOBS, max_size=9, unique_by=lambda job: job.id))
    run = draw(st.lists(RUNNING, max_size=4, unique_by=lambda one: one.job.id))
    known = {one.job.id for one in run}
    jobs = [job for job in jobs if job.id not in known]
    return ClusterState(
        nodes=draw(NODES), cores_per_node=draw(st.integers(1, 128)), time=draw(TIMES), free=draw(NODES),
        queue=tuple(jobs[:6]), running=ReadOnly({one.job.id: one for one in run}),
        reservations=ReadOnly({job.id: draw(TIMES) for job in jobs[:3]}),
        early_release=draw(st.booleans()), free_node_ids=draw(TUPLES),
        events=Events(*draw(st.lists(TUPLES, max_size=len(Events._fields)))),
        held=tuple(jobs[6:]), leaving=draw(NODES), joining=draw(NODES), draining=draw(NODES),
        down=draw(NODES),
        node_states=tuple(draw(st.lists(st.sampled_from(list(NodeOccupancy)), max_size=5))),
        loads=tuple(draw(st.lists(LOADS, max_size=3))),
    )  # fmt: skip


@settings(max_examples=examples(40))
@given(states())
def test_a_state_comes_back_from_json_as_it_was(state):
    text = to_json(state)
    again = from_json(text)
    assert again == state
    assert to_json(again) == text
    json.loads(text, parse_constant=pytest.fail)


@pytest.mark.parametrize(
    ("text", "code", "kind"),
    [
        ("", "snapshot-invalid", "JSONDecodeError"),
        ("[]", "schema-unknown", None),
        ('{"schema": "apples.state/1"}', "schema-unknown", None),
        ('{"schema": "apples.state/2"}', "snapshot-invalid", "TypeError"),
        ('{"schema": "apples.state/2", "time": NaN}', "snapshot-invalid", "ValueError"),
        ('{"schema": "apples.state/2", "nodes": 1, "colour": 1}', "snapshot-invalid", "TypeError"),
        (
            '{"schema": "apples.state/2", "nodes": 1, "queue": [7]}',
            "snapshot-invalid",
            "TypeError",
        ),
        (
            '{"schema": "apples.state/2", "nodes": 1, "held": [[1]]}',
            "snapshot-invalid",
            "IndexError",
        ),
        ("[" * 10**6, "snapshot-invalid", "RecursionError"),
    ],
)
def test_what_is_no_state_is_one_line(text, code, kind):
    with pytest.raises(UsageError, check=with_code(code, kind=kind)) as caught:
        from_json(text)
    assert "\n" not in str(caught.value)


def test_a_state_that_is_too_long_is_not_read():
    with pytest.raises(UsageError, check=with_code("message-too-long", value=11, bound=10)):
        from_json(" " * 11, longest=10)


def rigid(number, processors=2, seconds=10.0):
    return Job(number, 0.0, processors, seconds, processors, processors)


def test_nobody_can_change_what_a_policy_is_shown():
    ledger = ClusterLedger(4)
    ledger.submit(rigid(1))
    ledger.apply(Start(1, 2))
    state = ledger.state
    for change in (
        lambda: setattr(state, "free", 9),
        lambda: object.__setattr__(state, "free", 9),
        lambda: setattr(state.running[1], "limit", 0.0),
        lambda: object.__setattr__(state.running[1], "limit", 0.0),
        lambda: state.running.pop(1),
        lambda: state.running.update({}),
        lambda: state.running.__setitem__(1, None),
        state.reservations.clear,
        lambda: setattr(state.running[1].job, "processors", 1),
    ):
        with pytest.raises((AttributeError, TypeError)):
            change()
    assert deepcopy(state) == state


def test_a_snapshot_stays_as_it_was_made():
    ledger = ClusterLedger(4, track_node_ids=True)
    ledger.submit(rigid(1))
    before = ledger.snapshot(0.0)
    copy = deepcopy(before)
    ledger.apply(Start(1, 2))
    ledger.submit(rigid(2))
    ledger.snapshot(99.0)
    ledger.end(1)
    assert before == copy


def test_the_events_of_a_state_are_those_since_the_last_pass():
    ledger = ClusterLedger(4, track_node_ids=True)
    for number in (1, 2, 3):
        ledger.submit(rigid(number))
    ledger.withdraw(3)
    state = ledger.snapshot(0.0)
    assert state.events == Events(submitted=(1, 2, 3), withdrawn=(3,))
    ledger.apply(Start(1, 2))
    ledger.apply(Start(2, 2))
    ledger.clear_events()
    assert ledger.snapshot(1.0).events == Events()
    assert ledger.fail_node(3) == 2
    ledger.end(2)
    ledger.fail_node(3)
    ledger.requeue(rigid(2))
    ledger.snapshot(10.0)
    ledger.end(1)
    state = ledger.snapshot(10.0)
    assert state.events == Events(ended=(2, 1), early=(2,), requeued=(2,), lost=(3,))
    assert state.early_release
    assert (state.nodes, state.down) == (3, 1)
    ledger.clear_events()
    ledger.restore_node(3)
    assert ledger.state.events == Events(repaired=(3,))


def test_a_node_that_fails_twice_is_back_when_it_was_repaired_twice():
    ledger = ClusterLedger(2, track_node_ids=True)
    for _ in range(2):
        assert ledger.fail_node(1) is None
    ledger.restore_node(1)
    assert (ledger.nodes, ledger.free) == (1, 1)
    ledger.restore_node(1)
    assert (ledger.nodes, ledger.free, ledger.state.free_node_ids) == (2, 2, (0, 1))


def test_an_overrun_moves_the_estimated_end_by_a_guess_that_doubles():
    ledger = ClusterLedger(4, overrun_guess=60.0)
    ledger.submit(rigid(1))
    ledger.apply(Start(1, 2))
    ledger.clear_events()
    limits = []
    for time in (9.0, 10.0, 10.0005, 11.0, 70.0, 72.0, 200.0):
        state = ledger.snapshot(time)
        limits.append((state.running[1].limit, state.events.overran))
        ledger.clear_events()
    assert limits == [
        (10.0, ()), (10.0, ()), (10.0, ()), (71.0, (1,)), (71.0, ()), (192.0, (1,)), (440.0, (1,)),
    ]  # fmt: skip
    assert ledger.state.running[1].overruns == 3
    ledger.end(1)
    assert ledger.state.events.early == (1,)


def test_a_draining_node_keeps_its_job_and_gets_no_other():
    ledger = ClusterLedger(2, track_node_ids=True)
    ledger.submit(rigid(1, 1))
    ledger.apply(Start(1, 1))
    ledger.drain(0)
    ledger.drain(1)
    state = ledger.state
    assert state.node_states == (NodeOccupancy.DRAINING,) * 2
    assert (state.nodes, state.free, state.draining) == (1, 0, 2)
    ledger.end(1)
    assert (ledger.nodes, ledger.free) == (0, 0)


def test_a_job_that_is_requeued_waits_in_its_old_place():
    ledger = ClusterLedger(4)
    for number in (1, 2):
        ledger.submit(rigid(number, 4))
    ledger.apply(Start(1, 4))
    assert ledger.apply(Requeue(1)) == Accepted()
    assert [job.id for job in ledger.queue] == [1, 2]
    assert ledger.free == 4
    assert isinstance(ledger.apply(Requeue(1)), Refused)


def test_a_held_job_is_shown_apart_until_it_is_started():
    ledger = ClusterLedger(4)
    for number in (1, 2):
        ledger.submit(rigid(number))
    for number in (1, 2):
        assert ledger.apply(Hold(number, "no licence")) == Accepted()
    state = ledger.state
    assert (state.queue, [job.id for job in state.held]) == ((), [1, 2])
    assert ledger.waits[1] == Wait(1, "no licence")
    ledger.apply(Start(1, 2))
    state = ledger.state
    assert (state.queue, [job.id for job in state.held], list(state.running)) == ((), [2], [1])


def test_why_a_job_waits_is_kept_as_long_as_it_waits():
    ledger = ClusterLedger(4)
    ledger.submit(rigid(1))
    reason = Wait(1, "needs 2 nodes", 5.0)
    assert ledger.apply(reason) == Accepted()
    assert ledger.waits == {1: reason}
    ledger.apply(Start(1, 2))
    assert ledger.waits == {}
    refused = [ledger.apply(one) for one in (reason, Wake(-1.0), Wake(math.nan), Wait(1, None))]
    assert all(isinstance(one, Refused) for one in refused)
