"""The monitor's snapshots as series: their names, what is left out, and a service that is away."""

import math

from hypothesis import given
from hypothesis import strategies as st
from waiting import until

from apples.weather import LoadReporter, LoadSeries, NodeSnapshot, ProcessCapacity
from nws import SeriesName, ServiceError
from nws.measurement import checked_amount


def snapshot(time, seconds, jobs=("0000abcd",), host="ada", rank=3):
    used = ProcessCapacity(1, seconds, 4096)
    return NodeSnapshot(
        host, time, 2, {"": 1.0, **dict.fromkeys(jobs, 0.5)}, {"memory": 0.5},
        dict.fromkeys(jobs, used), {(job, rank): used for job in jobs},
    )  # fmt: skip


def named(measurements):
    return {str(one.series): one.value for one in measurements}


def test_a_snapshot_is_a_value_of_each_of_its_series_and_processor_time_a_rate():
    series = LoadSeries()
    first, second = (
        series.measurements(snapshot(10.0, 1.0)),
        series.measurements(snapshot(12.0, 2.5)),
    )
    assert "usedCpus/ada/0000abcd" not in named(first)
    assert named(second) == {
        "capacityCpu/ada": 0.625, "capacityMemory/ada": 0.5, "wantedCpus/ada": 1.5,
        "wantedCpus/ada/0000abcd": 0.5, "usedMemory/ada/0000abcd": 4096.0, "usedCpus/ada/0000abcd": 0.75,
        "usedMemory/ada/0000abcd.rank3": 4096.0, "usedCpus/ada/0000abcd.rank3": 0.75,
    }  # fmt: skip
    assert {one.time for one in second} == {12.0}
    fewer = named(series.measurements(snapshot(14.0, 0.5)))  # a process of then is gone
    assert "usedCpus/ada/0000abcd" not in fewer
    assert series.problem == ""


def test_two_snapshots_of_nearly_one_time_are_no_rate():
    series = LoadSeries()
    series.measurements(snapshot(0.0, 0.0))
    assert "usedCpus/ada/0000abcd" not in named(series.measurements(snapshot(1e-320, 1e15)))


def test_what_has_no_name_for_a_series_is_left_out_and_named():
    series = LoadSeries()
    found = named(series.measurements(snapshot(10.0, 1.0, ["a/b", "good"])))
    assert "wantedCpus/ada/good" in found
    assert not [name for name in found if "a/b" in name]
    assert "'a/b" in series.problem


@given(st.lists(st.lists(st.text("ab./\x1b", max_size=3), max_size=4), max_size=20))
def test_whatever_jobs_are_called_names_are_names_values_are_values_and_there_are_not_many(worlds):
    series, names = LoadSeries(12), set()
    for time, jobs in enumerate(worlds):
        for one in series.measurements(snapshot(float(time), time / 2, jobs)):
            names.add(str(SeriesName.parse(str(one.series))))
            assert math.isfinite(checked_amount(str(one.series), one.value))
    assert len(names) <= 12
    if len({job for jobs in worlds for job in jobs} - {""}) > 12:
        assert series.problem


class Service:
    """Takes what it is sent, while it is there."""

    def __init__(self):
        self.there, self.kept = False, []

    def store(self, measurements):
        if not self.there:
            raise ServiceError("it does not answer", transient=True)
        self.kept += measurements
        return {"refused": []}


def test_while_the_service_is_away_a_line_says_so_once_and_then_it_gets_all():
    service, said = Service(), []
    reporter = LoadReporter(service, 0.01, said.append)
    for time in range(5):
        reporter.hear(snapshot(float(time), 1.0))
    until(lambda: said)
    service.there = True
    until(lambda: said[-1] == "")
    reporter.hear(snapshot(9.0, 1.0))
    reporter.close()
    assert len(said) == 2
    assert said[0].startswith("it does not answer")
    assert said[1] == ""
    times = [one.time for one in service.kept if str(one.series) == "capacityCpu/ada"]
    assert times == [0.0, 1.0, 2.0, 3.0, 4.0, 9.0]
