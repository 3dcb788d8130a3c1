"""The control server on real sockets: only the job's own user and root reach it."""

import os
import selectors
import socket
import subprocess
import sys
import threading
import time

import pytest
from waiting import until

from apples.errors import LaunchError
from apples.io import socket_name
from apples.launch import HostSpec
from apples.malleable import (
    MAX_SESSIONS,
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

LIMITS = HostLimits(1, 2, frozenset({"ada", "bob", "cleo"}))
PATIENCE = 20.0


class Played:
    """An anchor's loop with an engine that carries everything out at once, in a thread of its own."""

    def __init__(self, folder):
        self.path = folder / "control"
        self.server = ControlServer("job1", LIMITS, self.path)
        self.members = (HostRows("ada", 0, 9),)
        self.carried_out, self.turns, self.clients = [], 0, []
        self.stop = threading.Event()
        self.refuse, self.delay, self.held = "", 0.0, False
        self.selector = selectors.DefaultSelector()
        self.server.attach(self.selector, self.status)
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def status(self):
        return ManagerStatus("running", self.members, iteration=self.turns)

    def serve(self):
        command = None
        while not self.stop.is_set():
            self.turns += 1
            for key, _ in self.selector.select(0.01):
                key.data()
            time.sleep(self.delay)
            command = command or self.server.poll()
            if command is not None and not self.held:
                self.carry_out(command)
                command = None
        self.server.notify(JobEnded("finished"))
        self.server.close()

    def carry_out(self, command):
        self.carried_out.append(command)
        if self.refuse:
            self.server.notify(ResizeRefused(command.epoch, self.refuse))
            return
        self.members = tuple(HostRows(share.host, 0, 9) for share in command.hosts)
        self.server.notify(ResizeDone(command.epoch, self.members, 0.5, {"wait": 0.25}))

    def talk(self, job="job1"):
        self.clients.append(ControlClient(job, self.path))
        return self.clients[-1]

    def connect(self):
        there = socket.socket(socket.AF_UNIX)
        there.settimeout(PATIENCE)
        with socket_name(self.path) as name:
            there.connect(name)
        return there


@pytest.fixture
def anchor(tmp_path):
    folder = tmp_path / ("long" * 20) / ("er" * 40)
    folder.mkdir(parents=True)
    played = Played(folder)
    yield played
    for client in played.clients:
        client.close()
    played.stop.set()
    played.thread.join(PATIENCE)
    assert not played.thread.is_alive()
    assert not played.path.exists()


def resize(anchor, *hosts, epoch=1):
    return anchor.talk().resize(ResizeCommand(epoch, tuple(map(HostShare, hosts))), PATIENCE)


def test_an_agent_moves_the_job(anchor):
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


def test_one_connection_carries_a_whole_verb(anchor):
    client = anchor.talk()
    assert client.status()["epoch"] == 0
    assert client.resize(ResizeCommand(1, (HostShare("bob"),)), PATIENCE).kind == "done"
    assert client.status()["hosts"] == ["bob"]
    assert len(anchor.server.responder.sessions) == 1


def test_connection_that_was_cut_is_made_again(anchor):
    client = anchor.talk()
    assert client.status()["epoch"] == 0
    others = [anchor.connect() for _ in range(MAX_SESSIONS + 1)]
    for other in others:
        assert other.recv(1)
    assert client.resize(ResizeCommand(1, (HostShare("bob"),)), PATIENCE).kind == "done"
    for other in others:
        other.close()
    assert len(anchor.carried_out) == 1


def test_late_answer_does_not_count_for_the_next_request(anchor):
    client = anchor.talk()
    anchor.delay = 2.0
    with pytest.raises(LaunchError):
        client.status(0.1)
    anchor.delay = 0.0
    resize(anchor, "bob")
    assert client.status()["hosts"] == ["bob"]


def test_thread_that_waits_for_a_resize_delays_no_status(anchor):
    client, outcomes = anchor.talk(), []
    anchor.held = True
    command = ResizeCommand(1, (HostShare("bob"),))
    thread = threading.Thread(target=lambda: outcomes.append(client.resize(command, PATIENCE)))
    thread.start()
    try:
        until(lambda: client.status()["busy"])
    finally:
        anchor.held = False
        thread.join(PATIENCE)
    assert outcomes[0].kind == "done"


def test_another_job_is_not_commanded(anchor):
    with pytest.raises(LaunchError) as other:
        anchor.talk(job="job2").resize(ResizeCommand(1, (HostShare("bob"),)), PATIENCE)
    assert (other.value.code, other.value.fields["job"]) == ("job-unanswered", "job2")
    assert other.value.fields["cause"] == "job-differs"
    assert anchor.carried_out == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_is_sent_away_though_the_folder_lets_him_in(anchor):
    """A stranger who connects as fast as he can: the agent is served meanwhile, the stranger never."""
    for folder in (anchor.path.parent, *list(anchor.path.parents)[:4]):
        folder.chmod(0o755)
    anchor.path.chmod(0o666)
    program = (
        "import os, socket, sys\n"
        "folder = os.open(sys.argv[1], os.O_PATH)\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "print('started', flush=True)\n"
        "while True:\n"
        "    with socket.socket(socket.AF_UNIX) as one:\n"
        "        one.settimeout(20)\n"
        "        try:\n"
        "            one.connect(f'/proc/self/fd/{folder}/control')\n"
        "        except BlockingIOError:\n"
        "            continue\n"
        "        if (data := one.recv(100)):\n"
        "            print(data, flush=True)\n"
    )
    argv = [sys.executable, "-c", program, str(anchor.path.parent)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as stranger:
        assert stranger.stdout.readline() == "started\n"
        try:
            assert resize(anchor, "bob").kind == "done"
            assert anchor.talk().status()["epoch"] == 1
            assert stranger.poll() is None
        finally:
            stranger.kill()
        assert stranger.stdout.read() == ""


def test_a_peer_that_writes_without_end_is_sent_away(anchor):
    with anchor.connect() as greedy, pytest.raises(ConnectionError):  # noqa: PT012
        while True:
            greedy.sendall(b"x" * 4096)
    assert anchor.talk().status()["epoch"] == 0


def test_the_socket_is_its_owners_alone(anchor):
    assert anchor.path.stat().st_mode & 0o777 == 0o600


def test_the_socket_of_a_killed_server_is_replaced(anchor, tmp_path):
    path = tmp_path / "control"
    with socket.socket(socket.AF_UNIX) as dead, socket_name(path) as name:
        dead.bind(name)
    server = ControlServer("job1", LIMITS, path)
    server.attach(anchor.selector, anchor.status)
    with ControlClient("job1", path) as client:
        assert client.status()["hosts"] == ["ada"]
    server.close()


def test_nobody_waits_for_a_job_that_is_over(tmp_path):
    gone = ControlClient("job1", tmp_path / "control", over=lambda: True)
    with pytest.raises(LaunchError) as over:
        gone.resize(ResizeCommand(1, (HostShare("ada"),)), PATIENCE)
    assert (over.value.code, over.value.fields) == ("job-unanswered", {"job": "job1"})


def test_an_agent_can_end_the_job(anchor):
    assert not anchor.server.cancelled()
    anchor.talk().cancel()
    assert anchor.server.cancelled()


@pytest.mark.parametrize("control", ["", {"socket": "x"}])
def test_a_job_file_without_a_socket_is_refused(control):
    place = HostSpec("ada", 1, ("x",), "p", "b", "m")
    with pytest.raises(JobFileError) as refused:
        open_control(JobFile("j", "/", (place,), (HostShare("ada"),), {}, control=control))
    assert (refused.value.code, refused.value.field) == ("field-missing", "control")
