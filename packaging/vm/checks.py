#!/usr/bin/env python3
"""What is promised on kernels with systemd and cgroup v2 only, tried on one: runs as root in the emulated machine.

`emulated.py check` brings this file, the packages beside it and the units into the machine. Each claim prints
one JSON line {"claim", "kept", "said"}; the exit status is 1 where one is not kept. A file of its own for each
process that has to be in a unit: ``checks.py isolation LEVEL`` and ``checks.py migrate`` are started by systemd.
`checks.py recover` says what a disk has of what was acknowledged before the power was cut, and goes on writing.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bad_jobs import BAD_JOBS

from apples.errors import ApplesError
from apples.io.folder import Folder
from apples.io.identity import identity_of
from apples.launch import quota as quotas_of
from apples.launch.quota import Controller
from apples.topology import CpuSet, synthetic
from apples.topology.daemon.client import TopologyClient
from apples.topology.daemon.handler import TopologyRequestHandler
from apples.topology.daemon.node import DaemonOptions, NodeLedger
from apples.topology.daemon.protocol import Caller, parse_request
from apples.topology.daemon.sharing import violations
from apples.topology.isolation.backend import CpuContainer
from apples.topology.isolation.checks import ISOLATION_CHECKS
from apples.topology.isolation.cpusets import LEAF
from apples.topology.isolation.detection import BACKENDS, find_backend
from apples.topology.isolation.dry_run import DryRun
from apples.topology.sources.sysfs import read_sysfs
from nws.client import Client
from nws.measurement import Measurement, SeriesName
from nws.memory.sqlite import SqliteMemory
from nws.sensors.fair_share import fair_shares
from nws.sensors.run_queue import RunQueueReader

HERE = Path(__file__).parent
PYTHON = "/usr/bin/python3"
SPIN = "while True: pass"
UNITS = {"apples-topologyd": 1.6, "apples-nws": 1.5, "apples-scheduler@": 2.0}
"""Unit -> how exposed it may be, of 10."""
USER = "ada"
"""Whose scheduler is started."""
PATIENCE = 180.0
"""Seconds until something must have happened, on emulated processors."""
STATE = Path("/state")
DISK = "/dev/vdd"


def main() -> int:
    """Try every claim, or be one of the processes that a claim needs."""
    if sys.argv[1:2] == ["isolation"]:
        return isolation(sys.argv[2])
    if sys.argv[1:2] == ["migrate"]:
        return migrate()
    if sys.argv[1:2] == ["quota"]:
        return quota()
    if sys.argv[1:2] == ["recover"]:
        return recover()
    install()
    kept = True
    for name, claim in CLAIMS.items():
        begin = time.monotonic()
        try:
            said, good = claim(), True
        except Exception as error:  # noqa: BLE001 - a claim that is not kept is a line, and the next is tried
            words = [
                "journalctl",
                "--no-pager",
                "-o",
                "short-monotonic",
                "-n",
                "12",
                "-u",
                "apples-*",
            ]
            journal = done(*words, check=False)[-1500:]
            said, good = f"{type(error).__name__}: {error}; units: {journal}", False
        line = {"claim": name, "kept": good, "said": said, "seconds": time.monotonic() - begin}
        print(json.dumps(line), flush=True)
        kept &= good
    return int(not kept)


def install() -> None:
    """Put the commands and the units where an operator would."""
    for command, module in (("apples", "apples.__main__"), ("nws", "apples.weather.commands.nws")):
        file = Path("/usr/bin") / command
        file.write_text(
            f"#!{PYTHON}\nimport sys\nsys.path.insert(0, {str(HERE / 'site')!r})\n"
            f"from {module} import main\nsys.exit(main())\n"
        )
        file.chmod(0o755)
    for name in UNITS:
        text = (HERE / f"{name}.service").read_text()
        # The machine has no compiler of forecasters: what numba writes is not part of what is tried.
        text = text.replace("/usr/bin/nws serve ", "/usr/bin/nws serve --engine numpy ")
        unit_file = Path("/etc/systemd/system") / f"{name}.service"
        unit_file.write_text(text)
        more = unit_file.with_suffix(".service.d")
        more.mkdir(exist_ok=True)  # emulated processors are twenty times as slow
        (more / "slow.conf").write_text("[Service]\nTimeoutStartSec=900\nWatchdogSec=600\n")
    done("systemctl", "daemon-reload")


# ------------------------------------------------------------------ helpers
def done(*words: str, check: bool = True) -> str:
    """Run a command and return what it printed; its last line of errors is the reason if it fails."""
    ended = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False)
    if check and ended.returncode:
        last = (ended.stderr or ended.stdout).strip().splitlines()[-1:]
        raise RuntimeError(f"{' '.join(words)[:80]}: exit status {ended.returncode}: {last}")
    return ended.stdout


def unit(*words: str, properties: tuple[str, ...] = ()) -> str:
    """Run a command as a service of its own, and return what it printed."""
    named = [part for each in properties for part in ("-p", each)]
    path = f"--setenv=PYTHONPATH={os.environ['PYTHONPATH']}"
    return done("systemd-run", "--quiet", "--wait", "--pipe", "--collect", path, *named, *words)


def until(true: Callable[[], object], what: str) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + PATIENCE
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {PATIENCE:g} s: {what}")
        time.sleep(0.1)


def require(kept: object, broken: str) -> None:
    """Raise where something is not as it should be."""
    if not kept:
        raise AssertionError(broken)


def usage(group: Path) -> float:
    """Return the CPU seconds of a control group."""
    return int((group / "cpu.stat").read_text().split()[1]) / 1e6


def _accounted(group: Path) -> tuple[int, int, int]:
    """Return microseconds used, periods of the quota, and those in which it was used up."""
    found = dict(line.split() for line in (group / "cpu.stat").read_text().splitlines())
    return int(found["usage_usec"]), int(found["nr_periods"]), int(found["nr_throttled"])


def own_group() -> Path:
    """Return the control group that this process is in."""
    return Path("/sys/fs/cgroup") / Path("/proc/self/cgroup").read_text().split(":")[2].strip(
        "/\n"
    )


def enter_leaf() -> None:
    """Leave this unit's group for one below it, as `DelegateSubgroup` of systemd 254 would have it."""
    leaf = own_group() / LEAF
    leaf.mkdir()
    (leaf / "cgroup.procs").write_text(str(os.getpid()))


def masks(process: int) -> str:
    """Return the CPUs on which a process may run."""
    found = re.search(r"Cpus_allowed_list:\s*(\S+)", Path(f"/proc/{process}/status").read_text())
    return found[1] if found else ""


# ------------------------------------------------------------------ claims
def machine() -> str:
    """Read the machine's topology from its kernel."""
    document = json.loads(done("apples", "topology", "show", "--live", "--json"))
    read = read_sysfs()
    counts = {key: document[key] for key in ("packages", "numa_nodes", "pus")}
    require(counts == {"packages": 2, "numa_nodes": 2, "pus": 4}, f"{counts}")
    require(len(read.nodes) == 2, f"{len(read.nodes)} memory nodes")
    require(read.latencies.values == ((10, 21), (21, 10)), f"latencies {read.latencies.values}")
    kernel, systemd = os.uname().release, done("systemctl", "--version").split()[1]
    return f"Linux {kernel}, systemd {systemd}: {counts}, latencies {read.latencies.values}"


def levels() -> str:
    """Run the contract of every isolation backend, each in a unit of its own."""
    said = []
    for level in ("cpuset-v2", "systemd-scope", "affinity"):
        output = unit(
            PYTHON, __file__, "isolation", level,
            properties=("Delegate=cpuset cpu memory pids",),
        )  # fmt: skip
        said.append(output.strip().splitlines()[-1])
    require(not any("broken" in each for each in said), f"{said}")
    return "; ".join(said)


def isolation(level: str) -> int:
    """Run the contract of one isolation backend in this unit; of cpusets as `DelegateSubgroup` would start it."""
    if level == "cpuset-v2":
        enter_leaf()
    backend, tried = find_backend(level)
    broken = []
    for check in ISOLATION_CHECKS:
        try:
            check(lambda: BACKENDS[level](Path("/")))
        except (AssertionError, ApplesError, OSError) as error:
            broken.append(f"{check.__name__} broken: {error}")
    cpus, mems = backend.universe()
    alone = CpuContainer(
        "topologyd-00000000-alone-1", CpuSet.of([max(cpus)]), mems, exclusive=True
    )
    guarantee = backend.fit(alone)
    backend.remove(alone.name)
    usual = tried[-1].guarantee
    print(
        f"{level}: {len(ISOLATION_CHECKS) - len(broken)} of {len(ISOLATION_CHECKS)}, "
        f"{usual.value if usual else ''}, exclusive: {guarantee.value} {' '.join(broken)}"
    )
    return 0


def exposures() -> str:
    """Have systemd judge the units."""
    said = []
    for unit_name, most in UNITS.items():
        name = f"{unit_name}{USER}" if unit_name.endswith("@") else unit_name
        text = done("systemd-analyze", "security", "--no-pager", f"{name}.service", check=False)
        found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", text)
        require(found and float(found[1]) <= most, f"{name}: {found and found[1]}, at most {most}")
        said.append(f"{name} {found[1] if found else ''}")
    return ", ".join(said)


def daemon() -> str:
    """Start the topology daemon by its unit, a job under it, and kill and restart the daemon."""
    done("systemctl", "start", "apples-topologyd")
    socket = Path("/run/apples/topologyd.sock")
    until(socket.exists, "the socket")
    with TopologyClient(socket, seconds=PATIENCE) as client:
        fence = client.ask("status")["fence"]
    require(
        fence == "systemd-scope", f"the isolation is {fence}: systemd 252 has no DelegateSubgroup"
    )
    words = ["/usr/bin/apples", "exec", "--job", "lives", "-n", "2", "--", "sleep", "100000"]
    job = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    said = [fence]
    try:
        until(lambda: _command(job.pid), "the command")
        command = _command(job.pid)
        held = _held(socket, "lives")
        for what in (("kill", "--signal=SIGKILL", "--kill-who=main"), ("restart",)):
            before = _main_process()
            done("systemctl", *what, "apples-topologyd")
            until(lambda before=before: _main_process() not in {0, before}, "a new daemon")
            until(lambda: _held(socket, "lives") == held, "the job's CPUs")
            require(job.poll() is None, f"the job ended after {what[0]}")
            require(masks(command) == held, f"it runs on {masks(command)}, not on {held}")
            said.append(f"after {what[0]} the job has CPUs {held}")
        with TopologyClient(socket, seconds=PATIENCE) as client:
            client.ask("deallocate", job="lives")
        require(job.wait(PATIENCE), "the command was not ended")
    finally:
        job.kill()
    return "; ".join(said)


def _command(process: int) -> int:
    """Return the sleeping child of a process, 0 while there is none."""
    with contextlib.suppress(OSError):
        for child in Path(f"/proc/{process}/task/{process}/children").read_text().split():
            if Path(f"/proc/{child}/comm").read_text().strip() == "sleep":
                return int(child)
    return 0


def _held(socket: Path, job: str) -> str:
    with contextlib.suppress(ApplesError, OSError), TopologyClient(socket, seconds=30) as client:
        found = client.ask("jobs", job=job)["jobs"]
        return str(found[0]["cpus"]) if found else ""
    return ""


def _main_process() -> int:
    return int(done("systemctl", "show", "apples-topologyd", "--value", "-p", "MainPID").strip())


def bad_jobs() -> str:
    """Start jobs that do not want to end, and give their CPUs back."""
    socket = Path("/run/apples/topologyd.sock")
    slowest = 0.0
    with TopologyClient(socket, seconds=PATIENCE) as client:
        whole = client.ask("status")["free"]
        for number, command in enumerate(BAD_JOBS.values()):
            job = f"bad{number}"
            process = subprocess.Popen(
                ["/usr/bin/apples", "exec", "--job", job, "--", "sh", "-c", command],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            until(lambda job=job, p=process: _pen(client, job) or p.poll() is not None, job)
            pen = _pen(client, job)
            time.sleep(2)
            begin = time.monotonic()
            with contextlib.suppress(Exception):  # it may have ended by itself
                client.ask("deallocate", job=job)
            slowest = max(slowest, time.monotonic() - begin)
            process.kill()
            process.wait()
            groups = list(Path("/sys/fs/cgroup").rglob(pen)) if pen else []
            require(not groups, f"{command}: {groups} is left")
        until(lambda: client.ask("status")["free"] == whole, "all CPUs free again")
    return f"{len(BAD_JOBS)} kinds, the slowest gone after {slowest:.1f} s"


def _pen(client: object, job: str) -> str:
    found = client.ask("jobs", job=job)["jobs"]  # type: ignore[attr-defined]
    return str(found[0]["pen"]) if found else ""


def migration() -> str:
    """Move a process with memory to another node."""
    return unit(PYTHON, __file__, "migrate", properties=("Delegate=cpuset",)).strip()


def migrate() -> int:
    """Move a process with 64 MB from memory node 0 to node 1."""
    enter_leaf()
    backend, _ = find_backend("cpuset-v2")
    name = "topologyd-00000000-moves-1"
    one, other = (
        CpuContainer(name, CpuSet.of([cpu]), CpuSet.of([node])) for cpu, node in ((0, 0), (2, 1))
    )
    backend.fit(one)
    touch = "import sys; sys.stdin.read(1); b = bytearray(1 << 26); print('.', flush=True); sys.stdin.read(1)"
    words = [PYTHON, "-I", "-S", "-c", touch]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("no pipes")
        backend.admit(name, process.pid)
        process.stdin.write(b"x")
        process.stdin.flush()
        process.stdout.read(1)
        before = pages(process.pid)
        backend.fit(other)
        after = pages(process.pid)
        process.kill()
    until(lambda: not backend.processes(name), "an empty container")
    backend.remove(name)
    require(before[0] > 16_000 > before[1], f"before: {before}")
    require(after[1] > 16_000, f"after: {after}")
    print(f"pages on nodes 0 and 1: {before} before, {after} after")
    return 0


def pages(process: int) -> tuple[int, int]:
    """Return how many pages of a process are on each node."""
    text = Path(f"/proc/{process}/numa_maps").read_text()
    return tuple(sum(map(int, re.findall(rf"\bN{n}=(\d+)", text))) for n in (0, 1))  # type: ignore[return-value]


def shares() -> str:
    """Let two slices compete for a CPU, and ask the weather service's model."""
    names = {"light": 100, "heavy": 300}
    for name, weight in names.items():
        done(
            "systemd-run", "--quiet", "--collect", f"--unit={name}", f"--slice={name}.slice",
            "-p", f"CPUWeight={weight}", "-p", "AllowedCPUs=3", PYTHON, "-I", "-S", "-c", SPIN,
        )  # fmt: skip
        done("systemctl", "set-property", "--runtime", f"{name}.slice", f"CPUWeight={weight}")
    try:
        pids = [
            int(done("systemctl", "show", name, "--value", "-p", "MainPID").strip())
            for name in names
        ]
        groups = [Path(f"/sys/fs/cgroup/{name}.slice/{name}.service") for name in names]
        looked = RunQueueReader().look().threads
        threads = [looked[pid] for pid in pids if pid in looked]
        require(len(threads) == 2, f"the model sees {len(threads)} of two")
        promised = fair_shares(threads, {3})
        begin, before = time.monotonic(), [usage(group) for group in groups]
        time.sleep(10)
        seconds = time.monotonic() - begin
        got = [(usage(group) - one) / seconds for group, one in zip(groups, before, strict=True)]
    finally:
        for name in names:
            done("systemctl", "kill", "--signal=SIGKILL", name, check=False)
    off = [abs(a - b * sum(got)) for a, b in zip(got, promised, strict=True)]
    require(max(off) < 0.05, f"promised {promised}, got {got}")
    return (
        f"promised {[round(p, 3) for p in promised]}, got {[round(g, 3) for g in got]} of the CPU"
    )


def quotas() -> str:
    """Let a process spin in a group with a quota."""
    return unit(PYTHON, __file__, "quota", properties=("Delegate=cpu",)).strip()


def quota() -> int:
    """Let a process spin in a group with a quota."""
    own = own_group()
    enter_leaf()
    (own / "cgroup.subtree_control").write_text("+cpu")
    found = quotas_of.find()
    require(isinstance(found, Controller) and found.version == 2, f"{found}")
    if not isinstance(found, Controller):
        return 1
    group = found.create("apples-check", 0.25)
    with subprocess.Popen([PYTHON, "-I", "-S", "-c", SPIN]) as process:
        (group / "cgroup.procs").write_text(str(process.pid))
        begin, before = time.monotonic(), _accounted(group)
        time.sleep(8)
        seconds = time.monotonic() - begin
        used, periods, stopped = (b - a for a, b in zip(before, _accounted(group), strict=True))
        period = int((group / "cpu.max").read_text().split()[1])
        (group / "cgroup.kill").write_text("1")
    quotas_of.remove(group)
    # By its own periods: emulated processors stand still while this machine has others to run.
    got = used / max(1, periods * period)
    clock = used / 1e6 / seconds
    said = (
        f"{got:.3f} of a CPU in {periods} periods, stopped in {stopped}; {clock:.3f} by the clock"
    )
    require(abs(got - 0.25) < 0.02 and stopped > 0.8 * periods, said)
    print(said)
    return 0


def weather() -> str:
    """Start the weather service by its unit, store, and kill it."""
    done("systemctl", "start", "apples-nws")
    require(done("systemctl", "is-active", "apples-nws").strip() == "active", "it is not active")
    before = done("systemctl", "show", "apples-nws", "--value", "-p", "MainPID").strip()
    url, token = "http://127.0.0.1:8123", Path("/var/lib/private/apples-nws/token").read_text()
    with Client(url, token.strip(), deadline=PATIENCE) as client:
        acknowledged = client.store(_samples(range(1, 101)))["stored"]
    done("systemctl", "kill", "--signal=SIGKILL", "apples-nws")
    until(lambda: _ready("apples-nws", before), "the service again")
    with Client(url, token.strip(), deadline=PATIENCE) as client:
        found = client.series()["series"]
    kept = sum(entry["count"] for entry in found)
    require(acknowledged == kept == 100, f"{acknowledged} acknowledged, {kept} kept")
    watchdog = done("systemctl", "show", "apples-nws", "--value", "-p", "WatchdogUSec").strip()
    return f"{acknowledged} acknowledged, {kept} after kill -9; watchdog {watchdog}"


def scheduler() -> str:
    """Start the scheduler of a user by its unit, and kill it: it is asked as that user."""
    name, home = f"apples-scheduler@{USER}", Path("/home") / USER
    done("useradd", "--create-home", "--shell", "/bin/sh", USER)
    (home / ".config/apples").mkdir(parents=True)
    # Nobody lets it in there: what is tried is the service, and that it can write what it has to.
    hosts = '[[host]]\nname = "bob"\naddress = "127.0.0.1"\npython = "/usr/bin/python3"\n'
    (home / ".config/apples/hosts.toml").write_text(hosts)
    done("chown", "-R", f"{USER}:", str(home))
    done("systemctl", "start", name)
    found = []
    for _ in range(2):
        until(_queue, "the scheduler answers")
        found.append(_queue())
        before = done("systemctl", "show", name, "--value", "-p", "MainPID").strip()
        done("systemctl", "kill", "--signal=SIGKILL", "--kill-who=main", name)
        until(lambda before=before: _ready(name, before), "the scheduler again")
    done("systemctl", "stop", name)
    require(not _queue(), "it answers when it was stopped")
    require([one["hosts"][0]["host"] for one in found] == ["bob", "bob"], f"{found}")
    return f"as {USER}; host bob is {found[1]['hosts'][0]['state']} before and after kill -9"


def _queue() -> dict[str, Any]:
    """Return what the scheduler says of its queue; nothing where it does not answer."""
    words = ["runuser", "-u", USER, "--", "env", f"HOME=/home/{USER}", "/usr/bin/apples"]
    words += ["queue", "--json"]
    ended = subprocess.run(words, cwd="/", capture_output=True, text=True, check=False)
    found: dict[str, Any] = json.loads(ended.stdout) if ended.returncode == 0 else {}
    return found


def _ready(name: str, before: str) -> bool:
    shown = done("systemctl", "show", name, "-p", "MainPID", "-p", "ActiveState")
    found = dict(line.split("=", 1) for line in shown.split())
    return found["ActiveState"] == "active" and found["MainPID"] not in {"0", before}


def _samples(times: range) -> list[object]:
    name = SeriesName.parse("availableCpu/ada")
    return [Measurement(name, 1_000_000.0 + time, 0.5) for time in times]


CLAIMS = {
    "Two packages, two memory nodes and their distances are read from the kernel": machine,
    "Every promise of an isolation backend is kept on cgroup v2, by systemd scopes and by plain affinity": levels,
    "The units are no more exposed than is said": exposures,
    "The topology daemon runs as its unit says; its jobs outlive kill -9 and a restart of it": daemon,
    "Jobs that do all they can to stay are gone when their CPUs are given back, by their group": bad_jobs,
    "Memory that was touched goes where a container goes": migration,
    "What two slices of weights 100 and 300 get of a CPU is what the weather service's model says": shares,
    "A host that is described as a quarter of a CPU gets a quarter of one": quotas,
    "The weather service runs as its unit says and keeps what it acknowledged over kill -9": weather,
    "The scheduler of a user runs as its unit says, and answers again after kill -9": scheduler,
}


# ------------------------------------------------------------------ power cuts
def recover() -> int:
    """Say what the disk has, then write and acknowledge until the power is cut."""
    STATE.mkdir(exist_ok=True)
    if subprocess.run(
        ["/bin/mount", DISK, str(STATE)], check=False, capture_output=True
    ).returncode:
        done("mke2fs", "-q", "-t", "ext4", DISK)
        done("mount", DISK, str(STATE))
    asyncio.run(_written())
    return 0


async def _written() -> None:
    """Write to the ledger of a topology daemon and to the memory of a weather service, turn by turn."""
    caller, name = Caller("uid:0", operator=True), SeriesName.parse("availableCpu/ada")
    (STATE / "daemon").mkdir(mode=0o700, exist_ok=True)
    folder, machine = Folder.open(STATE / "daemon"), synthetic("package:2 core:32 pu:1")
    node = NodeLedger(machine, DryRun(machine.cpus), folder, identity_of(folder), DaemonOptions())
    handler = TopologyRequestHandler(node)
    handler.start()
    memory = SqliteMemory(STATE / "weather")
    answers = node.state.answers.get("uid:0", {})
    ledger = max((int(request[1:]) for request in answers), default=0)
    times = [int(each.time) for each in memory.fetch(name)]
    wrong = list(violations(node.state.jobs, node.universe))
    if times != list(range(1, len(times) + 1)):
        wrong.append("measurements are missing in between")
    print(f"found {ledger} {len(times)} {len(node.problems)} {wrong}", flush=True)
    number = max(ledger, len(times))
    while True:
        number += 1
        job = f"j{number // 2 % 16}"
        fields = {"job": job, "verb": "deallocate"}
        if number % 2 == 0:
            fields |= {"verb": "allocate", "count": 3, "until": "told"}
        with contextlib.suppress(ApplesError):
            await handler.answer(caller, parse_request(json.dumps(fields).encode()))
            print(f"ledger {number}", flush=True)
        memory.store(Measurement(name, float(len(times) + 1), 0.5))
        times.append(0)
        print(f"weather {len(times)}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
