"""Fixed chains: whole rows and caps against HiGHS, the linear system against its closed form."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pulp
import pytest
from commands import HOSTS, TEMPLATE
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import highs_seconds, whole_row_seconds
from worlds import chain_border, pool, random_world

from apples import Host, Link, ModelTemplate, equal_strips, linear, milp, time_balancing
from apples.agent import balance, closed_form
from apples.errors import DeadlineError


def test_whole_rows_and_caps_are_exact_against_highs():
    """A sample; `python -m benchmarks planner.chains` does 500."""
    generator = np.random.default_rng(5)
    done = 0
    while done < 25:
        world = random_world(generator, int(generator.integers(2, 33)))
        if world.cap.min() < 1 or world.cap.sum() < world.total or len(world.p) > world.total:
            continue
        done += 1
        border = chain_border(world)
        rows = balance(world.information.model, world.hosts, world.total)
        ours = float((world.p * rows + border).max())
        theirs, bound = highs_seconds(world.p, border, world.cap, world.total)
        assert rows.sum() == world.total
        assert np.all((rows >= 1) & (rows <= world.cap))
        assert ours <= theirs * (1 + 1e-12)
        assert ours >= bound * (1 - 1e-6)


def test_thousand_chains_agree_with_plain_bisection():
    generator = np.random.default_rng(6)
    for _ in range(150):
        world = random_world(generator, int(generator.integers(1, 33)))
        if world.cap.min() < 1 or world.cap.sum() < world.total or len(world.p) > world.total:
            continue
        border = chain_border(world)
        rows = balance(world.information.model, world.hosts, world.total)
        best = whole_row_seconds(world.p[None], border[None], world.cap[None], world.total)[0]
        assert (world.p * rows + border).max() == pytest.approx(best, rel=1e-12)


def test_no_rank_gets_fewer_rows_than_sweeps_follow_an_exchange_and_the_rest_is_exact():
    generator, done = np.random.default_rng(7), 0
    while done < 40:
        world = random_world(generator, int(generator.integers(1, 17)))
        least = 8 * np.array([host.slots for host in world.hosts])
        if np.any(world.cap < least) or world.cap.sum() < world.total or least.sum() > world.total:
            continue
        done += 1
        model = replace(world.information.model, sweeps=8)
        rows, border = balance(model, world.hosts, world.total), model.communication(world.hosts)
        assert rows.sum() == world.total
        assert np.all((rows >= least) & (rows <= world.cap))
        # The same with all but one row of each host's least given out already.
        given, rest = least - 1, world.total - int((least - 1).sum())
        begun = border + world.p * given
        best = whole_row_seconds(world.p[None], begun[None], (world.cap - given)[None], rest)[0]
        assert (world.p * rows + border).max() == pytest.approx(best, rel=1e-12)


def test_a_grid_of_too_few_rows_for_that_gives_each_host_one_at_least():
    hosts = [Host(f"h{i}", seconds_per_point=1e-9) for i in range(4)]
    model = replace(pool(hosts, grid=20).model, sweeps=8)
    rows = balance(model, hosts, 20)
    assert (rows.sum(), rows.min()) == (20, 1)
    assert model.least_rows(hosts, 32).tolist() == [8, 8, 8, 8]
    assert model.least_rows([replace(hosts[0], slots=3), hosts[1]], 32).tolist() == [24, 8]


class Curved(ModelTemplate):
    """Any increasing time: here with caches (a step) and paging (a slope that grows)."""

    def __init__(self, steps):
        self.steps = steps

    def computation(self, resources, rows):
        return np.array(
            [
                s * (r + (0.3 * r if r > 40 else 0) + 1e-3 * r * r)
                for s, r in zip(self.steps, rows, strict=True)
            ]
        )

    def communication(self, resources):
        return np.full(len(resources), 0.5)


@given(st.lists(st.floats(0.01, 10), min_size=1, max_size=6), st.integers(6, 200))
@settings(max_examples=examples(40), deadline=None)
def test_any_increasing_time_is_balanced_so_that_no_row_could_move(steps, total):
    hosts = [Host(f"h{i}") for i in range(len(steps))]
    model = Curved(steps)
    rows = balance(model, hosts, total)
    assert rows.sum() == total
    times = model.computation(hosts, rows.astype(float)) + 0.5
    longest = times.max()
    more = model.computation(hosts, rows + 1.0) + 0.5
    if rows[times.argmax()] > 1:
        others = [m for i, m in enumerate(more) if i != times.argmax()]
        assert all(m >= longest for m in others)


def test_a_host_twice_as_fast_gets_twice_the_rows():
    hosts = [Host("slow", seconds_per_point=2e-9), Host("fast", seconds_per_point=1e-9)]
    information = pool(hosts, {("local", "local"): Link(0.0, 1e15)}, grid=300)
    assert time_balancing(tuple(hosts), information).rows == (100, 200)


def test_the_linear_system_equals_its_closed_form_and_balances_exactly():
    generator = np.random.default_rng(2)
    for _ in range(50):
        world = random_world(generator, int(generator.integers(1, 40)), capped=False)
        border = chain_border(world)
        seconds = closed_form(world.p, border, world.total)
        rows = np.array(linear(world.hosts, world.information).rows)
        if rows.min() > 0:
            assert np.abs(rows - (seconds - border) / world.p).max() < 1 + 1e-6
        else:
            assert rows == pytest.approx((seconds - border) / world.p, rel=1e-6, abs=1e-6)


def test_the_linear_planner_returns_negative_strips_as_they_are():
    hosts = tuple(
        Host(n, site=s, seconds_per_point=1e-9) for n, s in (("a", "x"), ("b", "x"), ("c", "y"))
    )
    information = pool(
        hosts, {(a, b): Link(1e-6 if a == b else 1.0, 1e9) for a in "xy" for b in "xy"}
    )
    assert min(linear(hosts, information).rows) < 0


def test_a_strip_just_below_zero_is_returned_as_it_is():
    """Rounded up to no row, it would pass the filter of negative strips."""
    hosts = tuple(Host(name, site=name, seconds_per_point=1e-6) for name in "abc")
    latency = 2.5375e-3  # the middle host has two borders of twice this: (100 - 101.5) / 3 rows
    links = {(x, y): Link(0.0 if x == y else latency, 1e15) for x in "abc" for y in "abc"}
    rows = linear(hosts, pool(hosts, links, grid=100)).rows
    assert rows[1] == pytest.approx(-0.5, abs=1e-3)
    assert sum(rows) == pytest.approx(100)


def test_equal_strips_differ_by_one_row_at_most():
    hosts = tuple(Host(f"h{i}", seconds_per_point=1e-9) for i in range(7))
    assert equal_strips(hosts, pool(hosts, grid=100)).rows == (15, 15, 14, 14, 14, 14, 14)


def best_in_order(world, allowed):
    """Least T over every subset of the chain, in its order, that `allowed` admits."""
    best = np.inf
    count = len(world.p)
    for mask in range(1, 2**count):
        chain = [i for i in range(count) if mask >> i & 1]
        if world.cap[chain].min() < 1 or len(chain) > world.total:
            continue
        step = world.pair[chain[:-1], chain[1:]]
        border = np.concatenate([[0], step]) + np.concatenate([step, [0]])
        seconds = whole_row_seconds(
            world.p[chain][None], border[None], world.cap[chain][None], world.total
        )[0]
        if allowed(chain, seconds):
            best = min(best, seconds)
    return best


def test_the_mixed_integer_program_finds_the_best_subset_of_the_chain_under_limits():
    generator = np.random.default_rng(8)
    for _ in range(8):
        world = random_world(generator, 5)
        limits = world.information.specifications.constraints
        for most in (None, 2):
            user = limits.model_copy(update={"maximum_hosts": most})
            object.__setattr__(world.information.specifications, "constraints", user)
            best = best_in_order(world, lambda c, _s, most=most: most is None or len(c) <= most)
            schedule = milp(world.hosts, world.information)
            if np.isinf(best):
                assert not schedule.allocations
            else:
                assert world.information.model.iteration_seconds(schedule) == pytest.approx(
                    best, rel=1e-6
                )


def test_the_mixed_integer_program_is_solved_whatever_else_this_process_solves_with_highs():
    world = random_world(np.random.default_rng(8), 3)
    for threads in (2, 1, 3):
        problem = pulp.LpProblem("another", pulp.LpMaximize)
        most = problem.add_variable("most", 0, 4, cat="Integer")
        problem.setObjective(most)
        pulp.HiGHS(msg=False, threads=threads).solve(problem)
        assert sum(milp(world.hosts, world.information).rows) == world.total


def test_the_mixed_integer_program_keeps_to_a_cost_and_to_sites():
    hosts = tuple(
        Host(f"h{i}", site=f"s{i % 2}", seconds_per_point=1e-8, cost_per_second=1.0 + i)
        for i in range(4)
    )
    links = {(f"s{a}", f"s{b}"): Link(1e-5, 1e9) for a in (0, 1) for b in (0, 1)}
    dear = pool(hosts, links, grid=400, user="[constraints]\nmaximum_cost = 0.3\n")
    schedule = milp(hosts, dear)
    seconds = dear.model.iteration_seconds(schedule) * dear.application.iterations
    assert sum(h.cost_per_second for h in schedule.resources) * seconds <= 0.3 * (1 + 1e-6)
    one_site = pool(hosts, links, grid=400, user="[constraints]\nmaximum_sites = 1\n")
    assert len({h.site for h in milp(hosts, one_site).resources}) == 1


class Stopped(pulp.LpSolver):
    """A solver that ends with a status, and without a solution."""

    def __init__(self, status, solution):
        super().__init__()
        self.status, self.solution = status, solution

    def actualSolve(self, lp, **_):  # noqa: N802 - PuLP calls it so
        lp.assignStatus(self.status, self.solution)
        return self.status


@pytest.mark.parametrize(
    ("status", "solution"),
    [
        (pulp.LpStatusOptimal, pulp.LpSolutionIntegerFeasible),
        (pulp.LpStatusNotSolved, pulp.LpSolutionNoSolutionFound),
    ],
)
def test_milp_returns_no_schedule_that_is_not_proven_best(status, solution):
    world = random_world(np.random.default_rng(8), 3)
    with pytest.raises(DeadlineError) as raised:
        milp(world.hosts, world.information, 7.0, solver=Stopped(status, solution))
    assert (raised.value.code, raised.value.fields["seconds"]) == ("solver-timeout", 7.0)


def test_milp_returns_no_schedule_where_there_is_no_time():
    world = random_world(np.random.default_rng(8), 16)
    with pytest.raises(DeadlineError):
        milp(world.hosts, world.information, 0.0)


OUTPUT_OF_OTHERS = """
import os, threading
import numpy as np
from apples import milp
from worlds import random_world
world, over = random_world(np.random.default_rng(8), 10), threading.Event()
lines = 0
def write():
    global lines
    while not over.is_set():
        os.write(1, b"line\\n")
        lines += 1
if {closed}:
    os.close(1)
else:
    writer = threading.Thread(target=write)
    writer.start()
rows = milp(world.hosts, world.information).rows
over.set()
if not {closed}:
    writer.join()
os.write(2, f"{{lines}} {{sum(rows) == world.total}}".encode())
"""


@pytest.mark.parametrize("closed", [False, True])
def test_milp_leaves_the_output_of_the_process_alone(closed):
    done = subprocess.run(
        [sys.executable, "-c", OUTPUT_OF_OTHERS.format(closed=closed)],
        check=True, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
    )  # fmt: skip
    assert done.stdout.splitlines() == ["line"] * done.stdout.count("\n")
    assert done.stderr == f"{done.stdout.count('line')} True"


def test_plan_with_milp_prints_json_only(tmp_path):
    files = {"hosts": HOSTS, "template": TEMPLATE.format(python=sys.executable), "user": ""}
    options = []
    for name, text in files.items():
        (tmp_path / f"{name}.toml").write_text(text)
        options += [f"--{name}", tmp_path / f"{name}.toml"]
    done = subprocess.run(
        [sys.executable, "-m", "apples", "plan", *options, "--planner", "milp",
         "--weather", "static", "--set", "grid=60", "--json"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert json.loads(done.stdout)["chosen"]["rows"]
    assert "HiGHS" not in done.stderr
