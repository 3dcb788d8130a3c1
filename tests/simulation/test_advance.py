"""Advance reservations: nodes that are kept from jobs, and what becomes of jobs around them."""

import json
from dataclasses import replace

import numpy as np
import pytest
from commands import command
from drawn import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st

from apples.errors import UsageError
from apples.scheduling import (
    POLICIES,
    AdvanceReservation,
    ClusterLedger,
    Conservative,
    Easy,
    Equipartition,
    FirstFit,
    Job,
    JobKind,
    Margin,
    NodeOccupancy,
    Refused,
    SchedulingPolicy,
    Start,
    TopologyAwarePolicy,
    from_json,
    nodes_left,
    to_json,
)
from apples.simulation import (
    DecisionError,
    NodeFailure,
    SimulationConfig,
    has_kernel,
    mark_malleable,
    rigid,
    simulate,
)
from apples.simulation import prepare_simulation as prepare
from apples.topology import synthetic

NODES, CORES = 5, 4
ALL = sorted(POLICIES)


def jobs(*rows):
    """Jobs of (submit, processors, run and request), numbered from 1."""
    submit, width, run = (np.array(column) for column in zip(*rows, strict=True))
    return rigid(submit.astype(float), run.astype(float), width, run.astype(float))


def four(*advance, **more):
    return SimulationConfig(4, advance=tuple(AdvanceReservation(*one) for one in advance), **more)


@pytest.mark.parametrize("name", ["fcfs", "first_fit", "sjf", "easy", "conservative", "slurm"])
def test_a_job_that_would_run_into_a_reservation_of_the_machine_waits_until_its_end(name):
    result = simulate(jobs((0, 1, 100), (1, 1, 40)), POLICIES[name](), four((50.0, 80.0, 4)))
    assert result.start[0] == 80
    backfills = name in {"first_fit", "sjf", "easy", "conservative"}
    assert bool(result.start[1] == 1) is backfills
    assert [one.taken for one in result.reservations] == [4]


def test_what_ends_as_the_reservation_begins_runs():
    assert simulate(jobs((0, 4, 50)), Easy(), four((50.0, 80.0, 4))).start.tolist() == [0]


def test_a_reservation_begins_at_its_microsecond():
    result = simulate(jobs((0, 4, 10), (0, 4, 10)), Easy(), four((10.0000004, 30.0000004, 4)))
    assert [(one.begin, one.taken) for one in result.reservations] == [(10, 4)]
    assert result.start.tolist() == [0, 30]


def test_jobs_run_beside_a_reservation_on_the_nodes_that_it_leaves():
    result = simulate(jobs((0, 1, 100), (0, 2, 100), (0, 1, 100)), FirstFit(), four((50, 80, 2)))
    assert result.start.tolist() == [0, 80, 0]
    assert result.reservations[0].taken == 2


def test_no_job_overtakes_under_first_come_first_served():
    result = simulate(jobs((0, 1, 100), (1, 1, 1)), POLICIES["fcfs"](), four((50.0, 80.0, 4)))
    assert result.start.tolist() == [80, 80]


def test_conservative_promises_around_it():
    rows = [(0, 4, 30), (1, 2, 30), (2, 4, 15)]
    result = simulate(jobs(*rows), Conservative(), four((50.0, 70.0, 4)))
    assert result.start.tolist() == [0, 70, 30]


def test_easy_keeps_nodes_for_the_head_where_a_reservation_would_take_them():
    """Job 2 can begin at 20 on three nodes of which one is reserved from 50 on: job 3 would take the last."""
    rows = [(0, 3, 20), (1, 3, 60), (2, 1, 60)]
    with_it = simulate(jobs(*rows), Easy(), four((50.0, 200.0, 1)))
    assert with_it.start.tolist() == [0, 20, 80]
    assert simulate(jobs(*rows), Easy(), four()).start.tolist() == [0, 20, 2]


def test_equipartition_leaves_the_nodes_of_a_reservation_that_its_jobs_reach():
    two = mark_malleable(jobs((0, 4, 10), (20, 4, 100)), 1.0, 0, minimum=0.25, most=4)
    result = simulate(two, Equipartition(), four((60.0, 100.0, 3)), record=True)
    assert result.reservations[0].taken == 3
    assert (20.0, 1, 1) in result.changes


def test_a_job_that_overruns_into_it_gives_its_nodes_up_when_it_ends():
    late = jobs((0, 3, 70), (65, 1, 1))
    late = replace(late, requested=np.array([40.0, 1.0]))
    result = simulate(late, Easy(), four((50.0, 100.0, 2)))
    assert result.reservations[0].taken == 1
    assert result.start.tolist() == [0, 70]
    held = []

    class Looking(Easy):
        def decide(self, cluster):
            held.append((cluster.time, cluster.free, cluster.reserved))
            return super().decide(cluster)

    simulate(late, Looking(), four((50.0, 100.0, 2)))
    assert (50.0, 0, 1) in held
    assert (70.0, 2, 2) in held


def test_equipartition_makes_room_for_a_reservation_into_which_jobs_overrun():
    one = mark_malleable(jobs((0, 4, 70)), 1.0, 0, minimum=0.25, most=4)
    one = replace(one, requested=np.array([40.0]))
    result = simulate(one, Equipartition(), four((50.0, 100.0, 2)), record=True)
    assert (50.0, 0, 2) in result.changes


@pytest.mark.parametrize("name", ALL)
def test_what_a_policy_sees_of_reservations_goes_to_json_and_back(name):
    seen = []

    class Looking(SchedulingPolicy):
        looks_at = ("reservations",)

        def decide(self, cluster):
            seen.append(cluster)
            return POLICIES[name]().decide(cluster)

    config = SimulationConfig(4, 2, advance=(AdvanceReservation(5.0, 9.0, 2, "course"),))
    simulate(jobs((0, 2, 20), (7, 2, 20)), Looking(), config)
    assert {one.reserved for one in seen} == {0, 2}
    assert [from_json(to_json(one)) for one in seen] == seen


def test_the_nodes_of_a_reservation_are_told_apart():
    ledger = ClusterLedger(
        4, track_node_ids=True, advance=[AdvanceReservation(5.0, 9.0, 2, "course")]
    )
    states = ledger.snapshot(5.0).node_states
    assert states[2:] == (NodeOccupancy.RESERVED,) * 2
    assert ledger.fail_node(3) is None
    assert (ledger.nodes, ledger.free, ledger.reserved) == (3, 2, 1)
    state = ledger.snapshot(6.0)  # another takes its place
    assert (state.nodes, state.free, state.reserved) == (3, 1, 2)
    ledger.restore_node(3)
    assert ledger.snapshot(9.0).free_node_ids == (0, 1, 2, 3)


def test_a_drained_node_leaves_service_when_its_reservation_is_over():
    ledger = ClusterLedger(2, track_node_ids=True, advance=[AdvanceReservation(5.0, 9.0, 1)])
    ledger.snapshot(5.0)
    ledger.drain(1)
    assert ledger.snapshot(9.0).free_node_ids == (0,)


def test_a_start_into_a_reservation_is_refused_with_its_name():
    ledger = ClusterLedger(4, advance=[AdvanceReservation(50.0, 80.0, 4, "course")])
    ledger.submit(Job(1, 0.0, 1, 51.0, 1, 1))
    answer = ledger.apply(Start(1, 1))
    assert isinstance(answer, Refused)
    assert answer.crosses
    assert answer.reason == "it would run into the reservation course at 50 s"


class Greedy(SchedulingPolicy):
    def decide(self, cluster):
        free = cluster.free
        for job in cluster.queue:
            if job.processors <= free:
                free -= job.processors
                yield Start(job.id, job.processors)


class Blind(Greedy):
    looks_at = ("reservations",)


def test_a_policy_that_does_not_look_has_its_starts_refused_and_goes_on():
    result = simulate(jobs((0, 1, 100), (1, 1, 10)), Greedy(), four((50.0, 80.0, 4)))
    assert result.start.tolist() == [80, 1]
    assert result.refused_starts == 3  # at 0, 1 and 11 s; in the reservation no node is free
    with pytest.raises(DecisionError) as raised:
        simulate(jobs((0, 1, 100)), Blind(), four((50.0, 80.0, 4)))
    assert raised.value.code == "decision-refused"
    assert (raised.value.fields["job"], raised.value.fields["time"]) == (1, 0.0)


def test_the_topology_aware_policy_looks_at_what_its_inner_policy_looks_at():
    machine = synthetic("package:2 core:2 pu:1")
    result = simulate(
        jobs((0, 2, 100), (1, 2, 10)), TopologyAwarePolicy(machine, FirstFit()), four((50, 80, 3))
    )
    assert result.start.tolist() == [80, 1]


def test_the_compiled_kernels_are_not_asked():
    assert not has_kernel(FirstFit(), four((1.0, 2.0, 1)), jobs((0, 1, 1)))


# ------------------------------------------------------------------------------- properties


@st.composite
def workloads(draw):
    """Up to 14 jobs on 20 processors, half of them malleable."""
    count = draw(st.integers(1, 14))

    def column(low, high):
        return np.array(draw(st.lists(st.integers(low, high), min_size=count, max_size=count)))

    submit, run, slack = column(0, 40) * 1.0, column(1, 30) * 1.0, column(0, 15) * 1.0
    workload = rigid(submit, run, column(1, NODES * CORES), run + slack)
    return mark_malleable(
        workload, 0.5, draw(st.integers(0, 9)), minimum=0.25, maximum=2.0, most=NODES * CORES
    )


@st.composite
def reservations(draw):
    """Up to four reservations that the machine can have together."""
    found = []
    for begin, seconds, nodes in draw(
        st.lists(
            st.tuples(st.integers(0, 90), st.integers(1, 40), st.integers(1, NODES)), max_size=4
        )
    ):
        one = AdvanceReservation(float(begin), float(begin + seconds), nodes, f"{len(found)}")
        moments = {one.begin, *(o.begin for o in found)}
        if all(
            sum(o.nodes for o in (*found, one) if o.begin <= t < o.end) <= NODES for t in moments
        ):
            found.append(one)
    return tuple(found)


class Counting(SchedulingPolicy):
    """Another policy; counts the nodes at every pass."""

    looks_at = ("reservations",)

    def __init__(self, inner):
        self.inner = inner
        self.seen = []

    def decide(self, cluster):
        held = sum(one.nodes - one.shared for one in cluster.running.values())
        assert cluster.free + held + cluster.reserved == cluster.nodes
        self.seen.append((cluster.time, held, cluster.reserved, cluster.advance))
        return self.inner.decide(cluster)


@settings(max_examples=examples(120), deadline=None)
@given(workloads(), reservations(), st.sampled_from(ALL), st.sampled_from(["instant", "event"]))
def test_reservations_have_all_their_nodes_and_jobs_the_rest(workload, advance, name, ties):
    config = SimulationConfig(NODES, CORES, advance=advance, ties=ties)
    policy = Counting(POLICIES[name]())
    result = simulate(workload, policy, config)
    assert result.completed.all()
    assert (result.start >= workload.submit).all()
    if POLICIES[name].uses_malleable and workload.malleable.any():
        return  # a job that was shrunk may overrun
    for one in result.reservations:
        assert one.taken == one.nodes, one
    for time, held, reserved, _ in policy.seen:
        due = sum(one.nodes for one in advance if one.begin <= time < one.end)
        assert reserved == due or ties == "event"
        assert held + reserved <= NODES


@settings(max_examples=examples(60), deadline=None)
@given(workloads(), reservations(), st.sampled_from(ALL), st.integers(0, 99))
def test_no_policy_fails_where_jobs_overrun_and_nodes_fail_too(workload, advance, name, seed):
    rng = np.random.default_rng(seed)
    short = rng.random(len(workload)) < 0.4
    workload = replace(
        workload, requested=np.where(short, np.maximum(1, workload.run // 2), workload.requested)
    )
    failures = tuple(
        NodeFailure(float(t), int(rng.integers(NODES)), float(t) + 9.0)
        for t in np.sort(rng.integers(0, 80, 3))
    )
    config = SimulationConfig(NODES, CORES, advance=advance, failures=failures)
    policy = Counting(POLICIES[name]())
    assert simulate(workload, policy, config).completed.all()


SHARED = replace(
    jobs(*((0, 1, run) for run in (1, 1, 1, 2, 3, 2, 2, 2, 1)), (1, 1, 1), (1, 1, 1)),
    job=np.array([1, 2, 3, 4, 5, 7, 8, 10, 11, 6, 9]),
    malleable=np.array([0, 0, 1, 0, 1, 1, 0, 1, 0, 1, 0], dtype=bool),
    maximum=np.array([1, 1, 2, 1, 2, 2, 1, 2, 1, 2, 1]),
)
"""Eleven jobs, one of which SD-Policy once let wait as there was such a reservation."""


@pytest.mark.more
@settings(max_examples=examples(40), deadline=None)
@given(workloads(), st.sampled_from(ALL))
@example(SHARED, "sd")
def test_a_reservation_after_all_jobs_changes_nothing(workload, name):
    plain = SimulationConfig(NODES, CORES)
    late = replace(plain, advance=(AdvanceReservation(1e6, 2e6, NODES),))
    first = simulate(workload, POLICIES[name](), plain)
    then = simulate(workload, POLICIES[name](), late)
    for field in ("start", "end", "resizes", "guest", "mate"):
        assert getattr(first, field).tolist() == getattr(then, field).tolist()
    assert first.node_seconds == pytest.approx(then.node_seconds)


def test_a_margin_is_what_reservations_leave():
    one = AdvanceReservation(100.0, 150.0, 3)
    margin = Margin(0.0, 3, [(200.0, 1)], [one, AdvanceReservation(120.0, 130.0, 1)])
    assert margin.crossed((1, 0.0, 110.0)) == 100.0
    assert margin.spare == [0]  # of what nobody asks about nothing is counted
    assert margin.crossed((1, 110.0, 130.0)) == 120.0
    assert margin.spare == [0, -1]
    assert not margin.take((2, 0.0, 125.0))
    assert margin.take((-2, 0.0, 300.0))
    assert margin.take((1, 0.0, 125.0))
    assert margin.spare == [1, 0]


def test_the_nodes_that_reservations_leave_are_counted_where_they_overlap():
    ledger = ClusterLedger(
        9, advance=[AdvanceReservation(10.0, 30.0, 2), AdvanceReservation(20.0, 25.0, 3)]
    )
    state = ledger.snapshot(0.0)
    assert [nodes_left(state, until) for until in (10.0, 15.0, 20.5)] == [9, 7, 4]
    assert nodes_left(ledger.snapshot(26.0), 99.0) == 7
    assert nodes_left(ledger.snapshot(26.0), 26.0) == 7  # all jobs are due to end at this instant


def test_a_growth_into_a_reservation_is_refused():
    ledger = ClusterLedger(4, advance=[AdvanceReservation(50.0, 80.0, 2, "course")])
    ledger.submit(Job(1, 0.0, 2, 60.0, 1, 4, JobKind.MALLEABLE))
    assert not isinstance(ledger.apply(Start(1, 2)), Refused)
    from apples.scheduling import Resize

    assert "reservation course" in ledger.apply(Resize(1, 3)).reason


# ------------------------------------------------------------------------------------ words

MODEL = ["lublin:jobs=60,processors=64", "--policy", "easy", "--processors", "64"]


def file_with(folder, text):
    path = folder / "kept.csv"
    path.write_text(text)
    return path


def test_reservations_of_a_file_are_in_the_result(tmp_path):
    path = file_with(tmp_path, "start,duration,nodes,name\n1000,3600,64,maintenance\n9000,60,2\n")
    said = command("apples", "simulate", *MODEL, "--option", f"reservations={path}", "--json")
    kept = json.loads(said.out)["reservations"]
    assert [(one["name"], one["nodes"], one["end"]) for one in kept] == [
        ("maintenance", 64, 4600),
        ("of line 3", 2, 9060),
    ]
    assert [one["began_with"] for one in kept] == [64, 2]


def test_a_reservation_that_began_short_and_refused_starts_are_said(tmp_path):
    path = file_with(tmp_path, "4070,3600,64,maintenance\n")
    mine = tmp_path / "mine.py"
    mine.write_text(
        "from apples.scheduling import SchedulingPolicy, Start\n"
        "class Mine(SchedulingPolicy):\n"
        "    def decide(self, cluster):\n"
        "        for job in cluster.queue[:1]:\n"
        "            if job.processors <= cluster.free:\n"
        "                yield Start(job.id, job.processors)\n"
    )
    words = [MODEL[0], "--policy", f"{mine}:Mine", *MODEL[3:], "--option", f"reservations={path}"]
    said = command("apples", "simulate", *words)
    assert said.code == 0
    assert "reservation maintenance at 4070 s" in said.err
    assert command("apples", "simulate", *words, "--json").document["refused_starts"] > 0
    late = command("apples", "simulate", *MODEL[:1], "--policy", "equipartition", *MODEL[3:],
                   "--option", f"reservations={path}")  # fmt: skip
    assert late.code == 0


@pytest.mark.parametrize(
    ("text", "code", "fields"),
    [
        ("1,2\n", "columns-differ", {"line": 1, "value": 2, "bound": 3}),
        ("1,2,3\nx,2,3\n", "value-type", {"line": 2, "value": ["x", "2", "3"]}),
        ("5,0,3\n", "value-range", {"line": 1, "field": "seconds", "value": 0}),
        ("5,9,0\n", "value-range", {"line": 1, "field": "nodes", "value": 0, "bound": 64}),
        ("5,9,8.5\n", "value-range", {"line": 1, "field": "nodes", "value": 8.5}),
        ("5,9,40\n7,9,40\n", "reservation-too-large", {"time": 7, "value": 80, "bound": 64}),
        ("1,2,3,a,b\n", "columns-differ", {"line": 1, "value": 5}),
    ],
)
def test_a_wrong_row_is_named(text, code, fields, tmp_path):
    path = file_with(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        prepare(
            MODEL[0], "easy", [f"reservations={path}"], processors=64, nodes=None, cores=None,
            malleable=None, seed=0,
        )  # fmt: skip
    assert caught.value.code == code
    assert fields.items() <= caught.value.fields.items()
    assert caught.value.fields.get("file", str(path)) == str(path)
