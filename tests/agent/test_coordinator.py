"""The verbs, the record of what was refused and why, and what the user asks for."""

import math
import re

import numpy as np
import pytest
from worlds import ROOMY, pool, symmetric

from apples import (
    Allocation,
    Coordinator,
    DecisionLog,
    Host,
    Link,
    ModelError,
    NoFeasiblePlanError,
    RecordingActuator,
    Schedule,
    milp,
)
from apples.agent import Learned, PastRun, launch_plan
from blueprints import (
    all_resources,
    blocked,
    compile_time,
    minimum_execution_time,
    single_host,
)
from nws import Forecast, Weather

ALL = (all_resources, blocked, compile_time, minimum_execution_time, single_host)
NEAR = {("local", "local"): Link(1e-6, 1e10)}


def hosts(*speeds, **more):
    return [
        Host(f"h{i}", seconds_per_point=s, free_memory=ROOMY, **more) for i, s in enumerate(speeds)
    ]


def decided(information, blueprint=minimum_execution_time, **subsystems):
    coordinator = Coordinator(information, **subsystems)
    coordinator.execute(blueprint)
    return coordinator.decision_log.chosen


def constrained(listed, constraints, links=NEAR, **more):
    return decided(pool(listed, links, user=f"[constraints]\n{constraints}\n"), **more)


# ---------------------------------------------------------------------- the verbs
def test_a_blueprint_in_the_papers_words_selects_plans_judges_estimates_and_actuates():
    actuator = RecordingActuator()
    coordinator = Coordinator(pool(hosts(1e-9, 2e-9), NEAR), actuator)
    sets = list(coordinator.select_resources())
    assert [coordinator.decision_log.usable] == list(coordinator.select_resources("listed"))
    schedules = [coordinator.plan(resources) for resources in sets]
    assert all(coordinator.is_feasible(schedule) for schedule in schedules)
    estimates = [coordinator.estimate(schedule) for schedule in schedules]
    best = coordinator.best(estimates)
    execution = coordinator.actuate(best)
    assert best.iteration_seconds == min(e.iteration_seconds for e in estimates)
    assert best.interval is not None
    assert actuator.plans == [launch_plan(best.schedule, coordinator.information)]
    assert list(coordinator.monitor(execution)) == []
    record = coordinator.decision_log
    assert (record.considered, record.estimates, record.chosen) == (len(sets), estimates, best)


def test_the_verbs_are_ten():
    verbs = {name for name in vars(Coordinator) if not name.startswith("_")}
    assert verbs == {
        "select_resources", "plan", "is_feasible", "estimate", "best", "actuate", "monitor", "resize",
        "under", "execute",
    }  # fmt: skip


def test_resource_sets_are_searched_single_one_chain_or_as_listed():
    coordinator = Coordinator(pool(hosts(1e-9, 3e-9, 2e-9), NEAR))
    names = lambda kind: [[h.name for h in s] for s in coordinator.select_resources(kind)]  # noqa: E731
    assert names("listed") == [["h0", "h1", "h2"]]
    assert names("single") == [["h0"], ["h1"], ["h2"]]
    ((*chain,),) = names("chain")
    assert sorted(chain) == ["h0", "h1", "h2"]
    assert set(map(len, names("search"))) >= {1, 2, 3}
    nothing = Coordinator(pool(hosts(1e-9), NEAR, user='[constraints]\nexclude = ["h0"]\n'))
    for kind in ("listed", "single", "chain", "search"):
        assert list(nothing.select_resources(kind)) == []


def test_a_coordinator_under_another_pool_writes_the_same_log_unless_it_is_given_one():
    coordinator = Coordinator(pool(hosts(1e-9, 2e-9), NEAR))
    static = coordinator.under(coordinator.information.with_weather(None))
    (everyone,) = static.select_resources("listed")
    first = static.estimate(static.plan(everyone))
    assert coordinator.decision_log.estimates == [first]
    second = coordinator.estimate(coordinator.plan(everyone))
    assert coordinator.decision_log.estimates == [second]  # one pool's estimates at a time
    apart = coordinator.under(coordinator.information, DecisionLog())
    apart.estimate(apart.plan(everyone))
    assert coordinator.decision_log.estimates == [second]
    assert coordinator.decision_log.considered == 2


def test_one_coordinator_decides_with_one_actuator_and_starts_with_another():
    coordinator = Coordinator(pool(hosts(1e-9, 2e-9), NEAR))
    coordinator.execute(minimum_execution_time)
    starter = coordinator.actuator = RecordingActuator()
    coordinator.actuate(coordinator.decision_log.chosen)
    (plan,) = starter.plans
    assert plan == launch_plan(coordinator.decision_log.chosen.schedule, coordinator.information)


def test_a_refusal_is_recorded_with_two_numbers_and_carried_by_the_error():
    listed = [Host("small", seconds_per_point=1e-9, free_memory="1 MB")]
    coordinator = Coordinator(pool(listed, NEAR))
    with pytest.raises(NoFeasiblePlanError) as error:
        coordinator.execute(minimum_execution_time)
    assert error.value.rejections == tuple(coordinator.decision_log.rejections)
    (refusal,) = error.value.rejections
    assert (refusal.filter, refusal.figures) == ("memory", (60.0, 1000.0))
    assert {"60", "1000"} <= {*re.findall(r"\d+", refusal.reason)}
    assert error.value.code == "no-feasible-plan"
    assert error.value.fields["filter"] == "memory"
    assert error.value.fields["reason"] == refusal.reason


@pytest.mark.parametrize("blueprint", ALL)
@pytest.mark.parametrize("planner", ["default", "milp"])
def test_every_blueprint_refuses_what_does_not_fit_with_two_numbers_each(blueprint, planner):
    listed = [Host(f"h{i}", seconds_per_point=1e-9, free_memory="1 MB") for i in range(3)]
    subsystems = {"planner": milp} if planner == "milp" else {}
    with pytest.raises(NoFeasiblePlanError) as error:
        decided(pool(listed, NEAR), blueprint, **subsystems)
    assert error.value.exit_code == 3
    assert error.value.rejections
    for refusal in error.value.rejections:
        assert len(refusal.figures) == 2
        assert np.all(np.isfinite(refusal.figures))
        assert sum(c.isdigit() for c in refusal.reason) >= 2


@pytest.mark.parametrize("blueprint", ALL)
def test_every_blueprint_tells_why_no_host_is_left(blueprint):
    user = '[constraints]\nexclude = ["h0", "h1"]\n'
    with pytest.raises(NoFeasiblePlanError) as error:
        decided(pool(hosts(1e-9, 1e-9), NEAR, user=user), blueprint)
    assert {(one.filter, one.hosts) for one in error.value.rejections} == {
        ("access", ("h0",)),
        ("access", ("h1",)),
    }


def test_best_of_nothing_is_an_error():
    with pytest.raises(NoFeasiblePlanError) as error:
        Coordinator(pool(hosts(1e-9))).best([])
    assert error.value.rejections == ()
    assert error.value.fields["refusals"] == 0


def test_a_planner_is_held_to_the_hosts_it_was_given():
    listed = hosts(1e-9, 1e-9)
    twice = Schedule((Allocation(listed[0], 500, ""), Allocation(listed[0], 500, "")))
    for answer in (None, twice, Schedule((Allocation(Host("other"), 1000, ""),))):
        with pytest.raises(ModelError) as error:
            decided(pool(listed, NEAR), planner=lambda *_, answer=answer: answer)
        assert error.value.code == "schedule-invalid"


def losing(rows):
    """A planner of the user that gives the first two hosts these rows."""

    def mine(resources, information):
        del information
        return Schedule(
            tuple(Allocation(host, r, "") for host, r in zip(resources, rows, strict=False))
        )

    return mine


@pytest.mark.parametrize("rows", ["a", "1000", None, float("nan"), 10**400, 1j, [1000]])
def test_a_planner_whose_rows_are_no_number_is_named_with_its_line(rows):
    planner = losing((rows,))
    with pytest.raises(ModelError) as error:
        decided(pool(hosts(1e-9), NEAR), planner=planner)
    assert (error.value.code, error.value.fields["field"]) == ("schedule-invalid", "rows")
    assert (error.value.fields["file"], error.value.fields["line"]) == (
        __file__,
        planner.__code__.co_firstlineno,
    )


ONE = Allocation(Host("h0", seconds_per_point=1e-9), 1000, "")


@pytest.mark.parametrize(
    "strips",
    [ONE, None, (ONE, "h1"), (("h0", 1000),), (Allocation("h0", 1000),)],
    ids=["no tuple", "none", "text", "a pair", "a name"],
)
def test_a_planner_whose_strips_are_no_allocations_is_named_with_its_line(strips):
    def mine(*_):
        return Schedule(strips)

    with pytest.raises(ModelError) as error:
        decided(pool(hosts(1e-9), NEAR), planner=mine)
    assert (error.value.code, error.value.fields["field"]) == ("schedule-invalid", "allocations")
    assert f"{__file__}:{mine.__code__.co_firstlineno}: planner mine" in str(error.value)


@pytest.mark.parametrize(
    ("rows", "code", "words"),
    [
        ((500, 380), "rows-missing", ("loses 120 rows", "h0 500, h1 380")),
        ((500, 620), "rows-extra", ("adds 120 rows", "h0 500, h1 620")),
    ],
)
def test_a_planner_that_loses_rows_is_named_with_them(rows, code, words):
    planner = losing(rows)
    with pytest.raises(ModelError) as error:
        decided(pool(hosts(1e-9, 1e-9), NEAR), all_resources, planner=planner)
    assert error.value.code == code
    fields = error.value.fields
    assert (fields["planner"], fields["value"], fields["bound"]) == ("mine", sum(rows), 1000)
    assert (fields["file"], fields["line"]) == (__file__, planner.__code__.co_firstlineno)
    assert all(each in str(error.value) for each in words)


def test_rows_that_the_memory_does_not_hold_are_no_fault_of_the_planner():
    small = [Host(f"h{i}", seconds_per_point=1e-9, free_memory=16_000 * 302) for i in range(2)]
    with pytest.raises(NoFeasiblePlanError) as error:
        decided(pool(small, NEAR), all_resources, planner=losing((300, 300)))
    (refusal,) = error.value.rejections
    assert (refusal.filter, refusal.figures) == ("memory", (600.0, 1000.0))
    assert "h0, h1" in refusal.reason


def test_rows_that_are_not_whole_are_refused_with_the_planner():
    with pytest.raises(NoFeasiblePlanError) as error:
        decided(pool(hosts(1e-9, 1e-9), NEAR), all_resources, planner=losing((400.5, 599.5)))
    (refusal,) = error.value.rejections
    assert (refusal.filter, refusal.figures) == ("rows", (400.5, 400.0))
    assert refusal.reason == "mine gives h0 400.5 rows; rows are whole, such as 400 or 401"


def test_the_compile_time_plan_is_made_from_the_list_and_started_as_things_are():
    """What the actuator is told is this moment's truth: no quota for a host that was measured."""
    listed = hosts(1e-9, 1e-9)
    sky = Weather(cpu={"h0": Forecast(0.25, 0.01, "mean", 9, 0.0)})
    seen = []

    class Watching(RecordingActuator):
        def actuate(self, plan):
            seen.append(plan)
            return super().actuate(plan)

    information = pool(listed, NEAR, weather=sky)
    coordinator = Coordinator(information, Watching())
    coordinator.execute(compile_time)
    assert coordinator.decision_log.chosen.schedule.rows == (500, 500)
    assert seen == [launch_plan(coordinator.decision_log.chosen.schedule, information)]
    assert decided(information).schedule.rows != (500, 500)


# -------------------------------------------------------------- what the user wants
def test_each_objective_ranks_the_same_candidates_its_own_way():
    """fast alone: dear; slow alone: cheap; both: quickest."""
    fast = Host("fast", seconds_per_point=1e-9, cost_per_second=10.0, free_memory=ROOMY)
    slow = Host("slow", seconds_per_point=2e-9, cost_per_second=1.0, free_memory=ROOMY)

    def answer(measure, more=""):
        user = f'[objective]\nmeasure = "{measure}"\n{more}'
        return decided(pool([fast, slow], NEAR, user=user))

    assert set(answer("execution_time").names) == {"fast", "slow"}
    assert answer("cost").names == ("slow",)
    assert answer("cost").cost == pytest.approx(1.0 * 2e-3 * 100)
    quickest = answer("speedup")
    assert quickest.speedup == pytest.approx(1e-3 / quickest.iteration_seconds)
    assert answer("speedup", 'reference = "slow"').speedup == pytest.approx(2 * quickest.speedup)


def test_speedup_is_against_the_fastest_host_that_holds_the_grid_alone():
    small = Host("small", seconds_per_point=1e-9, free_memory=16_000 * 602)
    large = Host("large", seconds_per_point=4e-9, free_memory=ROOMY)
    user = '[objective]\nmeasure = "speedup"\n'
    estimate = decided(pool([small, large], NEAR, user=user))
    assert estimate.speedup == pytest.approx(4e-3 / estimate.iteration_seconds)
    both_small = [Host(n, seconds_per_point=1e-9, free_memory=16_000 * 602) for n in "ab"]
    assert decided(pool(both_small, NEAR, user=user)).speedup is None


def test_a_preferred_set_is_taken_within_the_fraction_and_not_beyond():
    listed = hosts(1.0e-9, 1.04e-9)
    far = symmetric({("local", "local"): Link(1.0, 1e6)})

    def answer(wish):
        return decided(pool(listed, far, user=f"[preferences]\n{wish}\n")).names

    assert answer("") == ("h0",)
    assert answer('prefer = ["h1"]') == ("h1",)
    assert answer('avoid = ["h0"]') == ("h1",)
    assert answer('prefer = ["h1"]\nprefer_within = 0.03') == ("h0",)
    assert answer('avoid = ["h0"]\nprefer_within = 0.03') == ("h0",)


def test_a_preferred_site_counts_as_all_its_hosts():
    listed = [*hosts(1.0e-9), *(Host(n, site="s", seconds_per_point=1.9e-9) for n in "ab")]
    links = symmetric({("s", "s"): Link(1e-7, 1e12), ("local", "s"): Link(1.0, 1e6)})
    assert decided(pool(listed, links)).names != ("h0",)
    slower = [*hosts(1.0e-9), *(Host(n, site="s", seconds_per_point=2.04e-9) for n in "ab")]
    assert decided(pool(slower, links)).names == ("h0",)
    liked = decided(pool(slower, links, user='[preferences]\nprefer = ["s"]\n'))
    assert set(liked.names) == {"a", "b"}


def test_a_preferred_site_is_planned_for_where_forty_better_sets_come_first():
    listed = [*hosts(*[1.0e-9] * 30), *(Host(n, site="s", seconds_per_point=2e-9) for n in "ab")]
    links = symmetric(
        {
            ("local", "local"): Link(1e-7, 1e12),
            ("s", "s"): Link(1e-7, 1e12),
            ("local", "s"): Link(1e-4, 1e9),
        }
    )
    for wish in ('prefer = ["s"]', 'avoid = ["local"]'):
        user = f"[preferences]\n{wish}\nprefer_within = 100\n"
        assert {h.site for h in decided(pool(listed, links, user=user)).schedule.resources} == {
            "s"
        }


@pytest.mark.parametrize(
    ("constraint", "names"),
    [
        ('exclude = ["h0"]', {"h1", "h2"}),
        ('no_access = ["h1"]', {"h0", "h2"}),
        ('hosts = ["h2"]', {"h2"}),
        ('sites = ["s"]', {"h2"}),
        ('exclude = ["s"]', {"h0", "h1"}),
        ("maximum_hosts = 1", {"h0"}),
        ("maximum_hosts = 2", {"h0", "h1"}),
        ("maximum_sites = 1", {"h0", "h1"}),
        ("minimum_hosts = 3", {"h0", "h1", "h2"}),
        (f"memory = {16_000 * 402}", {"h0", "h1", "h2"}),
    ],
)
def test_a_constraint_is_kept(constraint, names):
    listed = [*hosts(1e-9, 1e-9), Host("h2", site="s", seconds_per_point=1e-9)]
    links = symmetric({("local", "local"): Link(1e-6, 1e10), ("local", "s"): Link(1e-6, 1e10)})
    estimate = constrained(listed, constraint, links)
    assert set(estimate.names) == names
    assert sum(estimate.schedule.rows) == 1000


def test_as_many_hosts_as_the_user_wants_work_even_where_one_only_holds_up_the_others():
    listed = [*hosts(1e-9, 1e-9), Host("h2", site="s", seconds_per_point=1e-9)]
    dear = symmetric({("local", "local"): Link(1e-6, 1e10), ("local", "s"): Link(1.0, 1e6)})
    assert len(decided(pool(listed, dear)).names) == 2
    assert len(constrained(listed, "minimum_hosts = 3", dear).names) == 3


@pytest.mark.parametrize(
    ("constraint", "kind", "asked"),
    [
        ("deadline = 0.01", "deadline", 0.01),
        ("maximum_cost = 0.001", "cost", 0.001),
        ("minimum_hosts = 4", "limits", 4.0),
        ("memory = 1000000", "memory", 1000.0),
        ('exclude = ["h0", "h1"]', "access", 0.0),
    ],
)
def test_an_unsatisfiable_constraint_is_refused_with_the_numbers(constraint, kind, asked):
    with pytest.raises(NoFeasiblePlanError) as error:
        constrained(hosts(1e-8, 1e-8, cost_per_second=1.0), constraint)
    found = {(one.filter, one.figures[1]) for one in error.value.rejections}
    assert (kind, asked) in found, error.value.rejections


def test_a_deadline_overrules_the_cheapest_plan():
    fast = Host("fast", seconds_per_point=1e-9, cost_per_second=10.0)
    slow = Host("slow", seconds_per_point=2e-9, cost_per_second=1.0)
    for deadline, names in ((1.0, {"slow"}), (0.15, {"fast", "slow"})):
        user = f'[objective]\nmeasure = "cost"\n[constraints]\ndeadline = {deadline}\n'
        assert set(decided(pool([fast, slow], NEAR, user=user)).names) == names


def test_a_deadline_counts_the_caution_that_the_estimate_has():
    """By its mean each set is in time; what past runs were late by, with the user's risk, is not."""
    runs = [PastRun("alone", 1.0, 0.0, None, math.exp(error)) for error in [0.4, -0.4] * 5]
    user = "[preferences]\nrisk = 1.0\n[constraints]\ndeadline = {}\n"
    slow = Host("slow", seconds_per_point=2e-9)  # 0.2 s
    for deadline, feasible in ((0.4, True), (0.21, False)):
        information = pool([slow], user=user.format(deadline), learned=Learned(runs=runs))
        if feasible:
            assert 0.21 < decided(information).execution_seconds <= deadline
        else:
            with pytest.raises(NoFeasiblePlanError) as error:
                decided(information)
            (late,) = (one for one in error.value.rejections if one.filter == "deadline")
            assert late.figures == (pytest.approx(0.257, abs=5e-4), 0.21)


def test_a_cost_limit_overrules_the_quickest_plan():
    fast = Host("fast", seconds_per_point=1e-9, cost_per_second=10.0)
    slow = Host("slow", seconds_per_point=2e-9, cost_per_second=1.0)
    for cost, names in ((1.0, {"fast", "slow"}), (0.5, {"slow"})):
        assert set(constrained([fast, slow], f"maximum_cost = {cost}").names) == names


def test_a_strip_beyond_the_users_own_memory_limit_is_refused_with_that_limit():
    with pytest.raises(NoFeasiblePlanError) as error:
        constrained(hosts(1e-9, 1e-9), 'memory = "2 MB"', blueprint=blocked)
    first = error.value.rejections[0]
    assert first.filter == "memory"
    assert first.figures == (pytest.approx(8.03e6, rel=1e-3), 2e6)
