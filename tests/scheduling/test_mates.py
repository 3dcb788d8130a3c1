from itertools import combinations

import numpy as np
import pulp
import pytest

from apples.scheduling import find_mates


def exhaustive(nodes, penalties, wanted, most):
    """The least summed penalty of at most `most` mates that fit exactly, None if there is none."""
    sums = [
        sum(penalties[k] for k in group)
        for size in range(1, most + 1)
        for group in combinations(range(len(nodes)), size)
        if sum(nodes[k] for k in group) == wanted
    ]
    return min(sums, default=None)


def milp(nodes, penalties, wanted, most):
    """Equations 1-3 of D'Amico et al. 2019, with the bound m on the mates."""
    problem = pulp.LpProblem("mates", pulp.LpMinimize)
    taken = [problem.add_variable(f"x{k}", cat="Binary") for k in range(len(nodes))]
    problem += pulp.lpDot(penalties, taken)
    problem += pulp.lpDot(nodes, taken) == wanted
    problem += pulp.lpSum(taken) <= most
    problem.solve(pulp.HiGHS(msg=False))
    return pulp.value(problem.objective) if problem.status == pulp.LpStatusOptimal else None


def random_instance(rng):
    count = int(rng.integers(1, 13))
    nodes = rng.integers(1, 9, count).tolist()
    penalties = (1 + rng.integers(0, 40, count) / 8).tolist()
    return nodes, penalties, int(rng.integers(1, 17))


@pytest.mark.parametrize("most", [1, 2, 3, 4])
def test_the_search_finds_what_an_exhaustive_one_finds(most):
    rng = np.random.default_rng(most)
    found = 0
    for _ in range(400):
        nodes, penalties, wanted = random_instance(rng)
        best = exhaustive(nodes, penalties, wanted, most)
        mates = find_mates(nodes, penalties, wanted, most)
        assert len(set(mates)) == len(mates) <= most
        if best is None:
            assert mates == ()
        else:
            assert sum(nodes[k] for k in mates) == wanted
            assert sum(penalties[k] for k in mates) == best
            found += 1
    assert found > 50


@pytest.mark.slow
def test_the_search_finds_what_the_milp_finds():
    """Slow: a solver is started for every instance."""
    rng = np.random.default_rng(5)
    for _ in range(60):
        nodes, penalties, wanted = random_instance(rng)
        most = int(rng.integers(1, 4))
        mates = find_mates(nodes, penalties, wanted, most)
        best = milp(nodes, penalties, wanted, most)
        if best is None:
            assert mates == ()
        else:
            assert sum(penalties[k] for k in mates) == pytest.approx(best)


def test_a_job_is_not_paired_with_itself():
    assert find_mates([2], [1.0], wanted=4) == ()
