"""The policy that schedules as Slurm does: its order, its cycles and what they look at."""

from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apples.errors import UsageError
from apples.scheduling.policies import SlurmBackfill
from apples.scheduling.policies.slurm import slurm_seconds
from apples.simulation.config import SimulationConfig
from apples.simulation.run import simulate
from apples.simulation.workload import rigid

EXACT = SlurmBackfill(bf_interval=1, bf_resolution=1, bf_window=10**9)


def jobs(*rows):
    """Jobs of (submit, processors, run and request)."""
    submit, width, run = (np.array(column) for column in zip(*rows, strict=True))
    return rigid(submit.astype(float), run.astype(float), width, run.astype(float))


def starts(policy, *rows, nodes=4):
    return simulate(jobs(*rows), policy, SimulationConfig(nodes)).start.tolist()


def test_a_job_overtakes_at_the_next_cycle_and_not_before():
    """Two nodes until 600, then job 2 on all; job 3 fits before it."""
    rows = [(0, 2, 600), (1, 4, 600), (2, 1, 60)]
    assert starts(SlurmBackfill(bf_interval=30), *rows)[2] == 30
    assert starts(SlurmBackfill(bf_interval=7), *rows)[2] == 7


def test_the_first_in_the_queue_does_not_wait_for_a_cycle():
    assert starts(SlurmBackfill(bf_interval=1000), (0, 4, 10), (1, 4, 10)) == [0, 10]


def test_nobody_is_put_off_by_a_job_behind_it():
    """Job 4 would end before job 2 begins, but job 3 has those nodes."""
    rows = [(0, 3, 600), (0, 4, 600), (0, 1, 500), (0, 1, 500)]
    assert starts(EXACT, *rows) == [0, 600, 0, 1200]


def test_a_job_whose_place_lies_beyond_the_window_holds_no_nodes():
    """Job 2 could begin in two hours; job 3 runs beyond that."""
    rows = [(0, 2, 7200), (0, 4, 600), (0, 2, 9000)]
    assert starts(SlurmBackfill(bf_window=180), *rows) == [0, 7200, 7800]
    assert starts(SlurmBackfill(bf_window=60), *rows) == [0, 9000, 0]


def test_a_cycle_looks_at_so_many_jobs():
    rows = [(0, 3, 600), (0, 4, 600), (0, 4, 600), (0, 1, 60)]
    assert starts(SlurmBackfill(bf_max_job_test=3), *rows)[3] == 0
    assert starts(SlurmBackfill(bf_max_job_test=2), *rows)[3] >= 600


def test_ends_are_rounded_up_to_the_resolution():
    """Job 2 begins at 90, for a cycle at 120: until then job 3 may run."""
    rows = [(0, 3, 90), (0, 4, 600), (0, 1, 115)]
    assert starts(SlurmBackfill(bf_resolution=60), *rows) == [0, 115, 0]
    assert starts(SlurmBackfill(bf_resolution=1), *rows) == [0, 90, 690]


def test_age_and_size_make_the_order():
    """While job 1 runs an old small job and a new large one come."""
    rows = [(0, 4, 100), (1, 1, 50), (90, 4, 50)]
    assert starts(SlurmBackfill(PriorityWeightAge=10), *rows) == [0, 100, 150]
    assert starts(SlurmBackfill(PriorityWeightJobSize=10), *rows) == [0, 150, 100]
    favor = SlurmBackfill(PriorityWeightJobSize=10, PriorityFavorSmall=True)
    assert starts(favor, *rows) == [0, 100, 150]
    both = SlurmBackfill(PriorityWeightAge=1e9, PriorityWeightJobSize=1, PriorityMaxAge="0:5")
    rows[2] = (10, 4, 50)  # both are older than five seconds: the larger one first
    assert starts(both, *rows) == [0, 150, 100]


@st.composite
def small_logs(draw):
    count = draw(st.integers(1, 12))
    row = st.tuples(st.integers(0, 20), st.integers(1, 4), st.integers(1, 12))
    return [draw(row) for _ in range(count)]


@settings(max_examples=60, deadline=None)
@given(small_logs())
def test_with_cycles_each_second_it_is_a_plan_made_anew_each_second(rows):
    assert starts(EXACT, *rows) == planned_each_second(jobs(*rows), 4)


def planned_each_second(workload, nodes):
    """Each second, plan all waiting jobs in order on a table of seconds; start what begins now."""
    start = np.full(len(workload), inf)
    submit, run, width = (
        column.astype(int) for column in (workload.submit, workload.run, workload.processors)
    )
    now = 0
    while (start == inf).any():
        table = np.full(1000, nodes)
        for k in np.flatnonzero(start + run > now):
            if start[k] < inf:
                table[: int(start[k]) + run[k] - now] -= width[k]
        for k in range(len(workload)):
            if submit[k] <= now and start[k] == inf:
                at = next(t for t in range(1000) if (table[t : t + run[k]] >= width[k]).all())
                table[at : at + run[k]] -= width[k]
                if at == 0:
                    start[k] = now
        now += 1
    return start.tolist()


@pytest.mark.parametrize(
    ("word", "seconds"),
    [(90, 5400), ("0:5", 5), ("2:30:00", 9000), ("1-12", 129600), ("1-0:30", 88200), ("1-0:0:9", 86409)],
)  # fmt: skip
def test_times_are_written_as_in_slurm_conf(word, seconds):
    assert slurm_seconds(word, "x") == seconds


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"bf_interval": 0}, "option bf_interval=0: at least 1"),
        ({"PriorityWeightAge": -1.0}, "option PriorityWeightAge=-1.0: at least 0"),
        ({"PriorityMaxAge": "a week"}, "option PriorityMaxAge=a week: not a time of slurm.conf"),
        ({"PriorityMaxAge": 0}, "option PriorityMaxAge=0: must be more than 0"),
    ],
)
def test_an_option_that_slurm_would_not_take_is_refused(options, said):
    with pytest.raises(UsageError, match=said):
        SlurmBackfill(**options)
