"""Real labs for tests: why there can be none, what a lab has on the machine, and what is measured in one."""

import contextlib
import os
import subprocess
import tempfile
import time
import tomllib
from pathlib import Path

from apples import lab
from apples.errors import UsageError
from apples.lab import MARK, LabDocument, entering, environment, identity, labs, requirements
from apples.launch import LaunchTarget, RankGroup, remote_spec
from apples.launch import reach_by_ssh as reach
from apples.resources import read_host_list

SMALL = """
name = "small"
[[site]]
name = "here"
bandwidth = 4e6
[[site]]
name = "there"
bandwidth = 2e6
[[host]]
name = "ada"
site = "here"
cpu = 1.5
[[host]]
name = "bob"
site = "here"
cpu = 0.25
memory = "256 MB"
[[host]]
name = "far"
site = "there"
cpu = 0.25
"""
SERVE = """
import socket, sys
listener = socket.create_server((sys.argv[1], 5001))
print("there", flush=True)
connection, _ = listener.accept()
while connection.recv(1 << 16): pass
"""
SEND = """
import socket, sys, time
connection = socket.create_connection((sys.argv[1], 5001), timeout=120)
connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
data, sent = bytes(1 << 14), 0
for _ in range(20): connection.sendall(data)
begun = time.monotonic()
while time.monotonic() - begun < 1.0: sent += connection.send(data)
print(sent / (time.monotonic() - begun))
"""


def lacking(**asked):
    """Return why this machine can have no such lab; empty when it can."""
    hosts = [{"name": "a", "cpu": 0.5, "memory": 1 << 28}]
    try:
        requirements.require(
            LabDocument(name="x", host=hosts, site=[{"name": "local", "bandwidth": 1e6}], **asked)
        )
    except UsageError as error:
        return str(error)
    return ""


def belongings(folder):
    """Return everything on this machine that is a lab's: interfaces, cgroups, mounts, processes, files."""
    mark = identity(folder)
    found = {f"link {p.name}" for p in Path("/sys/class/net").iterdir() if mark in p.name}
    for top, names, _ in os.walk("/sys/fs/cgroup"):  # others' groups come and go meanwhile
        found |= {f"cgroup {top}/{n}" for n in names if n.startswith(f"apples-lab-{mark}")}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        if mark in line or str(folder) in line:
            found.add(f"mount {line}")
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with contextlib.suppress(OSError):
                if f"{MARK}={mark}".encode() in (process / "environ").read_bytes().split(b"\0"):
                    found.add(f"process {process.name}")
                if str(folder).encode() in (process / "cmdline").read_bytes():
                    found.add(f"process {process.name} {(process / 'cmdline').read_bytes()!r}")
    if folder.exists():
        found.add(f"folder {folder}")
    return found


@contextlib.contextmanager
def slowed(up, name):
    """Have the link of a host's site, in a lab like `SMALL`, let 10 kB a second through."""
    site = up.machine(name).site
    rates = {one["name"]: one["bandwidth"] for one in tomllib.loads(SMALL)["site"]}
    lab.shape(up, site, 1e4)
    try:
        yield
    finally:
        lab.shape(up, site, rates[site])


@contextlib.contextmanager
def a_lab(document):
    """Have a lab up whose record nobody else sees; for programs, which have no fixture for it."""
    with tempfile.TemporaryDirectory(prefix="apples-lab-") as folder:
        os.environ["XDG_STATE_HOME"] = folder
        file = Path(folder) / "lab.toml"
        file.write_text(document)
        up = lab.up(file)
        try:
            yield up
        finally:
            lab.down(labs() / up.name)


def placing(up):
    """Return what has the hosts of a rehearsed job reached over ssh, in a lab."""
    listed = read_host_list(up.hosts)
    there = {one.name: one for one in listed}

    def place(spec):
        one = there[spec.host]
        group = RankGroup(spec.host, spec.slots, spec.program)
        return remote_spec(LaunchTarget(group, one.reached_at, reach(one, listed)))

    return place


def on(lab, host, *words):
    """Return what a command prints on a host."""
    done = subprocess.run(
        entering(lab.machine(host), words),
        env=environment(lab),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def python(lab, host, program, *arguments):
    """Return what a program of Python's prints on a host."""
    return on(lab, host, "/usr/bin/env", "python3", "-c", program, *arguments)


def steady_rate(lab, source, target, asked):
    """Return `rate`, measured again for a minute while it is too low: this machine's timers may be late."""
    until = time.monotonic() + 60
    while (measured := rate(lab, source, target)) < 0.85 * asked and time.monotonic() < until:
        pass
    return measured


def rate(lab, source, target):
    """Return the bytes per second that get from one host to another, once the queues between are full."""
    address = lab.machine(target).address
    server = subprocess.Popen(
        entering(lab.machine(target), ["/usr/bin/env", "python3", "-c", SERVE, address]),
        env=environment(lab),
        stdout=subprocess.PIPE,
    )
    try:
        assert server.stdout.readline() == b"there\n"
        return float(python(lab, source, SEND, address))
    finally:
        server.kill()
        server.communicate()


@contextlib.contextmanager
def cut_off(lab, name):
    """Have no packet of a host reach anybody."""

    def routes(done):
        for address in (lab.agent, *(one.address for one in lab.machines if one.name != name)):
            words = ["/usr/bin/env", "ip", "route", done, "blackhole", f"{address}/32"]
            subprocess.run(entering(lab.machine(name), words), check=True)

    routes("add")
    try:
        yield
    finally:
        routes("del")
