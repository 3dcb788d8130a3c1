"""Times that are equal but for rounding are one instant, in both engines and for every policy."""

import numpy as np
import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from apples.scheduling import (
    LATEST,
    Conservative,
    Easy,
    Equipartition,
    FirstComeFirstServed,
    FirstFit,
    SlowdownDriven,
    instant,
)
from apples.simulation import (
    ReconfigurationCost,
    SimulationConfig,
    instants,
    makespan,
    mark_malleable,
    rigid,
    simulate,
)

RIGID = [FirstComeFirstServed(), FirstFit(), Easy(), Conservative()]
RESIZING = [
    Equipartition(),
    SlowdownDriven(),
    SlowdownDriven(max_slowdown="dynamic", sharing_factor=0.3),
]
ENGINES = ["kernel", "events"]
MICROSECONDS = st.integers(0, 10**6 * int(LATEST) - 1)


def log_of(tenths, unit, begin=0.0):
    """A log of (submit, run, processors, slack of the request) in tenths of a second, written in a unit."""
    submit, run, width, slack = np.array(tenths, dtype=np.int64).T
    return rigid(begin + submit * unit, run * unit, width, (run + slack) * unit)


def start_of(workload, policy, engine, ties="instant", nodes=4, cores=1):
    config = SimulationConfig(
        nodes, cores, ties=ties, cost=ReconfigurationCost(0.1, 0.2, 0.0), release="at_once"
    )
    return simulate(workload, policy, config, engine=engine)


LOGS = st.lists(
    st.tuples(
        st.integers(0, 30), st.integers(1, 20), st.integers(1, 4), st.sampled_from([0, 0, 1, 7])
    ),
    min_size=2,
    max_size=14,
)


@pytest.mark.parametrize("engine", ENGINES)
def test_ends_that_coincide_free_their_nodes_together(engine):
    """0.1 + 0.2 is not 0.3: a pass between the two let a narrow job take what the wide one waited for."""
    jobs = [(0, 3, 2, 0), (1, 2, 2, 0), (2, 4, 4, 0), (2, 9, 2, 0)]
    seconds = start_of(log_of(jobs, 1.0), FirstFit(), engine).start
    tenths = start_of(log_of(jobs, 0.1), FirstFit(), engine).start
    assert seconds.tolist() == [0.0, 1.0, 3.0, 7.0]
    assert tenths.tolist() == [0.0, 0.1, 0.3, 0.7]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_job_that_ends_with_the_shadow_does_not_delay_the_head(engine):
    jobs = [(0, 3, 3, 0), (1, 4, 4, 0), (1, 2, 1, 0)]
    assert start_of(log_of(jobs, 0.1), Easy(), engine).start.tolist() == [0.0, 0.3, 0.1]


@pytest.mark.more
@pytest.mark.parametrize("ties", ["instant", "event"])
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("policy", RIGID, ids=repr)
@given(jobs=LOGS)
@settings(max_examples=examples(20), deadline=None)
def test_a_log_in_tenths_has_the_schedule_of_the_same_log_in_whole_seconds(
    policy, engine, ties, jobs
):
    whole = start_of(log_of(jobs, 1.0), policy, engine, ties)
    tenths = start_of(log_of(jobs, 0.1), policy, engine, ties)
    assert tenths.start.tolist() == instants(whole.start * 0.1).tolist()
    assert tenths.end.tolist() == instants(whole.end * 0.1).tolist()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("policy", [*RIGID, *RESIZING], ids=repr)
@given(jobs=LOGS, begin=st.sampled_from([0.1, 86_400.7, 1_262_300_400.3]))
@settings(max_examples=examples(20), deadline=None)
def test_when_a_log_begins_does_not_matter(policy, engine, jobs, begin):
    """A number of the size of a date tells a quarter of a microsecond apart."""
    width = [(submit, run, 4 * processors, slack) for submit, run, processors, slack in jobs]
    early, late = (
        start_of(mark_malleable(log_of(width, 0.1, at), 0.7, 1), policy, engine, "instant", 4, 4)
        for at in (0.0, begin)
    )
    assert late.start.tolist() == instants(early.start + begin).tolist()
    assert late.end.tolist() == instants(early.end + begin).tolist()


@given(MICROSECONDS)
def test_a_decimal_of_six_places_is_its_own_instant(count):
    assert instant(count / 1e6) == count / 1e6 == float(f"{count}e-6")


@given(MICROSECONDS, MICROSECONDS)
def test_the_instant_of_a_sum_is_the_sum_of_the_microseconds(one, other):
    if one + other < 10**6 * int(LATEST):
        assert instant(one / 1e6 + other / 1e6) == (one + other) / 1e6


@given(st.floats(0, 1e18) | st.just(float("inf")))
def test_times_of_a_column_and_one_by_one_are_the_same_instants(seconds):
    assert instants(np.array([seconds, 0.25])).tolist() == [instant(seconds), 0.25]


@given(st.integers(0, 10**15))
def test_whole_seconds_stay_as_they_are(seconds):
    assert instant(float(seconds)) == float(seconds)


def test_makespan_begins_with_the_first_submission():
    workload = rigid(np.array([100.0, 105.0]), np.full(2, 10.0), np.full(2, 4), np.full(2, 10.0))
    result = simulate(workload, FirstFit(), SimulationConfig(4, 1))
    assert makespan(workload, result) == 20.0
