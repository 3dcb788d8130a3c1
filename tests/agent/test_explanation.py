"""X3: what is printed as the point where the answer changes is where a new plan changes it."""

import re
from dataclasses import replace

import numpy as np
import pytest
from worlds import pool, random_world, symmetric

from apples import Coordinator, Host, Link, NoFeasiblePlanError
from apples.agent import (
    balance,
    decide,
    explained_text,
    left_out,
    plan_text,
    rectangles,
    remedy,
    strips_or_rectangles,
    thresholds,
)
from apples.resources import HostList
from apples.ui import duration
from apples.weather import Conditions
from blueprints import blocked, compile_time, minimum_execution_time
from nws import Forecast, Weather


def decided(information, blueprint=minimum_execution_time):
    coordinator = Coordinator(information)
    coordinator.execute(blueprint)
    return coordinator


@pytest.mark.more
def test_a_reason_tells_the_best_place_a_host_could_take():
    generator, told = np.random.default_rng(3), 0
    for _ in range(25):
        information = random_world(generator, int(generator.integers(3, 9))).information
        try:
            log = decided(information).decision_log
        except NoFeasiblePlanError:
            continue
        model, total = log.information.model, log.information.application.rows
        for one in left_out(log):
            chain, host = log.chosen.schedule.resources, information.hosts[one["host"]]
            sets = [(*chain[:k], host, *chain[k:]) for k in range(len(chain) + 1)]
            taken = [model.set_seconds(each, balance(model, each, total).astype(float)) for each in sets]  # fmt: skip  # noqa: E501
            place = min((t, model.communication(each)[k]) for k, (t, each) in enumerate(zip(taken, sets, strict=True)))  # fmt: skip  # noqa: E501
            assert one["figures"][0] in place
            told += 1
    assert told > 20


def answer(information, blueprint=minimum_execution_time):
    return tuple(sorted(decided(information, blueprint).decision_log.chosen.names))


def with_host(information, name, **fields):
    """The problem with one host of the list written differently."""
    hosts = tuple(replace(h, **fields) if h.name == name else h for h in information.hosts)
    listed = HostList(hosts, information.hosts.network)
    return replace(information, conditions=Conditions(listed, information.conditions.weather))


def with_latency(information, name, factor):
    """The problem with every link of one host written out, its latency times `factor`."""
    hosts, network = information.hosts, information.hosts.network
    links = dict(network.links)
    for other in hosts:
        for a, b in ((hosts[name], other), (other, hosts[name])):
            if other.name != name:
                link = network.link(a, b)
                links[a.name, b.name] = Link(link.latency * factor, link.bandwidth)
    listed = HostList(hosts.hosts, replace(network, links=links, assumed_links={}))
    return replace(information, conditions=Conditions(listed, information.conditions.weather))


def at(information, change, times):
    """The problem with the quantity of a threshold at `times` the threshold."""
    host = information.hosts[change["host"]]
    if change["quantity"] == "cpu":
        slower = host.seconds_per_point * change["now"] / (change["at"] * times)
        return with_host(information, change["host"], seconds_per_point=slower)
    if change["quantity"] == "speed":
        speed = host.seconds_per_point / (change["at"] * times)
        return with_host(information, change["host"], seconds_per_point=speed)
    if change["quantity"] == "memory":
        return with_host(information, change["host"], free_memory=int(change["at"] * times))
    return with_latency(information, change["host"], change["at"] * times)


@pytest.mark.more
def test_a_new_plan_one_percent_beyond_each_threshold_says_what_was_printed():
    generator = np.random.default_rng(21)
    seen, flips, quantities = 0, 0, set()
    for _ in range(20):
        count = int(generator.integers(2, 4))
        world = random_world(
            generator, count, grid=int(generator.choice([200, 1000])), capped=False
        )
        information = world.information
        coordinator = decided(information)
        now = tuple(sorted(coordinator.decision_log.chosen.names))
        for change in thresholds(coordinator, minimum_execution_time):
            seen += 1
            quantities.add(change["quantity"])
            direction = 1.01 if change["at"] > change["now"] else 0.99
            before, beyond = (at(information, change, t) for t in (1 / direction, direction))
            flips += answer(before) == now and list(answer(beyond)) == change["answer"]
    assert seen > 20
    assert quantities >= {"cpu", "speed", "latency"}
    assert flips == seen


def test_the_memory_at_which_a_host_has_to_be_helped_is_a_threshold():
    hosts = [
        Host("a", seconds_per_point=1e-9, free_memory=16_000 * 1202),
        Host("b", site="s", seconds_per_point=1e-9, free_memory=16_000 * 1202),
    ]
    information = pool(hosts, symmetric({("local", "s"): Link(1.0, 1e6)}))
    changes = {c["quantity"]: c for c in thresholds(decided(information), minimum_execution_time)}
    memory = changes["memory"]
    assert memory["at"] == pytest.approx(16_000 * 1002, rel=2e-3)
    assert answer(at(information, memory, 1.01)) == ("a",)
    assert list(answer(at(information, memory, 0.99))) == memory["answer"] != ["a"]


def test_a_compile_time_plan_changes_with_the_list_too():
    hosts = [Host("a", seconds_per_point=1e-9), Host("b", site="s", seconds_per_point=1.2e-9)]
    information = pool(hosts, symmetric({("local", "s"): Link(1.0, 1e6)}))
    changes = list(thresholds(decided(information, compile_time), compile_time))
    assert {(c["host"], c["quantity"]) for c in changes} >= {("a", "cpu"), ("b", "speed")}
    for change in changes:
        if change["quantity"] == "speed":
            assert change["at"] == pytest.approx(1.2, rel=3e-3)


def test_equal_strips_are_the_same_whatever_the_hosts_give():
    hosts = [Host(n, seconds_per_point=1e-9) for n in "ab"]
    assert list(thresholds(decided(pool(hosts), blocked), blocked)) == []


def test_how_close_a_change_is_is_told_in_errors_of_the_forecast():
    hosts = [Host("a", seconds_per_point=1e-9), Host("b", site="s", seconds_per_point=1.2e-9)]
    links = symmetric({("local", "s"): Link(1.0, 1e6)})
    for error, advice in ((0.2, "close"), (0.05, "watch"), (0.01, "safe")):
        sky = Weather(cpu={"a": Forecast(0.99, error, "mean", 9, 0.0)})
        first = next(thresholds(decided(pool(hosts, links, weather=sky)), minimum_execution_time))
        assert (first["host"], first["quantity"], first["advice"]) == ("a", "cpu", advice)
        assert first["errors_away"] == pytest.approx((0.99 - first["at"]) / error)


# ------------------------------------------------------------------------ left out
def test_each_host_left_out_is_explained_with_the_two_numbers_of_the_sentence():
    generator = np.random.default_rng(5)
    explained = 0
    for _ in range(20):
        world = random_world(generator, 4, capped=False)
        record = decided(world.information).decision_log
        usable = {h.name for h in record.usable} - set(record.chosen.names)
        reasons = list(left_out(record))
        assert {r["host"] for r in reasons} == usable
        for reason in reasons:
            explained += 1
            assert all(duration(seconds) in reason["reason"] for seconds in reason["figures"])
            assert reason["figures"][1] == record.chosen.iteration_seconds
            assert reason["figures"][0] >= reason["figures"][1] * (1 - 0.02)
    assert explained > 20


def test_a_far_host_is_left_out_because_its_border_outlasts_the_iteration():
    hosts = [Host("a", seconds_per_point=1e-9), Host("far", site="s", seconds_per_point=1e-9)]
    information = pool(hosts, symmetric({("local", "s"): Link(0.02, 1e7)}))
    (reason,) = left_out(decided(information).decision_log)
    assert reason["figures"] == [pytest.approx(41.6e-3, rel=1e-2), pytest.approx(1e-3, rel=1e-2)]


@pytest.mark.parametrize("planner", [rectangles, strips_or_rectangles])
def test_a_host_left_out_of_rectangles_is_explained_with_two_numbers(planner):
    hosts = [Host("a", seconds_per_point=1e-9), Host("b", seconds_per_point=1e-9)]
    hosts.append(Host("far", site="s", seconds_per_point=1e-9))
    links = symmetric({("local", "local"): Link(1e-6, 1e10), ("local", "s"): Link(0.5, 1e9)})
    coordinator = Coordinator(pool(hosts, links), planner=planner)
    coordinator.execute(minimum_execution_time)
    (reason,) = left_out(coordinator.decision_log)
    assert reason["host"] == "far"
    assert all(duration(seconds) in reason["reason"] for seconds in reason["figures"])
    assert (
        reason["figures"][0]
        > reason["figures"][1]
        == coordinator.decision_log.chosen.iteration_seconds
    )


def test_a_host_that_a_limit_leaves_out_names_the_limit():
    hosts = [Host(n, seconds_per_point=1e-9, site=n[0]) for n in ("a1", "a2", "b1")]
    near = Link(1e-6, 1e10)
    links = symmetric({("a", "a"): near, ("a", "b"): near})
    for limit, words in (
        ("maximum_sites = 1", "uses 2 sites, the user asks for at most 1"),
        ("maximum_hosts = 2", "uses 3 hosts, the user asks for at most 2"),
    ):
        information = pool(hosts, links, user=f"[constraints]\n{limit}\n")
        (reason,) = left_out(decided(information).decision_log)
        assert words in reason["reason"], reason


# --------------------------------------------------------------- binding limits
def binding_of(information, *, explain=True, blueprint=minimum_execution_time, **subsystems):
    result = decide("b", blueprint, Coordinator(information, **subsystems), explain=explain)
    return result.document()


@pytest.mark.parametrize(("count", "explain"), [(3, False), (300, True)])
def test_limits_are_asked_about_where_an_explanation_of_a_short_list_is_asked_for(count, explain):
    executed = []

    def counted(coordinator):
        executed.append(coordinator)
        return minimum_execution_time(coordinator)

    hosts = [Host(f"h{i}", seconds_per_point=1e-9) for i in range(count)]
    information = pool(
        hosts,
        {("local", "local"): Link(1e-6, 1e10)},
        user="[constraints]\nmaximum_hosts = 2\ndeadline = 1e9\n",
    )
    document = binding_of(information, explain=explain, blueprint=counted)
    assert len(document["chosen"]["hosts"]) == 2
    assert (document["binding"], len(executed)) == ([], 1)


def test_the_memory_that_keeps_a_host_idle_is_named_with_its_numbers():
    hosts = [
        Host("big", seconds_per_point=1e-9, free_memory=16_000 * 302),
        Host("slow", seconds_per_point=2e-9, free_memory=2**40),
    ]
    information = pool(hosts, {("local", "local"): Link(1e-6, 1e10)})
    document = binding_of(information, explain=False)
    (limit,) = document["binding"]
    assert (limit["host"], limit["what"], limit["limit"]) == ("big", "memory", 16_000 * 302)
    assert limit["needed"] == pytest.approx(16_000 * 669, rel=0.01)  # two thirds of the grid
    assert limit["reason"].startswith("big takes 300 rows in 304 us of 1.40 ms: its 4.83 MB")
    assert "limited: big takes 300 rows" in plan_text(document, "apples run")
    roomy = [replace(host, free_memory=2**40) for host in hosts]
    assert binding_of(pool(roomy, {("local", "local"): Link(1e-6, 1e10)}))["binding"] == []


def test_the_users_own_memory_limit_is_an_allocation():
    hosts = [Host(n, seconds_per_point=s * 1e-9) for n, s in (("big", 1), ("slow", 2))]
    user = f"[constraints]\nmemory = {16_000 * 602}\n"
    information = pool(hosts, {("local", "local"): Link(1e-6, 1e10)}, user=user)
    (limit,) = binding_of(information)["binding"]
    assert (limit["host"], limit["what"], limit["limit"]) == ("big", "allocation", 16_000 * 602)
    assert "the user's limit of 9.63 MB a host admits no more" in limit["reason"]


def test_the_memory_that_bounds_a_rectangle_is_named_too():
    hosts = [
        Host("big", seconds_per_point=1e-9, free_memory=16_000 * 302),
        Host("slow", seconds_per_point=2e-9, free_memory=2**40),
    ]
    information = pool(hosts, {("local", "local"): Link(1e-6, 1e10)})
    (limit,) = binding_of(information, planner=rectangles)["binding"]
    assert (limit["host"], limit["what"]) == ("big", "memory")
    assert limit["needed"] > 2 * limit["limit"]


@pytest.mark.parametrize(
    ("lines", "what", "limit", "needed", "host"),
    [
        ("maximum_sites = 1", "sites", 1, 2, "b1"),
        ("maximum_hosts = 2", "hosts", 2, 3, "b1"),
        ("maximum_distance = 1e-6", "distance", 1e-6, 3.6e-6, "a2"),
    ],
)
def test_a_limit_without_which_the_plan_would_be_better_is_named(lines, what, limit, needed, host):
    hosts = [Host(n, seconds_per_point=1e-9, site=n[0]) for n in ("a1", "a2", "b1")]
    near = Link(1e-6, 1e10)
    links = symmetric({("a", "a"): near, ("a", "b"): near})
    information = pool(hosts, links, user=f"[constraints]\n{lines}\n")
    (found,) = binding_of(information)["binding"]
    assert (found["what"], found["limit"], found["host"]) == (what, limit, host)
    assert found["needed"] == pytest.approx(needed)
    for loose in ("maximum_sites = 9", "maximum_hosts = 9", "maximum_distance = 9", ""):
        free = pool(hosts, links, user=f"[constraints]\n{loose}\n")
        assert binding_of(free)["binding"] == []


def test_a_deadline_and_a_cost_bind_the_other_objective():
    fast = Host("fast", seconds_per_point=1e-9, cost_per_second=10.0)
    slow = Host("slow", seconds_per_point=2e-9, cost_per_second=1.0)
    links = {("local", "local"): Link(1e-6, 1e10)}
    for objective, limit, what in (
        ("cost", "deadline = 0.15", "deadline"),
        ("execution_time", "maximum_cost = 0.5", "cost"),
    ):
        user = f'[objective]\nmeasure = "{objective}"\n[constraints]\n{limit}\n'
        (found,) = binding_of(pool([fast, slow], links, user=user))["binding"]
        assert found["what"] == what
        assert found["needed"] > found["limit"]


def test_how_many_of_the_questions_were_asked_is_stated():
    hosts = [Host(f"h{i}", seconds_per_point=1e-9) for i in range(7)]
    far = [Host(f"far{i}", site="s", seconds_per_point=1e-9) for i in range(3)]
    links = symmetric({("local", "local"): Link(1e-6, 1e10), ("local", "s"): Link(0.5, 1e9)})
    coordinator = Coordinator(pool([*hosts, *far], links))
    document = decide("b", minimum_execution_time, coordinator, explain=True).document()
    assert (document["changes_asked"], document["changes_possible"]) == (10, 13)
    assert "10 of 13 questions asked" in explained_text(document, "apples run")
    assert {change["host"] for change in document["changes"]} & {host.name for host in far}


# -------------------------------------------------------------------------- remedy
@pytest.mark.parametrize("seed", range(8))
def test_the_grid_that_is_said_to_fit_fits_and_one_more_does_not(seed):
    generator = np.random.default_rng(seed)
    hosts = [
        Host(
            f"h{i}", seconds_per_point=1e-9, free_memory=int(generator.integers(10**5, 3 * 10**6))
        )
        for i in range(3)
    ]
    information = pool(hosts, {("local", "local"): Link(1e-6, 1e10)}, grid=4000)
    coordinator = Coordinator(information)
    with pytest.raises(NoFeasiblePlanError):
        coordinator.execute(minimum_execution_time)
    advice = remedy(information, coordinator.decision_log)
    largest = int(re.search(r"grid\D+(\d+)", advice)[1])

    def plan(grid):
        smaller = information.with_application(
            information.template.bind({"grid": grid, "iterations": 100})
        )
        return decided(smaller).decision_log.chosen

    assert sum(plan(largest).schedule.rows) == largest
    with pytest.raises(NoFeasiblePlanError):
        plan(largest + 1)


def test_the_memory_that_is_said_to_help_helps():
    hosts = [Host("a", seconds_per_point=1e-9, free_memory=16_000 * 602)]
    information = pool(hosts)
    coordinator = Coordinator(information)
    with pytest.raises(NoFeasiblePlanError):
        coordinator.execute(minimum_execution_time)
    assert "6.43 MB" in remedy(information, coordinator.decision_log)
    more = [*hosts, Host("b", seconds_per_point=1e-9, free_memory=6_440_000)]
    assert answer(pool(more)) == ("a", "b")
    less = [*hosts, Host("b", seconds_per_point=1e-9, free_memory=6_410_000)]
    with pytest.raises(NoFeasiblePlanError):
        answer(pool(less))


@pytest.mark.parametrize(
    ("limits", "advice"),
    [
        ("deadline = 0.05", "deadline = 0.05 alone forbids it: a plan needs 0.06707"),
        ("minimum_hosts = 3", "minimum_hosts = 3 alone forbids it: a plan needs 2"),
        ("minimum_hosts = 3\ndeadline = 0.05", ""),
    ],
)
def test_no_plan_names_the_limit_that_alone_forbids_it(limits, advice):
    hosts = [Host(n, seconds_per_point=s * 1e-9) for n, s in (("fast", 1), ("slow", 2))]
    user = f"[constraints]\n{limits}\n"
    information = pool(hosts, {("local", "local"): Link(1e-6, 1e10)}, user=user)
    refusal = decide("b", minimum_execution_time, Coordinator(information)).refusal
    assert refusal.remedy == advice


def twelve(**options):
    """Twelve hosts on six sites, the first the cheapest."""
    hosts = [
        Host(
            f"h{k}",
            site=f"s{k % 6}",
            seconds_per_point=(1 if k else 2) * 1e-8,
            cost_per_second=0.5 if k == 0 else 1.5 + 0.1 * k,
        )
        for k in range(12)
    ]
    sites = [f"s{k}" for k in range(6)]
    return pool(hosts, {(a, b): Link(1e-6, 1e10) for a in sites for b in sites}, **options)


@pytest.mark.parametrize(
    ("field", "limits"),
    [
        ("maximum_cost", "maximum_cost = 0.01"),
        ("deadline", "deadline = 0.0001"),
        ("maximum_sites", "minimum_hosts = 5\nmaximum_sites = 2"),
        ("minimum_hosts", "minimum_hosts = 5\nmaximum_sites = 2"),
    ],
)
def test_figure_that_a_plan_needs_is_the_least_that_gives_one(field, limits):
    def refusal(limits):
        information = twelve(user=f"[constraints]\n{limits}\n")
        return decide("b", minimum_execution_time, Coordinator(information)).refusal

    advice = dict(part.split(" = ", 1) for part in refusal(limits).remedy.split(", or "))
    needed = advice[field].rpartition("a plan needs ")[2]
    others = [line for line in limits.splitlines() if not line.startswith(field)]

    def with_limit(value):
        return "\n".join([*others, f"{field} = {value}"])

    step = {"maximum_sites": 1, "minimum_hosts": -1}.get(field)
    closer = int(needed) - step if step else 0.99 * float(needed)
    assert refusal(with_limit(needed)) is None
    assert refusal(with_limit(closer)) is not None


def test_long_list_names_the_best_plan_without_a_limit():
    hosts = [Host(f"h{k}", seconds_per_point=1e-8, cost_per_second=1.0) for k in range(257)]
    information = pool(
        hosts, default=Link(1e-6, 1e10), user="[constraints]\nmaximum_cost = 1e-4\n"
    )
    refusal = decide("b", minimum_execution_time, Coordinator(information)).refusal
    assert "alone forbids it: the best plan without it has" in refusal.remedy
