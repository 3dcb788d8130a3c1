"""The sensor process: light, patient with its service, and within its budgets."""

import re
import subprocess
import sys
import time

import pytest
import requests

from nws import (
    Budget,
    Client,
    CpuTimes,
    DailyWindow,
    DeliveryQueue,
    InputError,
    LeaseError,
    LeaseRegistry,
    Measurement,
    MemberAddress,
    MembershipView,
    PeriodicTasks,
    Registration,
    SeriesName,
    ServiceError,
    parse,
    parse_cpu_times,
    read_batch,
    store_history,
)

ADA = SeriesName("availableCpu", "ada")


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
    budget, now, busy = Budget(link_share=0.02), 0.0, 0.0
    for _ in range(2000):
        if budget.may_use("bob", now):
            budget.busy("bob", 0.3, now)
            busy += 0.3
        now += 1.7
    assert busy <= 0.02 * now + 0.3
    assert busy >= 0.015 * now
    with pytest.raises(InputError) as raised:
        Budget(link_share=0.0)
    assert (raised.value.code, raised.value.fields["field"]) == ("value-range", "link_share")


def test_a_wrong_token_loses_nothing():
    store = MoodyStore()
    queue = DeliveryQueue(store)
    store.error = ServiceError("a bearer token is wanted", transient=False, status=401)
    queue.take(some(2))
    with pytest.raises(ServiceError):
        queue.deliver()
    assert len(queue) == 2


def test_a_cpu_budget_is_kept_on_average():
    budget, spent, now = Budget(cpu_share=0.005, bytes_per_day=0), 0.0, 0.0
    while now < 10 * 3600:
        if budget.may_spin(now):
            budget.spun(0.1, now)
            spent += 0.1
        now += 1.0
    assert spent <= 0.005 * (now + 3600) + 0.1
    assert spent >= 0.005 * now
    assert not budget.may_send(now)


def test_windows_of_time_are_kept_over_midnight():
    night = DailyWindow.parse("22:00-06:00")
    assert [night.holds(60 * hour) for hour in (21, 22, 0, 5, 6, 12)] == [
        False, True, True, True, False, False,
    ]  # fmt: skip
    with pytest.raises(InputError) as raised:
        DailyWindow.parse("25:00-26:00")
    assert raised.value.fields == {"value": "25:00-26:00"}


def test_a_list_of_members_is_not_gone_by_before_the_old_one_must_have_run_out():
    one = (MemberAddress("ada", ("h", 1)), MemberAddress("bob", ("h", 2)))
    two = (*one, MemberAddress("cyd", ("h", 3)))
    view = MembershipView()
    for now in range(0, 200, 20):
        view.confirm(one, 10.0, float(now))
    assert view.members(180.0) == one
    view.confirm(two, 10.0, 200.0)
    assert view.members(200.0) is None
    for now in range(220, 280, 20):
        view.confirm(two, 10.0, float(now))
    assert view.members(269.0) is None
    assert view.members(271.0) == two
    assert view.members(400.0) is None  # the service has not confirmed it


def test_leases_run_out_on_the_clock_that_only_goes_forward():
    leases = LeaseRegistry(most=2)

    def registration(name, owner="op"):
        return Registration(name, "sensor", name, "local", "", (), owner)

    leases.renew(registration("ada"), 10.0, 0.0)
    assert set(leases.alive(9.9)) == {"ada"}
    assert set(leases.alive(10.0)) == set()
    leases.renew(registration("ada"), 10.0, 20.0)
    leases.renew(registration("bob"), 10.0, 20.0)
    for name, owner, seconds, code in (
        ("cyd", "op", 10.0, "too-many-registrations"),
        ("ada", "thief", 10.0, "name-taken"),
        ("ada", "op", 1e9, "value-range"),
    ):
        with pytest.raises(LeaseError) as raised:
            leases.renew(registration(name, owner), seconds, 21.0)
        assert raised.value.code == code


def test_missed_rounds_are_not_made_up_for():
    schedule, done = PeriodicTasks(0.0), []
    schedule.add(10.0, lambda: done.append(1))
    for now in (0.0, 5.0, 45.0, 46.0, 50.0):
        schedule.run(now)
    assert len(done) == 3


def test_stolen_time_is_a_share_and_jumps_are_nothing():
    before = parse_cpu_times("cpu0 10 0 0 80 0 0 0 10 0 0\ncpu1 1 1 1 1 1 1 1 1\n", {0})
    after = parse_cpu_times("cpu0 20 0 0 140 0 0 0 40 0 0\n", {0})
    assert after.stolen_since(before) == pytest.approx(0.3)
    assert before.stolen_since(after) == 0.0
    assert CpuTimes(100, 99).stolen_since(CpuTimes(90, 5)) == 0.0


def test_options_are_checked():
    with pytest.raises(SystemExit):
        parse(["--service", "http://x", "--token-file", "t", "--window", "nonsense"])
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
heavy = {"numpy", "typer", "fastapi", "pydantic", "scipy", "uvicorn", "psutil"} & set(sys.modules)
status = open("/proc/self/status").read()
print(sorted(heavy), [line for line in status.splitlines() if "VmRSS" in line][0])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.startswith("[] ")
    assert int(re.search(r"(\d+) kB", done.stdout).group(1)) < 40_000


@pytest.mark.more
def test_three_hosts_form_a_clique_and_measure_their_links(tmp_path):
    """Slow: a list of members is gone by only after a minute; the view of members is made to expire quickly."""
    from nws import Listen, Serving

    code = """
import sys
import nws.sensing.clique_runtime as runtime
runtime.CONFIRMED_FOR = 3.0
import nws.sensing.process as process
process.FETCH_EVERY = 0.25
from nws import main
sys.exit(main())
"""
    with Serving(tmp_path, Listen(port=0), period=10.0) as serving:
        processes = []
        try:
            for host in ("ada", "bob", "cyd"):
                command = [sys.executable, "-c", code, "--service", serving.url, "--host", host]
                command += ["--token-file", str(tmp_path / "token"), "--listen", "127.0.0.1:0"]
                command += ["--every", "0.5", "--link-share", "1"]
                processes.append(subprocess.Popen(command))
            hosts, deadline = ("ada", "bob", "cyd"), time.monotonic() + 300
            wanted = {
                f"{resource}/{a}/{b}"
                for resource in (
                    "latencyTcp",
                    "jitterTcp",
                    "bandwidthTcp",
                    "connectTimeTcp",
                )
                for a in hosts
                for b in hosts
                if a != b
            }
            with Client(serving.url, serving.token) as client:
                found = set()
                while not wanted <= found and time.monotonic() < deadline:
                    time.sleep(0.05)  # between two looks, with a deadline
                    found = {entry["series"] for entry in client.series("*")["series"]}
            assert wanted <= found
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                assert process.wait(120) == 0


def refused(file):
    """Return the line with which a sensor ends that is given a file of no good token."""
    words = ["--service", "http://127.0.0.1:9", "--token-file", str(file)]
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
