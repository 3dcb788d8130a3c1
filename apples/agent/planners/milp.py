"""`milp`: the same balance as a mixed-integer program, for side constraints on cost, hosts and sites.

The program keeps the chain's order and chooses the hosts that work. A path variable y_ij is 1 if j follows i,
so that border costs are those of actual neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock

import highspy
import pulp

from apples.agent.information import InformationPool
from apples.agent.planners.planner import schedule
from apples.errors import DeadlineError
from apples.resources import ResourceSet
from apples.resources.schedule import Schedule

TIME_LIMIT_SECONDS = 60
EXHAUSTIVE_HOSTS = 16
"""Up to this number, any hosts of the chain may be skipped; above, at most `REACH` in a row."""
REACH = 4
_solving = Lock()
"""Held while HiGHS solves: its thread pool belongs to the process."""


def milp(
    resources: ResourceSet,
    information: InformationPool,
    seconds: float = TIME_LIMIT_SECONDS,
    *,
    solver: pulp.LpSolver | None = None,
) -> Schedule:
    """Return the schedule with the least T (or cost) under the user's limits; empty if none is feasible.

    Speeds that depend on the rows are evaluated at equal strips, as in the linear planner.

    Parameters
    ----------
    seconds
        Time limit of HiGHS.
    solver
        Another solver of PuLP, in place of HiGHS.

    Raises
    ------
    DeadlineError
        The solver did not prove an optimum in time. Permanent: use another planner for this set.
    """
    program = _Program(resources, information)
    with _solving:
        # HiGHS fails if a solver needs another number of threads than its pool has, so an earlier solver's pool
        # is released.
        highspy.Highs.resetGlobalScheduler(True)
        status = program.problem.solve(solver or _Solver(threads=1, timeLimit=seconds))
    # PuLP's status is "optimal" even for an unproven solution at the time limit.
    stopped = program.problem.sol_status == pulp.LpSolutionIntegerFeasible
    if status == pulp.LpStatusNotSolved or stopped:
        raise DeadlineError(
            f"milp: no optimum within {seconds:g} s for {len(resources)} hosts; "
            "use --planner time_balancing",
            code="solver-timeout",
            seconds=seconds,
            hosts=len(resources),
        )
    if status != pulp.LpStatusOptimal:
        return schedule(information, (), (), "milp", resources)
    rows = [round(pulp.value(r)) for r in program.rows]
    used = [(host, r) for host, r in zip(resources, rows, strict=True) if r > 0]
    idle = [host for host, r in zip(resources, rows, strict=True) if r <= 0]
    return schedule(information, [h for h, _ in used], [r for _, r in used], "milp", idle)


class _SilentHighs(highspy.Highs):
    """HiGHS without its banner; the first instance of a process would print it with its callbacks."""

    def enableCallbacks(self) -> None:  # noqa: N802 - HiGHS calls it so
        self.silent()
        super().enableCallbacks()  # type: ignore[no-untyped-call]


class _Solver(pulp.HiGHS):  # type: ignore[misc]
    """PuLP's interface to HiGHS, with an instance that prints nothing, to the exact optimum."""

    def createAndConfigureSolver(self, lp: pulp.LpProblem) -> None:  # noqa: N802 - PuLP calls it so
        lp.solverModel = _SilentHighs()  # type: ignore[no-untyped-call]
        options = {"threads": self.threads, "time_limit": float(self.timeLimit)}
        for option, value in {"mip_rel_gap": 0.0, "mip_abs_gap": 0.0, **options}.items():
            lp.solverModel.setOptionValue(option, value)


class _Program:
    """The variables and constraints, in rows and in units of the best single host's time.

    The unit keeps the coefficients near 1. With milliseconds and thousands of rows together, a solver's
    absolute tolerance of 1e-7 would amount to rows.
    """

    def __init__(self, resources: ResourceSet, information: InformationPool) -> None:
        self.hosts = resources
        self.information = information
        self.total = information.application.rows
        p = information.model.seconds_per_row(resources, self.total)
        self.unit = float(p.min()) * self.total
        self.p = [float(x) / self.unit for x in p]
        self.caps = [int(c) for c in information.model.caps(resources, self.total)]
        least = information.model.least_rows(resources, self.total)
        self.least = [
            max(1, min(int(low), cap)) for low, cap in zip(least, self.caps, strict=True)
        ]
        self.problem = problem = pulp.LpProblem("strips", pulp.LpMinimize)
        count = range(len(resources))
        self.longest = problem.add_variable("T", lowBound=0)
        self.rows = [problem.add_variable(f"r{i}", 0, self.caps[i], cat="Integer") for i in count]
        self.used = [problem.add_variable(f"u{i}", cat="Binary") for i in count]
        self.follows = {
            pair: problem.add_variable(f"y{pair[0]}_{pair[1]}", cat="Binary")
            for pair in _pairs(len(resources))
        }
        model = information.model
        self.border = {
            (a, b): float(model.communication((resources[a], resources[b]))[0]) / self.unit
            for a, b in self.follows
        }
        self._path()
        self._times()
        self._limits()

    def _path(self) -> None:
        """Add the constraints that the used hosts form one path along the chain."""
        problem, used, follows = self.problem, self.used, self.follows
        count = range(len(used))
        first = [problem.add_variable(f"f{i}", cat="Binary") for i in count]
        last = [problem.add_variable(f"l{i}", cat="Binary") for i in count]
        problem += pulp.lpSum(first) == 1
        problem += pulp.lpSum(last) == 1
        for i in count:
            problem += (
                first[i] + pulp.lpSum(y for (_, b), y in follows.items() if b == i) == used[i]
            )
            problem += (
                last[i] + pulp.lpSum(y for (a, _), y in follows.items() if a == i) == used[i]
            )
            problem += self.rows[i] <= self.caps[i] * used[i]
            problem += self.rows[i] >= self.least[i] * used[i]
        problem += pulp.lpSum(self.rows) == self.total

    def _times(self) -> None:
        """Add the constraints that T is at least each host's computing and communicating."""
        for i in range(len(self.hosts)):
            borders = [self.border[pair] * y for pair, y in self.follows.items() if i in pair]
            if self.information.model.borders_at_once and borders:
                for border in borders:
                    self.problem += self.p[i] * self.rows[i] + border <= self.longest
            else:
                self.problem += self.p[i] * self.rows[i] + pulp.lpSum(borders) <= self.longest

    def _limits(self) -> None:
        """Add the user's limits and the objective; cost is bilinear, so each host gets its own time."""
        limits, objective = (
            self.information.specifications.constraints,
            self.information.specifications.objective,
        )
        problem, used = self.problem, self.used
        if limits.maximum_hosts is not None:
            problem += pulp.lpSum(used) <= limits.maximum_hosts
        if limits.minimum_hosts is not None:
            problem += pulp.lpSum(used) >= limits.minimum_hosts
        iterations = self.information.application.iterations
        if limits.deadline is not None:
            problem += self.longest * iterations * self.unit <= limits.deadline
        if limits.maximum_sites is not None:
            self._site_limit(limits.maximum_sites)
        if limits.maximum_cost is None and objective.measure != "cost":
            self.problem.setObjective(self.longest)
            return
        cost = self._cost() * iterations * self.unit
        if limits.maximum_cost is not None:
            problem += cost <= limits.maximum_cost
        problem.setObjective(cost if objective.measure == "cost" else self.longest)

    def _cost(self) -> pulp.LpAffineExpression:
        """Return cost per iteration in units: sum of cost_i * T over the used hosts, linearised."""
        work = max(p * cap for p, cap in zip(self.p, self.caps, strict=True))
        bound = work + 2.0 * max(self.border.values(), default=0.0)
        problem, terms = self.problem, []
        for i, host in enumerate(self.hosts):
            if host.cost_per_second:
                paid = problem.add_variable(f"z{i}", lowBound=0)
                problem += paid >= self.longest - bound * (1 - self.used[i])
                terms.append(host.cost_per_second * paid)
        return pulp.lpSum(terms)

    def _site_limit(self, most: int) -> None:
        problem = self.problem
        sites = sorted({host.site for host in self.hosts})
        visited = {
            site: problem.add_variable(f"s{k}", cat="Binary") for k, site in enumerate(sites)
        }
        for i, host in enumerate(self.hosts):
            problem += self.used[i] <= visited[host.site]
        problem += pulp.lpSum(visited.values()) <= most


def _pairs(count: int) -> Sequence[tuple[int, int]]:
    """Return the pairs (i, j), i before j, that may be neighbours if the hosts between are skipped."""
    reach = count if count <= EXHAUSTIVE_HOSTS else REACH
    return [(i, j) for i in range(count) for j in range(i + 1, min(count, i + reach + 1))]
