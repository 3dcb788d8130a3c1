"""Small cases, drawn: a line is a node (or so many), a letter a second, A the first job."""

from dataclasses import replace

import numpy as np
import pytest

from apples.errors import UsageError
from apples.scheduling import (
    Conservative,
    Easy,
    Equipartition,
    FirstComeFirstServed,
    FirstFit,
    Migrate,
    Requeue,
    Resize,
    SchedulingPolicy,
    ShortestJobFirst,
    SlowdownDriven,
    Start,
)
from apples.simulation import (
    DecisionError,
    NodeFailure,
    ReconfigurationCost,
    SimulationConfig,
    Workload,
    draw,
    rigid,
    simulate,
)


def jobs(*rows):
    """Jobs as (submit, processors, run[, requested])."""
    table = [(*row, row[2]) if len(row) == 3 else row for row in rows]
    submit, width, run, request = (
        np.array(column, dtype=float) for column in zip(*table, strict=True)
    )
    return rigid(submit, run, width.astype(np.int64), request)


def malleable(workload, minimum):
    return Workload(
        **{
            **workload.__dict__,
            "minimum": np.array(minimum),
            "malleable": np.array(minimum) < workload.processors,
        }
    )


def drawn(workload, policy, config, **how):
    result = simulate(workload, policy, config, record=True)
    return draw(result, config.processors, **how)


# B needs three of four nodes once A ends at 4. C could start at once and would be in its way; D
# and E come at 1 and are over before.
CROWD = [(0, 2, 4), (0, 3, 3), (0, 2, 8), (1, 1, 3), (1, 1, 2)]

PICTURES = {
    FirstComeFirstServed(): """
.......CCCCCCCC
....BBBCCCCCCCC
AAAABBBEE......
AAAABBBDDD.....
""",
    FirstFit(): """
CCCCCCCC...
CCCCCCCCBBB
AAAAEE..BBB
AAAADDD.BBB
""",
    ShortestJobFirst(): """
.EE...CCCCCCCC
BBBAAAA.......
BBBAAAA.......
BBBDDDCCCCCCCC
""",
    Easy(): """
.EE............
.DDDBBB........
AAAABBBCCCCCCCC
AAAABBBCCCCCCCC
""",
}


@pytest.mark.parametrize("policy", PICTURES, ids=repr)
def test_rigid_policies_differ_in_who_may_overtake(policy):
    assert drawn(jobs(*CROWD), policy, SimulationConfig(4)) == PICTURES[policy].strip()


def test_easy_lets_a_long_narrow_job_delay_the_third_in_the_queue_and_conservative_does_not():
    queue = jobs((0, 2, 4), (0, 3, 2), (0, 4, 3), (0, 1, 7))
    assert drawn(queue, Easy(), SimulationConfig(4)) == (
        "....BB.CCC\n"
        "AAAABB.CCC\n"
        "AAAABB.CCC\n"
        "DDDDDDDCCC"
    )  # fmt: skip
    assert drawn(queue, Conservative(), SimulationConfig(4)) == (
        "......CCC.......\n"
        "....BBCCC.......\n"
        "AAAABBCCC.......\n"
        "AAAABBCCCDDDDDDD"
    )  # fmt: skip


def test_a_job_on_64_of_100_processors_shrinks_to_60_so_that_one_of_40_starts():
    """The example of Kale et al. 2002, section 1; a line is four processors, a letter 1/4 s."""
    queue = malleable(jobs((0, 64, 4), (1, 40, 2)), [8, 40])
    picture = drawn(queue, Equipartition(), SimulationConfig(100), seconds=0.25, per_line=4)
    assert picture.splitlines()[:11] == ["....BBBBBBBB...."] * 9 + ["AAAABBBBBBBBAAAA"] + [
        "A" * 16
    ]
    result = simulate(queue, Equipartition(), SimulationConfig(100), record=True)
    assert result.changes == ((0.0, 0, 64), (1.0, 0, 60), (1.0, 1, 40), (3.0, 1, 0),
                                (3.0, 0, 64), (4.125, 0, 0))  # fmt: skip


def test_a_guest_gets_half_of_its_mates_nodes_and_gives_them_back():
    """Two nodes of two cores. B would wait 11 s; it takes 4 s instead of 2, A 14 instead of 12."""
    queue = malleable(jobs((0, 4, 12), (1, 4, 2)), [2, 2])
    assert drawn(queue, SlowdownDriven(), SimulationConfig(2, 2)) == (
        "ABBBBAAAAAAAAA\n"
        "ABBBBAAAAAAAAA\n"
        "AAAAAAAAAAAAAA\n"
        "AAAAAAAAAAAAAA"
    )  # fmt: skip


def test_a_guest_inherits_the_nodes_of_a_mate_that_ends_first():
    queue = malleable(jobs((0, 4, 3, 12), (1, 4, 4)), [2, 2])
    assert drawn(queue, SlowdownDriven(), SimulationConfig(2, 2)) == (
        "ABBBBBB\n"
        "ABBBBBB\n"
        "AAAAABB\n"
        "AAAAABB"
    )  # fmt: skip


def test_without_the_guard_a_job_moves_in_even_if_waiting_would_be_shorter():
    queue = malleable(jobs((0, 4, 6), (5, 4, 1)), [2, 2])
    assert drawn(queue, SlowdownDriven(), SimulationConfig(2, 2)).endswith("AAAAAAB")
    moved = simulate(queue, SlowdownDriven(guard=False), SimulationConfig(2, 2))
    assert moved.start.tolist() == [0.0, 5.0]


def test_the_cut_off_spares_mates_that_have_suffered():
    """A's estimated slowdown as a mate is (0 + 2 + 12) / 12."""
    queue = malleable(jobs((0, 4, 12), (1, 4, 2)), [2, 2])
    spared = simulate(queue, SlowdownDriven(max_slowdown=14 / 12), SimulationConfig(2, 2))
    taken = simulate(queue, SlowdownDriven(max_slowdown=14 / 12 + 1e-9), SimulationConfig(2, 2))
    assert not spared.mate.any()
    assert taken.mate.tolist() == [True, False]


def test_a_resize_stalls_the_job():
    queue = malleable(jobs((0, 4, 4), (1, 2, 2)), [1, 2])
    free = simulate(queue, Equipartition(), SimulationConfig(4))
    cost = ReconfigurationCost(0.5, 0.25, 80, 100)
    dear = simulate(queue, Equipartition(), SimulationConfig(4, cost=cost, release="at_once"))
    assert free.end.tolist() == [5.0, 3.0]
    # 0.5 + 0.8 * 2/4 s lost on two nodes at the shrink, 0.25 + 0.4 s on four at the expansion.
    assert dear.end.tolist() == pytest.approx([5.0 + 0.9 / 2 + 0.65, 3.0])


def test_a_newcomer_starts_when_the_processors_are_really_free():
    """A gives up two nodes at 1 s, has left them at 61 s, and B, which waits for them, starts then."""
    queue = malleable(jobs((0, 4, 400), (1, 2, 2)), [1, 2])
    config = SimulationConfig(4, cost=ReconfigurationCost(shrink=60.0))
    assert simulate(queue, Equipartition(), config).start.tolist() == [0.0, 61.0]
    early = simulate(queue, Equipartition(), replace(config, release="at_once"))
    assert early.start.tolist() == [0.0, 1.0]


def test_a_resize_waits_for_the_jobs_safe_point():
    """Until 3 s A goes on at four nodes: 3 s of its work, not 1; then it stalls for a second."""
    queue = malleable(jobs((0, 4, 4), (1, 2, 2)), [1, 2])
    config = SimulationConfig(4, cost=ReconfigurationCost(shrink=1.0, wait=2.0))
    result = simulate(queue, Equipartition(), config)
    assert result.start.tolist() == [0.0, 4.0]
    # One second of work is left at 3 s; two seconds on two nodes from 4 s on.
    assert result.end.tolist() == [6.0, 6.0]


def test_a_measured_curve_says_how_long_a_resize_takes():
    cost = ReconfigurationCost(curve=((4, 2, 1.0, 3.0), (4, 3, 0.5, 2.0), (2, 4, 0.0, 9.0)))
    assert (cost.waiting_seconds(8, 4), cost.seconds(8, 4)) == (1.0, 3.0)
    assert cost.seconds(8, 5) == pytest.approx(2.5)
    assert (cost.seconds(64, 1), cost.seconds(1, 64)) == (3.0, 9.0)


class Told(SchedulingPolicy):
    """Decides what it was told for a time, and starts what else fits."""

    def __init__(self, told):
        self.told = told

    def decide(self, cluster):
        yield from self.told.get(cluster.time, ())
        if cluster.time not in self.told:
            yield from FirstFit().decide(cluster)


def test_a_resize_of_a_run_that_was_lost_takes_nothing_from_that_of_the_next():
    """A's run is lost at 5 while a resize waits until 11 for its safe point; the next resize waits until 16."""
    queue = malleable(jobs((0, 4, 100), (1, 1, 1), (6, 1, 1)), [1, 1, 1])
    told = {0: [Start(1, 4)], 1: [Resize(1, 2)], 5: [Start(1, 3)], 6: [Resize(1, 2)]}
    config = SimulationConfig(
        4, cost=ReconfigurationCost(wait=10.0), failures=(NodeFailure(5.0, 3, 1000.0),)
    )
    result = simulate(queue, Told(told), config)
    # From 5 to 16 at three quarters of its rate, then at half of it.
    assert result.end.tolist() == [16 + (100 - 11 * 0.75) / 0.5, 17.0, 18.0]


GIVEN_BACK = ReconfigurationCost(shrink=30.0)
"""B gives a node back from 4 to 34, for which A waits: its run is lost at 4, and C has its node."""
A_WAITS = {
    0: [Start(1, 1), Start(2, 2)],
    4: [Requeue(1), Start(3, 1), Resize(2, 1), Start(1, 1)],
}


def a_waits():
    return malleable(jobs((0, 1, 20), (0, 2, 90), (4, 1, 90), (14, 3, 1)), [1, 1, 1, 3])


def test_an_evolving_job_asks_for_nothing_before_it_has_begun_again():
    """A would have asked at 10, and then at 15."""
    demands = {1: ((0.5, 2), (0.75, 1))}
    config = SimulationConfig(3, cost=GIVEN_BACK, demands=demands)
    asked = []

    class Watching(Told):
        def decide(self, cluster):
            asked.extend((cluster.time, number) for number in cluster.events.requested)
            return super().decide(cluster)

    result = simulate(a_waits(), Watching(A_WAITS), config)
    assert (result.start[0], result.end[0], result.restarts) == (34.0, 54.0, 1)
    assert asked == [(44.0, 1), (49.0, 1)]


def test_a_job_whose_nodes_are_being_left_waits_in_the_queue_and_loses_no_work():
    """The policy is asked again at 14, ten seconds after it decided a resize that is under way, as D comes."""
    result = simulate(a_waits(), Told(A_WAITS), SimulationConfig(3, cost=GIVEN_BACK))
    assert (result.start[0], result.end[0]) == (34.0, 54.0)
    assert (result.restarts, result.work_lost) == (1, 4.0)


def test_a_job_that_is_cancelled_before_it_has_begun_never_ran():
    queue = malleable(jobs((0, 4, 40), (1, 2, 2)), [1, 2])
    config = SimulationConfig(4, cost=ReconfigurationCost(shrink=60.0), cancellations={2: 5.0})
    result = simulate(queue, Equipartition(), config)
    assert np.isnan([result.start[1], result.end[1]]).all()
    assert result.completed.tolist() == [True, False]


def test_a_failed_node_kills_its_job_which_starts_again():
    queue = jobs((0, 2, 5), (0, 2, 4))
    config = SimulationConfig(4, failures=(NodeFailure(2.0, 0, 4.0),))
    assert drawn(queue, FirstFit(), config) == (
        "BBBB.....\n"
        "BBBB.....\n"
        "AA..AAAAA\n"
        "AA..AAAAA"
    )  # fmt: skip
    assert simulate(queue, FirstFit(), config).restarts == 1


def test_a_cancelled_job_leaves_the_queue_or_the_machine():
    queue = jobs((0, 4, 5), (0, 4, 5), (0, 4, 5))
    config = SimulationConfig(4, cancellations={1: 2.0, 2: 1.0})
    assert drawn(queue, FirstFit(), config) == "\n".join(["AACCCCC"] * 4)
    assert simulate(queue, FirstFit(), config).completed.tolist() == [False, False, True]


def test_an_evolving_job_asks_for_more_and_gets_it_when_it_is_free():
    """A asks for four nodes when half of its six seconds is done; B leaves two at 4."""
    queue = jobs((0, 2, 6), (0, 2, 4))
    config = SimulationConfig(4, demands={1: ((0.5, 4),)})
    assert drawn(queue, FirstFit(), config) == (
        "BBBBA\n"
        "BBBBA\n"
        "AAAAA\n"
        "AAAAA"
    )  # fmt: skip


def test_what_an_evolving_job_was_granted_comes_free_with_it_for_the_head_under_easy():
    """A gets the fourth node at 2, and both come free at 4: B, of four nodes, starts then; C waits."""
    queue = jobs((0, 3, 4), (2, 4, 2), (2, 1, 3))
    config = SimulationConfig(4, speedup=lambda _: 1.0, demands={1: ((0.5, 4),)})
    for policy in (Easy(), Easy(depth=1)):
        assert simulate(queue, policy, config).start.tolist() == [0.0, 4.0, 6.0]


@pytest.mark.parametrize("policy", [Easy(), Conservative(), SlowdownDriven()], ids=repr)
def test_a_job_of_the_whole_machine_waits_for_a_failed_node_and_the_others_go_on(policy):
    queue = jobs((0, 8, 5), (3, 8, 2), (3, 2, 3))
    config = SimulationConfig(4, 2, failures=(NodeFailure(2.0, 0, 9.0),))
    result = simulate(queue, policy, config)
    assert result.restarts == 1
    assert result.start.tolist() == [9.0, 14.0, 3.0]


def test_after_a_repair_conservative_promises_anew_in_the_order_of_the_queue():
    """B, as wide as the machine, cannot be promised anything from 2 to 4; C came behind it."""
    queue = jobs((0, 2, 9), (1, 4, 2), (3, 2, 12))
    config = SimulationConfig(4, failures=(NodeFailure(2.0, 3, 4.0),))
    result = simulate(queue, Conservative(), config)
    assert result.start.tolist() == [0.0, 9.0, 11.0]


def overrunning(workload, request):
    return Workload(**{**workload.__dict__, "requested": np.array(request, dtype=float)})


@pytest.mark.parametrize("policy", [Easy(), Conservative(), SlowdownDriven()], ids=repr)
def test_a_job_that_overran_holds_the_others_up_and_nothing_else_happens_to_them(policy):
    """A says 4 s and takes 10: B and C are promised 4 and 6 and start at 10 and 12."""
    queue = overrunning(jobs((0, 8, 10), (1, 8, 2), (2, 8, 2), (5, 2, 3)), [4, 2, 2, 3])
    result = simulate(queue, policy, SimulationConfig(4, 2))
    assert result.start.tolist() == [0.0, 10.0, 12.0, 14.0]


def test_sd_policy_protects_the_head_of_the_queue_and_the_papers_does_not():
    """B needs the whole machine and A's end. 50 short jobs, each a guest of A, put that off by 10 s each."""
    rows = [(0, 8, 1000), (1, 8, 50), *((2 + 20 * k, 8, 10) for k in range(50))]
    queue = malleable(jobs(*rows), [4, 8, *[4] * 50])
    config = SimulationConfig(2, 4)
    starts = {
        protect: simulate(queue, SlowdownDriven(protect=protect), config).start[1]
        for protect in (True, False)
    }
    assert starts == {True: 1000.0, False: 1500.0}
    assert simulate(queue, Easy(), config).start[1] == 1000.0


class Moving(SchedulingPolicy):
    """Starts a job at once, and moves it to the upper nodes when another one comes."""

    needs_node_ids = True

    def decide(self, cluster):
        for job in cluster.queue:
            yield Start(job.id, cluster.nodes_for(job.processors))
        for number, running in cluster.running.items():
            if running.node_ids == {0, 1} and cluster.queue:
                yield Migrate(number, frozenset({3, 4}))


def test_a_migrated_job_keeps_the_work_it_has_done():
    result = simulate(jobs((0, 2, 10), (4, 1, 1)), Moving(), SimulationConfig(5))
    assert (result.start.tolist(), result.end.tolist()) == ([0.0, 4.0], [10.0, 5.0])


class Greedy(SchedulingPolicy):
    """Starts everything, whether it fits or not."""

    def decide(self, cluster):
        for job in cluster.queue:
            yield Start(job.id, cluster.nodes_for(job.processors))


class Idle(SchedulingPolicy):
    """Does nothing."""

    def decide(self, cluster):
        yield from cluster.queue[:0]


def test_a_policy_that_over_allocates_is_told_which_decision():
    with pytest.raises(DecisionError) as raised:
        simulate(jobs((0, 3, 5), (0, 2, 5)), Greedy(), SimulationConfig(4))
    assert raised.value.code == "decision-refused"
    assert (raised.value.fields["time"], raised.value.fields["job"]) == (0.0, 2)
    assert raised.value.fields["value"].startswith("Start(job=2")


def test_a_policy_that_never_starts_a_job_is_told_which():
    with pytest.raises(UsageError) as raised:
        simulate(jobs((0, 3, 5), (0, 2, 5)), Idle(), SimulationConfig(4))
    assert raised.value.code == "job-never-started"
    named = {"policy": "Idle", "job": 1, "processors": 3, "waiting": 2}
    assert named.items() <= raised.value.fields.items()
