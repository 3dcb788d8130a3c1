"""The ledger of a cluster: what it accepts, what it refuses, and that a refusal changes nothing."""

from copy import deepcopy

import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from apples.scheduling import (
    Accepted,
    ClusterLedger,
    Job,
    JobKind,
    Migrate,
    Refused,
    Reject,
    Reserve,
    Resize,
    Start,
)

RIGID = Job(1, 0.0, 2, 10.0, 2, 2)
SOFT = Job(2, 0.0, 4, 10.0, 1, 6, JobKind.MALLEABLE)
GUEST = Job(3, 0.0, 4, 5.0, 1, 6, JobKind.MALLEABLE)


def ledger_of(*jobs, nodes=6, cores=1, ids=False):
    ledger = ClusterLedger(nodes, cores, track_node_ids=ids)
    for job in jobs:
        ledger.submit(job)
    return ledger


def reason(ledger, decision):
    before = deepcopy(ledger.state)
    answer = ledger.apply(decision)
    assert isinstance(answer, Refused)
    assert answer.decision is decision
    assert ledger.state == before
    return answer.reason


def test_a_start_takes_nodes_and_leaves_the_queue():
    ledger = ledger_of(RIGID)
    assert ledger.apply(Start(1, 2)) == Accepted((1,))
    assert (ledger.state.free, list(ledger.state.running)) == (4, [1])
    assert ledger.state.queue == ()


def test_a_resize_says_how_many_nodes_there_were_before():
    ledger = ledger_of(SOFT)
    ledger.apply(Start(2, 4))
    assert ledger.apply(Resize(2, 1)) == Accepted((2,), nodes_before=4)
    assert ledger.state.free == 5


def test_a_guest_slows_its_mates_until_it_ends_and_inherits_a_mate_that_ends_first():
    ledger = ledger_of(SOFT, GUEST)
    ledger.apply(Start(2, 4))
    assert ledger.apply(Start(3, 4, mates=(2,), share=0.5)) == Accepted((2, 3))
    assert ledger.state.free == 2
    assert ledger.state.running[2].limit == 10.0 + 5.0
    assert ledger.end(2) == (3,)
    assert ledger.state.free == 2
    assert ledger.end(3) == ()
    assert ledger.state.free == 6


def test_a_promise_is_kept_in_the_state_until_the_job_starts():
    ledger = ledger_of(RIGID)
    assert ledger.apply(Reserve(1, 5.0)) == Accepted()
    assert ledger.state.reservations == {1: 5.0}
    ledger.apply(Start(1, 2))
    ledger.clear_events()
    assert ledger.state.reservations == {}


def test_a_rejected_job_leaves_the_queue_with_its_reason():
    ledger = ledger_of(RIGID)
    assert ledger.apply(Reject(1, "no such licence")) == Accepted()
    ledger.clear_events()
    assert (ledger.state.queue, ledger.rejected) == ((), {1: "no such licence"})


@pytest.mark.parametrize(
    ("decision", "said"),
    [
        (Start(9, 2), "that job is not waiting"),
        (Start(1, 3), "it can run on 2 to 2 nodes"),
        (Start(1, 2.5), "nodes are whole"),
        (Start(3, 4), "2 nodes are free, not 4"),
        (Start(3, 4, mates=(2, 2), share=0.5), "a mate is named twice"),
        (Start(3, 4, mates=(1,), share=0.5), "job 1 cannot be a mate"),
        (Start(3, 3, mates=(2,), share=0.5), "its mates have 4 nodes"),
        (Start(3, 4, mates=(2,), share=1.0), "only a malleable job can be guest"),
        (Start(1, 2, node_ids=frozenset({0, 5})), "needs 2 nodes that are free"),
        (Resize(1, 2), "that job is not running"),
        (Resize(2, 7), "it can run on 1 to 6 nodes"),
        (Reserve(1, -1.0), "the time is past"),
        (Reject(2, "late"), "that job is not waiting"),
        (Migrate(1, frozenset({4, 5})), "the job does not run"),
        (Migrate(2, frozenset({4, 5})), "needs 4 nodes that are free"),
    ],
    ids=str,
)
def test_what_breaks_a_limit_is_refused_with_its_reason(decision, said):
    ledger = ledger_of(RIGID, SOFT, GUEST, ids=True)
    ledger.apply(Start(2, 4))
    ledger.clear_events()
    assert reason(ledger, decision).startswith(said)


def test_a_job_that_shares_nodes_is_neither_resized_nor_migrated():
    ledger = ledger_of(SOFT, GUEST, ids=True)
    ledger.apply(Start(2, 4))
    ledger.apply(Start(3, 4, mates=(2,), share=0.5))
    for number in (2, 3):
        assert reason(ledger, Resize(number, 5)) == "the job shares nodes"
        assert reason(ledger, Migrate(number, frozenset({1, 2, 3, 4}))) == "the job shares nodes"


THINGS = st.one_of(
    st.none(), st.integers(-2, 9), st.floats(), st.text(max_size=2), st.lists(st.integers(0, 3)),
    st.frozensets(st.integers(-1, 6)), st.tuples(st.integers(0, 4)),
)  # fmt: skip
DECISIONS = st.one_of(
    THINGS,
    st.builds(Start, THINGS, THINGS, THINGS, THINGS, THINGS),
    st.builds(Start, st.integers(1, 4), st.integers(0, 7), st.tuples(st.integers(1, 4))),
    st.builds(Resize, THINGS, THINGS),
    st.builds(Migrate, THINGS, THINGS),
    st.builds(Reserve, THINGS, THINGS),
    st.builds(Reject, THINGS, THINGS),
)


@pytest.mark.more
@settings(max_examples=examples(300), deadline=None)
@given(st.lists(DECISIONS, max_size=8), st.booleans())
def test_whatever_is_decided_is_answered_and_a_refusal_leaves_the_state_as_it_was(decisions, ids):
    ledger = ledger_of(RIGID, SOFT, GUEST, ids=ids)
    ledger.apply(Start(2, 3))
    for decision in decisions:
        before = repr(ledger.state)
        answer = ledger.apply(decision)
        if isinstance(answer, Refused):
            assert repr(ledger.state) == before
        state = ledger.state
        held = sum(one.nodes - one.shared for one in state.running.values())
        assert state.free == state.nodes - held >= 0
        if ids:
            assert len(state.free_node_ids) == state.free
