"""Plans of parameter sweeps: drawn cases, properties of any plan, and all orders tried on small worlds."""

import re
from itertools import pairwise, permutations, product

import numpy as np
import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from sweep_worlds import sweep_world

from apples import Host, HostList, Link, Network, NoFeasiblePlanError, UsageError
from apples.applications import (
    HEURISTICS,
    InputFile,
    ParameterSweep,
    SiteCache,
    SweepProgress,
    SweepTask,
    one_cache_a_site,
    plan_by,
    plan_sweep,
    sweep_costs,
)
from apples.weather import Conditions
from nws import Forecast, Weather

NAMES = sorted(HEURISTICS)
ROUNDING = 1e-9


def host(name, site="lab", seconds=1.0, **more):
    return Host(name, site=site, seconds_per_point=seconds, **more)


def costs_of(tasks, files=(), hosts=(), links=None, caches=None, weather=None):
    network = Network(dict(links or {}), None, {each.name: each.site for each in hosts})
    listed = HostList(tuple(hosts), network)
    caches = one_cache_a_site(listed) if caches is None else caches
    sweep = ParameterSweep(tuple(tasks), tuple(files))
    return sweep_costs(sweep, caches, Conditions(listed, weather or Weather()))


def drawn(plan):
    """Return each host's tasks, and each cache's files, as ``name start-end`` in whole seconds."""
    chart = {}
    for each in plan.tasks:
        chart.setdefault(each.host, []).append(f"{each.task} {each.start:g}-{each.end:g}")
    for each in plan.transfers:
        line = f"{each.file} {each.start:g}-{each.end:g}"
        chart.setdefault(f">{each.cache}", []).append(line)
    return chart


def test_tasks_that_share_a_file_go_where_it_comes_once():
    #  a  |f======|a--|b--|      10 bytes/s: f takes 10 s; the other site would take 20
    #  b
    hosts = [host("store", "far"), host("a", "near"), host("b", "next")]
    links = {("far", "near"): Link(0, 10), ("far", "next"): Link(0, 5)}
    caches = (SiteCache("near", ("a",)), SiteCache("next", ("b",)))
    tasks = [SweepTask("t", 4, ("f",)), SweepTask("u", 4, ("f",))]
    files = [InputFile("f", 100, "store")]
    plan = plan_by(
        "xsufferage", HEURISTICS["xsufferage"], costs_of(tasks, files, hosts, links, caches)
    )
    assert drawn(plan) == {">near": ["f 0-10"], "a": ["t 10-14", "u 14-18"]}


def test_files_follow_one_another_on_a_link_and_beside_each_other_on_two():
    hosts = [host("x", "one"), host("y", "two"), host("a", "lab")]
    links = {("one", "lab"): Link(0, 10), ("two", "lab"): Link(0, 10)}
    files = [InputFile("f", 100, "x"), InputFile("g", 50, "x"), InputFile("h", 70, "y")]
    tasks = [SweepTask("t", 1, ("f", "g", "h"))]
    plan = plan_by(
        "min-min",
        HEURISTICS["min-min"],
        costs_of(tasks, files, hosts, links, (SiteCache("lab", ("a",)),)),
    )
    assert drawn(plan) == {">lab": ["f 0-10", "g 10-15", "h 0-7"], "a": ["t 15-16"]}


def test_min_min_takes_short_tasks_first_and_max_min_long_ones():
    tasks = [SweepTask("short", 1), SweepTask("long", 5), SweepTask("middle", 2)]
    costs = costs_of(tasks, hosts=[host("a"), host("b")])
    assert drawn(plan_by("", HEURISTICS["min-min"], costs)) == {
        "a": ["short 0-1", "long 1-6"],
        "b": ["middle 0-2"],
    }
    assert drawn(plan_by("", HEURISTICS["max-min"], costs)) == {
        "a": ["long 0-5"],
        "b": ["middle 0-2", "short 2-3"],
    }


def test_sufferage_gives_a_host_to_the_task_that_loses_most_without_it():
    #        t  u        u loses 6 s without a, t 3 s: the earliest and the longest rule would say otherwise
    #  a     1  2
    #  b     2  4
    tasks = [SweepTask("t", 3), SweepTask("u", 6)]
    costs = costs_of(tasks, hosts=[host("a", seconds=1), host("b", seconds=2)])
    plan = plan_by("", HEURISTICS["sufferage"], costs)
    assert [each.task for each in plan.tasks] == ["u", "t"]
    assert drawn(plan) == {"a": ["u 0-6"], "b": ["t 0-6"]}


def test_xsufferage_keeps_a_task_at_the_site_of_its_file_where_sufferage_sees_no_loss_in_leaving():
    # Two like hosts at the file's site: no task loses anything by taking the second, so that sufferage places
    # first the one without a file, which loses .1 s; among sites the one with the file would lose 100 s.
    hosts = [host("a1", "a"), host("a2", "a"), host("b1", "b", 1.1), host("b2", "b", 1.2)]
    links = {("a", "b"): Link(0, 1)}
    tasks = [SweepTask("free", 1), SweepTask("bound", 1, ("f",))]
    files = [InputFile("f", 100, "a1")]
    caches = (SiteCache("a", ("a1", "a2")), SiteCache("b", ("b1", "b2")))
    first = {
        name: plan_by("", HEURISTICS[name], costs_of(tasks, files, hosts, links, caches))
        .tasks[0]
        .task
        for name in ("sufferage", "xsufferage")
    }
    assert first == {"sufferage": "free", "xsufferage": "bound"}


def test_a_work_queue_gives_the_next_task_to_whoever_is_free_first_however_slow():
    costs = costs_of(
        [SweepTask(f"t{n}", 1) for n in range(3)], hosts=[host("a", seconds=9), host("b")]
    )
    assert drawn(plan_by("", HEURISTICS["work-queue"], costs)) == {
        "a": ["t0 0-9"],
        "b": ["t1 0-1", "t2 1-2"],
    }


def test_slots_are_lanes_and_a_forecast_share_makes_tasks_longer():
    weather = Weather(cpu={"a": Forecast(value=0.5, error=0.0, method="x", samples=9, time=0.0)})
    tasks = [SweepTask("t"), SweepTask("u"), SweepTask("v")]
    costs = costs_of(
        tasks, hosts=[host("a", cpus=(0,)), host("b", slots=2, cpu=0.25)], weather=weather
    )
    assert [float(x) for x in costs.compute[:, 0]] == [2.0, 4.0, 4.0]
    assert plan_sweep(costs).plan.makespan == 4.0


def test_a_host_that_nobody_measured_is_taken_to_be_like_the_others_and_that_is_said():
    hosts = [host("a", seconds=3.0), host("b", seconds=5.0), Host("c")]
    costs = costs_of([SweepTask("t")], hosts=hosts)
    assert float(costs.compute[2, 0]) == 4.0
    speed, link = costs.assumed
    assert speed.startswith("seconds_per_point of c: ")
    assert link.startswith("link between a and c: ")
    assert link.endswith("1 ms and 12.5 MB/s")


def test_what_runs_is_left_alone_and_what_has_come_is_not_moved_again():
    hosts = [host("store", "far"), host("a"), host("b")]
    caches = (SiteCache("lab", ("a", "b")),)
    tasks = [SweepTask(f"t{n}", 1, ("f",)) for n in range(3)]
    costs = costs_of(
        tasks, [InputFile("f", 100, "store")], hosts, {("far", "lab"): Link(0, 1)}, caches
    )
    progress = SweepProgress(
        50.0, frozenset({"t0"}), {0: 60.0}, {("f", "lab"): 55.0}, {(0, 1): 55.0}
    )
    assert drawn(plan_sweep(costs, progress).plan) == {"b": ["t1 55-56", "t2 56-57"]}


def test_a_cache_that_is_full_takes_no_file_and_a_task_that_fits_nowhere_is_named():
    hosts = [host("store", "far"), host("a", "lab"), host("b", "den", 9)]
    tasks = [SweepTask("t", 1, ("f",)), SweepTask("u", 1, ("g",))]
    files = [InputFile("f", 60, "store"), InputFile("g", 70, "store")]
    links = {("far", "lab"): Link(0, 1e3), ("far", "den"): Link(0, 1e3)}

    def planned(capacity):
        caches = (SiteCache("lab", ("a",), 100), SiteCache("den", ("b",), capacity))
        return plan_sweep(costs_of(tasks, files, hosts, links, caches)).plan

    assert {each.cache for each in planned(100).transfers} == {"lab", "den"}
    with pytest.raises(NoFeasiblePlanError) as refused:
        planned(10)
    assert refused.value.code == "no-feasible-plan"
    assert {each.filter for each in refused.value.rejections} == {"storage"}
    assert re.findall(r"task [tu]|\d+\.0 B", refused.value.fields["reason"]) in (
        ["task t", "60.0 B", "30.0 B"],
        ["task u", "70.0 B", "40.0 B"],
    )


@pytest.mark.parametrize(
    ("tasks", "files", "code", "fields"),
    [
        ([SweepTask("t"), SweepTask("t")], [], "name-repeated", {"kind": "task", "name": "t"}),
        ([SweepTask("t", 0.0)], [], "value-range", {"task": "t", "field": "work", "value": 0.0}),
        ([SweepTask("t", inputs=("f", "f"))], [InputFile("f", 1, "a")],
         "name-repeated", {"kind": "input of task t", "name": "f"}),
        ([SweepTask("t", inputs=("g",))], [], "file-unknown", {"task": "t", "file": "g"}),
        ([], [InputFile("f", -1, "a")], "value-range", {"file": "f", "field": "size", "value": -1}),
        ([], [InputFile("f", 1, "z")], "host-unknown", {"file": "f", "host": "z"}),
    ],
)  # fmt: skip
def test_a_sweep_that_cannot_be_is_refused_with_the_name(tasks, files, code, fields):
    with pytest.raises(UsageError) as raised:
        costs_of(tasks, files, [host("a")])
    assert raised.value.code == code
    assert fields.items() <= raised.value.fields.items()


@pytest.mark.parametrize(
    ("caches", "code", "fields"),
    [
        ([SiteCache("c", ("z",))], "host-unknown", {"cache": "c", "host": "z"}),
        ([SiteCache("c", ("a", "b"))], "cache-sites-differ", {"cache": "c", "hosts": ["a", "b"]}),
        (
            [SiteCache("c", ("a",)), SiteCache("d", ("a",))],
            "name-repeated",
            {"kind": "host of a cache", "name": "a"},
        ),
        ([SiteCache("c", ())], "cache-empty", {"cache": "c"}),
    ],
)
def test_a_cache_that_cannot_be_is_refused_with_the_name(caches, code, fields):
    with pytest.raises(UsageError) as raised:
        costs_of([], hosts=[host("a"), host("b", "elsewhere")], caches=caches)
    assert raised.value.code == code
    assert fields.items() <= raised.value.fields.items()


worlds = st.builds(
    lambda seed, **options: sweep_world(np.random.default_rng(seed), **options),
    seed=st.integers(0, 2**32 - 1),
    sites=st.integers(1, 4),
    hosts=st.just((1, 3)),
    tasks=st.integers(0, 25),
    files=st.integers(0, 8),
    inputs=st.integers(1, 3),
    stores=st.integers(1, 2),
)


@given(worlds, st.sampled_from(NAMES))
@settings(max_examples=examples(60), deadline=None)
def test_every_task_runs_once_and_nothing_is_booked_twice(world, name):
    costs = world.costs
    plan = plan_by(name, HEURISTICS[name], costs)
    assert sorted(each.task for each in plan.tasks) == sorted(t.name for t in world.sweep.tasks)
    home = {h: cache.name for cache in world.caches for h in cache.hosts}
    for lane in range(len(costs.hosts)):
        one_after_another([each for each in plan.tasks if each.lane == lane])
    site_of = {cache.name: world.hosts[cache.hosts[0]].site for cache in world.caches}
    on_link = {}
    for each in plan.transfers:
        link = world.hosts[each.storage].site, site_of[each.cache]
        on_link.setdefault(link, []).append(each)
    for link in on_link.values():
        one_after_another(link)
    moved = {(each.file, each.cache): each for each in plan.transfers}
    assert len(moved) == len(plan.transfers), "a file goes to a cache once"
    needed = {(f, home[each.host]) for each in plan.tasks for f in task_of(world, each).inputs}
    assert set(moved) == needed
    for each in plan.tasks:
        for file in task_of(world, each).inputs:
            assert each.start >= moved[file, home[each.host]].end
    assert plan.makespan == max((each.end for each in plan.tasks), default=0.0)
    assert plan.makespan >= lower_bound(world, costs) - ROUNDING


def task_of(world, booking):
    return next(task for task in world.sweep.tasks if task.name == booking.task)


def one_after_another(bookings):
    for before, after in pairwise(bookings):
        assert before.start <= before.end <= after.start <= after.end


def lower_bound(world, costs):
    """Return what no plan is below: each task alone on the best host, and all of them without a gap."""
    if not world.sweep.tasks:
        return 0.0
    numbers = world.sweep.numbers
    lane_cache = costs.cache_of_lane
    alone = [
        min(
            max((costs.transfer[numbers[f], lane_cache[lane]] for f in task.inputs), default=0.0)
            + costs.compute[lane, t]
            for lane in range(len(costs.hosts))
        )
        for t, task in enumerate(world.sweep.tasks)
    ]
    return max(*alone, costs.compute.min(axis=0).sum() / len(costs.hosts))


@given(worlds)
@settings(max_examples=examples(20), deadline=None)
def test_the_shortest_of_all_plans_is_taken(world):
    costs = world.costs
    decision = plan_sweep(costs)
    each = {name: plan_by(name, rule, costs).makespan for name, rule in HEURISTICS.items()}
    assert decision.makespans == each
    assert decision.plan.makespan == min(each.values())


def by_definition(costs, order, lanes):
    """Return the makespan of tasks placed in `order` on `lanes`, worked out from nothing but the definition."""
    numbers = costs.sweep.numbers
    ready, link, there, last = {}, {}, {}, 0.0
    for t, lane in zip(order, lanes, strict=True):
        cache, at = int(costs.cache_of_lane[lane]), 0.0
        for name in costs.sweep.tasks[t].inputs:
            file = numbers[name]
            if (file, cache) not in there:
                on = costs.source[file], costs.site[cache]
                link[on] = link.get(on, 0.0) + costs.transfer[file, cache]
                there[file, cache] = link[on]
            at = max(at, there[file, cache])
        ready[lane] = max(ready.get(lane, 0.0), at) + costs.compute[lane, t]
        last = max(last, ready[lane])
    return last


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=examples(12), deadline=None)
def test_no_plan_is_better_than_the_best_of_all_orders_on_all_hosts_and_each_is_what_its_own_order_gives(
    seed,
):
    generator = np.random.default_rng(seed)
    world = sweep_world(generator, sites=2, hosts=(1, 1), tasks=4, files=3, inputs=2)
    costs = world.costs
    lanes = range(len(costs.hosts))
    best = min(
        by_definition(costs, order, where)
        for order in permutations(range(4))
        for where in product(lanes, repeat=4)
    )
    number = {task.name: t for t, task in enumerate(world.sweep.tasks)}
    for name, rule in HEURISTICS.items():
        plan = plan_by(name, rule, costs)
        order = [number[each.task] for each in plan.tasks]
        own = by_definition(costs, order, [each.lane for each in plan.tasks])
        assert plan.makespan == pytest.approx(own, rel=1e-12)
        assert plan.makespan >= best * (1 - ROUNDING)
