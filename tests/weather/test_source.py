"""Live weather: of the service that is configured, over the frame of the run, and honest about gaps."""

import os
import time
from dataclasses import replace

import pytest
from commands import planned
from worlds import pool

from apples.agent import Coordinator, StartHooks
from apples.resources import Host, HostList, Network
from apples.weather import (
    Conditions,
    LocalSensing,
    SensingContext,
    WeatherSource,
    excess_of,
    history,
    service_settings,
    shortfall_of,
)
from blueprints import minimum_execution_time
from nws import Forecast, Interval, Measurement, SeriesName, Weather

pytestmark = pytest.mark.xdist_group("a service with two hosts")

TWO = """
[[host]]
name = "ada"
seconds_per_point = 1e-8
free_memory = "4 GB"
[[host]]
name = "bob"
seconds_per_point = 1e-8
free_memory = "4 GB"
address = "192.0.2.7"
[[host]]
name = "cyd"
seconds_per_point = 1e-8
free_memory = "4 GB"
[[link]]
between = ["local", "local"]
latency = 1e-4
bandwidth = 1e8
"""


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """Return a service that knows ada, who is going to be idle again, and bob by his address."""
    pytest.importorskip("uvicorn", reason="needs apples[service]")
    from nws import Client, Listen, Serving

    with Serving(tmp_path_factory.mktemp("nws"), Listen(port=0)) as running:
        now = time.time()
        ada = SeriesName("availableCpu", "ada")
        bob = SeriesName("availableCpu", "192.0.2.7")
        samples = [
            Measurement(series, now - 100 * (199 - step), value)  # stale five minutes from now
            for step in range(200)
            for series, value in ((ada, 0.25 + 0.5 * (step % 2)), (bob, 0.5))
        ]
        with Client(running.url, running.token) as client:
            client.store(samples)
        yield running


@pytest.fixture
def configured(service, monkeypatch, tmp_path):
    """Return what configures the service, as the environment says it."""
    token = tmp_path / "token"
    token.write_text(service.token)
    token.chmod(0o600)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("NWS_SERVICE", service.url)
    monkeypatch.setenv("NWS_TOKEN_FILE", str(token))
    return service_settings()


def test_weather_file_that_is_a_pipe_is_an_error_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.json")
    done = planned(tmp_path, "--weather", tmp_path / "pipe.json")
    assert (done.code, done.error_codes) == (2, ["file-not-regular"])


def test_live_plan_of_emulated_hosts_is_under_measured_weather(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    began = time.time()
    weather = planned(tmp_path, "--weather", "live", "--json").document["weather"]
    assert weather["kind"] == "measured"
    assert began <= weather["time"] <= time.time()


def live(folder, *more, **contents):
    asked = ("--weather", "live", "--json", "--set", "grid=1000", *more)
    return planned(folder, *asked, hosts=TWO, **contents)


def test_the_configured_service_is_planned_with_and_what_it_lacks_is_said(configured, tmp_path):
    done = live(tmp_path, "--set", "iterations=10")
    assert done.code == 0, done.err
    document = done.document
    assert document["weather"]["source"] == configured.url
    strips = {strip["host"]: strip for strip in document["chosen"]["strips"]}
    assert strips["bob"]["cpu"] == pytest.approx(0.5, abs=0.01)
    assert 0 < strips["cyd"]["cpu"] <= 1.0  # as the host list says, or what this machine gives it
    assert any("cyd" in line and configured.url in line for line in document["assumed"])


@pytest.mark.usefixtures("configured")
def test_a_long_run_is_planned_over_its_own_frame(tmp_path):
    short = live(tmp_path, "--set", "iterations=10").document
    long = live(tmp_path, "--set", "iterations=100000").document
    assert short["weather"]["over"] is None
    assert long["weather"]["over"] == pytest.approx(long["chosen"]["execution_seconds"], rel=0.5)
    cpu = {s["host"]: s["cpu"] for s in long["chosen"]["strips"]}
    assert cpu["ada"] == pytest.approx(0.5, abs=0.1)  # the mean of busy and idle
    framed = live(tmp_path, "--set", "iterations=10", user="[preferences]\nframe = 600").document
    assert framed["weather"]["over"] == 600


@pytest.mark.more
@pytest.mark.usefixtures("configured")
def test_a_service_that_is_down_is_said_and_the_list_stands(monkeypatch, tmp_path):
    monkeypatch.setenv("NWS_SERVICE", "http://127.0.0.1:9")
    document = live(tmp_path).document
    assert document["weather"]["source"] == "this process"
    assert any("http://127.0.0.1:9" in line for line in document["assumed"])


@pytest.mark.usefixtures("configured")
def test_a_service_that_refuses_us_is_an_error(tmp_path):
    (tmp_path / "token").write_text("nws_wrong")
    done = live(tmp_path)
    assert (done.code, done.failure["code"]) == (2, "token-invalid")
    assert len(done.err.splitlines()) == 1


@pytest.mark.usefixtures("configured")
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o622])
def test_a_token_that_others_can_get_at_is_shown_to_no_service(tmp_path, mode):
    (tmp_path / "token").chmod(mode)
    done = live(tmp_path)
    assert (done.code, len(done.err.splitlines())) == (2, 1)
    assert done.failure["code"] == "file-not-private"
    assert str(tmp_path / "token") in done.failure["message"]
    assert f"{mode:o}" in done.failure["message"]


@pytest.mark.usefixtures("configured")
def test_a_service_without_a_token_is_an_error(monkeypatch, tmp_path):
    monkeypatch.setenv("NWS_TOKEN_FILE", str(tmp_path / "none"))
    done = live(tmp_path)
    assert (done.code, done.failure["code"]) == (2, "file-missing")
    assert str(tmp_path / "none") in done.failure["message"]


def test_static_asks_nobody(monkeypatch, tmp_path):
    monkeypatch.setenv("NWS_SERVICE", "http://127.0.0.1:9")
    monkeypatch.setenv("NWS_TOKEN_FILE", str(tmp_path / "none"))
    document = planned(tmp_path, "--json").document
    assert (document["weather"]["source"], document["assumed"]) == ("host list", [])


def test_an_empty_setting_means_no_service(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert service_settings({"NWS_SERVICE": ""}) is None
    assert service_settings({}) is None


def test_a_host_that_is_here_and_not_at_the_service_is_measured_here(configured):
    here = HostList((Host("localhost"), Host("ada")), Network())
    conditions = WeatherSource(SensingContext(here, configured)).conditions()
    assert set(conditions.weather.cpu) == {"localhost", "ada"}
    assert any("localhost" in note and configured.url in note for note in conditions.notes)


def forecast(value, horizon=1, **more):
    return Forecast(value, 0.02, "made up", 500, 0.0, horizon=horizon, **more)


class Frames:
    """Weather made up over any frame; remembers what was asked."""

    def __init__(self, hosts, horizons):
        self.hosts, self.asked = hosts, []
        self._horizons = iter(horizons)

    def __call__(self, over):
        self.asked.append(over)
        horizon = next(self._horizons)
        sky = {host.name: forecast(0.9 / horizon, horizon) for host in self.hosts}
        return Conditions(self.hosts, Weather(0.0, cpu=sky), over=over)


@pytest.mark.parametrize(
    ("horizons", "asked"), [((1,), 1), ((12, 12), 2), ((12, 30), 2), ((6, 12, 30), 2)]
)
def test_all_candidates_are_compared_over_the_run_with_one_repeat_at_most(horizons, asked):
    hosts = [Host("ada", seconds_per_point=1e-8), Host("bob", seconds_per_point=2e-8)]
    first = Weather(0.0, cpu={host.name: forecast(0.9) for host in hosts})
    information = pool(hosts, weather=first, default=None)
    frames = Frames(information.hosts, horizons)
    coordinator = Coordinator(replace(information, conditions_over=frames))
    one_step = Coordinator(information)
    one_step.execute(minimum_execution_time)
    coordinator.execute(minimum_execution_time, StartHooks(passes=2, decides_only=True))
    assert len(frames.asked) == asked
    assert frames.asked[0] == one_step.decision_log.chosen.execution_seconds
    record = coordinator.decision_log
    assert record.information is coordinator.information


def test_risk_goes_by_the_interval_and_by_its_own_side():
    interval = Interval(0.3, 0.65, 0.9, 0.91)
    skewed = forecast(0.6, interval=interval)
    assert shortfall_of(skewed) == pytest.approx(0.3 / 2.0616, rel=1e-3)
    assert excess_of(skewed) == pytest.approx(0.05 / 2.0616, rel=1e-3)
    unchecked = forecast(0.6, interval=Interval(0.3, 0.65, 0.9, None))
    assert shortfall_of(unchecked) == excess_of(unchecked) == 0.02
    few = Forecast(0.6, 0.02, "made up", 5, 0.0, interval=interval)
    assert shortfall_of(few) == 0.02


def test_a_cautious_plan_gives_less_to_the_host_that_may_be_far_worse():
    hosts = [Host("ada", seconds_per_point=1e-8), Host("bob", seconds_per_point=1e-8)]
    steady = forecast(0.6, interval=Interval(0.58, 0.62, 0.9, 0.9))
    restless = forecast(0.6, interval=Interval(0.2, 0.95, 0.9, 0.9))
    sky = Weather(0.0, cpu={"ada": steady, "bob": restless})

    def rows(risk):
        information = pool(hosts, weather=sky, user=f"[preferences]\nrisk = {risk}\n")
        coordinator = Coordinator(information)
        coordinator.execute(minimum_execution_time)
        chosen = coordinator.decision_log.chosen
        return dict(zip(chosen.names, chosen.schedule.rows, strict=True))

    assert rows(0)["ada"] == rows(0)["bob"]
    assert rows(1)["ada"] > rows(1)["bob"]


@pytest.mark.more
def test_the_probe_of_a_look_serves_the_next_on_the_same_cpus_alone():
    here = HostList((Host("localhost"),), Network())
    first = LocalSensing(here, rounds=1)
    first.weather()
    assert first.remembered == {}
    known = {name: replace(probe, share=None) for name, probe in first.corrections.items()}
    again = LocalSensing(here, rounds=1, corrections=known)
    again.weather()
    assert 0 <= again.remembered["localhost"] < 60
    assert again.corrections == known
    allowed = os.sched_getaffinity(0)
    if len(allowed) > 1:
        os.sched_setaffinity(0, {min(allowed)})
        try:
            fewer_cpus = LocalSensing(here, rounds=1, corrections=known)
            fewer_cpus.weather()
            assert fewer_cpus.remembered == {}
        finally:
            os.sched_setaffinity(0, allowed)


@pytest.mark.more
def test_a_plan_says_that_a_probe_is_remembered_unless_it_is_to_be_fresh(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    here = HostList((Host("localhost"),), Network())

    def notes(**options):
        said = WeatherSource(SensingContext(here, **options)).conditions().notes
        return [note for note in said if note.startswith("CPU probe of localhost: remembered")]

    assert len(notes()) == 0
    for _ in range(20):  # a probe is dropped where the load changes within its look
        probes = history.recall_probes()
        if probes:
            break
        notes(fresh=True)
    # The load may change between two looks: a probe of any load holds.
    history.remember_probes({name: replace(probe, share=None) for name, probe in probes.items()})
    assert [len(notes()), len(notes(fresh=True))] == [1, 0]


def test_a_state_folder_that_cannot_be_made_means_no_service_of_this_user(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    assert service_settings({}) is None
