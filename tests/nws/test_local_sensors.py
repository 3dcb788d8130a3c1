import logging
import os
import subprocess
import sys
from contextlib import ExitStack

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from nws import (
    CpuSensor,
    FreeMemorySensor,
    InputError,
    ProbeCorrection,
    ReplaySensor,
    Runnable,
    RunQueueSample,
    SchedulingGroup,
    SensorError,
    SeriesName,
    probe_share,
    spin,
    spin_command,
)

MACHINE = {
    "sys/devices/system/cpu/online": "0-3\n",
    "proc/meminfo": "MemTotal: 4096 kB\nMemAvailable: 2048 kB\n",
    "proc/self/mountinfo": "29 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
    "proc/self/cgroup": "0::/job\n",
}


class Clock:
    def __init__(self, now=0.0):
        self.now = now

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


def look_of(count, cpus=range(4)):
    """Return a look that finds so many processes that want to run, each in a group of its own."""
    threads = {
        tid: Runnable(frozenset(cpus), groups=(SchedulingGroup(f"session {tid}"),))
        for tid in range(count)
    }
    return RunQueueSample(threads, count)


def cpu_sensor(root, queue, cpus=(1,), probe=None, **options):
    clock = options.pop("clock", Clock())
    where = cpus if len(cpus) == 1 else range(4)
    return CpuSensor(
        "ada",
        cpus,
        look=options.pop("look", lambda: look_of(queue() if callable(queue) else queue, where)),
        probe=probe,
        clock=clock,
        sleep=clock.sleep,
        root=root,
        **options,
    )


def values(sensor):
    available, current, others, *_ = (measurement.value for measurement in sensor.measure())
    return pytest.approx((available, current, others), abs=1e-9)


@pytest.mark.parametrize(
    ("cpus", "competitors", "expected"),
    [
        ([1], 0, (1.0, 1.0, 0)),
        ([1], 1, (0.5, 1.0, 1)),
        ([1], 4, (0.2, 0.25, 4)),
        ([0, 1, 2, 3], 3, (1.0, 1.0, 3)),
        ([0, 1, 2, 3], 7, (0.5, 4 / 7, 7)),
    ],
)
def test_without_a_probe_the_run_queue_decides(tree, cpus, competitors, expected):
    assert values(cpu_sensor(tree(MACHINE), competitors, cpus)) == expected


def test_the_series_are_named_after_the_host(tree):
    sensor = cpu_sensor(tree(MACHINE), 0)
    names = ["availableCpu", "currentCpu", "competitors", "crowding", "spareCpus"]
    names += ["cpuQuota", "quotaPeriod"]
    names = [f"{name}/ada" for name in names]
    assert [str(series) for series in sensor.series] == names


def test_who_wants_to_run_for_a_part_of_the_time_counts_for_that_part(tree):
    readings = iter([0, 3, 0, 3])
    clock = Clock()
    sensor = cpu_sensor(
        tree(MACHINE), lambda: next(readings), readings=4, spacing=0.02, clock=clock
    )
    available, _, others, *_ = sensor.measure()
    assert available.value == pytest.approx(1 / (1 + 1.5))
    assert others.value == pytest.approx(1.5)
    assert available.time == clock.now == pytest.approx(0.06)


def test_a_probe_corrects_what_the_run_queue_cannot_see(tree):
    niced = cpu_sensor(tree(MACHINE), 3, probe=lambda _: 0.95)
    assert values(niced) == (0.95, 1.0, 1 / 0.95 - 1)
    hidden = cpu_sensor(tree(MACHINE), 0, probe=lambda _: 0.5)
    assert values(hidden) == (0.5, 1.0, 1.0)


def test_the_correction_outlives_its_probe_and_is_smoothed_into_the_next(tree):
    clock = Clock()
    answers = iter([0.8, 0.6])
    often = {"probe": lambda _: next(answers), "probe_every": 60.0, "gain": 0.25}
    sensor = cpu_sensor(tree(MACHINE), 1, readings=1, clock=clock, **often)
    seen = []
    for clock.now in (0.0, 30.0, 59.0, 60.0, 90.0):
        seen.append(sensor.measure()[0].value)
    assert seen == pytest.approx([0.8, 0.8, 0.8, 0.75, 0.75])  # .5 + (.3 + .25 * (.1 - .3))
    assert sensor.bias == pytest.approx(0.25)


def test_a_correction_of_before_is_its_first_probe(tree):
    clock, probes = Clock(130.0), []
    before = ProbeCorrection(-0.1, 100.0)
    often = {"probe": lambda _: probes.append(clock.now) or 0.5, "probe_every": 60.0, "gain": 0.25}
    sensor = cpu_sensor(tree(MACHINE), 1, readings=1, clock=clock, correction=before, **often)
    assert sensor.measure()[0].value == pytest.approx(0.4)
    assert sensor.correction == before
    clock.now = 160.0
    assert sensor.measure()[0].value == pytest.approx(
        0.425
    )  # of -.1 and 0, the newest by a quarter
    assert probes == [160.0]
    assert sensor.correction == ProbeCorrection(pytest.approx(-0.075), 160.0, 0.5)


@pytest.mark.parametrize(("before", "after", "probed"), [(0, 1, 0.4), (1, 0, 0.9), (2, 1, 0.4)])
def test_a_correction_is_forgotten_when_a_competitor_comes_or_leaves(tree, before, after, probed):
    clock, queue = Clock(), iter([before, after, after])
    answers = iter([0.3, probed])
    sensor = cpu_sensor(
        tree(MACHINE), lambda: next(queue), probe=lambda _: next(answers), readings=1, clock=clock
    )
    sensor.measure()
    clock.now = 10.0
    assert sensor.measure()[0].value == pytest.approx(probed)
    clock.now = 20.0
    assert sensor.measure()[0].value == pytest.approx(probed)  # of this load: it holds


def test_a_remembered_correction_of_another_load_is_forgotten(tree):
    of_idle = ProbeCorrection(-0.3, 95.0, 1.0)
    sensor = cpu_sensor(
        tree(MACHINE), 1, probe=lambda _: 0.5, correction=of_idle, readings=1, clock=Clock(100.0)
    )
    assert sensor.measure()[0].value == 0.5
    assert sensor.correction == ProbeCorrection(0.0, 100.0, 0.5)


def test_a_load_that_flaps_is_probed_every_few_seconds_not_at_each_change(tree):
    clock, queue, probes = Clock(), iter([0, 1] * 30), []
    sensor = cpu_sensor(
        tree(MACHINE),
        lambda: next(queue),
        probe=lambda _: probes.append(clock.now) or 0.5,
        readings=1,
        clock=clock,
    )
    for clock.now in range(60):
        sensor.measure()
    assert len(probes) <= 60 / 5


@pytest.mark.parametrize(
    ("answers", "asked", "share"),
    [
        ([0.5], 1, 0.5),  # it agrees: one is enough
        ([0.2, 0.5, 0.5], 3, 0.5),  # a bad moment
        ([0.3, 0.25, 0.5], 3, 0.3),  # hidden competitors, and a lucky moment
    ],
)
def test_the_first_correction_is_the_median_of_probes_unless_the_first_agrees(
    tree, answers, asked, share
):
    left = list(answers)
    sensor = cpu_sensor(tree(MACHINE), 1, probe=lambda _: left.pop(0), probes=3, readings=1)
    assert sensor.measure()[0].value == pytest.approx(share)
    assert len(answers) - len(left) == asked


def test_sensors_of_one_machine_share_their_looks(tree):
    looks = []

    def look():
        looks.append(look_of(1, (1,)))
        return looks[-1]

    first = cpu_sensor(tree(MACHINE), 0, (1,), look=look, readings=3)
    second = cpu_sensor(tree(MACHINE), 0, (2,), look=look, readings=3, shares_samples_of=first)
    assert values(first) == (0.5, 1.0, 1)
    assert values(second) == (1.0, 1.0, 0)
    assert len(looks) == 3


def test_a_sensor_beside_one_that_could_not_look_measures_nothing(tree):
    def look():
        raise FileNotFoundError("/proc")

    first = cpu_sensor(tree(MACHINE), 0, look=look)
    second = cpu_sensor(tree(MACHINE), 0, (2,), look=look, shares_samples_of=first)
    for sensor in (first, second):
        with pytest.raises(SensorError) as raised:
            sensor.measure()
        assert raised.value.code == "system-unreadable"


def test_a_clock_that_was_set_back_does_not_stop_the_probes(tree):
    clock = Clock(1000.0)
    probes = []
    sensor = cpu_sensor(
        tree(MACHINE), 1, probe=lambda cpus: probes.append(cpus) or 0.5, readings=1, clock=clock
    )
    sensor.measure()
    clock.now = 10.0
    sensor.measure()
    assert probes == [frozenset({1})] * 2


def test_a_correction_never_leaves_zero_to_one(tree):
    clock = Clock()
    correction = ProbeCorrection(-0.5, 0.0)  # of a load that is not known
    queue = iter([0, 9, 0])
    sensor = cpu_sensor(
        tree(MACHINE),
        lambda: next(queue),
        probe=lambda _: 0.5,
        readings=1,
        clock=clock,
        correction=correction,
    )
    assert [sensor.measure()[0].value for _ in range(3)] == [0.5, 0.001, 0.5]


def test_a_probe_that_fails_costs_the_correction_not_the_measurement(tree, caplog):
    def fails(_):
        raise SensorError("a probe was not done in 10 s", transient=True)

    with caplog.at_level(logging.WARNING, logger="nws"):
        assert values(cpu_sensor(tree(MACHINE), 1, probe=fails)) == (0.5, 1.0, 1.0)
    (record,) = caplog.records
    assert "a probe was not done in 10 s" in record.getMessage()


def test_no_share_is_above_the_quota(tree):
    root = tree(
        {
            **MACHINE,
            "sys/fs/cgroup/job/cpu.max": "4000 10000\n",
            "sys/fs/cgroup/job/cpu.weight": "100\n",
        }
    )
    assert values(cpu_sensor(root, 0)) == (0.4, 0.4, 0.0)
    assert values(cpu_sensor(root, 3)) == (0.25, 1 / 3, 3.0)


def test_an_idle_machine_with_a_noisy_probe_does_not_look_contended(tree):
    sensor = cpu_sensor(tree(MACHINE), 0, cpus=[0, 1], probe=lambda _: 0.97)
    available, _, others, *_ = sensor.measure()
    assert available.value == 0.97
    assert others.value < 0.2


def times_of(ticks, stolen):
    """Return a /proc/stat whose CPU 1 did so many ticks, of which so many were stolen."""
    return f"cpu0 9 9 9 9 9 9 9 9 0 0\ncpu1 {ticks - stolen} 0 0 0 0 0 0 {stolen} 0 0\n"


@pytest.mark.parametrize("queue", [0, 3])
def test_too_few_ticks_do_not_tell_what_was_stolen(tree, queue):
    root = tree(MACHINE)
    sensor = cpu_sensor(root, queue, readings=1)
    seen = []
    for ticks, stolen in [(1000, 100), (1001, 101), (1049, 125), (1050, 125), (1051, 126)]:
        tree({"proc/stat": times_of(ticks, stolen)})
        seen.append(sensor.measure()[0].value * (1 + queue))
    # The ticks add up until they tell: 25 of 50, not 24 of 48 and 0 of 1.
    assert seen == pytest.approx([1.0, 1.0, 1.0, 0.5, 0.5])


def test_all_time_stolen_leaves_the_least_share_not_none(tree):
    root = tree({**MACHINE, "proc/stat": times_of(1000, 100)})
    sensor = cpu_sensor(root, 1, readings=1)
    sensor.measure()
    tree({"proc/stat": times_of(2000, 1100)})
    assert sensor.measure()[0].value == 0.001


def test_counters_that_went_back_are_a_new_beginning(tree):
    root = tree({**MACHINE, "proc/stat": times_of(5000, 100)})
    sensor = cpu_sensor(root, 0, readings=1)
    seen = []
    for ticks, stolen in [(5000, 100), (1000, 10), (1100, 35)]:
        tree({"proc/stat": times_of(ticks, stolen)})
        seen.append(sensor.measure()[0].value)
    assert seen == pytest.approx([1.0, 1.0, 0.75])


def test_cpus_that_are_off_or_forbidden_are_refused_at_once(tree):
    root = tree(MACHINE)
    with pytest.raises(SensorError) as off:
        cpu_sensor(root, 0, cpus=[1, 7])
    assert (off.value.transient, off.value.code) == (False, "cpu-not-allowed")
    assert off.value.fields == {"value": [7], "known": [0, 1, 2, 3]}
    tree({"sys/fs/cgroup/job/cpuset.cpus.effective": "0-1\n"})
    with pytest.raises(SensorError) as forbidden:
        cpu_sensor(root, 0, cpus=[1, 2])
    assert forbidden.value.code == "cpu-not-allowed"
    assert forbidden.value.fields == {"value": [2], "known": [0, 1]}


def test_empty_set_of_cpus_is_refused(tree):
    with pytest.raises(InputError) as raised:
        cpu_sensor(tree(MACHINE), 0, cpus=[])
    assert (raised.value.code, raised.value.fields["field"]) == ("value-range", "cpus")


def test_a_machine_without_proc_is_a_permanent_error(tmp_path):
    for measure in (
        lambda: CpuSensor("ada", [1], root=tmp_path),
        lambda: CpuSensor("ada", probe=None, root=tmp_path).measure(),
        lambda: FreeMemorySensor("ada", root=tmp_path).measure(),
    ):
        with pytest.raises(SensorError) as raised:
            measure()
        assert (raised.value.code, raised.value.transient) == ("system-unreadable", False)


def test_free_memory_is_the_lesser_of_machine_and_cgroup(tree):
    root = tree(MACHINE)
    sensor = FreeMemorySensor("ada", clock=lambda: 7.0, root=root)
    (measurement,) = sensor.measure()
    assert (str(measurement.series), measurement.time) == ("freeMemory/ada", 7.0)
    assert measurement.value == 2048 * 1024
    group = "sys/fs/cgroup/job/memory"
    tree({f"{group}.max": "1000000\n", f"{group}.current": "900000\n"})
    assert sensor.measure()[0].value == 100000


def test_a_replay_ends_for_good():
    sensor = ReplaySensor(SeriesName("availableCpu", "ada"), [(0, 1.0), (10, 0.5)])
    assert [sensor.measure()[0].value for _ in range(2)] == [1.0, 0.5]
    with pytest.raises(SensorError) as over:
        sensor.measure()
    assert (over.value.code, over.value.transient) == ("replay-ended", False)
    assert over.value.fields["series"] == "availableCpu/ada"


def test_the_probe_is_a_plain_command():
    command = spin_command({3, 1}, 0.1)
    assert command[:3] == [sys.executable, "-I", "-S"]
    assert command[3].endswith("spin.py")
    assert command[4:] == ["0.1", "1,3"]


@pytest.mark.hardware
def test_a_probe_gets_a_share_and_leaves_our_affinity_alone():
    before = os.sched_getaffinity(0)
    share = probe_share({max(before)}, seconds=0.02)
    assert 0 < share <= 1
    assert os.sched_getaffinity(0) == before


def test_a_probe_on_a_cpu_that_is_not_there_fails_for_good():
    with pytest.raises(SensorError) as failed:
        probe_share({4095}, seconds=0.02)
    assert (failed.value.code, failed.value.transient) == ("probe-failed", False)
    assert failed.value.fields["cpus"] == [4095]
    assert "OSError" in str(failed.value)


@pytest.mark.hardware
def test_a_probe_that_is_not_done_in_time_may_be_tried_again():
    with pytest.raises(SensorError) as late:
        probe_share(os.sched_getaffinity(0), seconds=5.0, deadline=0.05)
    assert (late.value.code, late.value.transient) == ("probe-timeout", True)
    assert late.value.fields["seconds"] == 0.05


def test_a_probe_that_cannot_start_may_be_tried_again(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(SensorError) as failed:
        probe_share(os.sched_getaffinity(0))
    assert (failed.value.code, failed.value.transient) == ("probe-not-started", True)


class Processor:
    """A CPU that a process has in the first `on` of every `period` seconds, from some phase on."""

    def __init__(self, on, period, phase):
        self.on, self.period, self.now, self.used = on, period, phase, 0.0

    def clock(self):
        """Look at the clock, which takes 10 us of the CPU."""
        if self.now % self.period >= self.on:
            self.now += self.period - self.now % self.period
        self.now += 1e-5
        self.used += 1e-5
        return self.now

    def time(self):
        return self.used


@given(
    share=st.floats(0.05, 0.95),
    period=st.sampled_from([0.005, 0.01, 0.02]),
    phase=st.floats(0.0, 0.02),
)
def test_a_probe_of_turns_gives_their_share_wherever_it_begins(share, period, phase):
    pause = (1 - share) * period
    assume(pause > 1.1 * spin.PAUSE)
    one = Processor(share * period, period, phase)
    assert spin.spin(0.1, one.clock, one.time) == pytest.approx(share, abs=0.005)


def test_a_burst_of_others_is_not_taken_for_turns():
    one, others = Processor(1.0, 1.0, 0.0), [0.020, 0.021, 0.022]

    def clock():
        if others and one.now >= others[0]:
            one.now += 6e-4
            others.pop(0)
        return one.clock()

    assert spin.spin(0.1, clock, one.time) == pytest.approx(1 - 3 * 6e-4 / 0.1, abs=0.002)


@pytest.mark.hardware
def test_the_probes_program_prints_the_share_it_got(capsys):
    cpus = os.sched_getaffinity(0)
    spin.main(["0.005", ",".join(map(str, cpus))])
    assert 0 <= float(capsys.readouterr().out) <= 1
    assert os.sched_getaffinity(0) == cpus


@pytest.fixture
def two_spinners():
    """Give a CPU on which two processes spin, as important as any."""
    if os.nice(0) > 0 and os.geteuid() != 0:
        pytest.skip("this run is niced: what it starts leaves nearly all to a process that is not")
    cpu = max(os.sched_getaffinity(0))
    code = f"import os; os.sched_setaffinity(0, {{{cpu}}})"
    code += "; os.setpriority(os.PRIO_PROCESS, 0, 0); print('go', flush=True)\nwhile 1: pass"
    with ExitStack() as stack:
        for _ in range(2):
            spinner = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", code], stdout=subprocess.PIPE
            )
            stack.enter_context(spinner)
            stack.callback(spinner.kill)
            assert spinner.stdout.readline() == b"go\n"
        yield cpu


@pytest.mark.hardware
@pytest.mark.parametrize("probe", [None, probe_share])
def test_two_spinning_processes_leave_clearly_less_than_a_cpu(two_spinners, probe):
    sensor = CpuSensor("ada", cpus=[two_spinners], probe=probe)
    available, current, others, *_ = (measurement.value for measurement in sensor.measure())
    assert 0 < available < 0.6
    assert available <= current <= 1
    assert others > 0.6


def look_with_neighbours(*cpus):
    """Return a look that finds free sessions on these CPUs."""
    threads = {
        tid: Runnable(frozenset(range(4)), groups=(SchedulingGroup(f"session {tid}"),), cpu=cpu)
        for tid, cpu in enumerate(cpus)
    }
    return RunQueueSample(threads, len(threads))


@pytest.mark.parametrize(
    ("probed", "expected"),
    [
        (0.5, 1.0),  # beside one that will be moved away
        (0.8, 1.0),
        (0.99, 1.0),  # no probe is that exact
        (0.3, 0.8),  # what neither explains is corrected
    ],
)
def test_a_probe_that_is_over_before_others_are_moved_corrects_nothing(tree, probed, expected):
    sensor = CpuSensor(
        "ada",
        [1],
        look=lambda: look_with_neighbours(1),
        probe=lambda _: probed,
        clock=Clock(),
        sleep=lambda _: None,
        root=tree({**MACHINE, "proc/sys/kernel/sched_autogroup_enabled": "1\n"}),
    )
    assert sensor.measure()[0].value == pytest.approx(expected)


def test_what_could_not_be_seen_is_remarked(tree):
    proc = "22 21 0:20 / /proc rw - proc proc rw,hidepid=2\n"
    root = tree({**MACHINE, "proc/self/mountinfo": MACHINE["proc/self/mountinfo"] + proc})
    sensor = cpu_sensor(root, 0, look=lambda: RunQueueSample({}, 3, unread=1))
    sensor.measure()
    unseen, unread = sensor.remarks
    assert unseen.startswith("3 ")
    assert "hidepid=2" in unseen
    assert " 1 " in unread
