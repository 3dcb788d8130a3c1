"""The policy that schedules as Slurm does: its order, its cycles and what they look at."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest
from coding import with_code
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from apples.errors import UsageError
from apples.scheduling import (
    ClusterState,
    ReadOnly,
    SlurmBackfill,
    UserUsage,
    from_json,
    slurm_seconds,
    to_json,
)
from apples.simulation import Log, SimulationConfig, rigid, simulate, write_swf
from apples.simulation import prepare_simulation as prepare

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


@settings(max_examples=examples(60), deadline=None)
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
    ("options", "code", "fields"),
    [
        ({"bf_interval": 0}, "value-range", {"option": "bf_interval", "bound": 1}),
        ({"PriorityWeightAge": -1.0}, "value-range", {"option": "PriorityWeightAge", "bound": 0}),
        (
            {"PriorityMaxAge": "a week"},
            "value-invalid",
            {"option": "PriorityMaxAge", "value": "a week"},
        ),
        ({"PriorityMaxAge": 0}, "value-range", {"option": "PriorityMaxAge", "bound": 0}),
        ({"QOSPriority": "high"}, "value-invalid", {"option": "QOSPriority", "value": "high"}),
        ({"PriorityWeightQOS": 5.0}, "option-missing", {"option": "QOSPriority"}),
    ],
)
def test_an_option_that_slurm_would_not_take_is_refused(options, code, fields):
    with pytest.raises(UsageError, check=with_code(code, **fields)):
        SlurmBackfill(**options)


def shared(policy, *rows, nodes=4, **attributes):
    """Starts of jobs with a column more, by the name of what it says."""
    workload = jobs(*rows)
    columns = {
        name: np.array([sorted(set(words)).index(word) + 1.0 for word in words])
        for name, words in attributes.items()
    }
    names = {name: tuple(sorted(set(words))) for name, words in attributes.items()}
    workload = replace(workload, attributes=columns, names=names)
    return simulate(workload, policy, SimulationConfig(nodes)).start.tolist()


def test_who_used_much_comes_after_who_used_nothing():
    rows = [(0, 4, 100), (1, 4, 50), (2, 4, 50)]
    fair = SlurmBackfill(PriorityWeightFairshare=10)
    assert shared(fair, *rows, user="aab") == [0, 150, 100]
    assert shared(SlurmBackfill(), *rows, user="aab") == [0, 100, 150]


def test_what_was_used_long_ago_is_forgotten():
    """Ann used 4 x 6,000 s an hour and more ago, Bob just now 4 x 3,000."""
    rows = [(0, 4, 6000), (9600, 4, 3000), (9601, 4, 10), (9602, 4, 10)]
    never = SlurmBackfill(PriorityWeightFairshare=10, PriorityDecayHalfLife=0)
    soon = SlurmBackfill(PriorityWeightFairshare=10, PriorityDecayHalfLife=20)
    assert shared(never, *rows, user="abba") == [0, 9600, 12600, 12610]
    assert shared(soon, *rows, user="abba") == [0, 9600, 12610, 12600]


def test_quality_of_service_and_partition_go_before():
    rows = [(0, 4, 100), (1, 4, 50), (2, 4, 50)]
    qos = SlurmBackfill(PriorityWeightQOS=10, QOSPriority="low:1,high:9")
    assert shared(qos, *rows, qos=("low", "low", "high")) == [0, 150, 100]
    parts = SlurmBackfill(PriorityWeightPartition=10, PriorityJobFactor="debug:5")
    assert shared(parts, *rows, partition=("batch", "batch", "debug")) == [0, 150, 100]


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 30), st.integers(1, 4)), max_size=8))
def test_usage_is_the_integral_of_what_was_held_decayed(pieces):
    """Against a sum over small steps; each job is entered in parts, as passes come."""
    half, end, step = 10.0, 100.0, 0.01
    usage, wanted = UserUsage(half), 0.0
    held = [(k, float(a), float(a + d), n) for k, (a, d, n) in enumerate(pieces)]
    for now in range(101):
        for k, start, stop, width in held:
            if start <= now <= stop:
                usage.enter(k, "a", start, now, width)
    for _, start, stop, width in held:
        at = np.arange(start + step / 2, stop, step)
        wanted += width * step * float((2.0 ** (-(end - at) / half)).sum())
    assert usage.until(end).get("a", 0.0) == pytest.approx(wanted, rel=1e-4)


def test_usage_crosses_to_another_process_and_back():
    state = ClusterState(4, usage=ReadOnly({"ann": 12.5}))
    assert from_json(to_json(state)) == state
    assert isinstance(from_json(to_json(state)).usage, ReadOnly)


def test_a_log_gives_users_and_partitions_to_the_policy_that_looks_at_them(tmp_path):
    path = tmp_path / "site.swf"
    count = np.arange(4)
    blank = {"run": np.full(4, 100.0), "requested_time": np.full(4, 100.0)}
    write_swf(
        path,
        Log(
            {
                "job": count + 1.0, "submit": count * 1.0, "allocated": np.full(4, 4.0), **blank,
                "requested_processors": np.full(4, 4.0), "status": np.ones(4),
                "user": np.array([7.0, 7.0, 7.0, 8.0]), "partition": np.array([1.0, 1, 1, 2]),
            },
            count + 1,
        ),
    )  # fmt: skip
    rows = []
    for words in (
        ["PriorityWeightFairshare=1"], ["PriorityWeightPartition=1", "PriorityJobFactor=2:5"], [],
    ):  # fmt: skip
        made = prepare(
            str(path), "slurm", words, processors=4, nodes=None, cores=None, malleable=None, seed=0
        )
        rows.append(made.run().start.tolist())
    assert rows == [[0, 200, 300, 100], [0, 200, 300, 100], [0, 100, 200, 300]]
