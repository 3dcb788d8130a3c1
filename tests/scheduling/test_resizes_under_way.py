"""Resizes that take time: nodes are free when they are left, and who counts on them is decided again then."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apples.scheduling import (
    ClusterLedger,
    Driver,
    Hold,
    Job,
    JobKind,
    Migrate,
    NodeOccupancy,
    Refused,
    Requeue,
    Reserve,
    Resize,
    SchedulerBackend,
    SchedulingPolicy,
    Start,
)


class Script(SchedulingPolicy):
    """Decides what it is given, pass by pass."""

    def __init__(self, *passes):
        self.passes = list(passes)

    def decide(self, cluster):
        return iter(self.passes.pop(0) if self.passes else [])


class Sent(SchedulerBackend):
    """Keeps what it is told."""

    def __init__(self):
        self.told = []

    def start_job(self, running):
        self.told.append(("start", running.job.id, running.nodes))

    def resize_job(self, running, nodes_before):
        self.told.append(("resize", running.job.id, running.nodes))

    def migrate_job(self, running):
        self.told.append(("migrate", running.job.id, running.nodes))

    def update_share(self, running):
        self.told.append(("share", running.job.id))

    def requeue_job(self, job):
        self.told.append(("requeue", job))

    def wake_at(self, time):
        self.told.append(("wake", time))

    def hold_job(self, job, reason):
        self.told.append(("hold", job, reason))

    def promise_start(self, job, time):
        self.told.append(("promise", job, time))

    def reject_job(self, job, reason):
        raise AssertionError(reason)

    def policy_failed(self, failure):
        raise AssertionError(failure)

    def refuse(self, refused):
        self.told.append(("refused", refused.reason))


class Stage:
    """A driver whose clock is the test's."""

    def __init__(self, *passes, nodes=4, ids=True):
        self.now = 0.0
        self.backend = Sent()
        self.ledger = ClusterLedger(nodes, track_node_ids=ids, resizes_take_time=True)
        self.driver = Driver(Script(*passes), self.ledger, lambda: self.now, self.backend)

    def submit(self, number, processors=4, kind=JobKind.MALLEABLE):
        self.driver.submit(Job(number, self.now, processors, 100.0, 1, 8, kind))

    def told(self):
        self.driver.run_pass()
        told, self.backend.told = self.backend.told, []
        return told


def shrinking(*more, ids=True):
    """Return a stage on which job 1 leaves two of the four nodes, and job 2 was to start there."""
    stage = Stage([Start(1, 4)], [Resize(1, 2), Start(2, 2)], *more, ids=ids)
    stage.submit(1)
    assert stage.told() == [("start", 1, 4)]
    stage.submit(2, 2)
    assert stage.told() == [("resize", 1, 2)]
    return stage


@pytest.mark.parametrize("ids", [True, False])
def test_a_start_on_nodes_that_are_being_left_is_decided_again_when_they_are_left(ids):
    stage = shrinking([Start(2, 2)], ids=ids)
    state = stage.ledger.state
    assert (state.free, state.leaving, [job.id for job in state.queue]) == (0, 2, [2])
    assert state.running[1].job.kind is JobKind.RIGID
    assert state.running[1].changing
    if ids:
        states = (NodeOccupancy.HELD,) * 2 + (NodeOccupancy.LEAVING,) * 2
        assert state.node_states == states
    stage.now = 5.0
    stage.driver.finish_resize(1)
    state = stage.ledger.state
    assert (state.free, state.leaving) == (2, 0)
    assert state.running[1].job.malleable
    assert state.events.settled == (1,)
    assert stage.told() == [("start", 2, 2)]
    assert stage.ledger.running[2].start == 5.0


def test_a_pass_waits_for_resizes_but_not_for_ever():
    stage = shrinking([Resize(1, 3)])
    stage.now = 9.0
    assert stage.told() == [("wake", 10.0)]
    stage.now = 11.0
    assert stage.told() == [("refused", "a change of the job's nodes is under way")]


def test_no_later_decision_of_a_pass_gets_the_nodes_that_an_earlier_one_needs():
    stage = Stage([Start(1, 3)], [Resize(1, 2), Start(2, 2), Start(3, 1)])
    stage.submit(1, 3)
    stage.told()
    stage.submit(2, 2)
    stage.submit(3, 1)
    assert stage.told() == [("resize", 1, 2), ("refused", "0 nodes are free, not 1")]
    assert stage.ledger.state.free == 1


def test_a_job_that_ends_while_it_shrinks_leaves_all_its_nodes():
    stage = shrinking()
    stage.driver.end(1)
    assert (stage.ledger.free, stage.ledger.state.free_node_ids) == (4, (0, 1, 2, 3))


def test_a_job_that_is_queued_again_while_it_shrinks_is_the_job_it_was():
    stage = shrinking([Requeue(1)])
    stage.now = 11.0
    assert stage.told() == [("requeue", 1)]
    assert [job.malleable for job in stage.ledger.queue] == [True, True]
    assert stage.ledger.free == 4


def test_a_job_that_moves_leaves_its_old_node_at_the_end_of_the_move():
    stage = Stage([Start(1, 2)], [Migrate(1, frozenset({1, 3}), "0 is loaded")])
    stage.submit(1, 2)
    stage.told()
    assert stage.told() == [("migrate", 1, 2)]
    assert stage.ledger.resizing[1].reason == "0 is loaded"
    assert stage.ledger.state.free_node_ids == (2,)
    stage.driver.finish_resize(1)
    assert stage.ledger.state.free_node_ids == (0, 2)


def test_a_growth_onto_nodes_that_are_being_left_is_decided_again():
    stage = Stage([Start(1, 2), Start(2, 2)], [Resize(1, 1), Resize(2, 3)], [Resize(2, 3)])
    for number in (1, 2):
        stage.submit(number, 2)
    stage.told()
    assert stage.told() == [("resize", 1, 1)]
    stage.driver.finish_resize(1)
    assert stage.told() == [("resize", 2, 3)]


def test_a_back_end_is_told_of_promises_and_of_jobs_that_are_held():
    stage = Stage([Reserve(1, 7.0), Hold(2, "later")])
    stage.submit(1)
    stage.submit(2)
    assert stage.told() == [("promise", 1, 7.0), ("hold", 2, "later")]


@given(st.data())
def test_nodes_add_up_whatever_is_decided_while_resizes_are_under_way(data):
    """Draw decisions, ends and finished resizes; each node is free, leaving, or one job's."""
    stage = Stage(nodes=8)
    ledger, number = stage.ledger, 0
    for _ in range(data.draw(st.integers(1, 30))):
        stage.now += data.draw(st.sampled_from([0.0, 1.0, 11.0]))
        act = data.draw(st.sampled_from(["submit", "pass", "end", "finish"]))
        running = sorted(ledger.running)
        if act == "submit":
            number += 1
            stage.submit(number, data.draw(st.integers(1, 8)))
        elif act == "end" and running:
            stage.driver.end(data.draw(st.sampled_from(running)))
        elif act == "finish" and ledger.resizing:
            stage.driver.finish_resize(data.draw(st.sampled_from(sorted(ledger.resizing))))
        elif act == "pass":
            jobs = [job.id for job in ledger.queue]
            stage.driver.policy.passes = [
                data.draw(
                    st.lists(decisions(running, jobs), max_size=5, unique_by=lambda one: one.job)
                )
            ]
            stage.told()
        state = ledger.state
        held = [node for one in state.running.values() for node in one.node_ids]
        leaving = [node for one in ledger.resizing.values() for node in one.left_ids]
        assert sorted([*held, *leaving, *state.free_node_ids]) == list(range(8))
        assert (state.free, state.leaving) == (len(state.free_node_ids), len(leaving))


def decisions(running, waiting):
    """Return a strategy of decisions about these jobs."""
    nodes = st.integers(1, 8)
    kinds = [st.builds(Start, st.just(0), nodes)]
    if waiting:
        kinds.append(st.builds(Start, st.sampled_from(waiting), nodes))
    if running:
        some = st.sampled_from(running)
        kinds += [st.builds(Resize, some, nodes), st.builds(Requeue, some)]
        kinds.append(st.builds(Migrate, some, st.frozensets(st.integers(0, 7), min_size=1)))
    return st.one_of(kinds)


def test_a_refusal_leaves_the_ledger_as_it_was():
    stage = shrinking()
    before = stage.ledger.state
    assert isinstance(stage.ledger.apply(Start(2, 3)), Refused)
    assert stage.ledger.state == before
