"""Slow hosts: simulated report streams with known truth, false alarms and detections counted; causes; moves."""

import numpy as np
import pytest

from apples import RunSpec, run
from apples.agent import PlannedHost, SlowHostDetector, slow_host_text
from apples.jobs import run_page, run_record, run_text
from apples.launch import HostTimes, Progress

PLANNED = 0.02
ITERATIONS = 10
"""Of one report."""


class Stream:
    """Reports of hosts that all are planned to compute for `PLANNED` seconds an iteration.

    Parameters
    ----------
    noise
        Standard deviation of the logarithm of a report's mean.
    tails
        Whether one report in fifty is longer by a Pareto-distributed factor.
    memory
        Correlation of the noise of a report with that of the one before, as of load that comes and goes.
    sawtooth
        Relative swing of the first host from report to report, as under a quota whose period is longer.
    plan, hosts_plan
        How many times longer than planned all hosts take, and the spread of that between hosts.
    """

    def __init__(
        self, seed, hosts=0, *, noise=0.1, memory=0.0, tails=False, sawtooth=0.0, plan=1.0,
        hosts_plan=0.0,
    ):  # fmt: skip
        self.random = np.random.default_rng(seed)
        self.count = hosts or int(self.random.integers(2, 7))
        self.names = [f"h{k}" for k in range(self.count)]
        self.noise, self.memory, self.tails, self.sawtooth = noise, memory, tails, sawtooth
        self.usual = PLANNED * plan * self.random.lognormal(0, hosts_plan, self.count)
        self.period = int(self.random.integers(2, 6))

    def detector(self, **planned):
        return SlowHostDetector({name: PlannedHost(PLANNED, **planned) for name in self.names})

    def reports(self, count, slow_from=None, factor=2.0, until=10**9, total=None):
        """Yield reports; the first host is slower by a factor in those after `slow_from`."""
        computed, seconds, swing = np.zeros(self.count), 0.0, np.zeros(self.count)
        for k in range(1, count + 1):
            fresh = self.random.normal(0, self.noise, self.count)
            swing = self.memory * swing + np.sqrt(1 - self.memory**2) * fresh
            each = self.usual * np.exp(swing)
            if self.tails:
                long = self.random.random(self.count) < 0.02
                each = np.where(long, each * (1 + self.random.pareto(1.2, self.count)), each)
            each[0] *= 1 + self.sawtooth * (1 if k // self.period % 2 else -1)
            if slow_from is not None and slow_from < k <= until:
                each[0] *= factor
            computed += ITERATIONS * each
            seconds += ITERATIONS * each.max()
            times = tuple(map(HostTimes, self.names, computed.tolist(), [0.0] * self.count))
            yield Progress(ITERATIONS * k, ITERATIONS * (total or count), seconds, times)


def named(detector, reports):
    """Return the number of the report by which each host was named."""
    return [
        (number, one.host)
        for number, report in enumerate(reports, 1)
        for one in detector.observe(report)
    ]


QUIET = [
    {"noise": 0.05}, {"noise": 0.3}, {"noise": 0.1, "tails": True}, {"noise": 0.3, "tails": True},
    {"noise": 0.1, "sawtooth": 0.4}, {"noise": 0.15, "memory": 0.8}, {"noise": 0.1, "tails": True, "plan": 3.0},
    {"noise": 0.1, "tails": True, "plan": 0.4}, {"noise": 0.1, "tails": True, "hosts_plan": 0.1},
]  # fmt: skip


@pytest.mark.parametrize("world", QUIET)
def test_at_most_one_quiet_run_in_a_hundred_names_a_host(world):
    """100 runs of 120 reports each: noise, heavy tails, a sawtooth, and plans that are wrong for all hosts."""
    runs = 100
    alarms = 0
    for seed in range(runs):
        stream = Stream(seed, **world)
        alarms += bool(named(stream.detector(), stream.reports(120)))
    assert alarms <= runs / 100


@pytest.mark.parametrize(
    "world", [one for one in QUIET if not {"plan", "hosts_plan"} & one.keys()]
)
def test_a_host_twice_as_slow_is_named_within_ten_reports(world):
    runs, detected = 100, 0
    for seed in range(runs):
        stream = Stream(1000 + seed, **world)
        begin = int(stream.random.integers(12, 60))
        found = named(stream.detector(), stream.reports(begin + 10, begin))
        detected += any(host == "h0" and number > begin for number, host in found)
    assert detected >= 95


def test_a_host_that_is_slow_from_the_start_is_named_after_the_warm_up():
    stream = Stream(1, 3)
    found = named(stream.detector(), stream.reports(12, 0))
    assert [host for _, host in found] == ["h0"]
    assert found[0][0] <= 10


def test_two_slow_hosts_are_both_named():
    detector = SlowHostDetector({name: PlannedHost(0.1) for name in "abcd"})
    reports = [
        Progress(k, 60, 0.2 * k, tuple(
            HostTimes(name, 0.1 * (k + (max(0, k - 10) if name in "ab" else 0)), 0.0)
            for name in "abcd"
        ))
        for k in range(1, 30)
    ]  # fmt: skip
    assert {host for _, host in named(detector, reports)} == {"a", "b"}


def test_the_cost_is_what_the_host_adds_to_an_iteration_and_to_the_rest_of_the_run():
    stream = Stream(3, 4, noise=0.01)
    detector = stream.detector()
    named(detector, stream.reports(40, 20, total=100))
    (one,) = detector.slow_now
    assert one.factor == pytest.approx(2.0, rel=0.05)
    assert one.since_iteration == pytest.approx(200, abs=ITERATIONS)
    assert one.iteration_cost_seconds == pytest.approx(PLANNED, rel=0.1)
    assert one.costs_seconds == one.iteration_cost_seconds * (1000 - one.since_iteration)
    (ended,) = detector.ended(400)
    assert ended.costs_seconds == one.iteration_cost_seconds * (400 - one.since_iteration)


def test_a_slow_host_that_delays_nobody_is_not_named():
    detector = SlowHostDetector({"a": PlannedHost(0.1), "b": PlannedHost(0.01)})
    reports = [
        Progress(
            k,
            60,
            0.1 * k,
            (HostTimes("a", 0.1 * k, 0.0), HostTimes("b", 0.01 * (k + max(0, k - 10)), 0.0)),
        )
        for k in range(1, 60)
    ]
    assert named(detector, reports) == []


def test_a_host_that_recovers_keeps_its_entry_with_an_end_and_can_be_slow_again():
    stream = Stream(5, 3, noise=0.05)
    detector = stream.detector()
    named(detector, stream.reports(60, 20, until=40))
    (one,) = detector.findings
    assert detector.slow_now == ()
    assert one.until_iteration == pytest.approx(400, abs=2 * ITERATIONS)
    assert one.costs_seconds == one.iteration_cost_seconds * (
        one.until_iteration - one.since_iteration
    )
    assert "in all" in slow_host_text(one.document())


def cause_of(quiet, slow, hosts=("a", "b", "c"), **planned):
    """Return the cause of the first host's slowness: its sums of an iteration before, and from report 20 on."""
    detector = SlowHostDetector({name: PlannedHost(0.1, **planned) for name in hosts})
    sums = {name: dict.fromkeys(quiet, 0.0) for name in hosts}
    for k in range(1, 40):
        for name in hosts:
            for field, value in (slow if name == hosts[0] and k > 20 else quiet).items():
                sums[name][field] += value
        times = tuple(
            HostTimes(
                name,
                **{
                    field: round(value) if field == "major_faults" else value
                    for field, value in sums[name].items()
                },
            )
            for name in hosts
        )
        detector.observe(Progress(k, 100, 0.3 * k, times))
    found = [one for one in detector.findings if one.host == hosts[0]]
    return found[0].cause if found else None


BUSY = {"compute_seconds": 0.1, "communicate_seconds": 0.0, "processor_seconds": 0.1}
KERNEL = {**BUSY, "cpu_wait_seconds": 0.0, "throttled_seconds": 0.0, "major_faults": 0.0}


@pytest.mark.parametrize(
    ("quiet", "slow", "cause"),
    [
        (BUSY, {**BUSY, "compute_seconds": 0.2}, "other load"),
        (BUSY, {**BUSY, "compute_seconds": 0.2, "processor_seconds": 0.2}, "own work"),
        (KERNEL, {**KERNEL, "compute_seconds": 0.2, "cpu_wait_seconds": 0.1}, "other load"),
        (KERNEL, {**KERNEL, "compute_seconds": 0.2, "throttled_seconds": 0.1}, "quota"),
        (KERNEL, {**KERNEL, "compute_seconds": 0.2, "major_faults": 50.0}, "paging"),
        (KERNEL, {**KERNEL, "compute_seconds": 0.2}, "stalls"),
        (
            {**BUSY, "wait_seconds": 0.0, "communicate_seconds": 0.02},
            {**BUSY, "wait_seconds": 0.0, "communicate_seconds": 0.15},
            "link",
        ),
        (
            {**KERNEL, "wait_seconds": 0.0, "communicate_seconds": 0.02},
            {**KERNEL, "wait_seconds": 0.0, "communicate_seconds": 0.15, "cpu_wait_seconds": 0.13},
            "other load",
        ),
    ],
)
def test_the_cause_is_what_accounts_for_the_time_lost(quiet, slow, cause):
    assert cause_of(quiet, slow) == cause


def test_borders_that_take_longer_everywhere_are_no_slow_host():
    """The ranks of an overloaded machine exchange late, all of them."""
    detector = SlowHostDetector({name: PlannedHost(0.1, 0.01) for name in "abc"})
    reports = [
        Progress(k, 60, 0.5 * k, tuple(
            HostTimes(name, 0.1 * k, 0.01 * k + 0.3 * max(0, k - 15), 0.0) for name in "abc"
        ))
        for k in range(1, 60)
    ]  # fmt: skip
    assert named(detector, reports) == []


def test_a_program_without_processor_time_has_a_slow_host_without_a_cause():
    quiet = {"compute_seconds": 0.1, "communicate_seconds": 0.0}
    assert cause_of(quiet, {**quiet, "compute_seconds": 0.2}) == "unknown"


def test_processor_time_at_a_listed_quota_is_a_quota():
    quiet = {**BUSY, "processor_seconds": 0.1}
    slow = {**BUSY, "compute_seconds": 0.2, "processor_seconds": 0.1}
    assert cause_of(quiet, slow, quota=0.5) == "quota"


def test_a_host_alone_is_slow_beside_its_own_beginning():
    assert cause_of(BUSY, {**BUSY, "compute_seconds": 0.25}, hosts=("a",)) == "other load"
    wrong = {name: 3 * value for name, value in BUSY.items()}  # the plan is wrong, not the host
    assert cause_of(wrong, wrong, hosts=("a",)) is None


def test_after_a_move_hosts_are_judged_by_their_new_rows():
    names = ("a", "b")
    detector = SlowHostDetector({name: PlannedHost(0.1, rows=10) for name in names})
    detector.rescale({"a": 10, "b": 10})
    detector.rescale({"a": 25, "b": 10})
    reports = [
        Progress(k, 60, 0.25 * k, (HostTimes("a", 0.25 * k, 0.0), HostTimes("b", 0.1 * k, 0.0)))
        for k in range(1, 40)
    ]
    assert named(detector, reports) == []
    detector.replan({name: PlannedHost(0.1, rows=10) for name in names})
    assert [host for _, host in named(detector, reports)] == ["a"]


def test_other_hosts_and_times_that_begin_again_are_no_slow_hosts():
    stream = Stream(7, 3)
    detector = stream.detector()
    assert named(detector, stream.reports(30)) == []
    assert named(detector, stream.reports(30)) == []
    assert named(detector, Stream(8, 2).reports(30)) == []


def test_reports_of_a_tick_are_merged():
    detector = SlowHostDetector({name: PlannedHost(1e-6) for name in "ab"})
    reports = [
        Progress(
            k, 10**4, 3e-6 * k, (HostTimes("a", 3e-6 * k, 0.0), HostTimes("b", 1e-6 * k, 0.0))
        )
        for k in range(1, 2000)
    ]
    assert named(detector, reports) == []


PROGRAM = """
import time
import numpy as np
from apples.program import Task

SLOW_FROM, SECONDS_PER_ROW = 300, 1e-4

with Task() as task:
    u = np.zeros((len(task.strip), task.parameters["grid"]))
    for i in task.iterations():
        factor = 3 if task.host == "bob" and i >= SLOW_FROM else 1
        end = time.thread_time() + factor * SECONDS_PER_ROW * len(task.strip)
        while time.thread_time() < end:
            pass
        task.allreduce(1.0)
    task.result(u)
"""
FILES = {
    "hosts.toml": "".join(
        f'[[host]]\nname = "{name}"\nseconds_per_point = 1e-6\n\n' for name in ("ada", "bob")
    ),
    "template.toml": """
name = "spin"
program = ["{python}", "program.py"]
[parameters.grid]
default = 100
[parameters.iterations]
default = 540
""",
    "user.toml": '[constraints]\nminimum_hosts = 2\n[preferences]\nplanner = "blocked"\n',
    "program.py": PROGRAM,
}


@pytest.mark.mpi
@pytest.mark.slow
def test_a_run_names_the_host_whose_rows_take_more_work_in_result_log_and_record(
    tmp_path, monkeypatch
):
    """Six seconds: a report comes four times a second, and a host is named after some of them."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    files = (tmp_path / f"{name}.toml" for name in ("hosts", "template", "user"))
    said = []
    result = run(RunSpec(*files, weather="static", verify=False), talk=said.append)
    # Other processes of this machine may slow ada down as well.
    (slow,) = (one for one in result.slow_hosts if one.host == "bob")
    assert slow.cause == "own work"
    assert 2.2 < slow.factor < 12  # three, and more where bob waits for a CPU
    assert 200 < slow.since_iteration < 400
    assert slow.costs_seconds == slow.iteration_cost_seconds * (540 - slow.since_iteration)
    assert [line for line in said if line.startswith("slow host bob")]
    document = run_record(result.record).document
    assert slow.document() in document["execution"]["slow_hosts"]
    assert "slow host bob" in run_text(document, "")
    assert "Slow host bob" in run_page(document)
    events = [one for one in run_record(result.record).events if one["event"] == "slow-host"]
    assert "bob" in [one["host"] for one in events]
