"""The prediction against what happened, and that it becomes right when runs are learned from."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from worlds import TEMPLATE, pool

from apples import Coordinator, Host, Link, equal_blocks
from apples.agent import (
    PastRun,
    Reference,
    RunObservation,
    SpeedFunction,
    check,
    learn,
    recall,
    remember,
    store_speeds,
    without_risk,
)
from apples.launch import BorderTimes, HostTimes, Outcome
from apples.resources import Allocation, Schedule
from blueprints import all_resources, blocked, compile_time, minimum_execution_time
from nws import Forecast, Weather

APP = (TEMPLATE.name, TEMPLATE.version)
HOSTS = [Host("a", seconds_per_point=1e-9), Host("b", seconds_per_point=1e-9, slots=2)]
LINKS = {("local", "local"): Link(1e-5, 1e9)}


@pytest.fixture(autouse=True)
def own_state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def overlap():
    """Return the factor of the longest border that is known."""
    known = recall(*APP).overlap
    return known.factor(known.up_to) if known.points else 1.0


def decided(user="", sky=None, links=LINKS):
    information = pool(HOSTS, links, user=user, weather=sky, learned=recall(*APP))
    coordinator = Coordinator(information)
    coordinator.execute(minimum_execution_time)
    return coordinator.decision_log.chosen, information


class World:
    """How things really are: hosts slower than listed, borders cheaper, and somebody always late."""

    def __init__(
        self,
        *,
        processor,
        wait,
        late=0.266,
        slowdown=(1.5, 0.8),
        overlap=0.6,
        share=1.0,
        links=LINKS,
        hosts=HOSTS,
    ):
        self.processor, self.wait, self.ideal = processor, wait, pool(hosts, links)
        self.late, self.slowdown, self.overlap, self.share = late, slowdown, overlap, share

    def mean_iteration(self, compute, border):
        """Return the mean of the longest, where each iteration's computing varies by `late` of its mean."""
        chance = np.random.default_rng(5).standard_normal((20_000, len(compute)))
        return (compute * (1.0 + self.late * chance) + border).max(axis=1).mean()

    def run(self, estimate, information):
        """Compute and communicate as a mean iteration does, and say so as a program would."""
        ideal = self.ideal
        hosts = estimate.schedule.resources
        rows = np.array(estimate.schedule.rows, dtype=float)
        pace = np.array([self.slowdown[h.name == "b"] for h in hosts])
        dedicated = ideal.model.computation(hosts, rows) * pace
        compute = dedicated / self.share
        border = ideal.model.communication(hosts) * self.overlap
        longest = self.mean_iteration(compute, border)
        count = estimate.iterations
        times = tuple(
            HostTimes(
                h.name,
                compute[i] * count,
                (border[i] if self.wait else longest - compute[i]) * count,
                (longest - compute[i] - border[i]) * count if self.wait else None,
                dedicated[i] * count if self.processor else None,
            )
            for i, h in enumerate(hosts)
        )
        return Outcome(count, float(longest * count), 0.1, times)


@pytest.mark.parametrize("user", ["", "[preferences]\nrisk = 2.0\n"], ids=["mean", "cautious"])
@pytest.mark.parametrize("processor", [True, False], ids=["processor time", "wall time"])
def test_after_some_runs_the_prediction_is_right(user, processor):
    """Whatever a program reports, and however cautious the user is: caution is no host's pace."""
    sky = Weather(cpu={"a": Forecast(1.0, 0.05, "mean", 9, 0.0)})
    world = World(processor=processor, wait=True)
    offs = []
    for _ in range(12):
        estimate, information = decided(user, sky)
        result = check(estimate, world.run(estimate, information))
        remember(result, information)
        nominal = without_risk(information).model.iteration_seconds(estimate.schedule)
        offs.append(abs(world.run(estimate, information).iteration_seconds / nominal - 1))
    assert offs[0] > 0.05
    assert offs[-1] < 0.03
    learned = recall(*APP)
    assert learned.slowdown["a"] == pytest.approx(1.5, rel=0.03)
    assert learned.slowdown["b"] == pytest.approx(0.8, rel=0.03)
    assert overlap() == pytest.approx(0.6, rel=0.05)


def test_a_program_that_cannot_tell_waiting_from_talking_is_learned_from_too():
    world = World(processor=True, wait=False, late=0.0)
    for _ in range(15):
        estimate, information = decided()
        outcome = world.run(estimate, information)
        result = check(estimate, outcome)
        remember(result, information)
    assert abs(result.off) < 0.05


@pytest.mark.parametrize("processor", [True, False], ids=["processor time", "wall time"])
@pytest.mark.parametrize("known", [None, 1e-9], ids=["none is known", "one is listed"])
def test_a_host_whose_speed_nobody_gave_is_predicted_right_after_one_run(processor, known):
    hosts = [Host("a", seconds_per_point=known), Host("b", slots=2)]
    world = World(processor=processor, wait=True, late=0.0, slowdown=(1.0, 6.0))
    offs = []
    for _ in range(2):
        estimate, information = planned((500, 500), LINKS, hosts)
        result = check(estimate, world.run(estimate, information))
        remember(replace(result, past=PastRun("site", 1.0, 0.1, None, 1.2)), information)
        offs.append(abs(result.off))
    assert len(recall(*APP).runs) == 1  # the error of the assumption is that of no later run
    assert offs[0] > 0.3
    assert offs[1] < 0.01
    assert information.assumed_speeds == ()


def test_nothing_is_promised_where_a_speed_is_assumed():
    for speeds, promises in (((1e-9, 1e-9), True), ((1e-9, None), False)):
        hosts = [Host(name, seconds_per_point=s) for name, s in zip("ab", speeds, strict=True)]
        sky = Weather(cpu={"a": Forecast(0.5, 0.05, "mean", 9, 0.0)})
        coordinator = Coordinator(pool(hosts, LINKS, weather=sky))
        coordinator.execute(all_resources)
        chosen = coordinator.decision_log.chosen
        low, high = chosen.interval
        assert (low < high) == promises
        assert low <= chosen.execution_seconds <= high


def test_the_speed_that_a_run_measured_belongs_to_no_other_host():
    """The first assumption is as slow as the slowest that is known: that may change, the measurement may not."""
    hosts = [Host("a", seconds_per_point=1e-9), Host("b", slots=2)]
    estimate, information = planned((500, 500), LINKS, hosts)
    world = World(processor=True, wait=True, late=0.0)
    remember(check(estimate, world.run(estimate, information)), information)
    store_speeds(*APP, "a", {"default": SpeedFunction.constant(7e-9)})
    faster = [Host("a", seconds_per_point=1e-11), hosts[1]]
    for others in (hosts, faster):
        assert planned((500, 500), LINKS, others)[1].speeds["b"].at(250) == pytest.approx(0.8e-9)


SLOW = {("local", "local"): Link(1e-5, 2e7)}


def planned(rows, links, hosts=HOSTS):
    """Return the estimate of so many rows on each host, and the pool: plans are not what is tested."""
    information = pool(hosts, links, learned=recall(*APP))
    coordinator = Coordinator(information)
    allocations = (Allocation(h, r, "") for h, r in zip(information.hosts, rows, strict=True))
    return coordinator.estimate(Schedule(tuple(allocations))), information


@pytest.mark.parametrize("wait", [True, False], ids=["tells waiting", "does not"])
@pytest.mark.parametrize("rows", [(500, 500), (200, 800), (700, 300)])
def test_borders_that_weigh_are_learned_from_the_iteration_in_one_run(wait, rows):
    world = World(
        processor=True, wait=wait, late=0.0, slowdown=(1.0, 1.0), overlap=0.5, links=SLOW
    )
    estimate, information = planned(rows, SLOW)
    border = information.model.communication(estimate.schedule.resources)
    assert border.max() > 0.2 * estimate.iteration_seconds
    remember(check(estimate, world.run(estimate, information)), information)
    assert overlap() == pytest.approx(0.5)
    assert recall(*APP).straggler_factor == pytest.approx(1.0)
    again, information = planned(rows, SLOW)
    assert check(again, world.run(again, information)).off == pytest.approx(0.0, abs=1e-9)


def test_the_middle_of_a_chain_speaks_for_its_two_borders_though_an_end_computes_longer():
    chain = [Host(name, seconds_per_point=1e-9) for name in "abc"]
    world = World(
        processor=True, wait=True, late=0.0, slowdown=(1, 1), overlap=0.5, links=SLOW, hosts=chain
    )
    estimate, information = planned((330, 320, 350), SLOW, chain)
    remember(check(estimate, world.run(estimate, information)), information)
    assert overlap() == pytest.approx(0.5)
    assert recall(*APP).straggler_factor == pytest.approx(1.0)


def test_a_slow_host_with_a_light_border_keeps_the_others_waiting_and_that_is_no_border():
    trio = [
        Host("a", seconds_per_point=1e-9, site="far"),
        *(Host(name, seconds_per_point=1e-9) for name in "bc"),
    ]
    links = {
        ("far", "local"): Link(1e-5, 2e7),
        ("local", "far"): Link(1e-5, 2e7),
        ("local", "local"): Link(1e-6, 1e10),
    }
    world = World(
        processor=True, wait=True, late=0.0, slowdown=(1, 1), overlap=0.5, links=links, hosts=trio
    )
    estimate, information = planned((10, 10, 980), links, trio)
    border = information.model.communication(estimate.schedule.resources)
    assert border[0] > 0.2 * estimate.iteration_seconds > border[2]
    remember(check(estimate, world.run(estimate, information)), information)
    assert overlap() == pytest.approx(0.5)


def test_a_program_that_tells_no_times_of_hosts_teaches_nothing_of_borders():
    estimate, information = planned((500, 500), SLOW)
    outcome = Outcome(estimate.iterations, 1.5 * estimate.execution_seconds, 0.0, ())
    remember(check(estimate, outcome), information)
    assert overlap() == 1.0


def test_what_calibrated_hosts_have_in_common_in_a_set_is_company_and_no_drag():
    for host in HOSTS:
        store_speeds(*APP, host.identity, {"default": SpeedFunction.constant(1e-9)})
    world = World(processor=True, wait=True, late=0.0, slowdown=(1.4, 1.4))
    for _ in range(2):
        estimate, information = planned((300, 700), LINKS)
        result = check(estimate, world.run(estimate, information))
        remember(result, information)
    assert result.off == pytest.approx(0.0, abs=0.01)
    assert recall(*APP).co_run_slowdown == pytest.approx({"a": 1.4, "b": 1.4})
    assert recall(*APP).slowdown == {}
    assert recall(*APP).straggler_factor == pytest.approx(1.0, rel=0.01)


@pytest.mark.parametrize("processor", [True, False])
def test_a_calibrated_host_that_is_slower_in_company_is_not_slower_alone(processor):
    for host in HOSTS:
        store_speeds(*APP, host.identity, {"default": SpeedFunction.constant(1e-9)})
    world = World(processor=processor, wait=True, late=0.0, slowdown=(1.3, 1.0))
    for _ in range(9):
        estimate, information = planned((300, 700), LINKS)
        result = check(estimate, world.run(estimate, information))
        remember(result, information)
    assert result.off == pytest.approx(0.0, abs=0.01)
    assert recall(*APP).co_run_slowdown == pytest.approx({"a": 1.3, "b": 1.0}, rel=0.02)
    assert recall(*APP).slowdown == {}
    model, rows = planned((300, 700), LINKS)[1].model, np.array([300.0])
    columns = information.application.columns
    assert model.computation(HOSTS[:1], rows) == pytest.approx(300 * columns * 1e-9)
    within = model.rows_within(HOSTS[:1], 1000)
    assert within(np.array([301 * columns * 1e-9]))[0] in (300, 301)


def test_with_processor_time_a_busy_machine_is_not_taken_for_a_slow_one():
    world = World(processor=True, wait=True, slowdown=(1.0, 1.0), share=0.5)
    estimate, information = decided()
    remember(check(estimate, world.run(estimate, information)), information)
    assert recall(*APP).slowdown == pytest.approx({"a": 1.0, "b": 1.0})


def test_off_and_inside_are_what_they_say():
    sky = Weather(cpu={"a": Forecast(0.9, 0.1, "mean", 9, 0.0)})
    estimate, _ = decided(sky=sky)
    low, high = estimate.interval
    for seconds, inside in ((low * 0.99, False), ((low + high) / 2, True), (high * 1.01, False)):
        times = tuple(HostTimes(n, 0.25 * seconds, 0.25 * seconds) for n in estimate.names)
        result = check(estimate, Outcome(estimate.iterations, seconds, 0.0, times))
        assert result.inside is inside
        assert result.off == pytest.approx(seconds / estimate.execution_seconds - 1)


def test_without_a_forecast_error_nothing_was_promised_and_nothing_is_scored():
    estimate, information = decided()
    outcome = Outcome(estimate.iterations, estimate.execution_seconds * 1.1, 0.0, ())
    result = check(estimate, outcome)
    assert result.inside is None
    remember(result, information)
    assert recall(*APP).coverage is None


def test_a_run_that_stopped_early_is_not_scored_against_the_whole():
    sky = Weather(cpu={"a": Forecast(0.9, 0.1, "mean", 9, 0.0)})
    estimate, _ = decided(sky=sky)
    assert check(estimate, Outcome(3, 0.1, 0.0, ())).inside is None


def test_a_result_is_verified_by_digest_and_iteration():
    reference = Reference(10, "ab" * 32)
    assert reference.check(10, "ab" * 32)
    assert not reference.check(9, "ab" * 32)
    assert not reference.check(10, "cd" * 32)
    assert not Reference(10, "").check(10, "")


@pytest.mark.parametrize(("bandwidth", "taught"), [(1e12, False), (1e9, True)])
def test_a_border_that_hardly_matters_teaches_nothing_of_links(bandwidth, taught):
    """Two hosts on a fast network wait for their CPUs, not for a border of some microseconds."""
    information = pool(HOSTS, {("local", "local"): Link(1e-9, bandwidth)}, learned=recall(*APP))
    coordinator = Coordinator(information)
    coordinator.execute(minimum_execution_time)
    estimate = coordinator.decision_log.chosen
    count, longest = estimate.iterations, estimate.iteration_seconds
    times = tuple(
        HostTimes(h.host.name, h.compute_seconds * count, 0.2 * longest * count, 0.0)
        for h in estimate.hosts
    )
    remember(check(estimate, Outcome(count, longest * count, 0.1, times)), information)
    assert (overlap() != 1.0) == taught


def test_a_host_alone_has_no_drag_and_teaches_none():
    for hosts in ("ab", "ac"):
        learn(*APP, RunObservation(hosts, straggler_factor=1.5))
    assert recall(*APP).straggler_factor == pytest.approx(1.5)
    information = pool(HOSTS[:1], LINKS, learned=recall(*APP))
    coordinator = Coordinator(information)
    coordinator.execute(minimum_execution_time)
    estimate = coordinator.decision_log.chosen
    plain = pool(HOSTS[:1], LINKS).model.iteration_seconds(estimate.schedule)
    assert estimate.iteration_seconds == pytest.approx(plain)
    count = estimate.iterations
    times = (HostTimes("a", plain * count, 0.0, 0.0, plain * count),)
    remember(check(estimate, Outcome(count, 1.2 * plain * count, 0.1, times)), information)
    assert recall(*APP).straggler_factor == pytest.approx(1.5)
    assert recall(*APP).slowdown["a"] == pytest.approx(1.0)


EVEN, UNEVEN = (333, 667), (800, 200)  # b has two slots


@pytest.mark.parametrize(("rows", "drag"), [(EVEN, 1.3), (UNEVEN, 1.0)], ids=["even", "uneven"])
def test_drag_is_where_somebody_else_can_be_late(rows, drag):
    """Where all wait for one host nobody drags; what is waited for may be computing or a border."""
    plain = planned(rows, LINKS)[0].iteration_seconds
    learn(*APP, RunObservation(straggler_factor=1.3))
    assert planned(rows, LINKS)[0].iteration_seconds / plain == pytest.approx(drag, rel=0.01)


@pytest.mark.parametrize(
    ("rows", "learned"), [(EVEN, 1.184), (UNEVEN, 1.0)], ids=["even", "uneven"]
)
def test_drag_is_learned_where_somebody_else_can_be_late(rows, learned):
    world = World(processor=True, wait=True, late=0.355, slowdown=(1, 1), overlap=1.0)
    estimate, information = planned(rows, LINKS)
    remember(check(estimate, world.run(estimate, information)), information)
    assert recall(*APP).straggler_factor == pytest.approx(learned, rel=0.01)


def test_a_run_in_which_nobody_could_be_late_denies_no_drag():
    learn(*APP, RunObservation(straggler_factor=1.3))
    world = World(processor=True, wait=True, late=0.0, slowdown=(1, 1), overlap=1.0)
    estimate, information = planned(UNEVEN, LINKS)
    outcome = world.run(estimate, information)
    remember(check(estimate, replace(outcome, seconds=0.999 * outcome.seconds)), information)
    assert recall(*APP).straggler_factor == pytest.approx(1.3)


def test_borders_longer_than_those_that_taught_the_overlap_are_not_hidden_like_them():
    """A link that collapses costs what it costs, however well its borders were hidden before."""
    world = World(processor=True, wait=True, late=0.0, slowdown=(1, 1), overlap=0.1, links=SLOW)
    for _ in range(3):
        estimate, information = planned((500, 500), SLOW)
        remember(check(estimate, world.run(estimate, information)), information)
    assert overlap() == pytest.approx(0.1)
    ends = planned((500, 500), SLOW)[0].schedule.resources
    hidden = information.model.communication(ends)[0]
    collapsed = {pair: Link(link.latency, link.bandwidth / 40) for pair, link in SLOW.items()}
    now = planned((500, 500), collapsed)[1].model.communication(ends)[0]
    assert now > 0.45 * 40 * hidden / 0.1 - 10 * hidden
    longer = World(
        processor=True, wait=True, late=0.0, slowdown=(1, 1), overlap=0.5, links=collapsed
    )
    for _ in range(12):
        estimate, information = planned((500, 500), collapsed)
        result = check(estimate, longer.run(estimate, information))
        remember(result, information)
    assert result.off == pytest.approx(0.0, abs=0.05)
    assert overlap() == pytest.approx(0.5, rel=0.1)


def test_a_set_with_short_borders_forgets_nothing_of_long_ones():
    """Three hosts of one site ran after five of two: sets across the sites were then predicted 20 % too slow."""
    for links, hidden in ((SLOW, 0.3), (LINKS, 0.8)):
        world = World(
            processor=True, wait=True, late=0.0, slowdown=(1, 1), overlap=hidden, links=links
        )
        for _ in range(8):
            estimate, information = planned((500, 500), links)
            remember(check(estimate, world.run(estimate, information)), information)
    for links, hidden in ((SLOW, 0.3), (LINKS, 0.8)):
        _, information = planned((500, 500), links)
        ends = estimate.schedule.resources
        cost = information.model.communication(ends)[0]
        assert cost == pytest.approx(
            hidden * pool(HOSTS, links).model.communication(ends)[0], rel=0.05
        )


def test_a_strip_that_is_computed_in_no_time_teaches_no_pace():
    """What an iteration costs beside its rows made the host of a few rows look 34 times slower."""
    estimate, information = planned((990, 10), LINKS)
    world = World(processor=True, wait=True, late=0.0, slowdown=(1.0, 34.0))
    remember(check(estimate, world.run(estimate, information)), information)
    assert recall(*APP).slowdown == pytest.approx({"a": 1.0})


def test_a_border_that_was_given_too_long_is_not_believed_for_the_waiting_it_made():
    """A plan that gives borders too long makes whoever has them wait: the iteration is as long as it said."""
    estimate, information = planned((400, 600), SLOW)
    border = float(information.model.communication(estimate.schedule.resources)[0])
    iteration = estimate.iteration_seconds
    count = estimate.iterations
    times = tuple(
        HostTimes(
            one.host.name,
            (iteration - border) * count,
            0.5 * border * count,
            0.5 * border * count,
            (iteration - border) * count,
        )
        for one in estimate.hosts
    )
    outcome = Outcome(count, iteration * count, 0.0, times)
    assert border > 0.2 * iteration
    remember(check(estimate, outcome), information)
    assert overlap() == pytest.approx(0.5)


def test_a_large_straggler_factor_is_not_believed_from_one_set_of_hosts():
    """A lab with a slow link taught a factor of 2.74, and every other set was then off by half."""
    for _ in range(4):
        learn(*APP, RunObservation(("a", "b"), straggler_factor=2.7))
        assert recall(*APP).straggler_factor == pytest.approx(1.3)
    learn(*APP, RunObservation(("b", "c"), straggler_factor=2.0))
    assert recall(*APP).straggler_factor == pytest.approx(2.0)


EAST, WEST, SITES = "east", "west", {"east": "ab", "west": "cd"}
CAMPUS = [
    Host(name, site=site, seconds_per_point=1e-9)
    for site, names in SITES.items()
    for name in names
]
LISTED = {
    (EAST, EAST): Link(1e-5, 1e9),
    (WEST, WEST): Link(1e-5, 1e9),
    (EAST, WEST): Link(1e-3, 1e8),
    (WEST, EAST): Link(1e-3, 1e8),
}


class Campus:
    """Two sites whose link is not what the list says, and a program that measures its borders."""

    def __init__(self, latency, bandwidth, late=0.0):
        self.latency, self.bandwidth, self.late = latency, bandwidth, late

    def transfers(self, hosts, size):
        """Return the seconds of each border: those that cross share the link between the sites."""
        crossing = [a.site != b.site for a, b in pairwise(hosts)]
        far = self.latency + sum(crossing) * size / self.bandwidth
        return [far if crosses else 1e-5 + size / 1e9 for crosses in crossing]

    def run(self, estimate, information):
        hosts, count = estimate.schedule.resources, estimate.iterations
        ideal = pool(CAMPUS, LISTED, grid=information.application.columns).model
        compute = ideal.computation(hosts, np.array(estimate.schedule.rows, dtype=float))
        steps = self.transfers(hosts, information.application.border_bytes)
        border = np.maximum([0.0, *steps], [*steps, 0.0])
        longest = float((compute + border).max() * (1.0 + self.late))
        times = tuple(
            HostTimes(h.name, c * count, b * count, (longest - c - b) * count, c * count)
            for h, c, b in zip(hosts, compute.tolist(), border.tolist(), strict=True)
        )
        size = int(information.application.border_bytes)
        borders = tuple(
            BorderTimes((a.name, b.name), size, s, self.latency if a.site != b.site else 1e-5)
            for (a, b), s in zip(pairwise(hosts), steps, strict=True)
        )
        return Outcome(count, longest * count, 0.1, times, borders=borders)


def planned_on_campus(names, grid=1000, weather=None):
    information = pool(CAMPUS, LISTED, grid=grid, learned=recall(*APP), weather=weather)
    chosen = [information.hosts[name] for name in names]
    rows = [grid // len(chosen)] * (len(chosen) - 1)
    rows.append(grid - sum(rows))
    allocations = (Allocation(h, r, "") for h, r in zip(chosen, rows, strict=True))
    return Coordinator(information).estimate(Schedule(tuple(allocations))), information


def off_on_campus(world, names, grid=1000):
    estimate, information = planned_on_campus(names, grid)
    return check(estimate, world.run(estimate, information)).off


@pytest.mark.parametrize("bandwidth", [1e6, 5e6, 2e7, 1e8])
@pytest.mark.parametrize("taught_by", ["abcd", "ac", "bd", "acbd"])
def test_what_one_set_measured_of_a_link_predicts_every_other_set_that_uses_it(
    bandwidth, taught_by
):
    world = Campus(latency=2e-4, bandwidth=bandwidth)
    estimate, information = planned_on_campus(taught_by)
    remember(check(estimate, world.run(estimate, information)), information)
    for names in ("ac", "bd", "abc", "abcd", "bacd", "acb", "acbd"):
        assert off_on_campus(world, names) == pytest.approx(0.0, abs=0.03), names
    assert recall(*APP).straggler_factor == pytest.approx(1.0, abs=0.01)


def test_what_rectangles_measured_of_a_link_predicts_strips_that_use_it():
    """Two columns of two: a and b of one site at the left, c and d of the other at the right."""
    latency, bandwidth, count = 2e-4, 5e6, 100
    information = pool(CAMPUS, LISTED, grid=1000, learned=recall(*APP))
    schedule = equal_blocks([information.hosts[name] for name in "acbd"], information)
    tiles = {one.host.name: one.rectangle for one in schedule.allocations}
    assert [tiles[name].first_column for name in "abcd"] == [0, 0, 500, 500]
    estimate = Coordinator(information).estimate(schedule)
    # The two borders between the sites share their link; a point is 8 bytes.
    far, near = latency + 2 * 500 * 8 / bandwidth, 1e-5 + 500 * 8 / 1e9
    assert set(estimate.borders) == {("a", "b"), ("c", "d"), ("a", "c"), ("b", "d")}
    borders = tuple(
        BorderTimes(pair, 4000, *((far, latency) if pair[1] > "b" > pair[0] or pair == ("b", "d")
                                  else (near, 1e-5)))
        for pair in estimate.borders
    )  # fmt: skip
    compute = [one.compute_seconds for one in estimate.hosts]
    longest = max(compute) + far
    times = tuple(
        HostTimes(one.host.name, c * count, far * count, (longest - c - far) * count, c * count)
        for one, c in zip(estimate.hosts, compute, strict=True)
    )
    outcome = Outcome(count, longest * count, 0.1, times, borders=borders)
    remember(check(estimate, outcome), information)
    measured = recall(*APP).links.of(information.hosts["b"], information.hosts["d"])
    assert (measured.latency, measured.bandwidth) == pytest.approx((latency, bandwidth), rel=0.01)
    assert off_on_campus(Campus(latency, bandwidth), "ac") == pytest.approx(0.0, abs=0.03)


def test_a_border_of_another_size_is_predicted_from_the_latency_and_bandwidth_measured():
    world = Campus(latency=5e-3, bandwidth=5e6)
    estimate, information = planned_on_campus("abcd", 1000)
    remember(check(estimate, world.run(estimate, information)), information)
    assert off_on_campus(world, "abcd", 4000) == pytest.approx(0.0, abs=0.03)


def test_lateness_is_no_link_and_a_link_is_no_lateness():
    world = Campus(latency=1e-5, bandwidth=2e8, late=0.2)
    estimate, information = planned_on_campus("abcd")
    remember(check(estimate, world.run(estimate, information)), information)
    measured = recall(*APP).links.of(*(information.hosts[name] for name in "bc"))
    assert measured.bandwidth == pytest.approx(2e8)
    assert off_on_campus(world, "abcd") == pytest.approx(0.0, abs=0.01)


def test_a_set_that_ran_is_late_as_it_was_and_other_sets_at_most_as_one_set_is_believed():
    world = Campus(latency=1e-5, bandwidth=2e8, late=0.6)
    estimate, information = planned_on_campus("abcd")
    remember(check(estimate, world.run(estimate, information)), information)
    assert off_on_campus(world, "abcd") == pytest.approx(0.0, abs=0.01)
    assert recall(*APP).straggler_factor == pytest.approx(1.3)
    assert off_on_campus(world, "ac") == pytest.approx(1.6 / 1.3 - 1, abs=0.05)


def test_a_link_that_is_forecast_to_have_collapsed_is_not_what_it_was_measured_to_be():
    world = Campus(latency=1e-9, bandwidth=5e7)
    estimate, information = planned_on_campus("ac")
    remember(check(estimate, world.run(estimate, information)), information)
    ends, before = information.hosts["a"], planned_on_campus("ac")[1].model
    ends = (ends, information.hosts["c"])
    for factor, expected in ((0.9, 1.0), (1 / 40, 40.0)):  # noise, and a collapse
        bandwidth = Forecast(1e8 * factor, 0.0, "mean", 9, 0.0)
        sky = Weather(bandwidth={("a", "c"): bandwidth, ("c", "a"): bandwidth})
        now = planned_on_campus("ac", weather=sky)[1].model
        cost = now.communication(ends)[0] / before.communication(ends)[0]
        assert cost == pytest.approx(expected, rel=0.02)


def test_the_static_view_knows_nothing_of_what_runs_measured():
    world = Campus(latency=2e-4, bandwidth=1e6)
    estimate, information = planned_on_campus("abcd")
    paper = information.model.communication(estimate.schedule.resources)
    remember(check(estimate, world.run(estimate, information)), information)
    static = planned_on_campus("abcd")[1].with_weather(None).model
    assert static.communication(estimate.schedule.resources) == pytest.approx(paper)


# --------------------------------------------------------------------------- learned shares
HALF = Weather(cpu={h.name: Forecast(0.5, 0.02, "mean", 40, 0.0) for h in HOSTS})


def runs_at(share, times, sky=HALF, blueprint=minimum_execution_time):
    """Run under a sky where hosts really get `share`; return how far the last prediction was off."""
    world = World(processor=True, wait=True, late=0.0, slowdown=(1, 1), overlap=1.0, share=share)
    off = None
    for _ in range(times):
        information = pool(HOSTS, LINKS, weather=sky, learned=recall(*APP))
        coordinator = Coordinator(information)
        coordinator.execute(blueprint)
        estimate = coordinator.decision_log.chosen
        result = check(estimate, world.run(estimate, information))
        remember(result, information)
        off = result.off
    return off


@pytest.mark.parametrize(
    "blueprint", [minimum_execution_time, compile_time, all_resources, blocked]
)
def test_the_share_that_runs_got_is_learned_in_a_few_runs_whatever_the_method(blueprint):
    assert runs_at(0.75, 1) == pytest.approx(0.5 / 0.75 - 1, abs=0.02)
    assert abs(runs_at(0.75, 9, blueprint=blueprint)) < 0.03
    learned = recall(*APP)
    assert learned.slowdown == pytest.approx({"a": 1.0, "b": 1.0})
    assert learned.straggler_factor == pytest.approx(1.0, abs=0.01)


def test_no_share_above_its_quota_is_learned():
    """Beside waits at borders a rank computes faster than its quota: what it did not use comes back."""
    names = [host.name for host in HOSTS]
    limited = replace(
        HALF,
        cpu_quota={name: Forecast(0.5, 0.0, "mean", 40, 0.0) for name in names},
        quota_period={name: Forecast(0.01, 0.0, "mean", 40, 0.0) for name in names},
    )
    for _ in range(6):
        runs_at(0.9, 1, sky=limited)
        model = pool(HOSTS, LINKS, weather=limited, learned=recall(*APP)).model
        assert [model.share_bias.get(name, 1.0) for name in names] == pytest.approx([1.0, 1.0])
    for _ in range(4):
        runs_at(0.3, 1, sky=limited)
    model = pool(HOSTS, LINKS, weather=limited, learned=recall(*APP)).model
    assert model.share_bias["a"] < 0.8


def test_a_static_plan_knows_no_share_that_runs_taught():
    runs_at(0.75, 3)
    information = pool(HOSTS, LINKS, weather=HALF, learned=recall(*APP))
    assert information.model.share_bias
    assert information.with_weather(None).model.share_bias == {}


def test_what_was_learned_of_a_share_says_nothing_of_another_load():
    runs_at(0.75, 8)
    alone = Weather(cpu={h.name: Forecast(0.9, 0.02, "mean", 40, 0.0) for h in HOSTS})
    assert pool(HOSTS, LINKS, weather=HALF, learned=recall(*APP)).model.share_bias["a"] > 1.3
    assert pool(HOSTS, LINKS, weather=alone, learned=recall(*APP)).model.share_bias == {}


def test_no_process_is_believed_to_get_more_than_a_cpu():
    information = pool(HOSTS, LINKS, weather=HALF)
    rows = np.array([500.0, 500.0])
    model = replace(information.model, share_bias={"a": 3.0})
    whole = replace(information.model, share_bias={"a": 2.0})
    assert model.computation(HOSTS, rows) == pytest.approx(whole.computation(HOSTS, rows))


def test_runs_that_were_too_fast_teach_no_straggler_factor_below_one():
    estimate, information = decided()
    count, seconds = estimate.iterations, estimate.iteration_seconds
    times = tuple(
        HostTimes(h.host.name, h.compute_seconds * count, 0.0, 0.0) for h in estimate.hosts
    )
    remember(check(estimate, Outcome(count, 0.5 * seconds * count, 0.1, times)), information)
    assert recall(*APP).straggler_factor == 1.0
