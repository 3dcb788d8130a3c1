"""Jobs that wait for the end of another: what a log says, and what becomes of it."""

from dataclasses import replace

import numpy as np
import pytest
from commands import command
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from apples.errors import UsageError
from apples.scheduling import Easy, FirstFit, Reject, SchedulingPolicy, Start
from apples.simulation import (
    Log,
    NodeFailure,
    SimulationConfig,
    dependencies_of,
    has_kernel,
    rigid,
    simulate,
    write_swf,
)
from apples.simulation import prepare_simulation as prepare


def jobs(*rows):
    """Jobs of (submit, processors, run and request), numbered from 1."""
    submit, width, run = (np.array(column) for column in zip(*rows, strict=True))
    return rigid(submit.astype(float), run.astype(float), width, run.astype(float))


def starts(waits, *rows, policy=None, **config):
    machine = SimulationConfig(4, dependencies=waits, **config)
    return simulate(jobs(*rows), policy or Easy(), machine).start.tolist()


def test_a_job_comes_when_its_predecessor_has_ended_and_the_time_to_think_is_over():
    rows = [(0, 1, 100), (1, 1, 10), (2, 1, 10)]
    assert starts({2: (1, 0.0), 3: (2, 30.0)}, *rows) == [0, 100, 140]


def test_a_predecessor_that_ended_long_ago_holds_nobody_up():
    assert starts({2: (1, 30.0)}, (0, 1, 10), (500, 1, 10)) == [0, 500]
    assert starts({2: (1, 30.0)}, (0, 1, 10), (20, 1, 10)) == [0, 40]


def test_to_the_scheduler_it_is_submitted_when_it_comes():
    """Job 2 was submitted before job 3, but comes while that is in the queue: first come, first served."""
    rows = [(0, 3, 100), (1, 4, 10), (2, 4, 10)]
    assert starts({2: (1, 0.0)}, *rows) == [0, 110, 100]


def test_a_run_that_is_lost_is_no_end():
    lost = (NodeFailure(50.0, 0, 60.0),)
    assert starts({2: (1, 0.0)}, (0, 4, 100), (1, 1, 10), failures=lost) == [60, 160]


def test_a_cancelled_predecessor_counts_as_ended():
    rows = [(0, 4, 100), (0, 4, 100), (1, 1, 10)]
    assert starts({3: (2, 5.0)}, *rows, cancellations={2: 20.0})[2] == 100
    assert starts({2: (1, 5.0)}, *rows[::2], cancellations={1: 20.0})[1] == 25


def test_a_job_that_is_cancelled_before_its_predecessor_is_over_never_runs():
    rows = [(0, 4, 100), (1, 4, 10), (2, 4, 10)]
    waits = {2: (1, 0.0), 3: (2, 5.0)}
    first, second, third = starts(waits, *rows, cancellations={2: 50.0})
    assert (first, third) == (0, 100)
    assert np.isnan(second)
    assert np.isnan(starts({2: (1, 30.0)}, *rows[:2], cancellations={2: 110.0})[1])


def test_a_rejected_predecessor_counts_as_ended():
    class Picky(SchedulingPolicy):
        def decide(self, cluster):
            for job in cluster.queue:
                yield Reject(job.id, "wide") if job.processors > 2 else Start(job.id, 1)

    assert starts({2: (1, 7.0)}, (0, 4, 9), (1, 1, 9), policy=Picky())[1] == 7


def test_the_compiled_kernels_are_not_asked():
    workload = jobs((0, 1, 1))
    assert not has_kernel(FirstFit(), SimulationConfig(4, dependencies={1: (2, 0.0)}), workload)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 4), st.integers(1, 12),
                          st.integers(0, 12), st.integers(0, 5)), min_size=1, max_size=12))  # fmt: skip
def test_no_job_starts_before_its_predecessor_ended_and_all_run(rows):
    workload = jobs(*(row[:3] for row in rows))
    log = log_of(preceding=[row[3] for row in rows], think_time=[row[4] for row in rows])
    waits, _ = dependencies_of(log, workload)
    result = simulate(workload, FirstFit(), SimulationConfig(4, dependencies=waits))
    assert result.completed.all()
    at = {number: k for k, number in enumerate(workload.job.tolist())}
    for number, (first, seconds) in waits.items():
        assert result.start[at[number]] >= result.end[at[first]] + seconds


def log_of(**columns):
    count = len(next(iter(columns.values())))
    table = {name: np.array(column, dtype=float) for name, column in columns.items()}
    return Log({"job": np.arange(1.0, count + 1), **table}, np.arange(1, count + 1))


def test_rings_and_jobs_that_are_not_there_are_counted_and_do_not_wait():
    log = log_of(preceding=[2, 3, 1, 3, -1, 99, 7], think_time=[-1, -1, -1, -1, -1, -1, -1])
    waits, counts = dependencies_of(log, jobs(*[(0, 1, 1)] * 7))
    assert waits == {4: (3, 0.0)}
    assert sorted(counts.values()) == [1, 4]


def test_a_log_is_followed_on_request(tmp_path):
    path = tmp_path / "site.swf"
    log = log_of(
        submit=[0, 1], run=[100, 10], allocated=[1, 1], requested_processors=[1, 1],
        requested_time=[100, 10], status=[1, 1], preceding=[-1, 1], think_time=[-1, 20],
    )  # fmt: skip
    write_swf(path, log)
    words = ["apples", "simulate", str(path), "--policy", "slurm", "--processors", "4", "--json"]
    assert command(*words).document["mean_wait"] == 0.0
    assert command(*words, "--option", "dependencies=on").document["mean_wait"] == 59.5


def test_an_option_that_is_neither_on_nor_off_is_refused(tmp_path):
    path = tmp_path / "site.swf"
    write_swf(path, replace(log_of(preceding=[-1])))
    with pytest.raises(UsageError) as raised:
        prepare(
            str(path), "easy", ["dependencies=maybe"], processors=4, nodes=None, cores=None,
            malleable=None, seed=0,
        )  # fmt: skip
    assert raised.value.code == "value-type"
    assert raised.value.fields == {"option": "dependencies", "value": "maybe"}
