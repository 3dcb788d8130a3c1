"""Placement where run times depend on the hops chosen: what must hold of the simulator whatever its figures."""

from random import Random

import numpy as np
import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from apples.simulation import (
    COMPUTE_BOUND,
    FAR_NS,
    LOCAL_NS,
    MEMORY_BOUND,
    MemorySlowdown,
    draw_shares,
    first_fit,
    mean_hops,
    passing_jobs,
    placed,
    predicted_mix_a,
    random_fit,
    run_placed,
    slurm_block,
    slurm_cyclic,
)
from apples.topology import CpuSet, Fit, Requirement, Unsatisfied, fit, origin

MACHINE = origin(32)
ALLOCATORS = {
    "ours": fit,
    "first fit": first_fit,
    "Slurm, block:cyclic": slurm_cyclic,
    "Slurm, block:block": slurm_block,
    "random": random_fit(1),
}
cpu_sets = st.sets(st.integers(0, 31), min_size=2).map(CpuSet.of)
allocators = pytest.mark.parametrize("name", ALLOCATORS)


@allocators
@settings(deadline=None, max_examples=examples(50))
@given(free=cpu_sets, count=st.integers(1, 32))
def test_every_allocator_gives_as_many_free_cpus_as_asked_or_says_no(name, free, count):
    found = ALLOCATORS[name](MACHINE, free, Requirement(count))
    if count > len(free):
        assert isinstance(found, Unsatisfied)
    else:
        assert isinstance(found, Fit)
        assert found.cpus <= free
        assert len(found.cpus) == count


@allocators
def test_no_cpu_has_two_jobs_at_once(name):
    """What a job is given is among the CPUs that no job has which runs then."""
    given_, jobs = {}, passing_jobs(32, 60, seed=3)
    longer = MemorySlowdown(MACHINE, [MEMORY_BOUND] * 60, jobs.processors.tolist())

    def slowdown(running):
        given_[running.job.id] = frozenset(running.node_ids)
        return longer(running)

    result = run_placed(jobs, MACHINE, ALLOCATORS[name], slowdown)
    for one in range(60):
        assert len(given_[one + 1]) == jobs.processors[one]
        for other in range(one):
            together = (
                result.start[one] < result.end[other] and result.start[other] < result.end[one]
            )
            assert not (together and given_[one + 1] & given_[other + 1]), (one, other)


@settings(deadline=None)
@given(one=cpu_sets, other=cpu_sets, share=st.floats(0.01, 1.0))
def test_more_hops_never_take_less_time(one, other, share):
    slowdown = MemorySlowdown(MACHINE, [share], [4])
    near, far = sorted((one, other), key=lambda cpus: mean_hops(MACHINE, cpus))
    assert slowdown.of(0, near) <= slowdown.of(0, far) + 1e-12


def test_a_job_that_only_waits_for_memory_is_slowed_as_the_published_latencies_have_it():
    slowdown = MemorySlowdown(MACHINE, [1.0, 0.0, 1.0], [1, 1, 32])
    assert slowdown.of(0, MACHINE.cpus) == pytest.approx(FAR_NS / LOCAL_NS)
    assert slowdown.of(0, CpuSet.of([5])) == 1.0
    assert slowdown.of(1, MACHINE.cpus) == 1.0
    assert slowdown.of(2, MACHINE.cpus) == 1.0  # it has no nearer ones alone


@allocators
def test_the_same_seed_gives_the_same_figures(name):
    shares = draw_shares(range(50), Random(2))
    once, again = (
        placed(passing_jobs(32, 50, 2), MACHINE, ALLOCATORS[name], shares) for _ in range(2)
    )
    assert once == again


def test_jobs_of_one_kind_wait_for_memory_alike():
    shares = draw_shares(["a", "b", "a", "c", "b"], Random(1))
    assert (shares[0], shares[1]) == (shares[2], shares[4])
    assert {*draw_shares(range(99), Random(1))} == {MEMORY_BOUND, COMPUTE_BOUND}


def test_slurms_ways_to_choose_cores_are_the_ones_a_real_slurm_was_seen_to_have():
    """Sockets of four cores; 60 of 60 requests each, `experiments/placement_evidence.py --slurm 60`."""
    machine = origin(128)

    def cpus(rule, free, count):
        return str(rule(machine, CpuSet.parse(free), Requirement(count)).cpus)

    assert cpus(slurm_cyclic, "0-127", 3) == "0,4,8"
    assert cpus(slurm_cyclic, "3,7,10-11,13-15,17-19,21-127", 6) == "3,7,10,13,17,21"
    assert cpus(slurm_block, "3,38-127", 6) == "40-45"
    assert cpus(slurm_block, "0-2,38-45,64-111", 2) == "38-39"


def test_nearer_cpus_make_mix_a_shorter_in_the_median():
    machine, seeds = origin(128), range(7)

    def hours(make):
        return np.median([predicted_mix_a(machine, seed, make(seed)).hours for seed in seeds])

    assert hours(lambda _: fit) < hours(lambda _: slurm_cyclic) < hours(random_fit)
