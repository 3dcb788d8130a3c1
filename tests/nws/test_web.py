"""The service over HTTP, on loopback."""

import json
import math
import re
import threading
import time

import pytest
import requests
from waiting import until

from nws import (
    AMOUNTS,
    SHARES,
    Batch,
    Client,
    Listen,
    Measurement,
    SeriesName,
    ServiceError,
    Serving,
    TurnTable,
    Weather,
    bounds_of,
)

ADA = SeriesName("availableCpu", "ada")


def samples(name, count, period=60.0):
    now = time.time()
    return [Measurement(name, now - period * (count - 1 - i), 0.5) for i in range(count)]


def test_what_is_stored_is_forecast_with_its_freshness(client):
    receipt = client.store(samples(ADA, 20))
    assert receipt["stored"] + receipt["duplicates"] == 20
    (answer,) = client.forecasts(["availableCpu/ada"])
    assert answer["value"] == 0.5
    assert answer["state"] == "current"
    assert answer["age"] < 120
    assert answer["samples"] >= 20


def test_storing_again_changes_nothing(client):
    measurements = samples(SeriesName("availableCpu", "twice"), 5)
    assert client.store(measurements)["stored"] == 5
    again = client.store(measurements)
    assert (again["stored"], again["duplicates"]) == (0, 5)


def test_a_stale_series_is_said_to_be_and_has_no_part_in_the_weather(client):
    name = SeriesName("availableCpu", "gone")
    now = time.time()
    client.store([Measurement(name, now - 1000 + i, 0.5) for i in range(10)])
    (answer,) = client.forecasts([str(name)])
    assert answer["state"] == "stale"
    assert answer["age"] > 900
    client.store(samples(ADA, 5))
    weather = client.weather()
    assert isinstance(weather, Weather)
    assert "gone" not in weather.cpu
    assert "ada" in weather.cpu


def test_an_unknown_series_has_no_value(client):
    (answer,) = client.forecasts(["availableCpu/nobody"])
    assert (answer["state"], answer["value"], answer["age"]) == ("unknown", None, None)


def test_a_range_can_be_had_on_a_grid_with_gaps(client):
    name, start = SeriesName("freeMemory", "gaps"), time.time() - 100
    client.store([Measurement(name, start + at, at) for at in (0.0, 10.0, 40.0)])
    found = client.range(str(name), step=10.0)
    assert found["values"] == [0.0, 10.0, None, None, 40.0]
    assert (found["counts"], found["partial"]) == ([1, 1, 0, 0, 1], [])
    assert client.range(str(name), count=1)["values"] == [40.0]


@pytest.mark.parametrize("seconds", [5e-324, 1e-300, 1e-9])
def test_seconds_that_are_next_to_nothing_are_refused(client, seconds):
    name, start = SeriesName("freeMemory", "brief"), time.time() - 100
    client.store([Measurement(name, start + 10.0 * at, at) for at in range(9)])
    for ask in (
        lambda: client.range(str(name), step=seconds),
        lambda: client.range(str(name), start=start, step=seconds),
        lambda: client.forecasts([str(name)], over=seconds),
        lambda: client.weather(over=seconds),
    ):
        with pytest.raises(ServiceError) as caught:
            ask()
        assert (caught.value.status, caught.value.code) == (422, "request-invalid")
        assert caught.value.fields["field"].rpartition(".")[2] in {"step", "over"}
        assert "0.001" in str(caught.value)


def test_a_grid_from_a_start_on_tells_mean_low_and_high(client):
    name, start = SeriesName("freeMemory", "banded"), time.time() // 300 * 300 - 3000
    client.store([Measurement(name, start + 30.0 * step, float(step)) for step in range(90)])
    found = client.range(str(name), start=start, step=300.0)
    assert found["resolution"] == 0.0  # all is still kept one by one
    assert found["counts"] == [5, *[10] * 8, 5]
    assert found["partial"] == [found["times"][0], found["times"][-1]]
    assert len(found["times"]) == len(found["values"]) == len(found["lows"]) == len(found["highs"])
    for low, value, high in zip(found["lows"], found["values"], found["highs"], strict=True):
        assert low <= value <= high
    with pytest.raises(ServiceError) as caught:
        client.range(str(name), start=start, step=0.001)
    assert (caught.value.status, caught.value.code) == (422, "value-range")
    assert (caught.value.fields["field"], caught.value.fields["bound"]) == ("step", 100_000)


def test_series_are_found_by_pattern_with_what_is_kept(client):
    client.store(samples(SeriesName("latencyTcp", "ada", "bob"), 3))
    found = client.series("latencyTcp/*")
    assert [entry["series"] for entry in found["series"]] == ["latencyTcp/ada/bob"]
    assert found["series"][0]["count"] == 3


def test_refused_measurements_are_told_one_by_one_and_the_others_stored(client):
    name, now = SeriesName("availableCpu", "mixed"), time.time()
    receipt = client.store([Measurement(name, now + 1e6, 1.0), Measurement(name, now, 1.0)])
    assert receipt["stored"] == 1
    assert receipt["refused"][0]["index"] == 0
    assert receipt["refused"][0]["code"] == "measurement-in-future"


def test_a_share_of_7_is_refused_with_its_place_and_nothing_of_its_message_is_stored(client):
    name, now = SeriesName("availableCpu", "seven"), time.time()
    rows = [Measurement(name, now - 10, 0.5), Measurement(name, now, 7.0)]
    with pytest.raises(ServiceError) as caught:
        client.store(rows)
    assert (caught.value.status, caught.value.transient) == (422, False)
    assert caught.value.code == "value-range"
    assert caught.value.fields["field"] == "measurements.1.value"
    assert (caught.value.fields["value"], caught.value.fields["bound"]) == (7.0, 1.0)
    assert client.forecasts([str(name)])[0]["state"] == "unknown"


def test_the_answers_say_what_came_late_or_ahead_and_what_was_made_of_it(client):
    name, now = SeriesName("availableCpu", "clocks"), time.time() - 500
    regular = samples(name, 30, period=10.0)
    receipt = client.store(regular[:25])
    assert (receipt["late"], receipt["ahead"]) == (0, 0)
    assert client.store([Measurement(name, time.time() + 50, 0.5)])["ahead"] == 1
    assert client.store(regular[25:])["late"] == 5
    assert client.store([Measurement(name, now - 300, 0.5)])["late"] == 1
    (answer,) = client.forecasts([str(name)])
    assert (answer["late"], answer["ahead"], answer["samples"]) == (1, 1, 31)
    assert answer["time"] == regular[-1].time
    assert f"{now - 300}" in answer["remarks"][0]


def test_an_answer_without_an_interval_says_why(client):
    name = SeriesName("availableCpu", "young")
    client.store(samples(name, 5))
    (answer,) = client.forecasts([str(name)])
    assert (answer["lower"], answer["upper"]) == (None, None)
    assert answer["remarks"] == ["no interval before 20 measurements; there are 5"]


def test_what_is_stored_is_pushed_to_who_listens(client, serving):
    heard, ready = [], threading.Event()

    def listen():
        with Client(serving.url, serving.token) as other:
            stream = other.events("availableCpu/pu*")
            ready.set()
            heard.append(next(stream))

    thread = threading.Thread(target=listen)
    thread.start()
    assert ready.wait(60)
    deadline, at = time.monotonic() + 60, time.time() - 1000
    while thread.is_alive() and time.monotonic() < deadline:
        at += 1
        client.store([Measurement(SeriesName("availableCpu", "push"), at, 0.25)])
        thread.join(0.05)
    assert heard[0]["series"] == "availableCpu/push"
    assert heard[0]["value"] == 0.25


def test_leases_are_held_and_ended(client):
    client.register("sensor-a", host="ada", site="lab", address="10.0.0.1:9", seconds=300)
    client.register("sensor-b", host="bob", site="lab", address="10.0.0.2:9", seconds=300)
    names = {entry["name"] for entry in client.sensors()}
    assert {"sensor-a", "sensor-b"} <= names
    client.leave("sensor-a")
    assert "sensor-a" not in {entry["name"] for entry in client.sensors()}
    with pytest.raises(ServiceError) as caught:
        client.leave("sensor-a")
    assert caught.value.status == 404


def lab(client, *hosts, **fields):
    for number, host in enumerate(hosts, start=1):
        place = {"address": f"10.0.0.{number}:9", **fields}
        client.register(host, host=host, site="lab", seconds=300, **place)


def granted(client, host):
    """Return the turn of a host; a service that was just started grants none for a while."""
    return until(lambda: (turn := client.ask_turn(host))["turn"] and turn)


def test_turns_are_granted_one_at_a_time_and_ended(tmp_path):
    with Serving(tmp_path, Listen(port=0), period=1000.0) as serving:
        # The longest turn of a service before this one is over.
        serving.handler.turns = TurnTable(1000.0, serving.handler.monotonic() - 60)
        with Client(serving.url, serving.token) as client:
            lab(client, "ada", "bob")
            turn = granted(client, "ada")
            assert turn["peers"] == [{"name": "bob", "address": "10.0.0.2:9"}]
            assert turn["seconds"] == 20.0
            assert client.ask_turn("bob")["turn"] is None
            client.end_turn(turn["turn"], ["bob"])
            assert granted(client, "bob")["peers"][0]["name"] == "ada"
            stranger = serving.tokens.issue("stranger", ["probe"])
            with Client(serving.url, stranger) as other, pytest.raises(ServiceError) as caught:
                other.ask_turn("ada")
            assert caught.value.code == "name-taken"


def test_service_that_was_just_started_grants_no_turn(client):
    lab(client, "ada", "bob")
    answer = client.ask_turn("ada")
    assert (answer["turn"], answer["retry_after"] >= 1) == (None, True)
    client.leave("ada"), client.leave("bob")


@pytest.mark.parametrize("address", ["0.0.0.0:9000", "[::]:9000"])
def test_wildcard_address_is_not_registered(client, address):
    with pytest.raises(ServiceError) as caught:
        lab(client, "ada", address=address)
    assert caught.value.code == "request-invalid"
    assert "address" in str(caught.value)


def test_loopback_peer_is_probed_from_its_own_machine_only(tmp_path):
    with Serving(tmp_path, Listen(port=0), period=1000.0) as serving:
        serving.handler.turns = TurnTable(1000.0, serving.handler.monotonic() - 60)
        with Client(serving.url, serving.token) as client:
            lab(client, "ada", "bob", address="127.0.0.1:9", machine="aa")
            lab(client, "eve", address="127.0.0.1:9", machine="bb")
            assert [peer["name"] for peer in granted(client, "ada")["peers"]] == ["bob"]
            assert client.ask_turn("eve")["turn"] is None


def test_another_ones_lease_cannot_be_taken(client, serving):
    client.register("mine", host="ada", seconds=300)
    other = serving.tokens.issue("other", ["write"])
    with Client(serving.url, other) as stranger, pytest.raises(ServiceError) as caught:
        stranger.register("mine", host="evil", seconds=300)
    assert caught.value.status == 409


def test_the_page_for_prometheus_tells_values_and_our_health(client, serving):
    client.store(samples(ADA, 5))
    page = requests.get(
        f"{serving.url}/metrics", headers={"Authorization": f"Bearer {serving.token}"}, timeout=60
    ).text
    assert 'nws_forecast{host="ada",resource="availableCpu"} 0.5' in page
    assert "nws_up 1" in page
    for line in page.splitlines():
        assert line.startswith("#") or len(line.rsplit(" ", 1)) == 2
        if not line.startswith("#"):
            float(line.rsplit(" ", 1)[1])


def test_status_tells_what_is_kept(client):
    status = client.status()
    assert status["status"] == "ok"
    assert status["retention"]["capacity"] == 2000
    assert status["problems"] == []


def test_the_openapi_document_names_every_refusal(serving):
    headers = {"Authorization": f"Bearer {serving.token}"}
    document = requests.get(f"{serving.url}/openapi.json", headers=headers, timeout=60).json()
    for item in document["paths"].values():
        for operation in item.values():
            assert {"401", "403", "413", "422"} <= set(operation["responses"])
            refusals = {k: each for k, each in operation["responses"].items() if k != "200"}
            assert {kind for each in refusals.values() for kind in each["content"]} == {
                "application/json"
            }
    assert json.dumps(document).count('"Batch"') >= 1


@pytest.mark.parametrize("resource", sorted({*SHARES, *AMOUNTS, "degrees"}))
def test_the_schema_of_a_measurement_says_what_its_kind_may_be(resource):
    least, greatest = -math.inf, math.inf
    for rule in Batch.model_json_schema()["$defs"]["Sample"]["allOf"]:
        if re.match(rule["if"]["properties"]["series"]["pattern"], f"{resource}/ada"):
            bounds = rule["then"]["properties"]["value"]
            least, greatest = bounds.get("minimum", least), bounds.get("maximum", greatest)
    assert (least, greatest) == bounds_of(resource)


def test_a_client_that_finds_nobody_says_so():
    with Client("http://127.0.0.1:9", "t", deadline=2) as lost, pytest.raises(ServiceError) as e:
        lost.status()
    assert (e.value.code, e.value.transient) == ("service-unreachable", True)
    assert e.value.fields["url"] == "http://127.0.0.1:9"
