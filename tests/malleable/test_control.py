"""The control server on real sockets: whoever does not know the secret is refused, the job undisturbed."""

import json
import selectors
import socket
import threading
import time

import pytest

from apples.errors import LaunchError
from apples.launch import HostSpec
from apples.malleable import (
    LOOPBACK,
    UNAUTHENTICATED_SESSIONS,
    ControlClient,
    ControlServer,
    HostLimits,
    HostRows,
    HostShare,
    JobEnded,
    JobFile,
    JobFileError,
    LimitsRequested,
    ManagerStatus,
    ResizeCommand,
    ResizeDone,
    ResizeRefused,
    open_control,
)

SECRET = bytes(range(32))
LIMITS = HostLimits(1, 2, frozenset({"ada", "bob", "cleo"}))
PATIENCE = 20.0


class Played:
    """An anchor's loop with an engine that carries everything out at once, in a thread of its own."""

    def __init__(self, folder):
        self.announce = folder / "control.json"
        self.server = ControlServer("job1", SECRET, LIMITS, self.announce)
        self.members = (HostRows("ada", 0, 9),)
        self.carried_out, self.turns = [], 0
        self.stop = threading.Event()
        self.refuse = ""
        self.selector = selectors.DefaultSelector()
        self.server.attach(self.selector, self.status)
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def status(self):
        return ManagerStatus("running", self.members, iteration=self.turns)

    def serve(self):
        while not self.stop.is_set():
            self.turns += 1
            for key, _ in self.selector.select(0.01):
                key.data()
            due = self.server.deadline()
            if due is not None and due <= time.monotonic():
                self.server.tick()
            command = self.server.poll()
            if command is not None:
                self.carry_out(command)
        self.server.notify(JobEnded("finished"))
        self.server.close()

    def carry_out(self, command):
        self.carried_out.append(command)
        if self.refuse:
            self.server.notify(ResizeRefused(command.epoch, self.refuse))
            return
        self.members = tuple(HostRows(share.host, 0, 9) for share in command.hosts)
        self.server.notify(ResizeDone(command.epoch, self.members, 0.5, {"wait": 0.25}))

    def talk(self, secret=SECRET, job="job1"):
        return ControlClient(job, secret, self.announce)

    def connect(self):
        where = json.loads(self.announce.read_text())
        return socket.create_connection((where["address"], where["port"]), timeout=PATIENCE)


@pytest.fixture
def anchor(tmp_path):
    played = Played(tmp_path)
    yield played
    played.stop.set()
    played.thread.join(PATIENCE)
    assert not played.thread.is_alive()
    assert not played.announce.exists()


def resize(anchor, *hosts, epoch=1):
    return anchor.talk().resize(ResizeCommand(epoch, tuple(map(HostShare, hosts))), PATIENCE)


def test_an_agent_who_knows_the_secret_moves_the_job(anchor):
    assert anchor.talk().status()["hosts"] == ["ada"]
    outcome = resize(anchor, "bob", "cleo")
    assert (outcome.kind, outcome.phases) == ("done", {"wait": 0.25})
    status = anchor.talk().status()
    assert (status["hosts"], status["epoch"]) == (["bob", "cleo"], 1)
    assert status["last_resize"]["seconds"] == 0.5


def test_what_it_may_not_do_is_refused_before_the_job_hears_of_it(anchor):
    assert resize(anchor, "zoe").reason == "unknown_host"
    assert resize(anchor, "ada", "bob", "cleo").reason == "over_maximum"
    assert resize(anchor, "ada", epoch=7).reason == "stale"
    anchor.server.notify(LimitsRequested(2, 3))
    assert resize(anchor, "ada").reason == "below_minimum"
    assert anchor.carried_out == []


def test_what_the_job_could_not_do_is_told_as_a_failure(anchor):
    anchor.refuse = "bob does not start"
    outcome = resize(anchor, "bob")
    assert (outcome.kind, outcome.detail) == ("failed", "bob does not start")
    assert anchor.talk().status()["hosts"] == ["ada"]


def test_a_wrong_secret_is_refused(anchor):
    with pytest.raises(LaunchError) as unproved:
        anchor.talk(secret=b"w" * 32).status(1.0)
    assert (unproved.value.code, unproved.value.fields["job"]) == ("job-unanswered", "job1")
    with pytest.raises(LaunchError) as other:
        anchor.talk(job="job2").status(1.0)
    assert (other.value.code, other.value.fields["job"]) == ("job-unanswered", "job2")
    assert other.value.fields["cause"] == "job-differs"
    assert anchor.carried_out == []
    assert anchor.talk().status()["epoch"] == 0


def test_recorded_lines_are_worth_nothing_again(anchor):
    """A man in the middle passes an honest session on, then replays it."""
    told = []
    real = anchor.announce.read_text()
    middle = socket.create_server((LOOPBACK, 0))
    where = {**json.loads(real), "port": middle.getsockname()[1]}
    anchor.announce.write_text(json.dumps(where))

    def pass_on():
        inner, _ = middle.accept()
        with anchor_socket(real) as outer, inner:
            to_agent, to_job = (outer, inner), (inner, outer)
            for source, target in (to_agent, to_job, to_agent, to_job, to_agent, to_agent):
                line = source.makefile("rb", buffering=0).readline()
                told.append((target is outer, line))
                target.sendall(line)

    thread = threading.Thread(target=pass_on)
    thread.start()
    assert resize(anchor, "bob").kind == "done"
    thread.join(PATIENCE)
    middle.close()
    anchor.announce.write_text(real)
    assert len(anchor.carried_out) == 1
    with anchor.connect() as replay, replay.makefile("rb") as answers:
        answers.readline()
        try:
            for to_job, line in told:
                if to_job:
                    replay.sendall(line)
            answer = answers.readline()
        except ConnectionError:  # it hung up before it had read all
            answer = b""
        assert answer == b""
    assert len(anchor.carried_out) == 1


def anchor_socket(document):
    where = json.loads(document)
    return socket.create_connection((where["address"], where["port"]), timeout=PATIENCE)


def test_a_flood_of_connections_is_refused_and_the_agent_is_heard_meanwhile(anchor):
    flood, stop = [], threading.Event()

    def pour():
        while not stop.wait(0.002):  # who floods without a pause takes the place of any handshake
            try:
                flood.append(anchor.connect())
                flood[-1].sendall(b"x" * 100)
            except OSError:
                pass
            while len(flood) > 300:
                flood.pop(0).close()

    thread = threading.Thread(target=pour)
    thread.start()
    try:
        turns = anchor.turns
        assert resize(anchor, "bob").kind == "done"
        assert anchor.turns > turns
        assert len(anchor.server.responder.sessions) <= UNAUTHENTICATED_SESSIONS + 3
    finally:
        stop.set()
        thread.join(PATIENCE)
        for each in flood:
            each.close()


def test_a_peer_that_writes_without_end_is_sent_away(anchor):
    with anchor.connect() as greedy, pytest.raises(ConnectionError):  # noqa: PT012
        while True:
            greedy.sendall(b"x" * 4096)
    assert anchor.talk().status()["epoch"] == 0


def test_it_listens_on_the_loopback_alone(anchor):
    where = json.loads(anchor.announce.read_text())
    assert where["address"] == "127.0.0.1"
    assert anchor.announce.stat().st_mode & 0o777 == 0o600


def test_nobody_waits_for_a_job_that_is_over(tmp_path):
    gone = ControlClient("job1", SECRET, tmp_path / "control.json", over=lambda: True)
    with pytest.raises(LaunchError) as over:
        gone.resize(ResizeCommand(1, (HostShare("ada"),)), PATIENCE)
    assert (over.value.code, over.value.fields) == ("job-unanswered", {"job": "job1"})


def test_an_agent_can_end_the_job(anchor):
    assert not anchor.server.cancelled()
    anchor.talk().cancel()
    assert anchor.server.cancelled()


@pytest.mark.parametrize(
    ("control", "code"),
    [({}, "field-missing"), ({"secret": "nowhere", "announce": "x"}, "file-missing")],
)
def test_a_job_file_without_a_secret_is_refused(control, code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    place = HostSpec("ada", 1, ("x",), "p", "b", "m")
    with pytest.raises(JobFileError) as refused:
        open_control(JobFile("j", "/", (place,), (HostShare("ada"),), {}, control=control))
    assert (refused.value.code, refused.value.field) == (code, "control")


def test_a_short_secret_is_refused(tmp_path):
    (tmp_path / "secret").write_text("00" * 8)
    place = HostSpec("ada", 1, ("x",), "p", "b", "m")
    control = {"secret": str(tmp_path / "secret"), "announce": str(tmp_path / "c")}
    with pytest.raises(JobFileError) as refused:
        open_control(JobFile("j", "/", (place,), (HostShare("ada"),), {}, control=control))
    assert (refused.value.code, refused.value.field) == ("value-range", "control")
