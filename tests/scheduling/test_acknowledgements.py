"""Changes of jobs' nodes that count when the jobs confirm them: by hand, and against an adversary."""

from random import Random

import pytest

from apples.scheduling import (
    Change,
    ClusterLedger,
    Driver,
    Easy,
    Equipartition,
    FirstFit,
    Job,
    JobKind,
    Migrate,
    NodeOccupancy,
    Requeue,
    Resize,
    SchedulerBackend,
    SchedulingPolicy,
    Start,
)

ALL = tuple(Change)


class Sent(SchedulerBackend):
    """Writes down what jobs are told, with the number that they have to answer."""

    def __init__(self):
        self.told = []

    def start_job(self, running):
        self.told.append(("start", running.job.id, running.nodes, running.proposal))

    def resize_job(self, running, nodes_before):
        self.told.append(("resize", running.job.id, running.nodes, running.proposal))

    def migrate_job(self, running):
        self.told.append(("migrate", running.job.id, running.nodes, running.proposal))

    def update_share(self, running):
        self.told.append(("share", running.job.id, running.nodes, running.proposal))

    def requeue_job(self, job):
        self.told.append(("requeue", job))

    def wake_at(self, time):
        pass

    def reject_job(self, job, reason):
        raise AssertionError(reason)

    def policy_failed(self, failure):
        raise AssertionError(failure)

    def refuse(self, refused):
        self.told.append(("refused", str(refused)))


class Script(SchedulingPolicy):
    """Decides what it is given, pass by pass."""

    def __init__(self, *passes):
        self.passes = list(passes)

    def decide(self, cluster):
        return iter(self.passes.pop(0) if self.passes else [])


def soft(number, processors=4, seconds=100.0):
    return Job(number, 0.0, processors, seconds, 1, 8, JobKind.MALLEABLE)


class Stage:
    """A driver whose clock and answers are the test's."""

    def __init__(self, policy, acknowledged=(Change.SHRINK,), nodes=4, **ledger):
        self.now = 0.0
        self.backend = Sent()
        self.ledger = ClusterLedger(
            nodes, acknowledged=acknowledged, answer_seconds=30.0, **ledger
        )
        self.driver = Driver(policy, self.ledger, lambda: self.now, self.backend)

    def told(self):
        told, self.backend.told = self.backend.told, []
        return told


def shrunk():
    """Return a stage on which job 2 waits for two of the four nodes of job 1, by proposal 1."""
    stage = Stage(Script([Start(1, 4)], [Resize(1, 2), Start(2, 2)]), track_node_ids=True)
    stage.driver.submit(soft(1))
    stage.driver.run_pass()
    stage.driver.submit(soft(2, 2))
    stage.driver.run_pass()
    assert stage.told() == [("start", 1, 4, 0), ("resize", 1, 2, 1)]
    return stage


def test_a_start_names_what_it_waits_for_and_is_sent_when_that_is_confirmed():
    stage = shrunk()
    start = stage.ledger.proposals.get(2)
    assert (start.change, start.job, start.waits_for, start.sent) == (Change.START, 2, {1}, False)
    state = stage.ledger.state
    assert state.node_states == (NodeOccupancy.HELD,) * 2 + (NodeOccupancy.LEAVING,) * 2
    assert state.running[1].job.kind is JobKind.RIGID
    assert (state.free, state.leaving) == (0, 0)
    stage.now = 5.0
    assert stage.driver.confirm(1)
    assert stage.told() == [("start", 2, 2, 0)]
    running = stage.ledger.state.running
    assert (running[2].start, running[2].limit) == (5.0, 105.0)
    assert running[2].node_ids == {2, 3}
    assert running[1].job == soft(1)
    assert not stage.ledger.proposals.open


def test_a_job_hears_nothing_of_its_mates_before_it_has_begun():
    """Job 3 is to be guest of job 1, and waits for a node of job 2, when job 1 ends."""
    stage = Stage(Script([Start(1, 2), Start(2, 2)], [Resize(2, 1), Start(3, 3, (1,), 0.5)]))
    for number, processors in ((1, 2), (2, 2), (3, 3)):
        stage.driver.submit(soft(number, processors))
    stage.driver.run_pass()
    stage.driver.run_pass()
    stage.told()
    stage.driver.end(1)
    assert stage.told() == []
    assert stage.driver.confirm(1)
    assert stage.told() == [("start", 3, 3, 0)]
    assert stage.ledger.running[3].mates == ()


def test_an_answer_counts_once():
    stage = shrunk()
    assert [stage.driver.confirm(1), stage.driver.confirm(1), stage.driver.refuse(1)] == [
        True, False, False,
    ]  # fmt: skip
    assert not stage.driver.confirm(99)
    assert len(stage.told()) == 1


def test_an_answer_to_what_was_not_sent_is_none():
    stage = shrunk()
    assert not stage.driver.confirm(2)
    assert 2 in stage.ledger.running


def test_a_refused_shrink_gives_the_nodes_back_and_takes_back_the_start():
    stage = shrunk()
    assert stage.driver.refuse(1)
    state = stage.ledger.state
    assert state.running[1].nodes == 4
    assert state.running[1].node_ids == {0, 1, 2, 3}
    assert [job.id for job in state.queue] == [2]
    assert stage.told() == []
    assert state.events.refused == (1,)


def test_a_late_answer_leaves_nodes_unsettled_and_still_counts():
    stage = shrunk()
    stage.now = 31.0
    stage.driver.run_pass()
    state = stage.ledger.state
    assert (state.running[1].nodes, state.free, [job.id for job in state.queue]) == (4, 0, [2])
    assert state.running[1].job.kind is JobKind.RIGID
    assert stage.driver.confirm(1)
    state = stage.ledger.state
    assert (state.running[1].nodes, state.free, state.free_node_ids) == (2, 2, (2, 3))


def test_a_pass_waits_for_answers_but_not_for_ever():
    stage = shrunk()
    stage.driver.policy.passes.append([Resize(1, 3)])
    stage.now = 9.0
    assert stage.driver.run_pass() == []
    stage.now = 11.0
    refused = stage.driver.run_pass()
    assert [each.reason for each in refused] == ["a change of the job's nodes is under way"]


def test_a_job_that_ends_while_it_shrinks_leaves_its_nodes_to_who_waits():
    stage = shrunk()
    stage.driver.end(1)
    assert stage.told() == [("start", 2, 2, 0)]
    assert stage.ledger.free == 2


def test_a_job_that_waits_for_nodes_can_be_cancelled():
    stage = shrunk()
    stage.driver.end(2)
    assert stage.ledger.state.leaving == 2
    stage.driver.confirm(1)
    assert (stage.ledger.free, stage.told(), stage.ledger.queue) == (2, [], ())


def test_without_acknowledgements_nothing_is_ever_under_way():
    stage = Stage(Script([Start(1, 4)], [Resize(1, 2), Start(2, 2)]), acknowledged=())
    for number in (1, 2):
        stage.driver.submit(soft(number))
        stage.driver.run_pass()
    assert [what[0] for what in stage.told()] == ["start", "resize", "start"]
    assert not stage.ledger.proposals.open


class Wanders(SchedulingPolicy):
    """Draws what it decides: starts, also of guests, resizes, migrations, requeues, of whatever may be."""

    def __init__(self, random):
        self.random = random

    def decide(self, cluster):
        random = self.random
        room = cluster.free + cluster.leaving
        touched = set()
        for running in cluster.running.values():
            number, draw = running.job.id, random.random()
            if running.proposal or running.guest is not None or running.shared:
                continue
            if draw >= 0.55:
                continue
            if draw < 0.4 and running.job.malleable:
                nodes = random.randint(1, 8)
                if nodes - running.nodes <= room:
                    room -= nodes - running.nodes
                    yield Resize(number, nodes)
            elif draw < 0.5 and not touched and len(cluster.free_node_ids) == room > 0:
                moved = {*list(running.node_ids)[1:], cluster.free_node_ids[0]}
                yield Migrate(number, frozenset(moved))
                room = -99
            elif draw < 0.55:
                yield Requeue(number)
                room = -99
            touched.add(number)
        yield from self.starts(cluster, room, touched)

    def starts(self, cluster, room, touched):
        """Yield starts of waiting jobs, some of them in the nodes of jobs that were left alone."""
        random = self.random
        mates = [
            one
            for one in cluster.running.values()
            if one.can_be_mate and one.job.id not in touched
        ]
        for job in cluster.queue:
            if mates and random.random() < 0.3 and room > -50 and mates[0].nodes <= 8:
                mate = mates.pop()
                yield Start(job.id, mate.nodes, (mate.job.id,), 0.5)
            elif room > 0 and (nodes := random.randint(1, min(8, room))):
                room -= nodes
                yield Start(job.id, nodes)


class World(Sent):
    """The jobs as they are: what they are told they do, refuse, or do not hear; answers come late or twice."""

    def __init__(self, random):
        super().__init__()
        self.random = random
        self.present = {}
        self.post = []
        self.now = 0.0

    def _told(self, running, then):
        """Let a job do what it is told, some time; nothing where no number has to be answered."""
        if not running.proposal:
            then()
            return
        draw = self.random.random()
        done = draw < 0.85
        if draw < 0.93:
            at = self.now + self.random.expovariate(1 / 12)
            self.post.append((at, running.proposal, done, then, running.job.id))
        # else it never hears of it

    def start_job(self, running):
        held = {n for number in running.mates for n in self.present[number]}
        new = running.node_ids - held
        assert not any(new & on for on in self.present.values()), (
            "a start on nodes that are not left"
        )
        assert running.job.id not in self.present
        self.present[running.job.id] = set(running.node_ids)
        self._told(running, lambda: None)

    def resize_job(self, running, nodes_before):
        number, ids = running.job.id, set(running.node_ids)
        others = [on for other, on in self.present.items() if other != number]
        assert not any(ids & on for on in others), "a growth onto nodes that are not left"
        self.present[number] |= ids
        self._told(running, lambda: self.present.__setitem__(number, ids))

    migrate_job = None

    def update_share(self, running):
        self._told(running, lambda: None)

    def requeue_job(self, job):
        self.present.pop(job, None)
        self.post = [one for one in self.post if one[4] != job]


def migrate(self, running):
    self.resize_job(running, running.nodes)


World.migrate_job = migrate


def check(ledger, world):
    state = ledger.state
    held = sum(one.nodes - one.shared for one in state.running.values())
    assert state.nodes == state.free + state.leaving + held
    assert state.free >= 0
    if state.free_node_ids:
        free = set(state.free_node_ids)
        assert len(free) == state.free
        assert not any(free & on for on in world.present.values()), "a free node that is not left"
    assert not {job.id for job in state.queue} & state.running.keys()
    for one in ledger.proposals:
        assert one.job in state.running
        assert not (one.sent and one.waits_for)


class Trial:
    """One run of a driver against the adversary of a seed."""

    def __init__(self, seed):
        self.random = Random(seed)
        self.world = World(self.random)
        self.ledger = ClusterLedger(
            8, cores_per_node=2, track_node_ids=True, acknowledged=ALL, answer_seconds=20.0
        )
        policies = (Wanders(self.random), Equipartition(), Easy(), FirstFit())
        policy = policies[seed % 4 if seed > 30 else 0]
        clock = lambda: self.world.now  # noqa: E731
        self.driver = Driver(policy, self.ledger, clock, self.world, settle_seconds=5.0)
        self.answered = []
        self.waiting = [
            Job(n, 0.0, self.random.randint(1, 16), 50.0, 1, 16, JobKind.MALLEABLE)
            for n in range(1, 26)
        ]

    def happen(self):
        """Let one thing happen, or none, and a pass be made."""
        self.world.now += self.random.expovariate(1.0)
        draw = self.random.random()
        if draw < 0.15 and self.waiting:
            self.driver.submit(self.waiting.pop())
        elif draw < 0.2 and self.ledger.running:
            self.end(self.random.choice(list(self.ledger.running)))
        elif draw < 0.25 and self.answered:
            proposal = self.random.choice(self.answered)
            assert not self.driver.confirm(proposal)
            assert not self.driver.refuse(proposal)
        for one in [one for one in self.world.post if one[0] <= self.world.now]:
            if one in self.world.post:
                self.world.post.remove(one)
                self.answer(*one[1:])
        assert self.driver.run_pass() == []
        check(self.ledger, self.world)

    def end(self, number):
        if number in self.world.present:
            del self.world.present[number]
            self.world.post = [one for one in self.world.post if one[4] != number]
        self.driver.end(number)

    def answer(self, proposal, done, then, job):
        """Let a job do what it was told, or not, and say so."""
        one = self.ledger.proposals.get(proposal)
        if done:
            then()
            assert self.driver.confirm(proposal) == (one is not None)
        else:
            if one is not None and one.before is None:
                del self.world.present[job]
            elif one is not None:
                self.world.present[job] = set(one.before.node_ids)
            assert self.driver.refuse(proposal) == (one is not None)
        self.answered.append(proposal)
        check(self.ledger, self.world)


@pytest.mark.parametrize("seed", range(60))
def test_no_node_has_two_jobs_whatever_becomes_of_the_answers(seed):
    """Late, lost, doubled and refused answers, and ends in between; in the end all nodes are free."""
    trial = Trial(seed)
    for _ in range(400):
        trial.happen()
    for number in list(trial.ledger.running):
        if number in trial.ledger.running:
            trial.end(number)
    assert trial.ledger.free == trial.ledger.nodes == 8
    assert not trial.ledger.proposals.open
