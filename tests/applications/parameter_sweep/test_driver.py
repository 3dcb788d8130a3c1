"""A sweep driven to its end on a simulated clock, whatever tasks take, however they fail and whoever is lost."""

import numpy as np
import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from sweep_worlds import sweep_world

from apples import Host, HostList, LaunchError, Link, Network
from apples.applications import (
    HEURISTICS,
    InputFile,
    ParameterSweep,
    SimulatedSweepExecutor,
    SiteCache,
    SweepDriver,
    SweepTask,
    TaskEnded,
    plan_sweep,
    sweep_costs,
)
from apples.weather import Conditions
from nws import Weather


class CheckedExecutor(SimulatedSweepExecutor):
    """Refuses what no real executor could do, and notes what was started."""

    def __init__(self, costs, compute=None, present=(), **more):
        super().__init__(costs, compute, **more)
        self.started, self.busy, self.links = [], set(), set()
        self.costs, self.whole = costs, set(present)
        for file in costs.sweep.files:
            for k, cache in enumerate(costs.caches):
                if not costs.missing[costs.sweep.numbers[file.name], k]:
                    self.whole.add((file.name, cache.name))

    def start(self, task, lane):
        cache = self.costs.caches[self.costs.cache_of_lane[lane]].name
        inputs = next(t for t in self.costs.sweep.tasks if t.name == task).inputs
        assert all((file, cache) in self.whole for file in inputs), "started before its files came"
        assert lane not in self.busy, "two tasks on a lane"
        self.busy.add(lane)
        self.started.append((task, lane))
        super().start(task, lane)

    def stop(self, task, lane):
        self.busy.remove(lane)
        super().stop(task, lane)

    def move(self, file, cache):
        assert (file, cache) not in self.whole, "moved twice"
        link = self.link(file, cache)
        assert link not in self.links, "two files on a link"
        self.links.add(link)
        super().move(file, cache)

    def link(self, file, cache):
        k = [each.name for each in self.costs.caches].index(cache)
        return self.costs.source[self.costs.sweep.numbers[file]], self.costs.site[k]

    def events(self, until):
        found = super().events(until)
        for event in found:
            if isinstance(event, TaskEnded):
                self.busy.discard(event.lane)
            elif hasattr(event, "file"):
                self.links.discard(self.link(event.file, event.cache))
                self.whole.add((event.file, event.cache))
        return found


def small(tasks, hosts=2, seconds=1.0, files=(), slots=1):
    listed = tuple(Host(f"h{n}", seconds_per_point=seconds, slots=slots) for n in range(hosts))
    network = Network({}, Link(0, 1.0), {host.name: host.site for host in listed})
    caches = (SiteCache("local", tuple(host.name for host in listed)),)
    sweep = ParameterSweep(tuple(tasks), tuple(files))
    return sweep_costs(sweep, caches, Conditions(HostList(listed, network), Weather()))


@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.0, 0.3, 1.0]),
    st.sampled_from([*[{name: rule} for name, rule in HEURISTICS.items()], HEURISTICS, None]),
    st.booleans(),
)
@settings(max_examples=examples(25), deadline=None)
def test_every_task_is_acknowledged_once_whatever_it_takes_and_whoever_is_lost(
    seed, error, rules, losing
):
    generator = np.random.default_rng(seed)
    world = sweep_world(generator, sites=2, hosts=(1, 3), tasks=12, files=4, inputs=2)
    costs = world.costs
    compute = costs.compute * np.exp(generator.normal(0, error, costs.compute.shape))
    hosts = list(dict.fromkeys(costs.hosts))
    lost = {hosts[0]: float(generator.uniform(0, 200))} if losing and len(hosts) > 1 else {}
    heard = []
    executor = CheckedExecutor(costs, compute, lost=lost)
    if lost:  # what a lost host was at is nobody's any more
        executor.stop = lambda task, lane: (
            executor.busy.discard(lane),
            SimulatedSweepExecutor.stop(executor, task, lane),
        )
    driver = SweepDriver(costs, executor, acknowledge=heard.append, heuristics=rules)
    outcome = driver.run()
    assert sorted(each.task for each in heard) == sorted(task.name for task in world.sweep.tasks)
    assert outcome.done.keys() == {each.task for each in heard}
    assert not outcome.failed
    assert not executor.busy or lost


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=examples(10), deadline=None)
def test_where_forecasts_hold_a_run_takes_what_was_planned_and_no_longer(seed):
    world = sweep_world(np.random.default_rng(seed), sites=3, hosts=(1, 3), tasks=20, files=5)
    outcome = SweepDriver(world.costs, CheckedExecutor(world.costs), every=1e9).run()
    assert outcome.seconds <= plan_sweep(world.costs).plan.makespan * (1 + 1e-9)


def test_a_straggler_is_started_once_more_and_the_first_to_end_counts():
    costs = small([SweepTask("t"), SweepTask("u")])
    compute = np.array(
        [[100.0, 1.0], [1.0, 1.0]]
    )  # t on h0, where it is put, takes a hundred times as long
    executor = CheckedExecutor(costs, compute)
    outcome = SweepDriver(costs, executor).run()
    assert outcome.replicas == 1
    assert outcome.done["t"].lane == 1
    assert outcome.seconds < 10


def test_a_slow_host_is_found_out_before_its_first_task_ends():
    costs = small([SweepTask(f"t{n}") for n in range(20)])
    compute = costs.compute.copy()
    compute[0] *= 50
    outcome = SweepDriver(costs, CheckedExecutor(costs, compute), every=4).run()
    assert outcome.seconds < 25  # nine each would take 500
    assert outcome.plans > 1


def test_an_overdue_task_tells_of_its_host_so_that_a_plan_far_off_is_not_waited_for():
    costs = small([SweepTask(f"t{n}", 1 + n % 7 / 10) for n in range(80)], hosts=3, slots=4)
    compute = costs.compute.copy()
    compute[:4] *= 20
    outcome = SweepDriver(costs, CheckedExecutor(costs, compute), every=200).run()
    assert (
        outcome.seconds < 18
    )  # 21.6 where the first end on that host is waited for; 13 is the least


def test_a_task_that_fails_is_tried_on_another_host_and_then_given_up_with_its_last_words():
    costs = small([SweepTask("t"), SweepTask("u"), SweepTask("v")])
    failing = {("t", "h0"): "no", ("u", "h0"): "never", ("u", "h1"): "never"}
    executor = CheckedExecutor(costs, failing=failing)
    outcome = SweepDriver(costs, executor).run()
    assert set(outcome.done) == {"t", "v"}
    assert outcome.failed.keys() == {"u"}
    assert outcome.failed["u"].endswith(": never")
    assert sum(task == "u" for task, _ in executor.started) == 2


@pytest.mark.parametrize("broken", [1, 2])
def test_a_host_on_which_every_task_fails_is_named_with_its_first_reason(broken):
    costs = small([SweepTask(f"t{k}") for k in range(9)], hosts=3)
    failing = {
        (f"t{k}", f"h{h}"): f"ModuleNotFoundError: m{h}" for k in range(9) for h in range(broken)
    }
    failing |= {("t0", "h2"): "once"}
    failing |= {("t1", "h0"): "ModuleNotFoundError: m0"}
    words = []
    driver = SweepDriver(
        costs, CheckedExecutor(costs, failing=failing), attempts=4, talk=words.append
    )
    outcome = driver.run()
    assert outcome.failing == {f"h{h}": f"ModuleNotFoundError: m{h}" for h in range(broken)}
    assert sum("first task that failed" in line and line.startswith("h0") for line in words) == 1


def test_copies_of_a_task_that_fails_late_do_not_take_turns_in_failing():
    costs = small([SweepTask("t"), SweepTask("u")])
    compute = costs.compute.copy()
    compute[:, 0] = 50.0
    failing = {("t", "h0"): "late", ("t", "h1"): "late"}
    executor = CheckedExecutor(costs, compute, failing=failing)
    assert SweepDriver(costs, executor).run().failed.keys() == {"t"}
    assert sum(task == "t" for task, _ in executor.started) <= 3


def test_what_was_acknowledged_is_not_started_again_and_what_has_come_not_moved_again():
    store = Host("store", site="far")
    hosts = HostList((store, Host("h0", seconds_per_point=1.0)), Network({}, Link(0, 1.0), {}))
    sweep = ParameterSweep(
        (SweepTask("t", 1.0, ("f",)), SweepTask("u", 1.0, ("f",))), (InputFile("f", 5.0, "store"),)
    )
    costs = sweep_costs(sweep, (SiteCache("local", ("h0",)),), Conditions(hosts, Weather()))
    present = {("f", "local")}
    executor = CheckedExecutor(costs, present=present)
    done = {"t": TaskEnded("t", 0, 1.0)}
    outcome = SweepDriver(costs, executor, done=done, present=frozenset(present)).run()
    assert executor.started == [("u", 0)]
    assert outcome.moves == 0
    assert outcome.done.keys() == {"t", "u"}


def test_a_sweep_whose_last_host_is_lost_ends_with_the_reason():
    costs = small([SweepTask("t", 100.0)])
    with pytest.raises(LaunchError) as raised:
        SweepDriver(costs, CheckedExecutor(costs, lost={"h0": 1.0, "h1": 2.0})).run()
    assert raised.value.code == "hosts-lost"
    assert raised.value.fields["lost"] == {"h0": "simulated", "h1": "simulated"}
    assert raised.value.fields["host"] == "h1"
