"""Unmodified programs moved by a real CRIU; hosts are CPU sets of this machine."""

import json
import os
import signal
import sys
from dataclasses import replace

import pytest
from waiting import until

from apples.malleable import HostShare, ResizeCommand, inspection

pytestmark = [pytest.mark.criu, pytest.mark.usefixtures("criu")]

COUNTING = """
import os, time
numbers = list(range(1000))
log = open("numbers", "a")
n = 0
while not os.path.exists("enough"):
    n += 1
    log.write(f"{n}\\n"); log.flush()
    print(n, sum(numbers), sorted(os.sched_getaffinity(0)), flush=True)
    time.sleep(0.01)
print("last", n)
"""
WAITING = """
import os, time
{prepare}
print("up", flush=True)
while not os.path.exists("enough"):
    time.sleep(0.01)
{finish}
"""


def to(*hosts, epoch=1):
    return ResizeCommand(epoch, tuple(map(HostShare, hosts)))


def test_a_program_goes_on_counting_on_the_other_hosts_cpus_and_back(stage):
    on = stage(COUNTING)
    cpus = {name: f"[{cpu[0]}]" for name, cpu in on.cpus.items()}
    code, script = on.run(
        (on.written(cpus["a"], count=3), to("b")),
        (on.written(cpus["b"], count=3), to("a", epoch=2)),
        (lambda: len(on.script.done) == 2, (on.folder / "enough").touch),
    )
    assert (code, script.refused, script.ended.state) == (0, [], "finished")
    lines = (on.folder / "job/output").read_text().splitlines()
    last = int(lines.pop().split()[1])
    assert [int(line.split()[0]) for line in lines] == list(range(1, last + 1))
    assert all(" 499500 " in line for line in lines)
    assert (on.folder / "numbers").read_text().split() == [str(n + 1) for n in range(last)]
    assert b"".join(on.copied).decode().splitlines()[:-1] == lines
    for done in script.done:
        assert set(done.phases) == {"signal", "inspect", "checkpoint", "restart"}
        assert done.moved_bytes > 100_000
    events = [json.loads(line)["event"] for line in on.said]
    assert (events[0], events[-2:]) == ("ready", ["result", "done"])
    assert not (on.folder / "job/checkpoint").exists()


def moved(on, finish=True):
    """Move to b when the program is up; then let it end."""
    acts = [(on.written("up"), to("b"))]
    if finish:
        acts.append((lambda: on.script.done or on.script.refused, (on.folder / "enough").touch))
    return on.run(*acts)


MOVABLE = {
    "threads": ("import threading; threading.Thread(target=input_free).start()", ""),
    "a removed file": (
        "import tempfile; f = tempfile.TemporaryFile(dir='.'); f.write(b'kept')",
        "f.seek(0); print(f.read())",
    ),
    "a locked file": (
        "import fcntl; f = open('lock', 'w'); fcntl.flock(f, fcntl.LOCK_EX)",
        "g = open('lock')\ntry: fcntl.flock(g, 5)\nexcept OSError: print('locked')",
    ),
    "a child and a pipe to it": (
        "import subprocess; p = subprocess.Popen(['cat'], stdin=-1, stdout=-1)",
        "print(p.communicate(b'through')[0], p.returncode)",
    ),
    "an event loop's descriptors": (
        "import select; e = select.epoll(); t = os.eventfd(1); e.register(t, 1)",
        "print(e.poll(1)[0][1])",
    ),
}
SHOWN = {
    "threads": "up\n",
    "a removed file": "up\nb'kept'\n",
    "a locked file": "up\nlocked\n",
    "a child and a pipe to it": "up\nb'through' 0\n",
    "an event loop's descriptors": "up\n1\n",
}


@pytest.mark.parametrize("what", MOVABLE)
def test_it_takes_along(stage, what):
    prepare, finish = MOVABLE[what]
    prepare = prepare.replace(
        "input_free",
        "lambda: [time.sleep(.01) for _ in iter(lambda: os.path.exists('enough'), True)]",
    )
    on = stage(WAITING.format(prepare=prepare, finish=finish))
    code, script = moved(on)
    assert (code, script.refused, script.ended.reason) == (0, [], "")
    assert (on.folder / "job/output").read_text() == SHOWN[what]
    assert (on.folder / "job/errors").read_text() == ""


REFUSED = {
    "a socket": (
        "import socket; s = socket.create_server(('127.0.0.1', 0))",
        "TCP",
    ),
    "a terminal": (
        "import pty; a, b = pty.openpty()",
        "/dev/pt",
    ),
    "a named pipe": ("os.mkfifo('p'); f = os.open('p', os.O_RDWR)", "/p"),
    "a large removed file": (
        "import tempfile; f = tempfile.TemporaryFile(dir='.'); f.truncate(1 << 25)",
        "33554432",
    ),
    "a device": ("f = open('/dev/kmsg')", "/dev/kmsg"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_it_refuses_with_the_reason_and_the_program_runs_on(stage, what):
    prepare, value = REFUSED[what]
    on = stage(WAITING.format(prepare=prepare, finish="print('unharmed')"))
    code, script = moved(on)
    assert len(script.refused) == 1, script.notices
    (refused,) = script.refused
    assert value in refused
    assert refused.startswith("a: ")
    assert script.codes == ["program-not-movable"]
    assert (code, script.done, script.ended.state) == (0, [], "finished")
    assert "unharmed" in (on.folder / "job/output").read_text()


def test_a_pipe_to_somebody_else_is_refused_with_who(stage):
    read, write = os.pipe()
    on = stage(WAITING.format(prepare="", finish=""))
    program = on.places["a"].program
    inherit = [sys.executable, "-c", INHERIT, str(os.getpid()), str(write), *program]
    on.places["a"] = replace(on.places["a"], program=tuple(inherit))
    _, script = moved(on)
    os.close(read)
    os.close(write)
    assert script.codes == ["program-not-movable"]
    assert str(os.getpid()) in script.refused[0]


INHERIT = """
import os, sys
os.set_inheritable(os.open(f"/proc/{sys.argv[1]}/fd/{sys.argv[2]}", os.O_WRONLY), True)
os.execv(sys.argv[3], sys.argv[3:])
"""

TOLD = """
import signal
def told(number, frame):
    print("told", number, flush=True); {answer}
signal.signal(signal.{name}, told)
signal.signal(signal.SIGCONT, lambda *_: print("again", flush=True))
"""


def test_a_program_that_listens_is_told_before_and_after(stage):
    prepare = TOLD.format(name="SIGUSR1", answer="os.kill(os.getpid(), signal.SIGSTOP)")
    on = stage(WAITING.format(prepare=prepare, finish=""), signal_seconds=20)
    code, script = moved(on)
    assert (code, script.refused) == (0, [])
    told = f"told {int(signal.SIGUSR1)}"
    assert (on.folder / "job/output").read_text().splitlines() == ["up", told, "again"]
    assert script.done[0].phases["signal"] < 20


def test_what_the_signal_makes_it_close_need_not_move(stage):
    prepare = "import socket; s = socket.create_server(('127.0.0.1', 0))" + TOLD.format(
        name="SIGUSR2", answer="s.close(); os.kill(os.getpid(), signal.SIGSTOP)"
    )
    on = stage(WAITING.format(prepare=prepare, finish=""), signal="USR2", signal_seconds=20)
    code, script = moved(on)
    assert (code, script.refused, len(script.done)) == (0, [], 1)


def test_a_refused_program_that_stopped_itself_is_continued(stage):
    prepare = "import socket; s = socket.create_server(('127.0.0.1', 0))" + TOLD.format(
        name="SIGUSR1", answer="os.kill(os.getpid(), signal.SIGSTOP)"
    )
    on = stage(WAITING.format(prepare=prepare, finish=""), signal_seconds=20)
    code, script = moved(on)
    assert (code, len(script.refused)) == (0, 1)
    assert "again" in (on.folder / "job/output").read_text()


NETWORK = ("unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")
HIDING = 'mount -t tmpfs none "$1" && shift && exec "$@"'


@pytest.mark.skipif(os.geteuid() != 0, reason="namespaces are made by root")
def test_a_path_that_is_not_there_stops_the_move_before_it_begins(stage):
    on = stage(WAITING.format(prepare="f = open('data/here', 'w')", finish=""))
    data = on.folder / "data"
    data.mkdir()
    hide = ("unshare", "--mount", "sh", "-c", HIDING, "sh", str(data))
    on.places["b"] = replace(on.places["b"], reach=(*hide, sys.executable))
    code, script = moved(on)
    assert (code, script.codes) == (0, ["host-unfit"])
    assert script.refused[0].startswith("b: ")
    assert f"{data}/here" in script.refused[0]


@pytest.mark.skipif(os.geteuid() != 0, reason="namespaces are made by root")
def test_a_job_folder_that_is_not_shared_stops_the_move_before_it_begins(stage):
    on = stage(WAITING.format(prepare="", finish=""))
    hide = ("unshare", "--mount", "sh", "-c", HIDING, "sh", str(on.folder / "job"))
    on.places["b"] = replace(on.places["b"], reach=(*hide, sys.executable))
    code, script = moved(on)
    assert (code, script.codes) == (0, ["host-unfit"])
    assert script.refused[0].startswith("b: ")
    assert f"{on.folder}/job" in script.refused[0]


@pytest.mark.skipif(os.geteuid() != 0, reason="namespaces are made by root")
def test_it_arrives_in_the_network_namespace_of_a_host_that_is_one(stage):
    look = "print(os.readlink('/proc/self/ns/net'), flush=True)"
    on = stage(WAITING.format(prepare=look, finish=look))
    on.places["b"] = replace(on.places["b"], reach=(*NETWORK, sys.executable))
    code, script = moved(on)
    assert (code, script.refused) == (0, [])
    before, _, after = (on.folder / "job/output").read_text().split()
    assert before != after


def test_a_restart_that_fails_is_followed_by_one_where_it_came_from(stage):
    on = stage(COUNTING)
    broken = replace(on.places["b"], cgroup=str(on.folder / "no-such-group/cgroup.procs"))
    code, script = on.run(
        (on.written("[", count=3), to("b")),
        (on.written("[", count=3), lambda: None),
        (lambda: on.script.refused, (on.folder / "enough").touch),
        places={"a": on.places["a"], "b": broken},
    )
    assert code == 0
    assert script.codes == ["restart-failed"]
    lines = (on.folder / "job/output").read_text().splitlines()
    assert [int(line.split()[0]) for line in lines[:-1]] == list(range(1, len(lines)))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=lambda n: n.name)
def test_a_keeper_that_is_killed_or_stopped_ends_the_job_clearly_with_no_process_left(
    stage, number
):
    on = stage(COUNTING)
    pids = []

    def kill():
        keeper = on.anchor.supervisors.process_of("a")
        pids.extend(inspection.tree(keeper))
        os.kill(keeper, number)

    code, script = on.run((on.written("[", count=2), kill))
    assert code == 1
    assert script.ended.state == "failed"
    assert script.ended.code == "supervisor-ended"
    assert script.ended.reason.startswith("a: ")
    assert len(pids) == 2
    until(lambda: all(inspection.state(pid) in {"", "Z"} for pid in pids))
