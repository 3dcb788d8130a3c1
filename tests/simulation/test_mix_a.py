"""Tables 1 and 2 of Smith et al. 2001, replayed on the simulator with broker and allocator."""

from random import Random
from statistics import median

import pytest

from apples.scheduling import FirstFit, TopologyAwarePolicy
from apples.simulation import (
    ALONE,
    IDEAL_SECONDS,
    TABLE_2,
    WITH,
    WITHOUT,
    SimulationConfig,
    draw_widths,
    first_fit,
    mean_hops,
    mix_a,
    random_fit,
    replay,
    run_placed,
    simulate,
)
from apples.topology import CpuSet, fit, origin

MACHINE = origin(128)
SEEDS = range(9)


def test_the_table_is_the_papers():
    """Its own averages, 1.53 and 1.01, and what identical jobs differ by: 4.8 times and 1.15."""
    assert len(TABLE_2) == 49
    ratios = [(row[WITHOUT] / row[ALONE], row[WITH] / row[ALONE]) for row in TABLE_2]
    assert sum(r[0] for r in ratios) / 49 == pytest.approx(1.53, abs=0.005)
    assert sum(r[1] for r in ratios) / 49 == pytest.approx(1.01, abs=0.005)
    alike = [[r for r in TABLE_2 if r[:2] == kind] for kind in {row[:2] for row in TABLE_2}]
    worst = [
        max(max(r[c] for r in rows) / min(r[c] for r in rows) for rows in alike)
        for c in (WITHOUT, WITH)
    ]
    assert worst == [pytest.approx(4.78, abs=0.01), pytest.approx(1.145, abs=0.001)]


@pytest.mark.parametrize("seed", SEEDS)
def test_drawn_cpu_counts_give_the_papers_ideal_time(seed):
    widths = draw_widths(Random(seed))
    work = sum(width * row[ALONE] for width, row in zip(widths, TABLE_2, strict=True))
    assert work / 128 == pytest.approx(IDEAL_SECONDS, rel=0.01)
    alike = {}
    for width, row in zip(widths, TABLE_2, strict=True):
        assert alike.setdefault(row[:2], width) == width


def test_the_replay_gives_the_papers_throughput():
    """Medians over seeds; the paper: 4:19 without, 2:51 with cpusets, 2:36 with no sleeps; 1.51 to 1.66."""
    runs = [replay(MACHINE, seed) for seed in SEEDS]
    assert 1.4 <= median(without / with_them for without, with_them in runs) <= 2.3
    assert 3.8 * 3600 <= median(without for without, _ in runs) <= 6.1 * 3600
    assert 2.5 * 3600 <= median(with_them for _, with_them in runs) <= 3.0 * 3600


def test_a_replay_gives_every_cpu_to_one_job_at_a_time():
    workload = mix_a(draw_widths(Random(3)), WITH)
    held = {}

    def watched(topology, free, requirement):
        found = fit(topology, free, requirement)
        held.setdefault(free.mask, []).append(found)
        return found

    result = run_placed(workload, MACHINE, watched)
    for mask, found in held.items():
        assert all(each.cpus <= CpuSet(mask) for each in found)
    assert (result.end > result.start).all()


def program_slowdown(machine):
    """Return how much longer a job of the mix takes where its CPUs lie apart.

    A model, fitted to nothing but Table 2: a program suffers, at the mean distance of all CPUs of the
    machine, what it lost on average without cpusets, and in proportion to the distance below that.
    """
    everywhere = mean_hops(machine, machine.cpus)
    lost = {}
    for program, _, without, with_cpusets in TABLE_2:
        lost.setdefault(program, []).append(without / with_cpusets - 1.0)
    suffers = {program: max(0.0, sum(some) / len(some)) for program, some in lost.items()}
    cpus = list(machine.cpus)

    def slowdown(running):
        program = TABLE_2[(running.job.id - 1) % len(TABLE_2)][0]
        held = CpuSet.of(cpus[place] for place in running.node_ids)
        return 1.0 + suffers[program] * mean_hops(machine, held) / everywhere

    return slowdown


def test_nearer_cpus_are_what_the_slowdown_rewards():
    """Random over first fit over best radius, in the mean over the jobs of all seeds."""
    slowdown = program_slowdown(MACHINE)
    means = []
    for make in (random_fit, lambda _: first_fit, lambda _: fit):
        total = 0.0
        for seed in range(3):
            workload = mix_a(draw_widths(Random(seed)), WITH)
            result = run_placed(workload, MACHINE, make(seed), slowdown)
            total += float(((result.end - result.start) / workload.run).mean())
        means.append(total / 3)
    assert means[0] > means[1] > means[2] > 1.0


def test_the_mean_distance_is_that_over_all_pairs():
    cpus = CpuSet.parse("0-5")
    pairs = [MACHINE.hops(a, b) for a in cpus for b in cpus if a < b]
    assert mean_hops(MACHINE, cpus) == pytest.approx(sum(pairs) / len(pairs))
    assert mean_hops(MACHINE, CpuSet.parse("7")) == 0.0


def test_places_change_nothing_but_where_and_a_slowdown_only_the_time():
    workload = mix_a(draw_widths(Random(1)), WITH)
    plain = simulate(workload, FirstFit(), SimulationConfig(128), engine="events")
    placed = simulate(workload, TopologyAwarePolicy(MACHINE, FirstFit()), SimulationConfig(128))
    assert (plain.start == placed.start).all()
    assert (plain.end == placed.end).all()
    twice = simulate(workload, FirstFit(), SimulationConfig(128, slowdown=lambda _: 2.0))
    assert twice.end - twice.start == pytest.approx(2 * workload.run)
