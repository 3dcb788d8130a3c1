"""The control protocol: what an agent is told is true, whatever connection fails and whatever peers send."""

import contextlib
import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from adversaries.protocol.simulation import BrokenPromiseError, SimulatedControl
from hypothesis import given
from hypothesis import strategies as st

from apples.errors import LaunchError, UsageError
from apples.io import encode
from apples.launch import HOSTS_LIMIT, HostSpec
from apples.malleable import (
    MAX_SESSIONS,
    PROTOCOL,
    CloseSession,
    CommandOutcome,
    CommandRequest,
    HostLimits,
    HostShare,
    MessageError,
    Requester,
    ResizeCommand,
    ResizeLedger,
    Responder,
    SendLine,
    SendToSession,
    WakeJob,
    carried_out,
    outcome_of,
    parse,
    request_of,
    requests,
)

SEEDS = 200
LIMITS = HostLimits(1, 3, frozenset({"ada", "bob", "cleo"}))
NAME = st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=20,
)


def resize_of(*hosts, epoch=1, id="0123456789abcdef"):  # noqa: A002 - the field's name
    return CommandRequest(id, ResizeCommand(epoch, tuple(map(HostShare, hosts))))


def status():
    return {"hosts": ["ada"]}


def histories(count=SEEDS):
    for seed in range(count):
        SimulatedControl(seed).run()


# ---------------------------------------------------------------------- simulation


@pytest.mark.more
def test_two_hundred_histories_keep_every_promise_and_settle():
    worlds = [SimulatedControl(seed) for seed in range(SEEDS)]
    for world in worlds:
        world.run()
    told = [kind for world in worlds for kind in world.record.told.values()]
    assert told.count("done") > 500  # else the histories were void
    assert told.count("nack") > 500
    assert told.count("failed") > 30
    assert sum(world.network.cuts for world in worlds) > 10_000
    reasons = {line.rsplit(b" ", 1)[1] for w in worlds for line in w.trace if b" nack " in line}
    every = {b"below_minimum", b"over_maximum", b"unknown_host", b"busy", b"stale", b"withdrawn"}
    assert every <= reasons


TESTS = str(Path(__file__).parents[1])  # where `adversaries` is


def test_a_seed_is_one_history_byte_for_byte_also_in_another_process():
    world = SimulatedControl(11)
    world.run()
    program = (
        f"import sys; sys.path.append({TESTS!r})\n"
        "from adversaries.protocol.simulation import SimulatedControl\n"
        "world = SimulatedControl(11); world.run(); print(world.digest)"
    )
    other = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": "77"},
    )
    assert other.stdout.strip() == world.digest


def forget(_self, _request, outcome):
    return outcome


PLANTED = {
    "no epoch is checked": (
        ResizeLedger, "_refusal", lambda self, c: ("busy", "") if self.busy else self.limits.refusal(c),
    ),
    "outcomes are not remembered": (ResizeLedger, "_record", forget),
    "what was taken back is not marked": (
        ResizeLedger, "withdraw", lambda _, name: CommandOutcome("nack", name, 0, "withdrawn"),
    ),
    "a second command pushes the first out": (ResizeLedger, "busy", None),
    "sessions are not closed": (Responder, "_room", lambda _: []),
    "a lost answer is not asked for again": (Requester, "tick", lambda *_: []),
}  # fmt: skip


@pytest.mark.parametrize("bug", PLANTED)
def test_the_simulation_finds_the_planted_bug(bug, monkeypatch):
    owner, name, wrong = PLANTED[bug]
    monkeypatch.setattr(owner, name, wrong)
    with pytest.raises((BrokenPromiseError, RuntimeError)):
        histories()


# -------------------------------------------------------------------------- ledger


def test_a_command_is_carried_out_once_however_often_it_is_sent():
    book, mine = ResizeLedger(LIMITS), resize_of("bob", "cleo")
    assert book.submit(mine) is None
    assert book.submit(mine) is None
    assert book.begin() == mine.command
    assert book.submit(mine) is None
    outcome = book.done(0.75, {"wait": 0.5})
    assert (outcome.kind, outcome.seconds, outcome.phases) == ("done", 0.75, {"wait": 0.5})
    assert book.submit(mine) == outcome
    assert book.begin() is None
    assert book.epoch == 1


def test_what_the_job_could_not_do_takes_its_epoch_all_the_same():
    book = ResizeLedger(LIMITS)
    book.submit(resize_of("bob"))
    book.begin()
    assert book.failed("bob does not start").detail == "bob does not start"
    assert book.submit(resize_of("bob", id="f" * 16)).reason == "stale"
    assert book.submit(resize_of("bob", epoch=2, id="e" * 16)) is None


def test_a_job_that_lost_a_host_refuses_what_was_planned_before():
    book = ResizeLedger(LIMITS)
    book.submit(resize_of("bob"))
    assert book.rolled_back(1, "ada was lost", 5).reason == "stale"
    assert book.submit(resize_of("cleo", id="f" * 16)).reason == "stale"


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (resize_of(), "below_minimum"),
        (resize_of("ada", "bob", "cleo", "ada"), "over_maximum"),
        (resize_of("zoe"), "unknown_host"),
        (resize_of("bob", epoch=2), "stale"),
        (resize_of("bob", epoch=0), "stale"),
    ],
)
def test_a_command_that_cannot_be_is_refused_with_the_reason(asked, reason):
    outcome = ResizeLedger(LIMITS).submit(asked)
    assert (outcome.kind, outcome.reason) == ("nack", reason)
    assert outcome.detail


def test_a_second_command_finds_the_job_busy():
    book = ResizeLedger(LIMITS)
    book.submit(resize_of("bob"))
    assert book.submit(resize_of("cleo", id="f" * 16)).reason == "busy"
    book.begin()
    assert book.submit(resize_of("cleo", id="e" * 16)).reason == "busy"


def test_what_was_taken_back_is_not_carried_out_even_if_it_comes_later():
    book = ResizeLedger(LIMITS)
    assert book.withdraw("0123456789abcdef").reason == "withdrawn"
    assert book.submit(resize_of("bob")).reason == "withdrawn"
    assert book.begin() is None


def test_what_has_begun_is_not_taken_back():
    book = ResizeLedger(LIMITS)
    book.submit(resize_of("bob"))
    book.begin()
    assert book.withdraw("0123456789abcdef") is None
    assert book.done(0.0, {}).kind == "done"


def test_limits_that_changed_meanwhile_count_at_the_safe_point():
    book = ResizeLedger(LIMITS)
    book.submit(resize_of("bob"))
    book.limits = HostLimits(2, 3, LIMITS.known)
    assert book.begin() is None
    assert book.outcome("0123456789abcdef").reason == "below_minimum"


def test_an_old_command_is_refused_by_its_epoch_when_nobody_remembers_it():
    book = ResizeLedger(LIMITS)
    first = resize_of("bob")
    book.submit(first)
    book.begin()
    book.done(0.0, {})
    for number in range(requests.REMEMBERED_OUTCOMES):
        book.submit(resize_of("zoe", epoch=2, id=f"{number:016x}"))
    assert book.outcome(first.id) is None
    assert book.submit(first).reason == "stale"


def test_a_job_that_ends_says_so_to_who_waits():
    book = ResizeLedger(LIMITS)
    book.submit(resize_of("bob"))
    assert book.end("finished").reason == "ending"
    assert book.submit(resize_of("cleo", id="f" * 16)).reason == "ending"


def test_a_job_that_fails_gives_its_code_to_the_command_under_way():
    book = ResizeLedger(LIMITS)
    book.submit(resize_of("bob"))
    book.begin()
    outcome = book.end("failed", "bob was lost", "too-few-hosts-left")
    with pytest.raises(LaunchError) as raised:
        carried_out(outcome)
    assert raised.value.code == "job-ended"
    assert raised.value.fields["cause"] == "too-few-hosts-left"


@pytest.mark.parametrize(
    ("code", "kind"), [("host-unknown", UsageError), ("hosts-late", LaunchError)]
)
def test_a_command_that_the_job_refuses_has_the_exit_code_of_its_code(code, kind):
    book = ResizeLedger(LIMITS)
    book.submit(resize_of("bob"))
    book.begin()
    with pytest.raises(kind) as raised:
        carried_out(book.failed("bob", code))
    assert raised.value.code == code


# ----------------------------------------------------------------------- sessions


class Line:
    """A responder and one requester, connected by hand."""

    def __init__(self, asked):
        self.book = ResizeLedger(LIMITS)
        self.job = Responder("job1", self.book, status)
        self.agent = Requester("job1", asked, 60.0)
        self.closed = []
        self.agent.start(0.0)
        self.to_agent(self.job.opened(1))

    def to_agent(self, effects):
        for effect in effects:
            if isinstance(effect, SendToSession):
                self.to_job(self.agent.received(effect.line, 0.0))
            elif isinstance(effect, CloseSession):
                self.closed.append(effect.why)

    def to_job(self, effects):
        for effect in effects:
            assert isinstance(effect, SendLine)
            self.to_agent(self.job.received(1, effect.line))


def test_a_greeted_agent_asks_and_the_job_has_its_command():
    line = Line(resize_of("bob"))
    assert line.agent.acknowledged
    assert line.book.waiting == resize_of("bob")
    line.book.begin()
    line.to_agent(line.job.send_outcome(line.book.done(1.0, {})))
    assert line.agent.outcome.kind == "done"


@pytest.mark.parametrize(
    ("hello", "code"),
    [
        ({"job": "job2", "protocol": PROTOCOL}, "job-differs"),
        ({"job": "job1", "protocol": PROTOCOL - 1}, "version-mismatch"),
        ({"job": "job1"}, "version-mismatch"),
        (["job1"], "message-invalid"),
    ],
)
def test_an_agent_asks_no_other_job_and_no_other_version(hello, code):
    agent = Requester("job1", resize_of("bob"), 60.0)
    agent.start(0.0)
    assert agent.received(encode(hello), 0.0) == []
    assert agent.settled
    assert agent.error.code == code


def test_an_answer_to_an_earlier_request_of_the_connection_is_ignored():
    agent = Requester("job1", "status", 60.0)
    (asked,) = agent.start(0.0, greeted=True)
    assert parse(asked.line) == {"request": "status"}
    agent.received(encode(CommandOutcome("done", "ab" * 8, 1).body()), 0.0)
    assert not agent.settled
    agent.received(encode({"reply": "status", "epoch": 1}), 0.0)
    assert agent.answer == {"reply": "status", "epoch": 1}


def test_the_session_that_was_silent_for_longest_makes_room():
    line = Line(resize_of("bob"))
    for number in range(2, 2000):
        line.job.opened(number)
        line.job.received(1, encode({"request": "status"}))
    assert 1 in line.job.sessions
    assert 2 not in line.job.sessions
    assert len(line.job.sessions) == MAX_SESSIONS


def test_a_waiting_command_wakes_the_job():
    job = Responder("job1", ResizeLedger(LIMITS), status)
    job.opened(1)
    assert WakeJob() in job.received(1, encode(resize_of("bob").body()))


# -------------------------------------------------------------------------- lines


@given(JSON)
def test_whatever_is_sent_is_read_or_refused(value):
    try:
        line = encode(value)
    except ValueError:
        return
    if not isinstance(value, dict):
        with pytest.raises(MessageError):
            parse(line)
        return
    with contextlib.suppress(MessageError):  # deeper than ours ever are
        assert encode(parse(line)) == line


@given(st.binary(max_size=300))
def test_whatever_bytes_come_a_session_ends_in_peace(data):
    job = Responder("job1", ResizeLedger(LIMITS), status)
    job.opened(1)
    assert [type(e) for e in job.received(1, data)] == [CloseSession]


@pytest.mark.parametrize(
    "line",
    [b"", b"[]", b"1", b"nan", b'{"a": NaN}', b'{"a": 1e999}', b'{"a": 1, "a": 2}', b"[" * 500,
     b'{"a":' * 60 + b"1" + b"}" * 60, b"{" + b" " * 1_100_000 + b"}", b'{"a": "\xff"}',
     b'{"a": ' + b"9" * 5000 + b"}"],
)  # fmt: skip
def test_a_line_that_is_no_object_of_ours_is_refused(line):
    with pytest.raises(MessageError):
        parse(line)


def place(host, **more):
    words = {
        "program": ("run",),
        "python": "{python}",
        "bind": "b",
        "mpiexec": "m",
        "reach": ("ssh", host),
    }
    return HostSpec(host, 2, **{**words, "environment": {"A": "1"}, **more})


def place_document(host):
    return json.loads(json.dumps(asdict(place(host))))


@given(st.lists(NAME, min_size=1, max_size=5, unique=True), st.integers(0, 2**53 - 1), st.data())
def test_a_command_survives_its_way(hosts, epoch, data):
    weights = data.draw(
        st.tuples(*[st.floats(1e-9, 1e9, allow_nan=False) for _ in hosts]), "weights"
    )
    shares = tuple(HostShare(h, w, (1, 2)) for h, w in zip(hosts, weights, strict=True))
    places = tuple(map(place, data.draw(st.lists(st.sampled_from(hosts), unique=True), "places")))
    sent = CommandRequest("ab" * 8, ResizeCommand(epoch, shares, ordered=True, places=places))
    assert request_of(parse(encode(sent.body()))) == sent


def test_a_scheduled_job_goes_to_a_host_that_a_command_tells_it_of_and_to_no_other():
    limits = HostLimits(1, 3, frozenset({"ada"}), scheduled=True)
    shares = tuple(map(HostShare, ("ada", "zoe")))
    told = ResizeCommand(1, shares, places=(place("zoe"),))
    assert limits.refusal(ResizeCommand(1, shares))[0] == "unknown_host"
    assert limits.refusal(told) is None
    assert replace(limits, scheduled=False).refusal(told)[0] == "unknown_host"
    book = ResizeLedger(limits)
    book.submit(CommandRequest("ab" * 8, told))
    assert book.begin() == told
    book.done(1.0, {})
    assert book.limits.known == {"ada", "zoe"}
    assert limits.asked(2, 0).maximum == HOSTS_LIMIT
    assert HostLimits(1, 3, frozenset({"ada", "bob"})).asked(2, 9).maximum == 2


ENTRY = {"host": "a", "weight": 1, "cpus": [], "rows": 0}


@pytest.mark.parametrize(
    ("change", "code", "field"),
    [
        ({"hosts": []}, "message-invalid", "hosts"),
        ({"hosts": [{**ENTRY, "weight": 0}]}, "value-range", "weight"),
        ({"hosts": [{**ENTRY, "weight": True}]}, "value-range", "weight"),
        ({"hosts": [{**ENTRY, "host": "../a"}]}, "name-invalid", "host"),
        ({"hosts": [ENTRY] * 2}, "host-repeated", "hosts"),
        ({"hosts": [["a", 1]]}, "field-missing", "hosts"),
        ({"hosts": [{**ENTRY, "cpus": [-1]}]}, "value-range", "cpus"),
        ({"ordered": 1}, "message-invalid", "ordered"),
        ({"epoch": -1}, "message-invalid", "epoch"),
        ({"epoch": 1.0}, "message-invalid", "epoch"),
        ({"places": None}, "message-invalid", "places"),
        ({"places": [place_document("bob")]}, "host-unknown", "places"),
        ({"places": [{**place_document("ada"), "slots": 0}]}, "host-invalid", "places"),
        ({"places": [{**place_document("ada"), "program": [1]}]}, "host-invalid", "places"),
        (
            {"places": [{**place_document("ada"), "environment": {"A": 1}}]},
            "host-invalid",
            "places",
        ),
        ({"places": [{**place_document("ada"), "odd": 1}]}, "host-invalid", "places"),
        ({"places": [{"host": "ada"}]}, "host-invalid", "places"),
        ({"id": "xyz"}, "message-invalid", "id"),
    ],
)
def test_a_malformed_command_is_refused_with_its_field(change, code, field):
    with pytest.raises(MessageError) as refused:
        request_of({**resize_of("ada").body(), **change})
    assert (refused.value.code, refused.value.field) == (code, field)


def test_a_verdict_survives_its_way():
    sent = CommandOutcome("done", "ab" * 8, 3, "", "", 0.5, {"wait": 0.25})
    assert outcome_of(parse(encode(sent.body()))) == sent
