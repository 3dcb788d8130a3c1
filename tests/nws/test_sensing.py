"""The sensor process: light, patient with its service, and within its budgets."""

import logging
import re
import subprocess
import sys
import time
from itertools import chain, permutations, repeat
from threading import Event, Thread

import pytest
import requests
from waiting import until

from nws import (
    Budget,
    Client,
    CpuTimes,
    DeliveryQueue,
    Endpoint,
    InputError,
    LeaseError,
    LeaseRegistry,
    LinkProber,
    Listen,
    Measurement,
    Registration,
    SensorProcess,
    SeriesName,
    ServiceError,
    Serving,
    next_round,
    parse,
    parse_cpu_times,
    reachable_address,
    read_batch,
    store_history,
)

ADA = SeriesName("availableCpu", "ada")
LOG = logging.getLogger("nws.sense")


class MoodyStore:
    """Takes measurements, or fails as it is told."""

    def __init__(self):
        self.taken, self.error = [], None

    def store(self, measurements):
        if self.error is not None:
            raise self.error
        self.taken += measurements
        return {"refused": []}


def some(count):
    return [Measurement(ADA, float(i), 0.5) for i in range(count)]


def test_what_the_service_did_not_take_is_kept_and_sent_again():
    store = MoodyStore()
    queue = DeliveryQueue(store)
    store.error = ServiceError("the disk is full", transient=True, status=507)
    queue.take(some(5))
    with pytest.raises(ServiceError):
        queue.deliver()
    assert len(queue) == 5
    store.error = None
    queue.deliver()
    assert store.taken == some(5)
    assert len(queue) == 0


def test_when_too_much_waits_the_oldest_go_and_are_counted():
    store = MoodyStore()
    queue = DeliveryQueue(store, most=3)
    queue.take(some(5))
    queue.deliver()
    assert queue.lost == 2
    assert store.taken == some(5)[2:]


def test_what_will_never_be_taken_does_not_block_the_rest():
    store = MoodyStore()
    queue = DeliveryQueue(store)
    store.error = ServiceError("no such thing", transient=False, status=422)
    queue.take(some(2))
    queue.deliver()
    assert queue.refused == "no such thing"
    assert len(queue) == 0


def test_nothing_is_dropped_because_of_a_certificate():
    store = MoodyStore()
    queue = DeliveryQueue(store)
    store.error = ServiceError("TLS: certificate has expired", transient=False)
    queue.take(some(5))
    with pytest.raises(ServiceError) as raised:
        queue.deliver()
    assert raised.value is store.error
    store.error = None
    queue.deliver()
    assert store.taken == some(5)


def test_one_that_will_never_be_taken_costs_none_of_its_message():
    class Strict(MoodyStore):
        def store(self, measurements):
            if any(m.value > 1 for m in measurements):
                raise ServiceError("a share of 7", transient=False, status=422)
            return super().store(measurements)

    store = Strict()
    queue = DeliveryQueue(store)
    wrong = Measurement(ADA, 500.0, 7.0)
    queue.take([*some(40), wrong, *some(80)[40:]])
    queue.deliver()
    assert store.taken == some(80)
    assert (queue.refused, len(queue)) == ("a share of 7", 0)


class BusyStore:
    """Refuses what it is given a few times, as a service does whose forecasters are behind."""

    def __init__(self, refusals, status=429):
        self.left, self.error = refusals, ServiceError("no", transient=True, status=status)
        self.messages = []

    def store(self, message):
        self.left -= 1
        if self.left >= 0:
            raise self.error
        self.messages.append(message)
        return {"stored": len(message), "refused_total": 0}


NAMES = [SeriesName("degrees", host) for host in "abc"]
HISTORY = [Measurement(NAMES[step % 7 % 3], float(step), 0.5) for step in range(3000)]


def test_a_history_goes_to_a_busy_service_in_time_but_does_not_wait_for_ever():
    waits, store = [], BusyStore(3)
    receipts = list(store_history(store, HISTORY, waits.append))
    assert [one for message in store.messages for one in message] == HISTORY
    assert sum(receipt["stored"] for receipt in receipts) == len(HISTORY)
    assert waits == [5.0] * 3
    with pytest.raises(ServiceError):
        list(store_history(BusyStore(10**6), HISTORY, waits.append))
    assert len(waits) == 3 + 120
    with pytest.raises(ServiceError):
        list(store_history(BusyStore(1, status=507), HISTORY, waits.append))
    assert len(waits) == 3 + 120


def test_a_message_of_a_history_has_few_measurements_of_a_series():
    store = BusyStore(0)
    list(store_history(store, HISTORY, lambda _: None))
    most = max(
        sum(m.series == name for m in message) for message in store.messages for name in NAMES
    )
    assert most == 250
    assert len(store.messages) < 10
    assert list(store_history(store, [], lambda _: None)) == []


def test_what_a_service_refuses_of_a_history_costs_itself():
    class StrictStore(BusyStore):
        def store(self, message):
            if any(m.time % 1000 == 7 for m in message):
                raise ServiceError("422", transient=False, status=422)
            return super().store(message)

    store = StrictStore(0)
    receipts = list(store_history(store, HISTORY, lambda _: None))
    assert sum(receipt["refused_total"] for receipt in receipts) == 3
    assert sum(receipt["stored"] for receipt in receipts) == 2997
    assert sorted(m.time for message in store.messages for m in message) == [
        m.time for m in HISTORY if m.time % 1000 != 7
    ]


def test_a_link_is_kept_busy_for_no_more_than_its_share():
    budget, now, busy = Budget(), 0.0, 0.0
    for _ in range(2000):
        if budget.may_use("bob", now):
            budget.busy("bob", 0.3, now)
            busy += 0.3
        now += 1.7
    assert busy <= 0.01 * now + 0.3
    assert busy >= 0.008 * now
    with pytest.raises(InputError) as raised:
        Budget(bytes_per_day=float("nan"))
    assert (raised.value.code, raised.value.fields["field"]) == ("value-range", "bytes_per_day")


def test_a_wrong_token_loses_nothing():
    store = MoodyStore()
    queue = DeliveryQueue(store)
    store.error = ServiceError("a bearer token is wanted", transient=False, status=401)
    queue.take(some(2))
    with pytest.raises(ServiceError):
        queue.deliver()
    assert len(queue) == 2


def test_a_cpu_budget_is_kept_on_average():
    budget, spent, now = Budget(bytes_per_day=0), 0.0, 0.0
    while now < 10 * 3600:
        if budget.may_spin(now):
            budget.spun(0.1, now)
            spent += 0.1
        now += 1.0
    assert spent <= 0.005 * (now + 3600) + 0.1
    assert spent >= 0.005 * now
    assert not budget.may_send(now)


def test_leases_run_out_on_the_clock_that_only_goes_forward():
    leases = LeaseRegistry(most=2)

    def registration(name, owner="op"):
        return Registration(name, "sensor", name, "local", "", (), owner)

    leases.renew(registration("ada"), 10.0, 0.0)
    assert set(leases.alive(9.9)) == {"ada"}
    assert set(leases.alive(10.0)) == set()
    leases.renew(registration("ada"), 10.0, 20.0)
    leases.renew(registration("bob"), 10.0, 20.0)
    for name, owner, code in (
        ("cyd", "op", "too-many-registrations"),
        ("ada", "thief", "name-taken"),
    ):
        with pytest.raises(LeaseError) as raised:
            leases.renew(registration(name, owner), 10.0, 21.0)
        assert raised.value.code == code


def test_missed_rounds_are_not_made_up_for():
    assert [next_round(0.0, 10.0, now) for now in (0.0, 5.0, 45.0, 50.0)] == [10, 10, 50, 60]


def test_stolen_time_is_a_share_and_jumps_are_nothing():
    before = parse_cpu_times("cpu0 10 0 0 80 0 0 0 10 0 0\ncpu1 1 1 1 1 1 1 1 1\n", {0})
    after = parse_cpu_times("cpu0 20 0 0 140 0 0 0 40 0 0\n", {0})
    assert after.stolen_since(before) == pytest.approx(0.3)
    assert before.stolen_since(after) == 0.0
    assert CpuTimes(100, 99).stolen_since(CpuTimes(90, 5)) == 0.0


def test_options_are_checked():
    with pytest.raises(SystemExit):
        parse(["--service", "http://x", "--token-file", "t", "--listen", "nonsense"])
    found = parse(["--service", "http://x", "--token-file", "t", "--listen", "[::1]:99"])
    assert found.listen == ("::1", 99)


def test_a_sensor_process_reports_and_leaves(serving):
    command = [sys.executable, "-m", "nws.sensing", "--service", serving.url, "--rounds", "3"]
    command += ["--token-file", str(serving.tokens.path.with_name("token")), "--host", "sensed"]
    command += ["--every", "0.2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    with Client(serving.url, serving.token) as client:
        found = {entry["series"]: entry for entry in client.series("*/sensed")["series"]}
        assert {"availableCpu/sensed", "freeMemory/sensed", "freeDisk/sensed"} <= set(found)
        assert "sensed" not in {entry["name"] for entry in client.sensors()}


def test_a_sensor_on_standard_output_speaks_the_messages_of_the_ingest(serving):
    command = [sys.executable, "-m", "nws.sensing", "--stdout", "--rounds", "2"]
    command += ["--every", "0.1", "--host", "afar"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    assert {m.series.host for line in lines for m in read_batch(line)} == {"afar"}
    url, headers = f"{serving.url}/v1/measurements", {"Authorization": f"Bearer {serving.token}"}
    for line in lines:
        answer = requests.post(url, data=line, headers=headers, timeout=120)
        assert answer.json()["stored"] == len(read_batch(line))


@pytest.mark.parametrize(
    "options", [[], ["--stdout", "--service", "http://x"], ["--service", "x"]]
)
def test_a_sensor_reports_to_one_reader(options):
    with pytest.raises(SystemExit):
        parse(options)


def test_a_sensor_process_is_light():
    code = """
import sys
import nws.sensing.process, nws.sensing.process, nws.client
heavy = {"numpy", "click", "fastapi", "pydantic", "scipy", "uvicorn", "psutil"} & set(sys.modules)
status = open("/proc/self/status").read()
print(sorted(heavy), [line for line in status.splitlines() if "VmRSS" in line][0])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.startswith("[] ")
    assert int(re.search(r"(\d+) kB", done.stdout).group(1)) < 40_000


@pytest.mark.more
def test_three_hosts_measure_their_links_in_turns(tmp_path):
    """Slow: a service that was just started grants no turn for 21 s."""
    with Serving(tmp_path, Listen(port=0), period=5.0) as serving:
        processes = []
        try:
            for host in ("ada", "bob", "cyd"):
                command = [sys.executable, "-m", "nws.sensing", "--service", serving.url]
                command += ["--token-file", str(tmp_path / "token"), "--listen", "127.0.0.1:0"]
                processes.append(subprocess.Popen([*command, "--host", host, "--every", "0.5"]))
            kinds = ("latencyTcp", "jitterTcp", "bandwidthTcp", "connectTimeTcp")
            pairs = permutations(("ada", "bob", "cyd"), 2)
            wanted = {f"{kind}/{a}/{b}" for a, b in pairs for kind in kinds}
            with Client(serving.url, serving.token) as client:
                until(
                    lambda: wanted <= {entry["series"] for entry in client.series("*")["series"]},
                    seconds=300,
                )
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                assert process.wait(120) == 0


class HangingService:
    """Takes a message, and does not answer it before it is told to."""

    def __init__(self):
        self.asked, self.answer, self.taken = Event(), Event(), []

    def store(self, measurements):
        self.asked.set()
        assert self.answer.wait(300)
        self.taken += measurements
        return {"refused": []}

    def register(self, name, **registration):
        return {}

    def leave(self, name):
        pass


def test_service_that_hangs_does_not_stop_the_measuring():
    service = HangingService()
    options = parse(
        ["--service", "http://x", "--token-file", "t", "--every", "0.1", "--rounds", "8"]
    )
    process = SensorProcess(options, lambda: service)
    thread = Thread(target=process.run, daemon=True)
    thread.start()
    assert service.asked.wait(300)
    until(lambda: process.rounds == 8)  # while the first message is not answered
    assert service.taken == []
    service.answer.set()
    thread.join(300)
    assert len({m.time for m in service.taken if m.series.resource == "freeDisk"}) == 8


def test_queue_that_overflows_while_a_message_is_sent_loses_the_oldest_only():
    class SlowStore(MoodyStore):
        def store(self, measurements):
            if not self.taken:
                queue.take(some(12)[6:])  # of another thread, while this message is sent
            return super().store(measurements)

    store = SlowStore()
    queue = DeliveryQueue(store, most=8)
    queue.take(some(6))
    queue.deliver()
    assert store.taken == some(12)
    assert (len(queue), queue.lost) == (0, 4)


def test_endpoint_that_listens_everywhere_is_registered_by_the_way_to_the_service():
    assert reachable_address(("10.0.0.1", 9000), "http://127.0.0.1:1") == "10.0.0.1:9000"
    assert reachable_address(("::1", 9000), "http://127.0.0.1:1") == "[::1]:9000"
    with pytest.raises(InputError) as raised:
        reachable_address(("::", 9000), "http://[::1]:1")
    assert raised.value.code == "listen-address-unknown"


@pytest.mark.parametrize("listen", ["0.0.0.0:9000", "9000", ":9000"])
def test_sensor_that_peers_could_not_dial_ends_with_the_option(tmp_path, listen):
    token = tmp_path / "token"
    token.write_text("nws_secret")
    token.chmod(0o600)
    line = refused(token, "--listen", listen)
    assert line.startswith("nws sense: --listen 0.0.0.0: ")
    assert line.endswith(" [listen-address-unknown]")


class OneTurn:
    """A service that grants one turn for some peers, with an endpoint of the peer's."""

    def __init__(self, *addresses, seconds=20.0):
        self.peers = [{"name": f"h{n}", "address": each} for n, each in enumerate(addresses)]
        self.seconds, self.ended = seconds, []

    def probing_secret(self):
        return "known to both sides"

    def ask_turn(self, host):
        turn = {"turn": "t", "seconds": self.seconds, "peers": self.peers, "retry_after": None}
        return turn if not self.ended else {**turn, "turn": None, "retry_after": 5.0}

    def end_turn(self, turn, probed):
        self.ended.append((turn, list(probed)))


def probes_of(service, listen=("127.0.0.1", 0), clock=time.monotonic):
    """Return the series that a prober measured in one turn, and the states that it logged."""
    taken, states = [], []

    def log(what, state):
        states.append(f"{what}: {state}")

    prober = LinkProber("ada", service, listen, Budget(), taken.extend, log, clock)
    try:
        prober.step()
    finally:
        prober.close()
    return {m.series.resource for m in taken}, states


def test_prober_measures_its_peers_and_gives_the_turn_back():
    with Endpoint("known to both sides") as peer:
        service = OneTurn(f"127.0.0.1:{peer.address[1]}")
        kinds, _ = probes_of(service)
    assert {"connectTimeTcp", "latencyTcp", "bandwidthTcp"} <= kinds
    assert service.ended == [("t", ["h0"])]


def test_prober_starts_nothing_when_the_answer_came_too_late():
    clock = chain([0.0], repeat(19.9))  # asked at 0; 20 s less 1 % are nearly over
    with Endpoint("known to both sides") as peer:
        service = OneTurn(f"127.0.0.1:{peer.address[1]}")
        kinds, _ = probes_of(service, clock=clock.__next__)
    assert (kinds, service.ended) == (set(), [("t", [])])


@pytest.mark.parametrize("address", ["0.0.0.0:9", "127.0.0.1:9", "[::1]:9", "localhost:9", "ada"])
def test_prober_never_dials_its_own_host_for_a_peer(address):
    service = OneTurn(address)
    kinds, states = probes_of(service, listen=("::", 0))
    assert (kinds, service.ended) == (set(), [("t", [])])
    assert any(state.startswith(f"link to {address}: is not probed") for state in states)


def test_sensor_without_its_service_probes_no_link():
    class Gone(OneTurn):
        def ask_turn(self, host):
            raise ServiceError("nothing answers", transient=True)

    with Endpoint("known to both sides") as peer:
        kinds, states = probes_of(Gone(f"127.0.0.1:{peer.address[1]}"))
    assert (kinds, states) == (set(), ["turns: nothing answers"])


def refused(file, *more):
    """Return the line with which a sensor ends that is given a wrong option."""
    words = ["--service", "http://127.0.0.1:9", "--token-file", str(file), *more]
    done = subprocess.run(
        [sys.executable, "-m", "nws.sensing", *words],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    return line


@pytest.mark.parametrize("token", [b"\xff\xfe", b"secret\nsecret", b""])
def test_a_file_of_no_token_ends_the_sensor_with_its_name(tmp_path, token):
    file = tmp_path / "given"
    file.write_bytes(token)
    file.chmod(0o600)
    line = refused(file)
    assert line.startswith(f"nws sense: {file}: ")
    assert line.endswith(" [token-invalid]")
    assert "secret" not in line


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o622])
def test_a_token_that_others_can_get_at_ends_the_sensor(tmp_path, mode):
    file = tmp_path / "given"
    file.write_text("nws_secret")
    file.chmod(mode)
    line = refused(file)
    assert line.startswith(f"nws sense: {file}: ")
    assert f"(mode {mode:o}): chmod 600 {file}" in line
    assert line.endswith(" [file-not-private]")


@pytest.mark.parametrize("status", [200, 302, 400, 404, 405, 421, 500])
def test_nothing_is_dropped_when_something_else_answers(status):
    store = MoodyStore()
    queue = DeliveryQueue(store)
    store.error = ServiceError("Not Found", transient=False, status=status)
    queue.take(some(5))
    with pytest.raises(ServiceError):
        queue.deliver()
    assert (len(queue), queue.refused) == (5, None)


def test_message_that_is_too_large_is_split():
    class Narrow(MoodyStore):
        def store(self, measurements):
            if len(measurements) > 7:
                raise ServiceError("too large", transient=False, status=413)
            return super().store(measurements)

    store = Narrow()
    queue = DeliveryQueue(store)
    queue.take(some(40))
    queue.deliver()
    assert store.taken == some(40)


class StrictService(MoodyStore):
    """Registers nobody, and refuses values above 1; or is not the service at all."""

    def __init__(self, error=None):
        super().__init__()
        self.error, self.registrations = error, []

    def register(self, name, **registration):
        self.registrations.append(registration)
        raise ServiceError(
            f"http://x/v1/sensors/{name}: the name is taken", transient=False, status=409
        )

    def leave(self, name):
        pass


def states_of(service, caplog, *more):
    """Return what a sensor process of three rounds logs."""
    words = ["--service", "http://x", "--token-file", "t", "--every", "0.1", "--rounds", "3"]
    with caplog.at_level("INFO", LOG.name):
        SensorProcess(parse([*words, *more]), lambda: service).run()
    return [record.getMessage() for record in caplog.records]


def test_registration_that_fails_does_not_stop_the_delivery(caplog):
    service = StrictService()
    states = states_of(service, caplog)
    assert {m.series.resource for m in service.taken} >= {"freeDisk"}
    assert states.count("registration: http://x: the name is taken") == 1
    assert states.count("delivery: works") == 1


def test_measurements_that_are_refused_are_logged(caplog):
    states = states_of(StrictService(ServiceError("no", transient=False, status=422)), caplog)
    assert "refused: no" in states


def test_measurements_that_are_not_delivered_are_counted_at_the_end(caplog):
    states = states_of(StrictService(ServiceError("no", transient=False, status=404)), caplog)
    assert "delivery: no" in states
    assert "delivery: works" not in states
    assert re.fullmatch(r"delivery: ends; \d+ measurements are not delivered", states[-1])


def test_sensor_that_measures_once_a_day_asks_for_a_lease_that_is_granted(caplog):
    service = StrictService()
    states_of(service, caplog, "--every", "86400", "--rounds", "1")
    seconds = service.registrations[0]["seconds"]
    lease = Registration("ada", "sensor", "ada", "local", "", (), "op")
    LeaseRegistry(most=1).renew(lease, seconds, 0.0)


def test_peer_whose_probes_all_fail_is_logged_and_moves_on():
    with Endpoint("known to both sides") as peer:
        address = f"127.0.0.1:{peer.address[1]}"
    service = OneTurn(address)  # nothing listens there any more
    kinds, states = probes_of(service)
    assert (kinds, service.ended) == (set(), [("t", ["h0"])])
    assert not any("measured" in state for state in states)
    (state,) = [state for state in states if state.startswith("link to h0: ")]
    assert "refused" in state


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--host", "a/b"),
        ("--site", "a/b"),
        ("--bytes-per-day", "-1"),
        ("--bytes-per-day", "nan"),
        ("--every", "0"),
        ("--every", "often"),
        ("--listen", "127.0.0.1:99999"),
        ("--listen", ":-5"),
        ("--listen", "nonsense"),
        ("--service", "ftp://x"),
        ("--service", "nohost"),
        ("--service", "http://"),
        ("--service", f"http://{'a' * 70}"),
        ("--service", "http://x:99999"),
        ("--prometheus", "ftp://x"),
        ("--ca", "authorities.pem"),
    ],
)
def test_wrong_option_of_a_sensor_is_one_line(capsys, option, value):
    words = ["--service", "http://127.0.0.1:9", "--token-file", "t", "--listen", "0.0.0.0:0"]
    with pytest.raises(SystemExit) as raised:
        parse([*words, option, value])
    assert raised.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("nws sense: ")
    assert option in line
    assert line.endswith(" [option-invalid]")
    assert not re.search(r" _\w+|this machine", line)


def test_measurements_that_are_lost_are_counted_in_the_log(caplog):
    service = StrictService(ServiceError("no", transient=False, status=404))
    words = ["--service", "http://x", "--token-file", "t", "--every", "0.1", "--rounds", "5"]
    process = SensorProcess(parse(words), lambda: service)
    process.deliveries.take(some(20_500))
    with caplog.at_level("INFO", LOG.name):
        process.run()
    states = [record.getMessage() for record in caplog.records]
    lost = [state for state in states if state.startswith("lost: ")]
    assert lost[-1] == f"lost: {process.deliveries.lost} measurements, as too many waited"
    assert len(lost) <= 2
