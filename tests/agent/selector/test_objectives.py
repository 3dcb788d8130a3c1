"""The set chosen under each objective, against every ordered subset; starts, queues and the user's own metric."""

import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from commands import files, refused
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import best_of_all_ordered_subsets, cost_bound, paper_border
from worlds import ROOMY, pool, random_world, symmetric

from apples import Coordinator, Host, Link, NoFeasiblePlanError, RecordingActuator, UsageError
from apples.agent import recall, remember_start, users_metric, with_queue
from apples.launch import Fitness, Outcome, SshActuator, behind_a_queue
from apples.resources import Allocation, HostList, Schedule
from blueprints import minimum_execution_time

BY_COST = '[objective]\nmeasure = "cost"\n'
OWN = '[objective]\nmeasure = "{file}:metric"\nbetter = "{better}"\n'


def chosen(information, **subsystems):
    coordinator = Coordinator(information, **subsystems)
    coordinator.execute(minimum_execution_time)
    return coordinator.decision_log.chosen


def of_hosts(information):
    """Return rates, starts and waits of the hosts as arrays."""
    hosts = information.hosts.hosts
    return (
        np.array([h.cost_per_second for h in hosts]),
        np.array([h.start_seconds or 0.0 for h in hosts]),
        np.array([h.queue_seconds or 0.0 for h in hosts]),
    )


def turnaround(information):
    _, starts, waits = of_hosts(information)
    iterations = information.application.iterations
    return lambda seconds, chains: (
        iterations * seconds + starts[chains].max(axis=1) + waits[chains].max(axis=1)
    )


def cost(information):
    rates, starts, _ = of_hosts(information)
    iterations = information.application.iterations
    return lambda seconds, chains: (
        rates[chains].sum(axis=1) * (iterations * seconds + starts[chains].max(axis=1))
    )


JUDGES = {"execution_time": turnaround, "speedup": turnaround, "cost": cost}
worlds = st.tuples(st.integers(0, 2**32 - 1), st.integers(1, 5), st.booleans(), st.booleans())


def drawn(world, user):
    seed, count, capped, priced = world
    return random_world(
        np.random.default_rng(seed), count, capped=capped, priced=priced, user=user
    )


@pytest.mark.parametrize("measure", JUDGES)
@given(worlds)
@settings(max_examples=examples(15), deadline=None)
def test_no_ordered_subset_is_better_by_the_objective(measure, world):
    drawn_world = drawn(world, f'[objective]\nmeasure = "{measure}"\n')
    information = drawn_world.information
    judge = JUDGES[measure](information)
    w = drawn_world
    best = best_of_all_ordered_subsets(w.p, paper_border(w.pair), w.cap, w.total, judge)
    if np.isinf(best):
        with pytest.raises(NoFeasiblePlanError):
            chosen(information)
        return
    estimate = chosen(information)
    found = estimate.cost if measure == "cost" else estimate.turnaround_seconds
    assert best * (1 - 1e-9) <= found <= best * 1.01 + 1e-12


def near_and_far(iterations=100, user="", far_start=5.0, **options):
    near = Host("near", seconds_per_point=1e-8, cost_per_second=1.0, free_memory=ROOMY)
    far = Host(
        "far",
        site="s",
        seconds_per_point=1e-9,
        cost_per_second=1.0,
        start_seconds=far_start,
        free_memory=ROOMY,
    )
    links = symmetric({("local", "s"): Link(0.05, 1e8)})
    return pool([near, far], links, grid=1000, iterations=iterations, user=user, **options)


@pytest.mark.parametrize("measure", JUDGES)
def test_a_short_run_does_not_go_to_a_fast_host_that_starts_late(measure):
    user = f'[objective]\nmeasure = "{measure}"\n'
    assert chosen(near_and_far(10, user)).names == ("near",)  # 0.1 s here, 5.01 s there
    assert chosen(near_and_far(10, user, far_start=0.0)).names == ("far",)
    long = chosen(near_and_far(100_000, user))
    assert long.names == ("far",)
    assert long.start_seconds == 5.0
    assert long.execution_seconds == pytest.approx(100_000 * 1e-3)
    assert long.turnaround_seconds == long.start_seconds + long.execution_seconds
    assert long.cost == pytest.approx(5.0 + 100.0)


def test_many_late_hosts_are_left_out_together():
    """Dropping one of several late hosts gains nothing: only without all of them does the run begin sooner."""
    for near, far in ((4, 8), (40, 80)):
        hosts = [Host(f"n{i}", seconds_per_point=2e-9, free_memory=ROOMY) for i in range(near)]
        hosts += [
            Host(f"f{i}", seconds_per_point=1e-9, start_seconds=3.0, free_memory=ROOMY)
            for i in range(far)
        ]
        links = {("local", "local"): Link(1e-6, 1e10)}
        short = chosen(pool(hosts, links, grid=4000, iterations=100))
        assert {name[0] for name in short.names} == {"n"}
        long = chosen(pool(hosts, links, grid=4000, iterations=1_000_000))
        assert {name[0] for name in long.names} == {"n", "f"}


def queued(wait, iterations):
    """Return a pool of two time-shared hosts and two behind a queue, which are twice as fast."""
    hosts = [Host(f"t{i}", seconds_per_point=2e-9, free_memory=ROOMY) for i in range(2)]
    hosts += [
        Host(f"q{i}", seconds_per_point=1e-9, queue_seconds=wait, free_memory=ROOMY)
        for i in range(2)
    ]
    links = {("local", "local"): Link(1e-6, 1e10)}
    return pool(hosts, links, grid=2000, iterations=iterations)


def test_a_set_may_span_time_shared_hosts_and_a_queue_where_the_wait_pays():
    now = chosen(queued(60.0, 10))
    assert ({n[0] for n in now.names}, now.wait_seconds) == ({"t"}, 0.0)
    both = chosen(queued(60.0, 1_000_000))
    assert ({n[0] for n in both.names}, both.wait_seconds) == ({"t", "q"}, 60.0)
    assert both.turnaround_seconds == 60.0 + both.execution_seconds


def metric_file(tmp_path, body, better="lower"):
    file = tmp_path / "metrics.py"
    file.write_text(f"def metric(estimate):\n    {body}\n")
    return OWN.format(file=file, better=better)


@given(worlds)
@settings(max_examples=examples(10), deadline=None)
def test_no_ordered_subset_is_better_by_the_users_own_metric(tmp_path_factory, world):
    """Time squared times money: neither the quickest set nor the cheapest."""
    body = "return estimate.turnaround_seconds**2 * (1.0 + estimate.cost)"
    user = metric_file(tmp_path_factory.mktemp("own"), body)
    w = drawn(world, user)
    information = w.information

    def judge(seconds, chains):
        time, money = turnaround(information), cost(information)
        return time(seconds, chains) ** 2 * (1.0 + money(seconds, chains))

    best = best_of_all_ordered_subsets(w.p, paper_border(w.pair), w.cap, w.total, judge)
    if np.isinf(best):
        with pytest.raises(NoFeasiblePlanError):
            chosen(information)
        return
    assert best * (1 - 1e-9) <= chosen(information).value <= best * 1.01


def test_a_metric_may_be_the_higher_the_better(tmp_path):
    user = metric_file(tmp_path, "return -estimate.cost", "higher")
    w = random_world(np.random.default_rng(4), 6, priced=True, user=user)
    by_cost = random_world(
        np.random.default_rng(4), 6, priced=True, user='[objective]\nmeasure = "cost"\n'
    )
    ours, theirs = chosen(w.information), chosen(by_cost.information)
    assert ours.cost == pytest.approx(theirs.cost, rel=1e-9)
    assert ours.value == ours.cost  # what is minimised


@pytest.mark.more
@pytest.mark.parametrize("count", [40])
def test_a_metric_of_time_and_cost_finds_their_optimum_among_many_hosts(tmp_path, count):
    plain = {"execution_time": "turnaround_seconds", "cost": "cost"}
    for measure, attribute in plain.items():
        user = metric_file(tmp_path, f"return estimate.{attribute}")
        own = random_world(np.random.default_rng(5), count, grid=1000, priced=True, user=user)
        ours = random_world(
            np.random.default_rng(5),
            count,
            grid=1000,
            priced=True,
            user=f'[objective]\nmeasure = "{measure}"\n',
        )
        asked, known = chosen(own.information), chosen(ours.information)
        assert getattr(asked, attribute) <= getattr(known, attribute) * 1.1


@pytest.mark.parametrize(
    ("body", "code", "line", "value"),
    [
        ("return 1 / 0", "user-code-failed", 2, "ZeroDivisionError"),
        ("return float('nan')", "objective-invalid", 1, "nan"),
        ("return 'much'", "objective-invalid", 1, "'much'"),
        ("return True", "objective-invalid", 1, "True"),
        ("return None", "objective-invalid", 1, "None"),
        ("return 10**400", "user-code-failed", 1, "OverflowError"),
        ("return [1.0,\n            2.0]", "objective-invalid", 1, "[1.0, 2.0]"),
        ("raise ValueError('this\\nand that')", "user-code-failed", 2, "ValueError"),
        ("raise SystemExit(0)", "user-code-failed", 2, "SystemExit"),
    ],
)
def test_a_metric_without_a_number_is_named_with_its_file_and_line(
    tmp_path, body, code, line, value
):
    with pytest.raises(UsageError) as caught:
        chosen(near_and_far(user=metric_file(tmp_path, body)))
    fields = caught.value.fields
    assert (caught.value.exit_code, caught.value.code) == (2, code)
    assert (fields["file"], fields["line"]) == (str(tmp_path / "metrics.py"), line)
    assert fields["kind" if code == "user-code-failed" else "value"] == value
    assert code == "user-code-failed" or fields["hosts"] == ["near"]
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("body", ["while True: pass", "__import__('time').sleep(60)"])
def test_a_metric_that_takes_for_ever_is_ended_and_named_and_the_callers_alarm_goes_on(
    tmp_path, body
):
    own = near_and_far(user=metric_file(tmp_path, body)).specifications.objective
    value = users_metric(own, seconds=0.05)
    estimate = chosen(near_and_far())
    of_the_tests = signal.setitimer(signal.ITIMER_REAL, 1e6)
    try:
        with pytest.raises(UsageError) as caught:
            value(estimate)
        assert 9e5 < signal.getitimer(signal.ITIMER_REAL)[0] <= 1e6
    finally:
        signal.setitimer(signal.ITIMER_REAL, *of_the_tests)
    assert (caught.value.exit_code, caught.value.code) == (2, "user-code-timeout")
    fields = caught.value.fields
    assert (fields["file"], fields["line"]) == (str(tmp_path / "metrics.py"), 2)
    assert fields["seconds"] == 0.05


def test_a_metric_that_is_a_partial_is_named_with_the_line_of_its_function(tmp_path):
    (tmp_path / "metrics.py").write_text(
        "from functools import partial\n\n\ndef scaled(factor, estimate):\n    return 'much'\n\n\n"
        "score = partial(scaled, 2.0)\n"
    )
    user = f'[objective]\nmeasure = "{tmp_path}/metrics.py:score"\nbetter = "lower"\n'
    with pytest.raises(UsageError) as caught:
        chosen(near_and_far(user=user))
    assert caught.value.code == "objective-invalid"
    assert (caught.value.fields["file"], caught.value.fields["line"]) == (
        str(tmp_path / "metrics.py"),
        4,
    )


def test_a_metric_may_be_of_an_importable_module(tmp_path, monkeypatch):
    (tmp_path / "prices").mkdir()
    (tmp_path / "prices" / "__init__.py").write_text("")
    (tmp_path / "prices" / "spot.py").write_text("def of(estimate): return estimate.cost\n")
    monkeypatch.syspath_prepend(tmp_path)
    user = '[objective]\nmeasure = "prices.spot:of"\nbetter = "{}"\n'
    assert chosen(near_and_far(10, user.format("lower"))).names == ("near",)
    assert "far" in chosen(near_and_far(10, user.format("higher"))).names


@pytest.mark.parametrize("place", ["metrics.py", "metrics"])
@pytest.mark.parametrize("command_line", ["plan", "run"])
@pytest.mark.parametrize("blueprint", ["minimum_execution_time", "redistribute"])
def test_a_wrong_metric_ends_a_command_with_one_line_and_code_2(
    tmp_path, monkeypatch, place, command_line, blueprint
):
    words = files(tmp_path, user=OWN.format(file=place, better="lower"))
    (tmp_path / "metrics.py").write_text("def metric(estimate): return estimate.price\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    failure = refused(
        "apples", command_line, *words, "--weather", "static", "--blueprint", blueprint
    )
    assert (failure["exit_code"], failure["code"]) == (2, "user-code-failed")
    fields = failure["fields"]
    assert fields["objective"] == f"{place}:metric"
    assert (Path(fields["file"]).name, fields["line"]) == ("metrics.py", 1)
    assert fields["kind"] == "AttributeError"


def test_a_start_that_was_learned_keeps_the_next_short_run_near(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    def decided(iterations=10, launcher="ssh"):  # 0.1 s of computing near, 0.01 s far
        information = replace(near_and_far(iterations, far_start=None), launcher=launcher)
        information = replace(information, learned=recall(information.learned_key))
        return chosen(information), information

    def happened(names, seconds):
        first, information = decided()
        hosts = [information.hosts[name] for name in names]
        allocations = tuple(Allocation(host, 1000 // len(hosts), "") for host in hosts)
        ran = replace(first, schedule=Schedule(allocations))
        remember_start(ran, Outcome(10, 0.1, seconds, ()), information)

    assert decided()[0].names == ("far",)  # nothing is known of starts
    for _ in range(3):  # the second run of a host tests the first one's start
        happened(["near"], 0.2)
        happened(["far"], 5.0)
    short, _ = decided()
    assert (short.names, short.start_seconds) == (("near",), pytest.approx(0.2, rel=0.5))
    long, _ = decided(100_000)
    assert (long.names, long.start_seconds) == (("far",), pytest.approx(5.0, rel=0.5))
    assert decided(launcher="slurm")[0].names == ("far",)


def test_a_limit_holds_under_the_users_metric(tmp_path):
    user = metric_file(tmp_path, "return estimate.cost") + "[constraints]\ndeadline = 0.5\n"
    assert chosen(near_and_far(100, user)).names == ("far",)
    user = metric_file(tmp_path, "return -len(estimate.hosts)") + (
        "[constraints]\nmaximum_cost = 1.5\n"
    )
    assert chosen(near_and_far(100, user)).names == ("near",)


def test_a_launcher_that_does_not_queue_waits_for_nothing_and_a_plan_goes_by_the_list():
    class Starts(RecordingActuator):
        only_plans = False

    information = queued(60.0, 10)
    assert chosen(information, actuator=RecordingActuator()).names[0][0] == "t"
    at_once = chosen(information, actuator=Starts())
    assert ({n[0] for n in at_once.names}, at_once.wait_seconds) == ({"t", "q"}, 0.0)


class Queue(RecordingActuator):
    """Says of each set what the queue says of it, and remembers that it was asked."""

    only_plans = False

    def __init__(self, seconds):
        super().__init__()
        self.seconds, self.asked = seconds, []

    def waited_for(self, hosts):
        return behind_a_queue(hosts)

    def wait_seconds(self, plan):
        names = tuple(sorted(s.host.name for s in plan.strips if s.host.queue_seconds is not None))
        self.asked.append(names)
        return self.seconds(names)


@pytest.mark.parametrize(
    ("waits", "kinds"),
    [
        (lambda _: 0.0, {"t", "q"}),
        (lambda _: 3600.0, {"t"}),
        (lambda names: 3600.0 * (len(names) > 1), {"t", "q0"}),
    ],
)
@pytest.mark.parametrize("listed", [0.0, 60.0, 1e6])
def test_what_the_queue_says_stands_above_what_the_list_expects(waits, kinds, listed, monkeypatch):
    monkeypatch.delenv("SLURM_JOB_NODELIST", raising=False)
    queue = Queue(waits)
    information = with_queue(queued(listed, 1000), queue)
    assert queue.asked == [("q0",), ("q1",)]
    found = chosen(information, actuator=queue)
    assert all(any(name.startswith(kind) for name in found.names) for kind in kinds)
    assert ("q0" in found.names and "q1" in found.names) == ("q" in kinds)
    assert found.wait_seconds == 0.0
    assert len(set(queue.asked[2:])) == len(queue.asked[2:])  # about no set twice


def test_sets_without_a_queue_are_compared_however_many_sets_would_wait(monkeypatch):
    monkeypatch.delenv("SLURM_JOB_NODELIST", raising=False)
    hosts = [Host("near", seconds_per_point=1e-8, free_memory=ROOMY)]
    hosts += [
        Host(f"q{i}", seconds_per_point=1e-9, queue_seconds=0.0, free_memory=ROOMY)
        for i in range(10)
    ]
    information = pool(hosts, {("local", "local"): Link(1e-6, 1e10)}, grid=2000, iterations=100)
    assert chosen(information, actuator=Queue(lambda _: 3600.0)).names == ("near",)
    both = chosen(information, actuator=Queue(lambda _: 0.001))
    assert both.wait_seconds == 0.001


def test_the_nodes_of_an_allocation_that_is_held_are_waited_for_no_more(monkeypatch):
    for name in ("SLURM_JOB_NODELIST", "SLURM_NODELIST"):
        monkeypatch.delenv(name, raising=False)
    information = queued(3600.0, 10)
    assert [host.name for host in behind_a_queue(information.hosts)] == ["q0", "q1"]
    monkeypatch.setenv("SLURM_JOB_NODELIST", "q[1-3]")
    assert [host.name for host in behind_a_queue(information.hosts)] == ["q0"]
    queue = Queue(lambda _: 3600.0)
    assert set(chosen(with_queue(information, queue), actuator=queue).names) == {"t0", "t1", "q1"}
    assert queue.asked[0] == ("q0",)


def test_a_queue_that_cannot_be_asked_is_said_once_and_its_hosts_are_left_out(monkeypatch):
    monkeypatch.delenv("SLURM_JOB_NODELIST", raising=False)
    monkeypatch.setenv("PATH", "/nonexistent")
    lines = []
    actuator = RecordingActuator(SshActuator(talk=lines.append))
    information = queued(0.0, 10)
    information = information.with_findings({n: Fitness(n, ()) for n in ("t0", "t1")})
    estimate = chosen(with_queue(information, actuator), actuator=actuator)
    assert {name[0] for name in estimate.names} == {"t"}
    assert len([line for line in lines if "q0, q1" in line]) == 1


@pytest.mark.more
def test_no_set_of_many_hosts_costs_much_more_than_the_bound():
    """The bound is below every set (held against all of them on few hosts); the search is near it.

    It counts parts of hosts, which here, where a few hold the grid, is up to a seventh below any whole ones.
    """
    for seed, count, sites in ((0, 5, 2), (1, 5, 1), (2, 4, 4), (3, 120, 1), (4, 120, 8)):
        w = random_world(
            np.random.default_rng(seed), count, grid=2000, sites=sites, user=BY_COST, priced=True
        )
        hosts = [replace(h, start_seconds=0.0, queue_seconds=None) for h in w.hosts]
        information = w.information.with_hosts(HostList(tuple(hosts), w.information.hosts.network))
        rates, _, _ = of_hosts(information)
        numbers = np.array([int(h.site[1:]) for h in hosts])
        same = numbers[:, None] == numbers[None, :]
        pair = w.pair + np.diag(np.full(count, 1e9))
        inner = np.minimum(np.where(same, pair, 1e9).min(axis=1), 1e9)
        outer = np.where(same, 1e9, pair).min(axis=1)
        bound = cost_bound(w.p, inner, outer, numbers, w.cap.astype(float), rates, w.total)
        bound *= information.application.iterations
        if count <= 5:
            best = best_of_all_ordered_subsets(
                w.p, paper_border(w.pair), w.cap, w.total, cost(information)
            )
            assert bound <= best * (1 + 1e-9)
        else:
            assert bound * (1 - 1e-9) <= chosen(information).cost <= 1.15 * bound


def test_cheap_hosts_are_taken_from_few_of_many_sites():
    """Each host holds a little of the grid, and a border out of a site takes as long as computing there."""
    random, count, sites, grid = np.random.default_rng(0), 600, 30, 20_000
    seconds, cpu = 10 ** random.uniform(-9, -8, count), random.uniform(0.2, 1, count)
    rates = 10 ** random.uniform(-1, 1, count)
    free = 16 * grid * (grid * 0.03 * random.uniform(0.5, 1.5, count) + 2)
    hosts = [
        Host(
            f"h{i}", site=f"s{i % sites}", seconds_per_point=float(seconds[i]), cpu=float(cpu[i]),
            free_memory=int(free[i]), cost_per_second=float(rates[i]),
        )
        for i in range(count)
    ]  # fmt: skip
    links = {
        (f"s{a}", f"s{b}"): Link(5e-5, 1e9) if a == b else Link(5e-3, 1e8)
        for a in range(sites)
        for b in range(a + 1)
    }
    information = pool(hosts, symmetric(links), grid=grid, user=BY_COST)
    model, site = information.model, np.array([int(h.site[1:]) for h in hosts])
    inner, outer = (float(model.borders(hosts[0], [hosts[k]])[0]) for k in (sites, 1))
    bound = cost_bound(
        model.seconds_per_row(hosts, grid), np.full(count, inner), np.full(count, outer), site,
        model.caps(hosts, grid).astype(float), rates, grid, ratio=1.01,
    )  # fmt: skip
    assert chosen(information).cost <= 1.08 * bound * information.application.iterations
