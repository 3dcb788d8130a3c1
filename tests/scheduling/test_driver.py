"""The driver: one policy, one ledger, and a back end of the test's own, on a clock of the test's own."""

import sys
from dataclasses import dataclass

import pytest
from coding import with_code

from apples.errors import UsageError
from apples.scheduling import (
    ClusterLedger,
    Conservative,
    Driver,
    Easy,
    Equipartition,
    Job,
    JobKind,
    Migrate,
    Reject,
    Reserve,
    Resize,
    SchedulerBackend,
    SchedulingPolicy,
    Start,
)


class Written(SchedulerBackend):
    """Writes down what it is told to carry out."""

    def __init__(self):
        self.told = []

    def start_job(self, running):
        self.told.append(f"start {running.job.id} on {running.nodes}")

    def resize_job(self, running, nodes_before):
        self.told.append(f"resize {running.job.id} from {nodes_before} to {running.nodes}")

    def migrate_job(self, running):
        self.told.append(f"migrate {running.job.id} to {sorted(running.node_ids)}")

    def update_share(self, running):
        self.told.append(f"share {running.job.id}")

    def requeue_job(self, job):
        self.told.append(f"requeue {job}")

    def wake_at(self, time):
        self.told.append(f"wake at {time:g}")

    def reject_job(self, job, reason):
        self.told.append(f"reject {job}: {reason}")

    def policy_failed(self, failure):
        self.told.append(str(failure))

    def refuse(self, refused):
        self.told.append(f"refuse {refused}")


@dataclass
class Script(SchedulingPolicy):
    """Decides what it is given, pass by pass."""

    passes: list

    def decide(self, cluster):
        return iter(self.passes.pop(0))


class Stage:
    """A driver with its clock in the test's hand."""

    def __init__(self, policy, nodes=4, **machine):
        self.now = 0.0
        self.backend = Written()
        self.ledger = ClusterLedger(nodes, **machine)
        self.driver = Driver(policy, self.ledger, lambda: self.now, self.backend)

    def told(self):
        told, self.backend.told = self.backend.told, []
        return told


def rigid(number, processors, seconds=10.0):
    return Job(number, 0.0, processors, seconds, processors, processors)


def soft(number, processors, seconds=10.0):
    return Job(number, 0.0, processors, seconds, 1, 4, JobKind.MALLEABLE)


def test_a_pass_starts_what_the_policy_starts_and_an_end_makes_room():
    stage = Stage(Easy())
    for job in (rigid(1, 3), rigid(2, 2), rigid(3, 1)):
        stage.driver.submit(job)
    assert stage.driver.run_pass() == []
    assert stage.told() == ["start 1 on 3", "start 3 on 1"]
    stage.now = 4.0
    stage.driver.end(1)
    stage.driver.run_pass()
    assert stage.told() == ["start 2 on 2"]
    assert stage.ledger.state.running[2].start == 4.0


def test_the_time_of_the_state_is_the_clocks():
    stage = Stage(Easy())
    happenings = [
        lambda: stage.driver.submit(rigid(1, 1)),
        stage.driver.run_pass,
        lambda: stage.driver.end(1),
    ]
    for time, happen in enumerate(happenings):
        stage.now = float(time)
        happen()
        assert stage.ledger.state.time == time


def test_a_newcomer_shrinks_the_others_under_equipartition():
    stage = Stage(Equipartition())
    stage.driver.submit(soft(1, 4))
    stage.driver.run_pass()
    stage.driver.submit(soft(2, 4))
    stage.driver.run_pass()
    assert stage.told() == ["start 1 on 4", "resize 1 from 4 to 2", "start 2 on 2"]


def test_a_promise_is_a_pass_at_its_time():
    stage = Stage(Conservative())
    for job in (rigid(1, 3), rigid(2, 2)):
        stage.driver.submit(job)
    stage.driver.run_pass()
    assert stage.told() == ["start 1 on 3", "wake at 10"]


def test_an_early_end_is_shown_to_one_pass():
    seen = []

    class Looks(Easy):
        def decide(self, cluster):
            seen.append(cluster.early_release)
            return super().decide(cluster)

    stage = Stage(Looks())
    stage.driver.submit(rigid(1, 1))
    stage.driver.run_pass()
    stage.now = 5.0
    stage.driver.end(1)
    stage.driver.run_pass()
    stage.driver.run_pass()
    assert seen == [False, True, False]


def test_a_refused_decision_is_returned_and_told_and_the_others_are_carried_out():
    wrong, unheard = Start(1, 9), ["no", "decision"]
    stage = Stage(Script([[wrong, Start(2, 1), unheard, Reject(1, "too wide")]]))
    stage.driver.submit(rigid(1, 2))
    stage.driver.submit(rigid(2, 1))
    refused = stage.driver.run_pass()
    assert [(each.decision, each.reason) for each in refused] == [
        (wrong, "it can run on 2 to 2 nodes"),
        (unheard, "no decision"),
    ]
    assert stage.told() == [
        f"refuse at 0.0 s: {wrong}: it can run on 2 to 2 nodes",
        "start 2 on 1",
        f"refuse at 0.0 s: {unheard}: no decision",
        "reject 1: too wide",
    ]
    assert stage.ledger.state.queue == ()


def test_mates_are_told_of_their_guest_first_and_of_its_end():
    stage = Stage(Script([[Start(1, 2)], [Start(2, 2, (1,), 0.5)]]), cores_per_node=2)
    for number in (1, 2):
        stage.driver.submit(soft(number, 4))
    stage.driver.run_pass()
    stage.driver.run_pass()
    assert stage.told() == ["start 1 on 2", "share 1", "start 2 on 2"]
    stage.driver.end(2)
    assert stage.told() == ["share 1"]


def test_a_migration_moves_a_running_job_to_other_nodes():
    stage = Stage(Script([[Start(1, 2)], [Migrate(1, frozenset({2, 3}))]]), track_node_ids=True)
    stage.driver.submit(rigid(1, 2))
    stage.driver.run_pass()
    stage.driver.run_pass()
    assert stage.told() == ["start 1 on 2", "migrate 1 to [2, 3]"]
    assert stage.ledger.state.free_node_ids == (0, 1)


def test_a_withdrawn_job_is_not_shown_to_the_policy():
    stage = Stage(Easy())
    stage.driver.submit(rigid(1, 1))
    stage.driver.withdraw(1)
    stage.driver.run_pass()
    assert stage.told() == []


class Raises(SchedulingPolicy):
    def decide(self, cluster):
        yield Start(1, 1)
        yield cluster.queue[9]


class Leaves(SchedulingPolicy):
    def decide(self, cluster):
        sys.exit(0)


class Silent(SchedulingPolicy):
    def decide(self, cluster):
        return None


class Endless(SchedulingPolicy):
    def decide(self, cluster):
        while True:
            yield Reserve(1, 1.0)


@pytest.mark.parametrize(
    ("failing", "kind", "reason", "line"),
    [
        (Raises, "raises", "IndexError", 2),
        (Leaves, "exits", "SystemExit", 1),
        (Silent, "raises", "TypeError", 0),
        (Endless, "too many", "20", 2),
    ],
)
def test_a_policy_that_fails_is_one_line_and_nothing_is_carried_out(failing, kind, reason, line):
    stage = Stage(failing())
    stage.driver.submit(rigid(1, 1))
    where = f"{__file__}:{failing.decide.__code__.co_firstlineno + line}"
    fails = with_code("policy-failed", policy=failing.__name__, kind=kind, time=0.0, where=where)
    with pytest.raises(UsageError, match=reason, check=fails):
        stage.driver.run_pass()
    assert stage.told() == []


def test_a_resize_that_is_refused_leaves_the_job_as_it_is():
    stage = Stage(Script([[Start(1, 4)], [Resize(1, 9)]]))
    stage.driver.submit(soft(1, 4))
    stage.driver.run_pass()
    assert len(stage.driver.run_pass()) == 1
    assert stage.ledger.state.running[1].nodes == 4
