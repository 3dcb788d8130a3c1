"""The scheduler's socket: events that go on after a cut, bounds that are told, figures for who collects them."""

import contextlib
import http.client
import json
import socket
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from waiting import until

from apples.cluster import (
    MAX_CONNECTIONS,
    MAX_EVENTS,
    MAX_STREAMS,
    CrowdedError,
    ForbiddenError,
    JobExecutor,
    ListenerLimits,
    LiveScheduler,
    Principal,
    QueueLimits,
    SchedulerLog,
    SchedulerService,
    Scope,
    StreamPlaces,
    serve,
)
from apples.errors import UsageError
from apples.scheduling import FirstFit
from apples.ui import EventStreamLog

SUBMISSION = {"minimum": 1, "maximum": 1, "kind": "rigid", "work": {}}


class NoJobs(JobExecutor):
    """Carries nothing out."""

    def carry_out(self, orders):
        pass

    def reports(self):
        return []

    def close(self):
        pass


class Site:
    """A scheduler that listens, on a clock that stands."""

    def __init__(self, folder, queue=QueueLimits(), limits=ListenerLimits()):  # noqa: B008 - frozen
        self.folder, self.sockets = folder, []
        self.queue, self.limits = queue, limits
        self.begin()

    def begin(self):
        one = LiveScheduler(
            SchedulerLog.open(self.folder),
            FirstFit(),
            ["ada", "bob"],
            0.0,
            1e9,
            lambda: "0badcafe",
            limits=self.queue,
        )
        self.service = SchedulerService(one, lambda: 0.0)
        listens = threading.Event()
        self.thread = threading.Thread(
            target=serve,
            args=(self.service, NoJobs(), self.folder, lambda _: listens.set()),
            kwargs={"limits": self.limits},
        )
        self.thread.start()
        assert listens.wait(30)

    def end(self):
        self.service.stop()
        self.thread.join()

    def connected(self):
        there = socket.socket(socket.AF_UNIX)
        self.sockets.append(there)
        there.settimeout(30)
        there.connect(str(self.folder / "socket"))
        return there

    def answer(self, method, path, body=None, headers=()):
        connection = http.client.HTTPConnection("x")
        there = connection.sock = self.connected()
        data = None if body is None else json.dumps(body)
        connection.request(method, path, data, dict(headers))
        answer = connection.getresponse()
        data = answer.read()
        there.close()
        return answer, data

    def submit(self):
        answer, data = self.answer("POST", "/v1/jobs", {"submission": SUBMISSION})
        assert answer.status == 200, data
        return json.loads(data)["job"]

    def stream(self, last=""):
        """Return a stream's connection and its events as they come."""
        connection = http.client.HTTPConnection("x")
        there = connection.sock = self.connected()
        connection.request("GET", "/v1/events", headers={"Last-Event-ID": last} if last else {})
        answer = connection.getresponse()
        assert answer.status == 200
        return there, events_of(answer)


def events_of(answer):
    found = {}
    for line in iter(answer.readline, b""):
        name, _, value = line.decode().rstrip("\n").partition(": ")
        if name:
            found[name] = value
        elif "event" in found:
            yield found["id"], found["event"], json.loads(found["data"])
            found = {}


@pytest.fixture
def site(tmp_path):
    one = Site(tmp_path)
    yield one
    for there in one.sockets:
        there.close()
    one.end()


def next_of(events, kind):
    return next(one for one in events if one[1] == kind)


def test_a_stream_begins_with_the_queue_goes_on_with_changes_and_is_taken_up_after_a_cut(site):
    site.submit()
    there, events = site.stream()
    _, kind, queue = next(events)
    assert (kind, [job["job"] for job in queue["jobs"]]) == ("queue", ["local.1"])
    site.submit()
    last, _, job = next_of(events, "job")
    assert (job["job"], job["state"]) == ("local.2", "queued")
    there.close()
    site.submit()
    there, events = site.stream(last)
    missed = [next_of(events, "job")[2]["job"] for _ in range(1)]
    while "local.3" not in missed:  # what became of the others in between came first
        missed.append(next_of(events, "job")[2]["job"])
    there.close()
    there, events = site.stream("99-1")
    assert next(events)[1] == "queue"
    there.close()


def test_who_was_away_during_a_restart_gets_the_queue_anew(site):
    site.submit()
    there, events = site.stream()
    last = next(events)[0]
    there.close()
    site.end()
    site.begin()
    there, events = site.stream(last)
    assert next(events)[1] == "queue"
    there.close()


def test_a_stream_ends_when_the_scheduler_does(site):
    _, events = site.stream()
    next(events)
    site.end()
    assert [one for one in events if one[1] != "hosts"] == []
    site.begin()


@given(st.lists(st.booleans(), max_size=40), st.integers(0, 60))
def test_a_reader_misses_nothing_or_is_told(doings, number):
    log = EventStreamLog("1", MAX_EVENTS)
    for puts in doings:
        log.put("job", {}) if puts else log.forget()
    found = log.after(number)
    if found is not None:
        assert [one.number for one in found] == list(range(number + 1, log.last + 1))
    else:
        assert number > log.last or not all(doings[number:])


def test_only_so_many_events_are_kept():
    log = EventStreamLog("1", MAX_EVENTS)
    for _ in range(MAX_EVENTS + 10):
        log.put("job", {})
    assert log.after(9) is None
    assert len(log.after(10)) == MAX_EVENTS


def test_one_stream_too_many_is_told_so_and_may_come_again(site):
    streams = [site.stream() for _ in range(MAX_STREAMS)]
    for _, events in streams:
        next(events)
    answer, data = site.answer("GET", "/v1/events")
    assert (answer.status, answer.headers["Retry-After"]) == (429, "1")
    refused = json.loads(data)
    assert refused.pop("reason")
    assert refused == {
        "code": "too-many-requests",
        "fields": {"bound": MAX_STREAMS},
        "exit_code": 4,
        "transient": True,
    }
    for there, _ in streams:
        there.close()
    assert site.submit() == "local.1"  # which makes the closed streams be seen


def test_one_reader_cannot_take_all_streams():
    places = StreamPlaces(24)
    ada, bob, cleo = (Principal(name, frozenset({Scope.READ})) for name in ("ada", "bob", "cleo"))
    operator = Principal("uid:0", frozenset(Scope))
    for reader, count in ((ada, 8), (bob, 8), (cleo, 4)):
        for _ in range(count):
            places.take(reader)
        with pytest.raises(CrowdedError):
            places.take(reader)
    for _ in range(4):
        places.take(operator)
    with pytest.raises(CrowdedError):
        places.take(operator)
    places.give_back(ada)
    places.take(operator)


def test_only_the_operator_raises_a_priority(site):
    ada = Principal("ada", frozenset({Scope.SUBMIT}))
    operator = Principal("uid:0", frozenset(Scope))
    above, below = ({"submission": {**SUBMISSION, "priority": at}} for at in (1.0, -1.0))
    with pytest.raises(ForbiddenError, match="--priority 1"):
        site.service.submit(above, ada)
    site.service.submit(below, ada)
    site.service.submit(above, operator)


def test_one_connection_too_many_is_told_so(site):
    many = [site.connected() for _ in range(MAX_CONNECTIONS)]

    def refused():
        with site.connected() as one:
            one.sendall(b"GET /v1/queue HTTP/1.1\r\nHost: x\r\n\r\n")
            return b" 429 " in one.recv(100)

    until(refused)
    for one in many:
        one.close()
    until(lambda: site.answer("GET", "/v1/queue")[0].status == 200)


def test_a_connection_closed_before_its_answer_keeps_its_place_until_the_answer_is_there(
    site, monkeypatch
):
    goes_on, asked = threading.Event(), threading.Semaphore(0)
    ask = site.service.ask

    def waits(call):
        asked.release()
        assert goes_on.wait(60)
        return ask(call)

    monkeypatch.setattr(site.service, "ask", waits)
    stays = http.client.HTTPConnection("x")
    stays.sock = site.connected()
    try:
        many = [site.connected() for _ in range(MAX_CONNECTIONS - 1)]
        for one in many:
            one.sendall(b"GET /v1/queue HTTP/1.1\r\nHost: x\r\n\r\n")
        for one in many:
            assert asked.acquire(timeout=60)
            one.close()
        for _ in range(3):  # the server looks at all its sockets before each of these answers
            stays.request("GET", "/nothing")
            answer = stays.getresponse()
            assert (answer.status, bool(answer.read())) == (404, True)
        with site.connected() as more:
            assert b" 429 " in more.recv(100)
    finally:
        goes_on.set()

    def admitted():
        with site.connected() as one, contextlib.suppress(BrokenPipeError, ConnectionResetError):
            one.sendall(b"GET /v1/queue HTTP/1.1\r\nHost: x\r\n\r\n")
            return b" 200 " in one.recv(100)

    until(admitted)


def test_one_job_too_many_is_told_so(tmp_path):
    site = Site(tmp_path, QueueLimits(waiting=0))
    try:
        answer, data = site.answer("POST", "/v1/jobs", {"submission": SUBMISSION})
    finally:
        site.end()
    refused = json.loads(data)
    assert (answer.status, refused["code"]) == (429, "queue-full")
    assert refused["fields"] == {"bound": 0}


def test_the_figures_are_as_a_collector_reads_them(site):
    site.submit()
    answer, data = site.answer("GET", "/metrics")
    assert answer.headers["Content-Type"].startswith("text/plain")
    lines = data.decode().splitlines()
    assert "apples_scheduler_submitted_total 1" in lines
    assert "apples_scheduler_recording 1" in lines
    assert 'apples_scheduler_hosts{state="free"} 2' in lines
    assert all(line.startswith(("# TYPE ", "apples_scheduler_")) for line in lines)


def test_a_slow_reader_is_cut_and_holds_nobody_up(tmp_path):
    site = Site(tmp_path, limits=ListenerLimits(streams=1, request_seconds=0.2))

    def status():
        with site.connected() as there:
            there.sendall(b"GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n")
            return there.recv(12)

    try:
        slow = site.connected()
        slow.sendall(b"GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n")
        assert slow.recv(12) == b"HTTP/1.1 200"
        assert status() == b"HTTP/1.1 429"
        assert site.submit() == "local.1"

        def slow_is_cut():
            # More at each look: a late server sends a snapshot in place of many events, which fits into buffers.
            for _ in range(20):
                site.service.events.put("job", {"much": "x" * 100_000})
            return status() == b"HTTP/1.1 200"

        until(slow_is_cut)
    finally:
        for there in site.sockets:
            there.close()
        site.end()


def test_a_reader_that_goes_on_taking_an_answer_is_not_cut(tmp_path, monkeypatch):
    seconds = 1.5  # a reader that stands still for so long may be cut
    site = Site(tmp_path, limits=ListenerLimits(request_seconds=seconds))
    monkeypatch.setattr(site.service, "ask", lambda _: {"much": "x" * 8_000_000})
    try:
        there = site.connected()
        there.sendall(b"GET /v1/queue HTTP/1.1\r\nHost: x\r\n\r\n")
        taken, started = 0, time.monotonic()
        while taken < 8_000_000:
            part = there.recv(20_000)
            assert part, f"cut after {taken} bytes, {time.monotonic() - started:.2f} s"
            taken += len(part)
            time.sleep(0.01)  # 400 parts or more: several times `seconds`
        assert time.monotonic() - started > 2 * seconds
    finally:
        for each in site.sockets:
            each.close()
        site.end()


def test_requirement_is_refused_where_hosts_have_no_topology_daemon(site):
    body = {"submission": {**SUBMISSION, "work": {"require": "MAX_RADIUS=1"}}}
    principal = Principal("uid:0", frozenset(Scope))
    lacking = ["n1"]
    service = SchedulerService(site.service.scheduler, lambda: 0.0, None, None, lambda: lacking)
    with pytest.raises(UsageError) as refused:
        service.submit(body, principal)
    assert (refused.value.code, refused.value.fields["hosts"]) == ("daemon-missing", ["n1"])
    lacking.clear()
    service.submit(body, principal)
