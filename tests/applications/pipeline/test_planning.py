"""Pipelines planned: the mapping and the unit are the best of all; what cannot be is refused with its place."""

import sys
import threading
from copy import copy
from itertools import product
from math import inf

import pytest
from commands import command, refused
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from waiting import until

import hat
from apples import Host, HostList, Link, Network, NoFeasiblePlanError, UsageError
from apples.applications import (
    PipelineCosts,
    PipelineFile,
    beginnings,
    best_alternating,
    best_mapping,
    climb,
    plan_pipeline,
    plan_pipeline_file,
)
from apples.weather import Conditions
from nws import Weather

TWO = """
name = "coupled"
items = "steps"
[parameters]
steps = 60
[[task]]
name = "make"
work = "1"
rows = "100"
[[task]]
name = "use"
work = "2"
rows = "50"
[[interface]]
from = "make"
to = "use"
bytes = "8000"
"""


def costs(text, hosts, link=None, links=None, values=None, kind=PipelineCosts):
    document = hat.parse(text, PipelineFile)
    network = Network(links or {}, default=link or Link(1e-4, 1e8))
    listing = HostList(tuple(hosts), network)
    parameters = document.settings(values or {})
    return kind(document, parameters, Conditions(listing, Weather()), tuple(listing))


def alike(count, **more):
    return [Host(f"h{n}", seconds_per_point=0.01, **more) for n in range(count)]


@st.composite
def worlds(draw):
    """Two or three tasks in a chain or a fork, on two to five hosts of two sites."""
    tasks = draw(st.integers(2, 3))
    text = f'name = "drawn"\nitems = "{draw(st.sampled_from([1, 7, 13]))}"\n'
    for task in range(tasks):
        text += f'[[task]]\nname = "t{task}"\nwork = "{draw(st.sampled_from([1, 2, 5]))}"\n'
        text += f'rows = "{draw(st.sampled_from([1, 3, 64]))}"\n'
        text += f'overhead = "{draw(st.sampled_from(["0", "1/50"]))}"\n'
        text += f'exchange = "{draw(st.sampled_from([0, 1000]))}"\n'
    edges = [(0, 1), (1, 2)] if draw(st.booleans()) else [(0, 1), (0, 2)]
    for a, b in edges[: tasks - 1]:
        size, convert = draw(st.sampled_from([0, 1e3, 1e5])), draw(st.sampled_from(["0", "1"]))
        text += f'[[interface]]\nfrom = "t{a}"\nto = "t{b}"\nbytes = "{size:.0f}"\nconvert = "{convert}"\n'
    platforms = st.sampled_from(["x", "y"])
    if draw(st.booleans()):
        text += '[[implementation]]\ntask = "t0"\nname = "plain"\n'
        text += (
            '[[implementation]]\ntask = "t0"\nname = "vector"\nplatforms = ["x"]\nfactor = 0.3\n'
        )
    hosts = [
        Host(f"h{n}", site=draw(st.sampled_from("ab")), platform=draw(platforms),
             seconds_per_point=draw(st.sampled_from([0.001, 0.004, 0.01])))
        for n in range(draw(st.integers(2, 5)))
    ]  # fmt: skip
    return costs(
        text, hosts, Link(draw(st.sampled_from([1e-5, 1e-2])), draw(st.sampled_from([1e6, 1e8])))
    )


def assignments(world):
    """Yield every way to have disjoint sets do the tasks, and every unit."""
    tasks = len(world.tasks)
    for each in product(range(-1, tasks), repeat=len(world.hosts)):
        sets = tuple(tuple(h for h, task in enumerate(each) if task == t) for t in range(tasks))
        if all(sets):
            yield sets


def seconds_at(world, sets, unit):
    """Return the seconds of a mapping with this unit; infinite where it cannot be."""
    fixed = copy(world)
    fixed.unit = unit
    plan = fixed.plan("pipelined", sets)
    return inf if plan is None else plan.seconds


def brute_force(world):
    """Return the least time of all mappings and units, each looked at by itself."""
    times = (
        seconds_at(world, sets, unit)
        for sets in assignments(world)
        for unit in range(1, world.items + 1)
    )
    return min(times, default=inf)


@settings(max_examples=examples(25), deadline=None)
@given(worlds())
def test_no_mapping_and_no_unit_is_quicker_than_the_chosen(world):
    found, least = best_mapping(world), brute_force(world)
    if found is None:
        assert least == inf
    else:
        assert found.seconds == pytest.approx(least, rel=1e-9)


@settings(max_examples=examples(25), deadline=None)
@given(worlds())
def test_improving_host_by_host_ends_where_no_host_and_no_pair_changes_for_the_better(world):
    best = best_mapping(world)
    for start in beginnings(world):
        found = climb(world, list(start))
        if found is None:
            continue
        assert found.seconds >= best.seconds * (1 - 1e-9)
        sets = tuple(
            tuple(h for h, t in enumerate(start) if t == k) for k in range(len(world.tasks))
        )
        begun = world.plan("pipelined", sets) if all(sets) else None
        assert begun is None or found.seconds <= begun.seconds


def test_a_task_with_twice_the_work_gets_twice_the_hosts():
    world = costs(TWO, alike(6), Link(1e-6, 1e9))
    plan = best_mapping(world)
    assert {task: len(rows) for task, rows in plan.rows.items()} == {"make": 2, "use": 4}
    assert sum(plan.rows["use"].values()) == 50
    assert plan.bottleneck.name in {"make", "use"}


def test_the_unit_is_a_compromise_of_latency_and_of_filling_the_pipeline():
    units = {}
    for latency in (1e-6, 1e-2, 1.0):
        plan = best_mapping(costs(TWO, alike(2), Link(latency, 1e9)))
        units[latency] = plan.unit
    assert units[1e-6] == 1
    assert 1 <= units[1e-2] <= units[1.0] <= 60
    assert units[1.0] > 10


def test_where_the_link_is_slow_both_tasks_take_turns_on_one_set():
    quick, slow = (plan_pipeline(costs(TWO, alike(4), Link(1e-4, b))) for b in (1e9, 1e3))
    assert quick.plan.seconds <= slow.plan.seconds
    assert slow.plan.mode == "alternating"
    both = {plan.mode: plan.seconds for plan in slow.plans}
    assert both["alternating"] < 0.5 * both["pipelined"]


def test_implementations_decide_who_does_what():
    text = TWO + """
[[implementation]]
task = "make"
name = "scalar"
[[implementation]]
task = "make"
name = "vector"
platforms = ["cray*"]
factor = 0.1
"""  # fmt: skip
    hosts = [
        Host("ws", seconds_per_point=0.01, platform="x86"),
        Host("c90", seconds_per_point=0.01, platform="cray-c90"),
    ]
    plan = best_mapping(costs(text, hosts))
    assert list(plan.rows["make"]) == ["c90"]
    assert plan.implementations["make", "c90"] == "vector"
    with pytest.raises(UsageError) as raised:
        costs(text.replace('name = "scalar"', 'name = "scalar"\nplatforms = ["sparc"]'), hosts[:1])
    assert raised.value.code == "implementation-missing"
    assert raised.value.fields == {"task": "make", "platforms": ["x86"]}


def test_a_unit_fits_into_the_memory_at_both_ends():
    hosts = alike(2, free_memory=8000 * 2 * 3)
    plan = best_mapping(costs(TWO, hosts, Link(1.0, 1e9)))
    assert plan.unit == 3
    with pytest.raises(NoFeasiblePlanError):
        plan_pipeline(costs(TWO, alike(2, free_memory=100)))


def test_many_hosts_are_planned_by_improvement():
    hosts = [Host(f"h{n}", seconds_per_point=0.01 * (1 + n % 3)) for n in range(20)]
    world = costs(TWO, hosts, Link(1e-6, 1e9))
    plan = best_mapping(world)
    ideal = 60 * 3 * 0.01 / sum(1 / (1 + n % 3) for n in range(20))
    assert plan.seconds < 1.2 * ideal
    assert best_alternating(world) is not None


@pytest.mark.parametrize(
    ("old", "new", "code", "field", "suggestion"),
    [
        ("[[interface]]", '[[interface]]\nfrom = "use"\nto = "make"\nbytes = "1"\n[[interface]]',
         "interface-cyclic", "interface", ""),
        ('to = "use"', 'to = "ues"', "task-unknown", "interface[0].to", "use"),
        ('name = "use"', 'name = "make"', "name-repeated", "task[1].name", ""),
        ('"steps"', '"stops"', "parameter-unknown", "items", "steps"),
        ('work = "2"', 'work = "2*k"', "parameter-unknown", "task[1].work", ""),
        ("[[interface]]", '[[task]]\nname = "idle"\nwork = "1"\nrows = "1"\n[[interface]]',
         "task-unconnected", "task[2]", ""),
        ("[[interface]]", '[[implementation]]\ntask = "mak"\nname = "x"\n[[interface]]',
         "task-unknown", "implementation[0].task", "make"),
    ],
)  # fmt: skip
def test_a_mistake_is_refused_with_its_place(old, new, code, field, suggestion):
    with pytest.raises(hat.DocumentError) as raised:
        hat.parse(TWO.replace(old, new, 1), PipelineFile)
    problems = {problem.field: problem for problem in raised.value.problems}
    assert (problems[field].code, problems[field].suggestion) == (code, suggestion)


def test_amounts_that_are_none_are_refused():
    def refusal(*given, **more):
        with pytest.raises((UsageError, hat.DocumentError)) as raised:
            costs(*given, **more)
        error = raised.value
        return (
            error.code,
            error.fields.get("task"),
            error.fields["field"],
            error.fields.get("value"),
        )

    low = refusal(TWO, alike(2), values={"steps": "0"})
    assert low == ("value-range", None, "items", 0)
    for rows in ("0", "1.5", "1e10"):
        text = TWO.replace('"100"', f'"{rows}"')
        assert refusal(text, alike(2)) == ("value-range", "make", "rows", float(rows))
    assert refusal("unit = 61\n" + TWO, alike(2)) == ("value-range", None, "unit", 61)
    assert refusal(TWO, alike(2), values={"stps": "3"})[:3] == ("parameter-unknown", None, "stps")


class CountedCosts(PipelineCosts):
    """Counts the plans that are worked out."""

    plans = 0

    def plan(self, mode, sets):
        self.plans += 1
        return super().plan(mode, sets)


def test_an_improvement_ends_after_so_many_changes_no_worse_than_it_began():
    hosts = [Host(f"h{n}", seconds_per_point=0.01 * (1 + n % 3)) for n in range(30)]
    world = costs(TWO, hosts, Link(1e-6, 1e9), kind=CountedCosts)
    begun = [0] * 29 + [1]
    found = climb(world, begun, most_tried=40)
    assert 0 < world.plans <= 41
    first = world.plan("pipelined", (tuple(range(29)), (29,)))
    assert found.seconds < first.seconds


LISTED = """
[[host]]
name = "one"
seconds_per_point = 0.01
[[host]]
name = "two"
seconds_per_point = 0.01
[default_link]
latency = 1e-6
bandwidth = {bandwidth}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pipeline.toml").write_text(TWO)
    (tmp_path / "hosts.toml").write_text(LISTED.format(bandwidth="1e9"))
    return tmp_path


def test_a_weather_file_that_names_another_host_is_refused(folder):
    sky = '{"schema": "nws.weather/1", "time": 0, "cpu": {"onne": {"value": 0.5}}}'
    (folder / "sky.json").write_text(sky)
    failure = refused("apples", "plan", "--weather", "sky.json")
    assert (failure["code"], failure["fields"]["field"]) == ("host-unknown", "cpu.onne")
    (folder / "sky.json").write_text(sky.replace("onne", "one"))
    assert command("apples", "plan", "--weather", "sky.json").code == 0


def test_a_plan_says_why_it_is_that_with_both_times_and_what_binds_each(folder):
    (folder / "hosts.toml").write_text(LISTED.format(bandwidth="1e3"))
    found = command("apples", "plan", "--json").document
    (other,) = found["others"]
    assert found["predicted_seconds"] < other["predicted_seconds"]
    (why,) = [line for line in command("apples", "plan").out.splitlines() if "why" in line]
    assert (found["mode"], other["mode"]) == ("alternating", "pipelined")
    chosen, least = why.index("alternating"), why.index("pipelined")
    assert chosen < why.index(found["bottleneck"], chosen) < least
    assert why.endswith("make -> use")
    assert other["bottleneck"] == "make -> use"


@pytest.mark.parametrize(
    ("old", "new", "mode"),
    [
        ('[[host]]\nname = "two"\nseconds_per_point = 0.01\n', "", "alternating"),
        ('name = "two"\n', 'name = "two"\nplatform = "vector"\n', "pipelined"),
    ],
)
def test_where_there_is_one_way_only_it_says_what_the_other_lacks(folder, old, new, mode):
    text = (folder / "hosts.toml").read_text()
    assert old in text
    (folder / "hosts.toml").write_text(
        text.replace(old, new).replace('"one"\n', '"one"\nplatform = "scalar"\n')
    )
    if "vector" in new:
        ways = [("make", "scalar"), ("use", "vector")]
        with (folder / "pipeline.toml").open("a") as file:
            for task, platform in ways:
                file.write(
                    f'[[implementation]]\ntask = "{task}"\nname = "x"\nplatforms = ["{platform}"]\n'
                )
    found = command("apples", "plan", "--json").document
    assert (found["mode"], found["others"]) == (mode, [])
    (why,) = [line for line in command("apples", "plan").out.splitlines() if "why" in line]
    assert mode in why


@pytest.mark.usefixtures("folder")
def test_a_search_that_takes_long_says_so_and_one_that_is_over_does_not(monkeypatch):
    def long(world):
        until(lambda: sys.stderr.getvalue().endswith("\n"))
        return plan_pipeline(world)

    monkeypatch.setattr("apples.jobs.commands.applications.LONG_SECONDS", 0.0)
    with monkeypatch.context() as patch:
        patch.setattr("apples.applications.pipeline.planning.plan_pipeline", long)
        done = command("apples", "plan")
    assert (done.code, done.err.count("\n")) == (0, 1)

    def running(spec, *, verify, began):
        assert verify
        result = plan_pipeline_file(spec)
        began(result)
        until(
            lambda: not any(isinstance(one, threading.Timer) for one in threading.enumerate()), 60
        )
        return result

    monkeypatch.setattr("apples.jobs.commands.applications.LONG_SECONDS", 3600.0)
    monkeypatch.setattr("apples.applications.run_pipeline", running)
    done = command("apples", "run")
    assert (done.code, done.err) == (0, "")
