"""Weather of other machines: what is remembered, what is forgotten, what is told of links nobody probed."""

import contextlib
import select
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from apples import Host, HostList, LaunchError, Network, read_host_list
from apples.launch import HostConnection, HostConnections, Needs, is_here, preflight, remote_hosts
from apples.weather import (
    MachineTurns,
    RemoteSensing,
    SensingContext,
    history,
    interpolate_links,
    share_memory,
)
from nws import Forecast, Measurement, ProbeCorrection, SeriesName, Weather

LINK = SeriesName("bandwidthTcp", "ada", "bob")
HOSTS = (Host("ada", address="10.0.0.1"), Host("bob", address="10.0.0.2"))


def measured(*values, series=LINK, start=1000.0):
    return [Measurement(series, start + i, value) for i, value in enumerate(values)]


@pytest.fixture(autouse=True)
def own_state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def test_what_is_measured_is_remembered_by_name_and_address():
    history.remember(HOSTS, {LINK: measured(1.0, 2.0)})
    assert history.recall(HOSTS, now=1010.0) == {LINK: measured(1.0, 2.0)}
    elsewhere_now = (HOSTS[0], Host("bob", address="10.0.0.99"))
    assert history.recall(elsewhere_now, now=1010.0) == {}


def test_what_is_remembered_is_bounded_in_number_and_age():
    history.remember(HOSTS, {LINK: measured(*range(1, 201))})
    kept = history.recall(HOSTS, now=1200.0)[LINK]
    assert [m.value for m in kept] == [float(v) for v in range(151, 201)]
    assert history.recall(HOSTS, now=1150.0 + history.OLDEST_SECONDS + 40)[LINK] == kept[-9:]


@settings(max_examples=examples(30))
@given(
    document=st.recursive(
        st.none() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["series", "resource", "host", "peer", "samples"]),
                inner,
                max_size=4,
            )
        ),
        max_leaves=10,
    )
)
def test_a_document_of_nonsense_is_no_history(document):
    entry = {"resource": "x", "host": "ada@10.0.0.1", "peer": None, "samples": document}
    history.state.update(history.DOCUMENT, lambda _: {"series": [document, entry]})
    for values in history.recall(HOSTS).values():
        assert all(isinstance(one.value, float) for one in values)


def test_a_probe_is_remembered_as_long_as_it_is_believed_and_beside_those_of_others():
    now = time.time()
    lately, long_ago = ProbeCorrection(-0.1, now), ProbeCorrection(0.2, now - history.PROBES_HOLD)
    beside_a_load = ProbeCorrection(-0.1, now, 0.5)
    history.remember_probes({"all of ada": lately, "all of bob": long_ago})
    history.remember_probes({"0 of ada": beside_a_load})
    assert history.recall_probes() == {"all of ada": lately, "0 of ada": beside_a_load}


class StoredByAnotherPlan(Mapping):
    """Probes of one plan; while they are read, another plan stores its own."""

    def __init__(self, own, others):
        self.own, self.others = own, others

    def __getitem__(self, name):
        return self.own[name]

    def __len__(self):
        return len(self.own)

    def __iter__(self):
        history.remember_probes(self.others)
        return iter(self.own)


def test_two_plans_at_once_keep_the_probes_of_both():
    probe = ProbeCorrection(-0.1, time.time())
    history.remember_probes(StoredByAnotherPlan({"0 of ada": probe}, {"0 of bob": probe}))
    assert history.recall_probes() == {"0 of ada": probe, "0 of bob": probe}


@given(
    document=st.recursive(
        st.none() | st.floats() | st.booleans() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
        ),
        max_leaves=6,
    )
)
def test_a_document_of_nonsense_is_no_probe(document):
    assert all(
        abs(one.bias) <= 1 for one in history.probes_of({"found": document}, 1000.0).values()
    )


def test_two_plans_at_once_lose_no_samples_of_each_other():
    history.remember(HOSTS, {LINK: measured(1.0)})
    one = history.recall(HOSTS, now=1010.0)[LINK]
    other = history.recall(HOSTS, now=1010.0)[LINK]
    history.remember(HOSTS, {LINK: [*one, Measurement(LINK, 1002.0, 2.0)]})
    history.remember(HOSTS, {LINK: [*other, Measurement(LINK, 1003.0, 3.0)]})
    values = [m.value for m in history.recall(HOSTS, now=1010.0)[LINK]]
    assert values == [1.0, 2.0, 3.0]


def test_a_plan_that_forgets_an_old_load_keeps_forgetting_it():
    history.remember(HOSTS, {LINK: measured(1.0, 2.0)})
    history.remember(HOSTS, {LINK: [Measurement(LINK, 1005.0, 9.0)]})
    assert [m.value for m in history.recall(HOSTS, now=1010.0)[LINK]] == [9.0]


@pytest.mark.parametrize(
    ("old", "new", "kept"),
    [
        ([100, 100, 100], [98], 4),
        ([100, 100, 100], [10], 1),  # the link collapsed: what was is no guide any more
        ([100, 100, 100], [10, 99], 5),  # one of two was an accident
        ([10, 10], [100, 120], 2),  # it is back
        ([], [10], 1),
        ([100], [], 1),
        ([100, 101, 99, 100], [88], 1),  # a twelfth less, of a series that moved by a hundredth
        ([100, 101, 99, 100], [95], 5),
        ([100, 60, 140, 100, 130, 70], [65], 7),  # it is as noisy as that
        ([100, 60, 140, 100, 130, 70], [45], 1),
    ],
)
def test_a_series_that_has_become_another_is_forecast_from_what_is_new(old, new, kept):
    old, new = measured(*old), measured(*new)
    assert len(history.joined(old, new)) == kept
    assert history.is_news(old, new) == (kept == len(new) and bool(old and new))


def test_a_spike_in_one_round_of_a_look_leaves_no_trace_in_what_is_remembered():
    look = measured(0.5, 250.0, 0.5, start=60.0)
    assert [m.value for m in history.as_one([*measured(0.5), *look], look)] == [0.5, 0.5]


def forecast(value):
    return Forecast(value, error=0.1 * value, method="m", samples=3, time=1.0)


def test_a_pair_nobody_probed_is_like_the_one_between_its_sites_and_no_wider_than_its_hosts():
    sites = {"a1": "a", "a2": "a", "b1": "b", "b2": "b"}
    known = {("a1", "a2"): 100.0, ("a2", "a1"): 100.0, ("b1", "b2"): 5.0, ("b2", "b1"): 5.0}
    known |= {("a1", "b1"): 10.0, ("b1", "a1"): 8.0}
    sky = interpolate_links(
        Weather(1.0, bandwidth={pair: forecast(v) for pair, v in known.items()}), sites
    )
    told = {pair: one.value for pair, one in sky.bandwidth.items()}
    assert told["a2", "b2"] == 5.0
    assert told["b2", "a2"] == 5.0
    assert told["a1", "b1"] == 10.0
    assert len(told) == 12


def test_parts_of_one_machine_share_its_memory_and_limits_below_that_hold():
    memory = {"a": forecast(8e9), "b": forecast(8e9), "c": forecast(1e9), "d": forecast(8e9)}
    told = share_memory(memory, {"one": ["a", "b", "c"], "two": ["d"]}, {})
    assert {k: v.value for k, v in told.items()} == {
        "a": pytest.approx(8e9 / 3),
        "b": pytest.approx(8e9 / 3),
        "c": 1e9,
        "d": 8e9,
    }


def test_limits_of_parts_are_not_divided_where_the_machine_has_more():
    memory = {"a": forecast(5e8), "b": forecast(4e8), "c": forecast(9e9)}
    told = share_memory(memory, {"one": ["a", "b", "c"]}, {"one": 24e9})
    assert {k: v.value for k, v in told.items()} == {"a": 5e8, "b": 4e8, "c": pytest.approx(8e9)}


def test_a_bare_name_is_played_here_and_an_address_is_another_machine():
    hosts = (
        Host("bare"),
        Host("cpus", cpus=(0,)),
        Host("cpus-there", cpus=(0,), address="198.51.100.77"),
        Host("far", address="10.1.1.2"),
    )
    assert [h.name for h in remote_hosts(HostList(hosts, Network()))] == [
        "cpus-there",
        "far",
    ]
    assert [h.name for h in remote_hosts(HostList(hosts, Network(), "config"))] == [
        "bare",
        "cpus-there",
        "far",
    ]
    assert is_here(Host("me", address="127.0.0.1"))
    assert not is_here(Host("other", address="127.0.0.2"))


def sensing(hosts, seen, log, connections):
    return RemoteSensing(SensingContext(hosts, connections=connections, log=log), seen)


@pytest.mark.ssh
def test_hosts_and_links_are_measured_and_an_old_link_is_found_out(sshd, tmp_path):
    path = tmp_path / "hosts.toml"
    path.write_text(sshd.host_list(2))
    listed = read_host_list(path)
    talk = []
    past = {
        SeriesName("bandwidthTcp", "h1", "h2"): 1.0,
        SeriesName("latencyTcp", "h1", "h2"): 1e-9,
    }
    old = {name: measured(*[value] * 9, series=name, start=1.0) for name, value in past.items()}
    history.remember(listed, {n: [recent(m) for m in ms] for n, ms in old.items()})
    with HostConnections() as connections:
        seen = preflight(listed.hosts, listed, Needs(), connections=connections)
        sky = sensing(listed, seen, talk.append, connections).weather()
    assert talk == []
    assert set(sky.cpu) == set(sky.free_memory) == {"h1", "h2"}
    assert set(sky.bandwidth) == {("h1", "h2"), ("h2", "h1")}
    assert sky.bandwidth["h1", "h2"].value > 1e6  # not the byte a second it is remembered with
    assert sky.free_memory["h1"].value == pytest.approx(sky.free_memory["h2"].value, rel=0.2)
    remembered = history.recall(listed)
    assert len(remembered[SeriesName("bandwidthTcp", "h1", "h2")]) == 2  # news is measured twice
    assert len(remembered[SeriesName("bandwidthTcp", "h2", "h1")]) == 1
    assert len(remembered[SeriesName("availableCpu", "h1")]) == 1  # of some rounds


@pytest.mark.ssh
def test_a_host_whose_load_has_changed_is_probed_again_and_not_as_remembered(sshd, tmp_path):
    path = tmp_path / "hosts.toml"
    path.write_text(sshd.host_list(1))
    listed, name = read_host_list(path), SeriesName("availableCpu", "h1")
    beside_many = [recent(m) for m in measured(*[0.001] * 9, series=name, start=1.0)]
    with HostConnections() as connections:
        seen = preflight(listed.hosts, listed, Needs(), connections=connections)
        cpus = history.probe_name(seen["h1"].machine, listed["h1"].identity)
        history.remember(listed, {name: beside_many})
        history.remember_probes({cpus: ProbeCorrection(-0.05, time.time() - 30.0)})
        weather = sensing(listed, seen, print, connections)
        assert weather.weather().cpu["h1"].value > 0.01
    assert weather.remembered == {}
    assert history.recall_probes()[cpus].time > time.time() - 30.0
    assert len(history.recall(listed)[name]) == 1


def recent(measurement):
    return Measurement(
        measurement.series, time.time() - 1000 + measurement.time, measurement.value
    )


@pytest.mark.ssh
def test_a_host_whose_connection_ends_is_said_and_the_others_are_measured(sshd, tmp_path):
    path = tmp_path / "hosts.toml"
    path.write_text(sshd.host_list(2))
    listed, talk = read_host_list(path), []
    with HostConnections() as connections:
        seen = preflight(listed.hosts, listed, Needs(), connections=connections)
        connections.get("h1").close()
        sky = sensing(listed, seen, talk.append, connections).weather()
    assert set(sky.cpu) == {"h2"}
    assert talk == ["warning: not measured: h1: its connection ended"]


@pytest.mark.ssh
def test_one_login_is_looked_at_measured_and_then_waits_for_another_program(sshd, tmp_path):
    path = tmp_path / "hosts.toml"
    path.write_text(sshd.host_list(1))
    listed = read_host_list(path)
    with HostConnections() as connections:
        seen = preflight(listed.hosts, listed, Needs(), connections=connections)
        sensing(listed, seen, print, connections).weather()
        one = connections.take("h1")
        assert connections.get("h1") is None
    with contextlib.closing(one):
        one.await_program()
        one.write(b"0000000026print('hello', flush=True)")
        assert heard_on(one.output) == b"hello\n"


def heard_on(pipe):
    """Return what comes through a pipe that does not block, to its end."""
    heard = b""
    while select.select([pipe], [], [], 10.0)[0] and (data := pipe.read(100)):
        heard += data
    return heard


def test_a_command_without_a_sensor_process_is_an_error_with_its_last_words():
    python = [sys.executable, "-c"]
    for argv, code, words in (
        (["/no/such/ssh"], "tool-missing", "/no/such/ssh"),
        ([*python, "import sys; sys.exit('Permission denied')"], "host-unreachable", "Permission"),
        ([*python, "print('x' * 100000)"], "sensor-answer-invalid", "ada"),
        ([*python, "pass"], "host-unreachable", "ada"),
    ):
        with pytest.raises(LaunchError) as raised:
            greeted(argv)
        assert raised.value.code == code
        assert raised.value.fields["host"] == "ada"
        assert words in str(raised.value)


def greeted(argv):
    with contextlib.closing(HostConnection("ada", argv)) as connection:
        connection.begin_sensing(10.0)


@given(st.lists(st.floats(0.05, 3.0), min_size=1, max_size=12), st.floats(0.5, 4.0))
def test_parts_of_one_machine_never_hold_more_of_it_than_it_has(wants, cpus):
    turns, held, most = MachineTurns(cpus), [], []

    def hold(wanted):
        with turns.taken(wanted):
            held.append(wanted)
            most.append(sum(held))
            held.remove(wanted)

    with ThreadPoolExecutor(len(wants)) as pool:
        list(pool.map(hold, wants))
    assert len(most) == len(wants)
    assert max(most) <= max(1.0, cpus, *wants) + 1e-9
