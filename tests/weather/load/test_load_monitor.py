"""The load monitor: what a slave sees of a machine, what the master makes of it, and what neither believes."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from waiting import until

from apples.errors import UsageError
from apples.resources import Host, HostList, Network, read_host_list
from apples.weather import (
    HERE,
    MAX_BYTES,
    MAX_FILES,
    LoadMonitor,
    NodeSampler,
    NodeSnapshot,
    ProcessCapacity,
    RecentMean,
    line_of,
    load_slave,
    load_slaves,
    read_line,
)
from nws import read_file

MEMINFO = (
    "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 250 kB\nSwapTotal: 100 kB\nSwapFree: 40 kB\n"
)


class Machine:
    """A machine's /proc and /sys, as files."""

    def __init__(self, root):
        self.root = root
        self.write("proc/meminfo", MEMINFO)
        self.write("proc/loadavg", "0 0 0 99/99 1")
        self.write("proc/self/cgroup", "")
        self.sent(0)

    def write(self, path, text):
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def sent(self, count):
        head = "Inter-| Receive\n face |bytes\n"
        self.write("proc/net/dev", f"{head}  eth0: {count} 0 0 0 0 0 0 0 7 0 0 0 0 0 0 0\n")
        self.write("sys/class/net/eth0/speed", "1000\n")

    def process(self, pid, state="R", cpus="0-3", environ="", ticks=(0, 0), pages=0):
        rest = [
            state,
            "1",
            *"0" * 9,
            *map(str, ticks),
            "0",
            "0",
            "20",
            "0",
            "1",
            "0",
            "0",
            "0",
            str(pages),
        ]
        rest += ["0"] * 20
        stat = f"{pid} (a ) b) {' '.join(rest)}"
        for folder in (f"proc/{pid}", f"proc/{pid}/task/{pid}"):
            self.write(f"{folder}/stat", stat)
            self.write(f"{folder}/status", f"Cpus_allowed_list:\t{cpus}\n")
        self.write(f"proc/{pid}/environ", environ)
        self.write(f"proc/{pid}/cgroup", "")


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def test_processes_count_on_the_processors_that_they_may_have_and_for_their_job(machine):
    machine.process(10, cpus="0")
    machine.process(11, cpus="0-3")
    machine.process(12, state="S", environ="X=1\0APPLES_JOB=0000abcd\0", ticks=(150, 50), pages=3)
    machine.process(13, cpus="1", environ="APPLES_JOB=0000abcd\0", ticks=(100, 0), pages=1)
    sampler = NodeSampler({"ada": [0], "bob": [1, 2]}, machine.root, clock=lambda: 5.0)
    ada, bob = sampler.snapshot()
    assert (ada.cpus, ada.wanting) == (1, {"": 1.25})
    assert (bob.cpus, bob.wanting) == (2, {"": 0.5, "0000abcd": 1.0})
    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    assert ada.jobs == {"0000abcd": ProcessCapacity(1, 200 / ticks, 3 * page)}
    assert bob.jobs == {"0000abcd": ProcessCapacity(2, 300 / ticks, 4 * page)}
    assert ada.available["cpu"] == 1 - 1.25 / 2
    assert ada.parts["memory"] == 0.25
    assert ada.parts["swap"] == 0.4
    assert 0 <= ada.parts["disk"] <= 1


def test_a_snapshot_has_the_mean_of_the_glances_since_the_last(machine):
    sampler = NodeSampler({"ada": [0]}, machine.root)
    machine.process(10, cpus="0")
    sampler.glance()
    machine.process(10, cpus="0", state="S")
    for _ in range(3):
        sampler.glance()
    assert sampler.snapshot()[0].wanting == {"": 0.25}
    assert sampler.snapshot()[0].wanting == {}


@pytest.mark.more
def test_a_glance_at_very_many_processes_opens_few_and_sees_what_began(machine):
    for pid in range(1000, 2000):
        machine.process(pid, state="S", cpus="0")
    opened = []

    def read(path):
        opened.append(path)
        return read_file(path)

    sampler = NodeSampler({"ada": [0]}, machine.root, read=read)
    for _ in range(6):
        opened.clear()
        sampler.glance()
        assert 0 < len(opened) <= MAX_FILES + 10
    sampler.snapshot()
    machine.process(3000, cpus="0")
    assert sampler.snapshot()[0].wanting == {"": 1.0}


def test_a_process_of_the_whole_machine_counts_wherever_it_is_bound(machine):
    machine.process(12, state="S", cpus="0", environ="APPLES_JOB=0000abcd\0", pages=1)
    (machine.root / "proc/12/status").unlink()
    (found,) = NodeSampler({"ada": range(os.cpu_count())}, machine.root).snapshot()
    assert found.jobs["0000abcd"].processes == 1
    (found,) = NodeSampler({"ada": [os.cpu_count()]}, machine.root).snapshot()
    assert found.jobs == {}


def test_a_rank_is_what_its_launcher_said_and_what_that_started(machine):
    mine = "APPLES_JOB=0000abcd\0"
    machine.process(10, state="S", cpus="0", environ=mine, ticks=(100, 0), pages=1)
    machine.process(11, cpus="0", environ=f"SLURM_PROCID=0\0PMI_RANK=3\0{mine}", pages=2)
    machine.process(12, cpus="0", environ=f"PMI_RANK=3\0{mine}", pages=4)
    machine.process(13, cpus="0", environ=f"{mine}OMPI_COMM_WORLD_RANK=4\0", pages=8)
    machine.process(14, cpus="0", environ="PMI_RANK=5\0")
    machine.process(15, cpus="0", environ=f"PMI_RANK=-1\0PMIX_RANK=9999999\0{mine}", pages=16)
    sampler = NodeSampler({"ada": [0]}, machine.root)
    found, page = sampler.snapshot()[0], os.sysconf("SC_PAGE_SIZE")
    assert found.jobs["0000abcd"].processes == 5
    assert found.ranks == {
        ("0000abcd", 3): ProcessCapacity(2, 0.0, 6 * page),
        ("0000abcd", 4): ProcessCapacity(1, 0.0, 8 * page),
    }
    assert read_line(line_of([found])) == [found]
    machine.process(10, cpus="0", environ=f"{mine}PMI_RANK=7\0", pages=1)  # it became a rank
    assert sampler.snapshot()[0].ranks["0000abcd", 7].memory == page


def test_of_the_network_is_left_what_the_busiest_interface_did_not_carry(machine):
    times = iter([0.0, 2.0, 4.0])
    sampler = NodeSampler({"ada": [0]}, machine.root, clock=lambda: next(times))
    assert "network" not in sampler.snapshot()[0].parts
    machine.sent(125_000_007)
    assert sampler.snapshot()[0].parts["network"] == 0.5
    machine.write("sys/class/net/eth0/speed", "-1\n")
    assert "network" not in sampler.snapshot()[0].parts


VALUES = st.lists(
    st.dictionaries(st.sampled_from("abc"), st.floats(0, 100), max_size=3), max_size=30
)


@given(VALUES, st.integers(1, 6))
def test_the_mean_by_recursion_is_the_mean_of_the_latest(values, window):
    mean = RecentMean(window)
    for place, value in enumerate(values):
        found = mean.add(value)
        latest = values[max(0, place + 1 - window) : place + 1]
        assert set(found) == {name for one in latest for name in one}
        for name, number in found.items():
            right = sum(one.get(name, 0.0) for one in latest) / len(latest)
            assert number == pytest.approx(right, abs=1e-9)


def test_what_others_want_is_of_no_job_of_ours_and_as_certain_as_the_snapshots_agree():
    mean = RecentMean(5)
    for stray in (1.0, 0.0, 0.0, 0.0, 0.0):
        means = mean.add({"": 1.0, "0000beef": stray, "0000abcd": 3.0})
    errors = mean.errors()
    assert errors == {"": 0.0, "0000beef": pytest.approx(0.2), "0000abcd": 0.0}
    one = NodeSnapshot("ada", 1.0, 2, means, {}, errors=errors)
    assert one.others({"0000abcd"}) == (pytest.approx(1.2), pytest.approx(0.2))
    assert RecentMean(5).errors() == {}


@pytest.mark.parametrize(
    "line",
    [
        b"", b"[]", b"{}", b'{"schema":"apples.node-load/1"}', b"[" * 5000, b"\xff", b"x" * (MAX_BYTES + 1),
        *(
            line_of([NodeSnapshot("ada", 1.0, 2, {"": 1.0}, {"memory": 0.5})]).replace(old, new)
            for old, new in (
                ('"cpus":2', '"cpus":0'), ('"cpus":2', '"cpus":true'), ('"":1.0', '"":-1'), ('"":1.0', '"":1e9'),
                ("0.5", "1.5"), ("0.5", "NaN"), ('"time":1.0', '"time":"1"'), ('"ada"', '"a\\u001b"'),
                ('"jobs":{}', '"jobs":[]'), ('"jobs":{}', '"jobs":{"a":[1]}'),
                ('"jobs":{}', '"jobs":{"a":[1,2,-3]}'), ('"ranks":[]', '"ranks":{}'),
                ('"ranks":[]', '"ranks":[["a",-1,1,1,1]]'), ('"ranks":[]', '"ranks":[["a",1,1,1]]'),
            )
        ),
    ],
)  # fmt: skip
def test_a_line_that_is_no_snapshot_is_refused(line):
    with pytest.raises(UsageError) as raised:
        read_line(line)
    codes = {b"[]": "schema-unknown", b"{}": "schema-unknown"}
    if len(line) > MAX_BYTES:
        codes[line] = "message-too-long"
    assert raised.value.code == codes.get(line, "snapshot-invalid")


def test_a_slave_sees_who_computes_and_ends_with_its_input():
    def found(snapshots):
        return [one.jobs["0000beef"] for one in snapshots if "0000beef" in one.jobs]

    with LoadMonitor({}, print) as nobody:
        assert nobody is not None
    spinning = subprocess.Popen(
        [sys.executable, "-c", "while True: pass"], env={**os.environ, "APPLES_JOB": "0000beef"}
    )
    heard, problems = [], []
    hosts = (Host("ada"),)
    slaves = load_slaves(hosts, (), 0.2)
    assert list(slaves) == [HERE]
    try:
        with LoadMonitor(slaves, heard.append, 3, 3, lambda *said: problems.append(said)):
            until(lambda: any(one.wanting.get("0000beef") for one in heard))
            until(lambda: any(one.cpu_seconds > 0.1 for one in found(heard)))
    finally:
        spinning.kill()
        spinning.wait()
    assert heard[0].host == "ada"
    assert [text for _, text in problems if text] == []
    assert not [one for one in threading.enumerate() if one.name == "load"]


def test_a_monitor_learns_machines_while_it_runs_and_forgets_those_that_leave():
    heard, problems = [], []
    others = HostList((Host("bob", address="localhost"),), Network())

    def slaves():
        return [one for one in threading.enumerate() if one.name == "load"]

    with LoadMonitor({}, heard.append, 1, 1, lambda *said: problems.append(said)) as one:
        commands = [["/nowhere"], load_slave(others, others["bob"], 0.05)]
        one.join("bob", lambda: commands[0])
        one.join("bob", lambda: pytest.fail("it has a slave already"))
        until(lambda: ("bob", "/nowhere: No such file or directory") in problems)
        one.leave("bob")
        until(lambda: not slaves())
        problems.clear()
        one.join("bob", lambda: commands[0])  # it comes back, and cannot be looked at again
        until(lambda: ("bob", "/nowhere: No such file or directory") in problems)
        one.leave("bob")
        until(lambda: not slaves())
        one.join("bob", lambda: commands[1])  # it is reached another way
        until(lambda: [snapshot.host for snapshot in heard[:2]] == ["bob", "bob"])
        one.leave("bob")
        one.leave("never")
        until(lambda: not slaves())
        heard.clear()
        one.join("ada", lambda: load_slave(others, others["bob"], 0.05))
        until(lambda: heard)
    assert not slaves()
    one.join("late", lambda: commands[1])
    assert not slaves()


def test_a_slave_that_does_not_end_when_its_machine_leaves_is_killed_with_the_monitor(tmp_path):
    own = tmp_path / "pid"
    program = (
        "import os, pathlib, signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"own = pathlib.Path({str(own)!r}); own.with_suffix('.new').write_text(str(os.getpid()))\n"
        "own.with_suffix('.new').rename(own)\n"
        "while True: signal.pause()"
    )
    argv = [sys.executable, "-c", program]
    with LoadMonitor({"ada": argv}, print, end_seconds=0.2) as one:
        until(own.exists)
        one.leave("ada")
    assert not Path("/proc", own.read_text()).exists()


def test_a_command_line_that_cannot_be_made_is_a_problem_and_is_asked_for_again():
    problems, asked, hosts = [], [], {}

    def command():
        asked.append("ada")
        return hosts["ada"]

    with LoadMonitor(
        {}, print, problem=lambda *said: problems.append(said), again_seconds=0.01
    ) as one:
        one.join("ada", command)
        until(lambda: len(asked) > 2)
        assert problems == [("ada", "KeyError: 'ada'")]


def test_what_no_slave_would_say_ends_it_with_the_reason():
    for argv, word in (
        ([sys.executable, "-c", "print('hello', flush=True); input()"], "JSONDecodeError"),
        ([sys.executable, "-c", "pass"], "ended"),
        (["/nowhere"], "/nowhere"),
    ):
        problems = []
        with LoadMonitor(
            {"ada": argv}, print, problem=lambda *found, to=problems: to.append(found)
        ):
            until(lambda found=problems: found)
        (machine, text) = problems[0]
        assert machine == "ada"
        assert word in text


def test_a_host_that_is_another_machine_has_a_slave_of_its_own_over_ssh(tmp_path):
    (tmp_path / "hosts.toml").write_text(
        '[[host]]\nname = "ada"\ncpus = [0]\n[[host]]\nname = "bob"\ncpus = [1]\n'
        '[[host]]\nname = "far"\naddress = "far.example"\npython = "/opt/p y"\n'
    )
    hosts = read_host_list(tmp_path / "hosts.toml")
    slaves = load_slaves(hosts, [hosts["far"]], 2.0)
    assert list(slaves) == [HERE, "far"]
    assert '{"ada": [0], "bob": [1]}' in slaves[HERE]
    assert slaves["far"][0] == "ssh"
    assert load_slave(hosts, hosts["far"], 2.0) == slaves["far"]
    assert slaves["far"][-1].startswith("exec '/opt/p y' -I -m apples.weather.load.reporter ")
