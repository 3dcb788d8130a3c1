"""The guard at the far end of a connection, and what the anchor takes from there."""

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from waiting import until
from worlds import pool

from apples import Host, Link, LocalActuator, MalleableActuator
from apples.agent import launch_plan
from apples.io import encode
from apples.launch import (
    AllocatedNode,
    HostSpec,
    LaunchTarget,
    RankGroup,
    Reach,
    SshActuator,
    allocation_spec,
    hostd,
    read,
    remote_spec,
)
from apples.malleable import (
    GREETING_TOO_LONG,
    MPIEXEC_ENDED,
    REPORT_INVALID,
    SUPERVISOR,
    HostShare,
    JobFile,
    ProcessGroup,
    ProcessGroups,
    RankChannel,
    far_host,
    supervisor,
)
from apples.resources import Allocation, Schedule


def shell(script):
    """What leads to a host: a shell's script, and then the interpreter."""
    return ("/bin/sh", "-c", script, "sh", sys.executable)


def end_of_group(reach, tmp_path):
    """Why a group of a launcher that ends at once is lost."""
    place = HostSpec("ada", 1, ("x",), "{python}", "x", "/bin/false", reach=reach)
    job = JobFile("far", str(tmp_path), (place,), (HostShare("ada"),), {})
    lost = []
    with selectors.DefaultSelector() as selector:
        group = ProcessGroup(
            job, place, 1, selector, tmp_path, lambda *_: None, lambda _, w: lost.append(w)
        )
        group.start()
        until = time.monotonic() + 120
        while not lost and time.monotonic() < until:
            for key, _ in selector.select(0.1):
                key.data()
        group.kill()
    return lost[0]


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ('echo Welcome; echo \'{"report":\'; exec "$@"', f"{MPIEXEC_ENDED} (1)"),
        ('exec "$@"', f"{MPIEXEC_ENDED} (1)"),
        ("yes", GREETING_TOO_LONG),
        (
            "echo apples.host/1; echo rubbish; exec sleep 60",
            REPORT_INVALID,
        ),
        (
            "echo apples.host/1; echo '[]'; exec sleep 60",
            REPORT_INVALID,
        ),
        (
            "echo apples.host/1; yes | tr -d '\\n' | head -c 9000000; exec sleep 60",
            REPORT_INVALID,
        ),
    ],
)
def test_a_login_may_greet_and_nothing_else_it_says_harms_the_anchor(script, why, tmp_path):
    assert end_of_group(shell(script), tmp_path) == why


def test_a_group_whose_last_rank_parks_while_it_is_being_ended_is_not_one_that_may_join(tmp_path):
    place = HostSpec("ada", 2, ("x",), sys.executable, "x", "/bin/false")
    job = JobFile("ended", str(tmp_path), (place,), (HostShare("ada"),), {})
    with selectors.DefaultSelector() as selector:
        group = ProcessGroup(job, place, 1, selector, tmp_path, lambda *_: None, lambda *_: None)
        group.start()
        group.parked({})
        group.end()
        group.parked({})
        assert group.phase == "ending"
        group.kill()


def test_a_supervisor_ends_with_its_input_though_others_were_forked_while_it_was_open(tmp_path):
    """No other supervisor holds the pipes by which this one is spoken to, and by which its end is heard of."""
    place = HostSpec("ada", 1, ("x",), sys.executable, "x", "/bin/false")
    job = JobFile("pipes", str(tmp_path), (place,), (HostShare("ada"),), {})
    with selectors.DefaultSelector() as selector:

        def new():
            return ProcessGroup(
                job, place, 1, selector, tmp_path, lambda *_: None, lambda *_: None
            )

        first, second = new(), new()
        first.dismiss()
        until(lambda: [key.data() for key, _ in selector.select(0.1)] and first.gone)
        assert not second.gone
        assert read(f"/proc/{second.pid}/comm") == f"{SUPERVISOR}\n".encode()
        second.kill()


def test_a_supervisor_keeps_and_gives_back_more_memory_than_it_was_allowed_open_files(tmp_path):
    few = ["/bin/sh", "-c", 'ulimit -Sn 40; exec "$@"', "sh"]
    serve = f"import sys; from {supervisor.__name__} import *; NodeSupervisor(sys.argv[1]).run()"
    words = [*few, sys.executable, "-c", serve, str(tmp_path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == hostd.HELLO
        assert json.loads(process.stdout.readline())["report"] == "alive"
        channel = RankChannel(str(tmp_path / f"supervisor-{process.pid}"), 0)
        for number in range(600):
            keep(channel, 1 + number // 300, number)
            if number == 299:
                channel.send("whole", epoch=1)
        found = {label["first"]: taken(handle) for label, handle in channel.memories()}
        channel.close()
        assert found == {number: b"%d" % number for number in range(600)}


def test_broken_off_commits_leave_the_last_whole_one_in_memory(tmp_path):
    """A commit is whole if every rank has its copies; then its ranks report that, and not before."""
    serve = f"import sys; from {supervisor.__name__} import *; NodeSupervisor(sys.argv[1]).run()"
    words = [sys.executable, "-c", serve, str(tmp_path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == hostd.HELLO
        assert json.loads(process.stdout.readline())["report"] == "alive"
        channel = RankChannel(str(tmp_path / f"supervisor-{process.pid}"), 0)
        kept = []
        for epoch, whole in [(1, True), (2, True), (3, False), (4, False), (5, False), (6, True)]:
            keep(channel, epoch, 10 * epoch)
            keep(channel, epoch, 10 * epoch + 1)
            if whole:
                channel.send("whole", epoch=epoch)
            labels = [label for label, handle in channel.memories() if not os.close(handle)]
            kept.append(sorted({label["epoch"] for label in labels}))
            assert len(labels) == 2 * len(kept[-1])
        channel.close()
    assert kept == [[1], [2], [2, 3], [2, 4], [2, 5], [6]]


def test_every_message_to_a_rank_that_reads_late_arrives_in_order(tmp_path):
    """A rank that computes reads nothing, and its socket holds a few messages only."""
    serve = f"import sys; from {supervisor.__name__} import *; NodeSupervisor(sys.argv[1]).run()"
    words = [sys.executable, "-c", serve, str(tmp_path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == hostd.HELLO
        assert json.loads(process.stdout.readline())["report"] == "alive"
        channel = RankChannel(str(tmp_path / f"supervisor-{process.pid}"), 0)
        channel.memories()  # the supervisor has read its number
        for number in range(200):
            message = {"number": number, "text": "x" * 10_000}
            process.stdin.write(encode({"order": "send", "rank": 0, "message": message}))
        process.stdin.flush()
        assert [channel.wait(30)["number"] for _ in range(200)] == [*range(200)]
        channel.close()


def keep(channel, epoch, row):
    """Give a supervisor one row of a commit."""
    handle = os.memfd_create("test")
    os.write(handle, b"%d" % row)
    channel.keep(handle, epoch=epoch, first=row, stop=row + 1)
    os.close(handle)


def test_a_connection_that_the_end_of_the_launcher_has_taken_is_not_waited_for(tmp_path):
    accept = f"""
import signal, socket, sys
from {supervisor.__name__} import NodeSupervisor
signal.alarm(60)
one = NodeSupervisor(sys.argv[1])
one.open()
rank = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
rank.connect(one.path)
((entry, _),) = [each for each in one.selector.select(60) if each[0].fileobj is one.listener]
one.accept_rank()
entry.data()
print(len(one.ranks))
"""
    words = [sys.executable, "-c", accept, str(tmp_path)]
    done = subprocess.run(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, check=True)
    assert done.stdout.splitlines()[-1] == b"1"


def taken(handle):
    data = os.pread(handle, 9, 0)
    os.close(handle)
    return data


@pytest.mark.parametrize("how", ["input", signal.SIGTERM, signal.SIGHUP])
def test_a_far_guard_leaves_no_folder_however_it_is_asked_to_end(how):
    words = [sys.executable, "-I", "-m", supervisor.__name__]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as guard:
        assert guard.stdout.readline() == hostd.HELLO
        assert json.loads(guard.stdout.readline())["report"] == "alive"
        (socket,) = Path("/tmp").glob(f"apples-*/supervisor-{guard.pid}")  # noqa: S108 - where it is made
        if how == "input":
            guard.stdin.close()
        else:
            for _ in range(20):
                guard.send_signal(how)
        assert guard.wait(120) == 0
    assert not socket.parent.exists()


def test_a_launcher_that_kills_its_process_group_kills_no_guard():
    """hydra kills the group of each child; one that it has just forked is still in hydra's own."""
    say = "import os; print(os.getpgid(0) == os.getpid())"
    become = (
        "import os, sys; from apples.launch import exec_launcher; "
        f"exec_launcher([sys.executable, '-c', '{say}'], os.getppid())"
    )
    launcher = subprocess.run([sys.executable, "-c", become], stdout=subprocess.PIPE, check=True)
    assert launcher.stdout == b"True\n"


def test_an_order_from_elsewhere_is_made_this_hosts_own(tmp_path, monkeypatch):
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.1 5000 127.0.0.1 22")
    (tmp_path / "heat.py").touch()
    program = ["{python}", "/nowhere/heat.py", "/nowhere/other", "-x"]
    entry = {"host": "a", "program": program, "programs": ["/nowhere/heat.py"]}
    order = {
        "argv": ["{mpiexec}", "-n", "1", "{python}", "{apples.launch.rank_wrapper}", "{launch}"],
        "environment": {"OMP_NUM_THREADS": "1"},
        "files": {"launch": json.dumps({"directory": str(tmp_path), "hosts": [entry]})},
    }
    far_host.localize(order)
    mpiexec, *_, bind, launch = order["argv"]
    assert mpiexec == str(Path(sys.executable).with_name("mpiexec"))
    assert (bind.endswith("apples/launch/rank_wrapper.py"), launch) == (True, "{launch}")
    assert order["environment"] == {"UCX_NET_DEVICES": "lo", "OMP_NUM_THREADS": "1"}
    (found,) = json.loads(order["files"]["launch"])["hosts"]
    assert found["program"] == [sys.executable, str(tmp_path / "heat.py"), "/nowhere/other", "-x"]


def test_a_node_of_an_allocation_is_reached_by_a_step_that_inherits_no_shape():
    node = AllocatedNode("42", "/opt/my python", "/shared")
    segment = RankGroup("n1", 2, ("{python}", "heat.py"))
    place = allocation_spec(segment, node)
    step = place.reach[place.reach.index("srun") :]
    assert (place.reach[0], step[-2]) == ("env", "exec '/opt/my python' \"$@\"")
    assert {"--nodes=1", "--ntasks=1", "--nodelist=n1", "--jobid=42", "--chdir=/"} <= set(step)
    assert {"SLURM_CPUS_PER_TASK", "SSH_CONNECTION"} <= set(place.reach)
    assert (place.program, place.directory) == (("{python}", "heat.py"), "/shared")


def test_a_malleable_job_shares_its_login_with_no_other_job():
    target = LaunchTarget(
        RankGroup("n1", 1, ("/opt/python", "heat.py")),
        "10.0.0.1",
        Reach("n1", "n1", "/opt/python"),
    )
    assert {"ControlMaster=no", "ControlPath=none"} <= set(remote_spec(target).reach)


@pytest.mark.parametrize("through", [LocalActuator, SshActuator])
def test_a_host_the_user_excludes_is_no_place_of_the_job(through):
    listed = [Host("localhost", seconds_per_point=1e-9), Host("far", seconds_per_point=1e-9)]
    information = pool(listed, default=Link(1e-5, 1e9), user='[constraints]\nexclude = ["far"]\n')
    information = replace(
        information, template=information.template.model_copy(update={"malleable": True})
    )
    schedule = Schedule((Allocation(listed[0], 1000, "default"),))
    order = MalleableActuator(through=through()).command(launch_plan(schedule, information))
    places = json.loads(order.files["job.json"])["hosts"]
    assert [place["host"] for place in places] == ["localhost"]


def test_who_does_not_see_the_kept_states_may_not_join_once_there_are_some():
    job, warnings = SimpleNamespace(commits="/states"), []
    fleet = ProcessGroups(job, None, Path(), None, None, lambda _, lines: warnings.extend(lines))
    for host, sees in (("ada", True), ("bob", False)):
        fleet.groups[host] = SimpleNamespace(
            host=host, declared={"declared": 1}, sees_commits=sees
        )
    assert fleet.unfit(["ada"]) == ("", "")
    fleet.on_disk = True
    host, why = fleet.unfit(["ada", "bob"])
    assert (host, "/states" in why) == ("bob", True)
    fleet.on_disk = False
    assert fleet.unfit(["bob"]) == ("", "")
    assert fleet.directory == ""
    (warned,) = warnings
    assert b"bob" in warned
    assert b"/states" in warned
    fleet.on_disk = True
    assert fleet.unfit(["bob"]) == ("", "")


def test_a_spare_is_parked_before_it_is_any_other_and_was_lost_last_of_all():
    def spares(job, lost=(), parked=(), scheduled=False):
        hosts = [SimpleNamespace(host=f"h{number}") for number in range(8)]
        fleet = ProcessGroups(
            SimpleNamespace(commits="", job=job, hosts=hosts, scheduled=scheduled),
            None, Path(), None, None,
        )  # fmt: skip
        fleet.lost |= set(lost)
        for host in parked:
            fleet.groups[host] = SimpleNamespace(host=host, phase="parked")
        return fleet.standby_hosts(["h0", "h1"])

    assert sorted(spares("a")) == [f"h{number}" for number in range(2, 8)]
    assert spares("a", lost=["h5"], parked=["h6", "h0"])[0] == "h6"
    assert spares("a", lost=["h5"], parked=["h6", "h0"])[-1] == "h5"
    assert spares("a", scheduled=True) == []  # another job may have it
    first = [spares(f"job {number}")[0] for number in range(60)]
    assert len(set(first)) == 6, "jobs that lose the same host go to different spares"
