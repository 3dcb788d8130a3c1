from dataclasses import replace

import numpy as np
import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from apples.scheduling import POLICIES, Conservative, Easy, Equipartition, SlowdownDriven
from apples.simulation import SimulationConfig, amdahl, mark_malleable, rigid, simulate

NODES, CORES = 5, 4


@st.composite
def workloads(draw):
    """Up to 20 jobs on 20 processors, half of them malleable."""
    count = draw(st.integers(1, 20))

    def column(low, high):
        return np.array(draw(st.lists(st.integers(low, high), min_size=count, max_size=count)))

    submit, run, slack = column(0, 40) * 1.0, column(1, 30) * 1.0, column(0, 15) * 1.0
    workload = rigid(submit, run, column(1, NODES * CORES), run + slack)
    return mark_malleable(
        workload, 0.5, draw(st.integers(0, 9)), minimum=0.25, maximum=2.0, most=NODES * CORES
    )


def intervals(result, jobs):
    """Per job, (begin, end, cores) as recorded."""
    pieces = [[] for _ in range(jobs)]
    last = {}
    for time, job, cores in result.changes:
        if job in last:
            pieces[job].append((last[job][0], time, last[job][1]))
        last[job] = (time, cores)
    return pieces


@settings(max_examples=examples(60), deadline=None)
@given(workloads(), st.sampled_from([*POLICIES.values()]))
def test_no_job_starts_early_and_the_machine_is_never_over_full(workload, policy):
    result = simulate(workload, policy(), SimulationConfig(NODES, CORES), record=True)
    assert (result.start >= workload.submit).all()
    assert result.completed.all()
    held = dict.fromkeys(range(len(workload)), 0)
    at = {}
    for time, job, cores in result.changes:
        at.setdefault(time, {})[job] = cores
    for time in sorted(at):
        held.update(at[time])
        assert sum(held.values()) <= NODES * CORES


@settings(max_examples=examples(60), deadline=None)
@given(workloads(), st.floats(0.0, 0.3))
def test_what_a_job_did_at_its_rates_is_its_work(workload, serial):
    config = SimulationConfig(NODES, CORES, speedup=lambda n: amdahl(n, serial))
    result = simulate(workload, Equipartition(), config, record=True)
    need = config.need(workload.processors) * CORES
    for k, pieces in enumerate(intervals(result, len(workload))):
        work = sum(
            (end - begin) * amdahl(cores, serial) / amdahl(int(need[k]), serial)
            for begin, end, cores in pieces
            if cores
        )
        assert work == pytest.approx(workload.run[k])


@settings(max_examples=examples(60), deadline=None)
@given(workloads(), st.sampled_from(["ideal", "worst"]), st.booleans())
def test_sharing_stretches_a_job_by_two_at_most(workload, model, guard):
    policy = SlowdownDriven(max_slowdown=float("inf"), guard=guard)
    result = simulate(workload, policy, SimulationConfig(NODES, CORES, runtime_model=model))
    stretch = (result.end - result.start) / workload.run
    assert (stretch >= 1 - 1e-9).all()
    assert (stretch <= 2 + 1e-9).all()
    alone = ~(result.guest | result.mate)
    assert stretch[alone] == pytest.approx(1)


@settings(max_examples=examples(60), deadline=None)
@given(workloads(), st.booleans())
def test_if_requests_are_exact_the_ideal_and_the_worst_model_agree(workload, guard):
    """No mate then ends before its guest, so all nodes of a guest are alike (section 4.3)."""
    exact = replace(workload, requested=workload.run)
    policy = SlowdownDriven(max_slowdown=float("inf"), guard=guard)
    ends = [
        simulate(exact, policy, SimulationConfig(NODES, CORES, runtime_model=model)).end
        for model in ("ideal", "worst")
    ]
    assert ends[0] == pytest.approx(ends[1])


@settings(max_examples=examples(40), deadline=None)
@given(workloads())
def test_with_exact_requests_nobody_delays_an_earlier_promise_under_conservative(workload):
    exact = rigid(workload.submit, workload.run, workload.processors, workload.run)
    config = SimulationConfig(NODES, CORES)
    alone = simulate(exact, Conservative(), config).start
    for count in range(1, len(exact)):
        fewer = exact.take(slice(0, count))
        assert simulate(fewer, Conservative(), config).start.tolist() == alone[:count].tolist()


@settings(max_examples=examples(40), deadline=None)
@given(workloads())
def test_a_full_machine_job_waits_no_longer_under_easy_than_its_first_shadow(workload):
    """The head's start is never later than the end of all that is estimated to run."""
    wide = rigid(
        np.append(workload.submit, 100.0),
        np.append(workload.run, 5.0),
        np.append(workload.processors, NODES * CORES),
        np.append(workload.requested, 5.0),
    )
    config = SimulationConfig(NODES, CORES)
    result = simulate(wide, Easy(), config)
    before = simulate(workload, Easy(), config)
    last = len(wide) - 1
    ends = before.start + workload.requested
    assert result.start[last] <= max(100.0, ends.max())


def test_a_fraction_marks_nested_sets():
    workload = rigid(np.arange(200.0), np.ones(200), np.full(200, 4), np.ones(200))
    few, many = (mark_malleable(workload, f, seed=5).malleable for f in (0.2, 0.6))
    assert 20 < few.sum() < 60 < many.sum() < 160
    assert (few <= many).all()
