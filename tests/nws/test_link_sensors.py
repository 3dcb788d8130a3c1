import socket
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, count

import pytest

from nws import (
    ECHO,
    SINK,
    BandwidthSensor,
    DeadlineConnection,
    Endpoint,
    InputError,
    LatencySensor,
    ProberSession,
    SensorError,
    UnauthenticatedError,
    bandwidth,
    counts_losses,
    greet,
    is_meaningful,
    probing,
    prove,
)

SECRET = "known to both sides"  # noqa: S105 - it guards nothing
OTHER = "known to one side only"


@pytest.fixture
def endpoint():
    with Endpoint(SECRET, most_bytes=1 << 20, seconds=60.0) as endpoint:
        yield endpoint


@pytest.fixture
def silent():
    """Give the address of a listener that accepts and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()


def eventually(act, deadline=60.0):
    """Return what `act` returns once it does not raise a transient error any more."""
    end = time.monotonic() + deadline
    while True:
        try:
            return act()
        except SensorError as error:
            if not error.transient or time.monotonic() > end:
                raise


def is_cut(connection):
    """Return whether nothing but a no comes from the other side."""
    try:
        return connection.recv(100) in {b"", b"no\n"} and connection.recv(100) == b""
    except ConnectionError:
        return True


def stranger(address):
    return socket.create_connection(address, timeout=60.0)


def test_a_transfer_must_last_and_outlast_its_round_trip():
    assert not is_meaningful(0.049, round_trip=0.0001)
    assert is_meaningful(0.051, round_trip=0.0001)
    assert not is_meaningful(0.5, round_trip=0.1)
    assert is_meaningful(1.0, round_trip=0.1)


def test_the_wait_for_the_answer_is_not_bandwidth():
    assert bandwidth(1000, seconds=1.1, round_trip=0.1) == pytest.approx(1000.0)
    assert bandwidth(1000, seconds=0.1, round_trip=0.1) == pytest.approx(10000.0)


def test_latency_is_half_of_the_least_round_trip(endpoint):
    ticks = chain([0.0, 0.5], [1.0, 1.25], [2.0, 2.75])
    sensor = LatencySensor(
        "ada",
        "bob",
        endpoint.address,
        SECRET,
        messages=3,
        clock=lambda: 7.0,
        timer=ticks.__next__,
    )
    found = {str(m.series): (m.time, m.value) for m in sensor.measure()}
    # Round trips of .5, .25 and .75 s.
    assert found == {"latencyTcp/ada/bob": (7.0, 0.125), "jitterTcp/ada/bob": (7.0, 0.1875)}


def ticks(*durations):
    """Return a timer that lets the given seconds pass between a start and its end."""
    now = 0.0
    for duration in durations:
        yield now
        now += duration
        yield now


def test_transfers_double_until_one_is_meaningful(endpoint):
    round_trips = [0.002, 0.001, 0.003]
    transfers = [0.011, 0.021, 0.041, 0.081]  # 16, 32, 64, 128 KiB
    timer = ticks(*round_trips, *transfers)
    sensor = BandwidthSensor("ada", "bob", endpoint.address, SECRET, timer=timer.__next__)
    measurement, *losses = sensor.measure()
    assert str(measurement.series) == "bandwidthTcp/ada/bob"
    assert measurement.value == pytest.approx(131072 / 0.080)
    assert [str(loss.series) for loss in losses] == ["lossTcp/ada/bob"] * counts_losses()
    assert all(0 <= loss.value <= 1 for loss in losses)
    assert sensor.seconds == pytest.approx(sum(round_trips + transfers))
    assert list(timer) == []


def test_a_budget_of_bytes_ends_the_doubling(endpoint):
    timer = (index * 0.001 for index in count())
    sensor = BandwidthSensor(
        "ada", "bob", endpoint.address, SECRET, most_bytes=3 << 14, timer=timer.__next__
    )
    assert sensor.measure()[0].value == pytest.approx((2 << 14) / 0.001)


@pytest.mark.parametrize("kind", [LatencySensor, BandwidthSensor])
def test_who_does_not_know_the_secret_is_not_served_and_that_is_permanent(endpoint, kind):
    with pytest.raises(SensorError) as refused:
        kind("ada", "bob", endpoint.address, OTHER).measure()
    assert (refused.value.code, refused.value.transient) == ("secret-rejected", False)
    assert refused.value.fields["address"] == f"127.0.0.1:{endpoint.address[1]}"


def test_an_endpoint_does_nothing_before_the_greeting(endpoint):
    with stranger(endpoint.address) as connection:
        assert connection.recv(100).startswith(b"nws.endpoint/1 ")
        connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert is_cut(connection)


def test_an_endless_greeting_is_cut_off(endpoint):
    with stranger(endpoint.address) as connection:
        assert connection.recv(100)
        connection.sendall(b"x" * 1000)
        assert is_cut(connection)


def test_an_overheard_greeting_serves_no_second_time(endpoint):
    with stranger(endpoint.address) as first:
        challenge = DeadlineConnection(first, 60.0).receive_line().split()[1]
        proof = prove(SECRET, "prober", ECHO, (challenge, "aa"))
        overheard = f"{proof} aa echo\n".encode()
        first.sendall(overheard)
        assert first.recv(3) == b"ok "
    with stranger(endpoint.address) as second:
        DeadlineConnection(second, 60.0).receive_line()
        second.sendall(overheard)
        assert is_cut(second)


def test_a_false_endpoint_is_found_out():
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as prober,
        listener.accept()[0] as false,
    ):
        false.sendall(b"nws.endpoint/1 aa\nok " + b"0" * 64 + b"\n")
        with pytest.raises(UnauthenticatedError) as raised:
            greet(DeadlineConnection(prober, 60.0), SECRET, ECHO)
        assert raised.value.code == "endpoint-unauthenticated"


def test_two_transfers_at_once_would_measure_each_other(endpoint):
    second = BandwidthSensor("ada", "bob", endpoint.address, SECRET, most_bytes=1 << 19)
    with probing(endpoint.address, SECRET, SINK, 60.0):
        with pytest.raises(SensorError) as busy:
            second.measure()
        assert (busy.value.code, busy.value.transient) == ("endpoint-busy", True)
        assert LatencySensor("ada", "bob", endpoint.address, SECRET).measure()
    assert eventually(second.measure)


def test_a_connection_has_a_limit_of_bytes(endpoint):
    def exceed():
        with probing(endpoint.address, SECRET, SINK, 60.0) as channel:
            channel.send((2 << 20).to_bytes(8))
            channel.receive(8)

    with pytest.raises(SensorError) as cut:
        exceed()
    assert (cut.value.code, cut.value.transient) == ("endpoint-unreachable", True)


def test_a_connection_has_a_limit_of_time():
    with Endpoint(SECRET, seconds=0.5) as endpoint, stranger(endpoint.address) as connection:
        assert connection.recv(100).startswith(b"nws.endpoint/1 ")
        assert connection.recv(100) == b""


def test_one_connection_too_many_is_closed_unheard():
    with (
        Endpoint(SECRET, most_connections=1) as endpoint,
        stranger(endpoint.address) as first,
        stranger(endpoint.address) as second,
    ):
        assert first.recv(100).startswith(b"nws.endpoint/1 ")
        assert second.recv(100) == b""


def test_closing_cuts_connections_and_may_be_repeated():
    with Endpoint(SECRET) as endpoint, stranger(endpoint.address) as connection:
        assert connection.recv(100)
        endpoint.close()
        assert is_cut(connection)
        with pytest.raises(SensorError) as raised:
            LatencySensor("ada", "bob", endpoint.address, SECRET).measure()
        assert raised.value.code == "endpoint-unreachable"


@pytest.mark.parametrize("kind", [LatencySensor, BandwidthSensor])
def test_nobody_waits_for_ever(silent, kind):
    with pytest.raises(SensorError) as late:
        kind("ada", "bob", silent, SECRET, deadline=0.05).measure()
    assert (late.value.code, late.value.transient) == ("endpoint-timeout", True)
    assert late.value.fields["seconds"] == 0.05


def test_an_endpoint_listens_on_loopback_unless_told_otherwise(endpoint):
    assert endpoint.address[0] == "127.0.0.1"


def test_what_is_no_endpoint_is_a_stranger():
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as prober,
        listener.accept()[0] as other,
    ):
        other.sendall(b"SSH-2.0\n")
        with pytest.raises(UnauthenticatedError) as raised:
            greet(DeadlineConnection(prober, 60.0), SECRET, ECHO)
        assert (raised.value.code, raised.value.fields["value"]) == ("protocol-invalid", "SSH-2.0")


def test_a_transfer_that_is_not_acknowledged_whole_measures_nothing():
    def serve(listener):
        with listener.accept()[0] as connection:
            channel = DeadlineConnection(connection, 60.0)
            guest = ProberSession(channel, SECRET)
            guest.receive_request()
            guest.admit()
            channel.receive(8)
            channel.send((1).to_bytes(8))

    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        pool.submit(serve, listener)
        with pytest.raises(SensorError) as lost:
            BandwidthSensor("ada", "bob", listener.getsockname(), SECRET).measure()
    assert (lost.value.code, lost.value.transient) == ("transfer-unacknowledged", True)


def test_a_channel_notices_that_its_time_is_up_or_its_other_side_gone():
    now = iter([0.0, 1.0, 6.0])
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as near,
        listener.accept()[0] as far,
    ):
        far.sendall(b"a")
        channel = DeadlineConnection(near, 5.0, clock=now.__next__)
        assert channel.receive(1) == b"a"
        with pytest.raises(TimeoutError):
            channel.receive(1)
        far.close()
        with pytest.raises(ConnectionError):
            DeadlineConnection(near, 5.0).discard(1)


def test_a_secret_that_can_be_guessed_is_refused():
    with pytest.raises(InputError) as raised:
        Endpoint("apples")
    assert (raised.value.code, raised.value.fields["bound"]) == ("secret-too-short", 16)


def test_time_to_connect_counts_towards_the_limit_of_a_probe(endpoint):
    clock = iter([0.0, 6.0, 6.0, 6.0])  # it took 6 s to connect
    with (
        pytest.raises(SensorError) as raised,
        probing(endpoint.address, SECRET, ECHO, 5.0, clock.__next__),
    ):
        pass
    assert raised.value.code == "endpoint-timeout"
