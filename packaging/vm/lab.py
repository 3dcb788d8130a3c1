#!/usr/bin/env python3
"""A lab of true kernels: three emulated machines on a network of their own, and real jobs on them over ssh.

    python packaging/vm/lab.py [--only WORD]

The machines are overlays of the image that `emulated.py build` makes, of 768 MB each: ada has two CPUs, bob and
eve one, and eve's logins have a quota of half of it. Each is connected by a UNIX socket to a hub, an emulator
without a machine, and so is this side, by a TAP device. All of it, the jobs' agent too, is in namespaces of its
own (network, processes, mounts) and writes to memory: whatever kills this program, nothing of it is left, and no
packet leaves this machine. `--only` tries the claims with that word in them.

Each claim prints one JSON line {"claim", "kept", "said", "seconds"}; build/vm/lab.json has them all. Exit status 1
where one is not kept, 4 where the machines do not come up, 77: skipped, with the reason (root and an image are
needed).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import emulated
from emulated import IMAGE, ROOT, SKIPPED

FOLDER = IMAGE / "lab"
"""Where the lab's memory is mounted, in its own namespace; empty otherwise."""
ADDRESSES = {"head": "10.77.0.1", "ada": "10.77.0.11", "bob": "10.77.0.12", "eve": "10.77.0.13"}
CPUS = {"ada": 2, "bob": 1, "eve": 1}
QUOTA = 0.5
"""Of a CPU, for the logins of eve."""
PROGRAM = ROOT / "examples/jacobi2d"
PYTHON = "/job/venv/bin/python"
PATIENCE = 900.0
"""Seconds until something must have happened, on emulated processors."""
HOSTS = str(FOLDER / "hosts.toml")
SIZE = ["--set", "grid=400", "--set", "iterations=1500"]
LONG = ["--set", "grid=400", "--set", "iterations=4000"]
NEAR = 0.1
"""How near a share is to another that is called the same."""
APPLES = [sys.executable, "-m", "apples"]
LAB = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
SSHD = """\
HostKey /job/keys/host
AuthorizedKeysFile /job/keys/user.pub
UsePAM no
StrictModes no
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UseDNS no
MaxStartups 100
PidFile none
"""
SSH = """\
Host *
  User root
  IdentityFile "{folder}/user"
  IdentitiesOnly yes
  UserKnownHostsFile "{folder}/known_hosts"
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
"""


def main() -> int:
    """Become a process in namespaces of our own, and run the lab there; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="of the claims those with this word")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside:
        return inside(given.only)
    reason = emulated.lacking(building=False) or (
        "" if os.geteuid() == 0 else "namespaces of a network are made by root"
    )
    if not reason:
        FOLDER.mkdir(exist_ok=True)
        words = [*LAB, sys.executable, __file__, "--inside", "--only", given.only]
        os.execvp(LAB[0], words)  # noqa: S606 - whoever ends this process ends all of the lab
    print(f"lab of emulated machines: skipped: {reason}", file=sys.stderr)
    return SKIPPED


def inside(only: str) -> int:
    """Bring the machines up and try every claim."""
    call("mount", "-t", "tmpfs", "-o", "mode=700", "lab", str(FOLDER))
    os.chdir(FOLDER)
    os.environ.update(TMPDIR=str(FOLDER), XDG_STATE_HOME=str(FOLDER / "state"))
    lab, begun = Lab(), time.time()
    try:
        lab.start()
    except (TimeoutError, subprocess.SubprocessError, OSError) as error:
        print(f"lab of emulated machines: {error}\n{lab.consoles()}", file=sys.stderr)
        return 4
    results = []
    for name, claim in CLAIMS.items():
        if only in name:
            results.append(emulated.tried(name, lambda claim=claim: lab.tried(claim)))
            print(json.dumps(results[-1]), flush=True)
    return emulated.record("lab", begun, results)


# ---------------------------------------------------------------- machines
@dataclass
class Lab:
    """The machines that run, by name."""

    machines: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self) -> None:
        """Make the hub and the job's disk, boot all machines, and wait until each can be logged into."""
        call("ip", "link", "set", "lo", "up")
        call("ip", "tuntap", "add", "machines", "mode", "tap")
        call("ip", "address", "add", f"{ADDRESSES['head']}/24", "dev", "machines")
        hub = ["qemu-system-x86_64", "-M", "none", "-nodefaults", "-display", "none"]
        hub += ["-netdev", "tap,id=head,ifname=machines,script=no,downscript=no"]
        for name in CPUS:
            hub += ["-netdev", f"stream,id={name},server=on,addr.type=unix,addr.path={name}.sock"]
        for name in ("head", *CPUS):
            hub += ["-netdev", f"hubport,id=port-{name},hubid=0,netdev={name}"]
        subprocess.Popen(hub, stdin=subprocess.DEVNULL)
        call("ip", "link", "set", "machines", "up")
        until(lambda: all(Path(f"{name}.sock").exists() for name in CPUS), "the hub")
        self._disk()
        for number, (name, cpus) in enumerate(CPUS.items()):
            folder = Path(name)
            folder.mkdir()
            shape = ["-m", "768", "-smp", str(cpus), "-device"]
            shape += [f"virtio-net-pci,netdev=net,mac=52:54:00:00:00:{number + 1:02x}", "-netdev"]
            shape += [f"stream,id=net,server=off,addr.type=unix,addr.path={name}.sock"]
            drives = [(Path("job.img"), ",snapshot=on")]
            words = emulated.emulator(name, shape, drives, folder)
            with (folder / "output").open("wb") as output:
                self.machines[name] = subprocess.Popen(
                    words, stdin=subprocess.DEVNULL, stdout=output, stderr=output
                )
        for name in CPUS:
            until(lambda name=name: self.answers(name), f"{name} lets nobody in")
        limit = f"CPUQuota={QUOTA:.0%}"
        self.ask("eve", "systemctl", "set-property", "--runtime", "logins.slice", limit)

    def _disk(self) -> None:
        """Write what all machines have as /job: keys of this run, an environment of Python, the program."""
        for key in ("user", "host"):
            call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "lab", "-f", key)
        public = " ".join(Path("host.pub").read_text().split()[:2])
        known = [f"{address} {public}\n" for address in ADDRESSES.values()]
        Path("known_hosts").write_text("".join(known))
        Path("ssh_config").write_text(SSH.format(folder=FOLDER))
        job = Path("job")
        (job / "keys").mkdir(parents=True)
        for each in ("host", "user.pub"):
            shutil.copy(each, job / "keys")
        (job / "keys/sshd_config").write_text(SSHD)
        lines = [f"{address} {name}\n" for name, address in ADDRESSES.items()]
        (job / "hosts").write_text("".join(lines))
        (job / ".command").write_text("sh host.sh\n")
        shutil.copy(Path(__file__).with_name("host.sh"), job)
        shutil.copytree(PROGRAM, job / "jacobi2d")
        environment(job / "venv")
        emulated.disk(Path("job.img"), job, 512)
        shutil.rmtree(job)

    def tried(self, claim: Callable[[Lab], str]) -> str:
        """Try a claim on the machines that run."""
        self.ready()
        return claim(self)

    def ready(self) -> None:
        """Write the list of the machines that run; all are fit when this returns."""
        text = f'ssh_config = "{FOLDER}/ssh_config"\n'
        for name, cpus in CPUS.items():
            if self.machines[name].poll() is None:
                text += (
                    f'[[host]]\nname = "{name}"\naddress = "{ADDRESSES[name]}"\nuser = "root"\n'
                )
                text += f'python = "{PYTHON}"\ndirectory = "/job/jacobi2d"\nslots = {cpus}\n'
        text += '[[link]]\nbetween = ["local", "local"]\nlatency = 2e-3\nbandwidth = 4e6\n'
        Path("hosts.toml").write_text(text)
        words = [*APPLES, "doctor", "--hosts", HOSTS]
        until(
            lambda: (
                subprocess.run(words, cwd=PROGRAM, capture_output=True, check=False).returncode
                == 0
            ),
            "the doctor finds all machines fit",
        )

    def answers(self, name: str) -> bool:
        """Whether a machine lets us in; raises where it has ended."""
        if self.machines[name].poll() is not None:
            raise OSError(f"{name} has ended: {Path(name, 'output').read_text(errors='replace')}")
        words = ["ssh", "-F", "ssh_config", "-o", "ConnectTimeout=20", ADDRESSES[name], "true"]
        said = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        return said.returncode == 0

    def ask(self, name: str, *words: str) -> str:
        """Run words for the shell of a machine, and return what they print."""
        line = ["ssh", "-F", "ssh_config", "-o", "BatchMode=yes", ADDRESSES[name], *words]
        return call(*line)

    def consoles(self) -> str:
        """Return the last lines of every machine's console."""
        files = [Path(name) / each for name in self.machines for each in ("console", "output")]
        there = [file for file in files if file.exists()]
        return "\n".join(f"{one}: {one.read_text(errors='replace')[-1000:]}" for one in there)


def environment(target: Path) -> None:
    """Make a virtual environment of the machines' Python, with what runs and measures a program there."""
    site = target / "lib/python3.11/site-packages"
    emulated.site(site, target, ["apples", "mpich", "mpi4py", "numpy"])
    (target / "bin").mkdir(exist_ok=True)
    (target / "bin/python").symlink_to("/usr/bin/python3")
    (target / "pyvenv.cfg").write_text("home = /usr/bin\n")


# ------------------------------------------------------------------ claims
def apples(*words: str, code: int = 0) -> dict[str, Any]:
    """Run a command of ours with `--json` on the lab's hosts, and return its document."""
    ended = subprocess.run(
        [*APPLES, *words, "--json"],
        cwd=PROGRAM, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if ended.returncode != code:
        raise RuntimeError(f"{' '.join(words)}: {ended.returncode}: {ended.stderr.strip()[-600:]}")
    return json.loads(ended.stdout) if ended.stdout else {}


def call(*words: str) -> str:
    """Run a command and return its output; its last line of errors is the reason if it fails."""
    ended = subprocess.run(
        words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if ended.returncode:
        last = (ended.stderr or ended.stdout).strip().splitlines()[-1:]
        raise OSError(f"{' '.join(words)[:120]}: {ended.returncode}: {last}")
    return ended.stdout


def until(true: Callable[[], object], what: str) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + PATIENCE
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {PATIENCE:g} s: {what}")
        time.sleep(0.5)


def require(kept: object, broken: object) -> None:
    """Raise where something is not as it should be."""
    if not kept:
        raise AssertionError(str(broken))


def kernels(lab: Lab) -> str:
    """Ask every machine what it is; the doctor has looked at all."""
    found = {name: lab.ask(name, "uname", "-n", "-r", ";", "nproc").split() for name in CPUS}
    require(all(found[n] == [n, found[n][1], str(c)] for n, c in CPUS.items()), found)
    boots = {lab.ask(name, "cat", "/proc/sys/kernel/random/boot_id") for name in CPUS}
    require(len(boots) == len(CPUS), "two machines of one boot")
    return f"Linux {found['ada'][1]}; CPUs {CPUS}; all are fit"


def measured(_: Lab) -> str:
    """Measure the application's kernel on every machine."""
    apples("calibrate", "--hosts", HOSTS, "--rows", "100,300", *SIZE)
    return "each machine's speed is remembered"


def run_on(*words: str) -> tuple[dict[str, Any], str]:
    """Plan with live weather and run; return the document, and what it says of each host in words."""
    document = apples(
        "run", "--hosts", HOSTS, "--actuator", "ssh", "--verify", "full", *SIZE, *words
    )
    require(document["verified"] is True, document["verification"])
    strips = {strip["host"]: strip for strip in document["plan"]["chosen"]["strips"]}
    said = [
        f"{host['host']} {host['rows']} rows, share {strips[host['host']]['cpu']:.2f} forecast"
        f" and {host['cpu_got'] or 0:.2f} measured"
        for host in document["execution"]["hosts"]
    ]
    times = [document["execution"][key] for key in ("predicted_seconds", "measured_seconds")]
    return document, f"{'; '.join(said)}; {times[0]:.0f} s predicted, {times[1]:.0f} measured"


def shares_of(document: dict[str, Any], name: str) -> tuple[float, float]:
    """Return the share of a CPU that was forecast for a host, and the one that its rank got."""
    forecast = {one["host"]: one["cpu"] for one in document["plan"]["chosen"]["strips"]}
    got = {one["host"]: one["cpu_got"] for one in document["execution"]["hosts"]}
    require(name in forecast, f"{name} is not in the plan: {forecast}")
    return forecast[name], got[name] or 0.0


def unequal(_: Lab) -> str:
    """Run on all machines."""
    document, said = run_on("--blueprint", "blocked")
    forecast, got = shares_of(document, "eve")
    require(abs(forecast - got) < NEAR, said)
    require(abs(got - QUOTA) < NEAR, said)
    return said


def planned(_: Lab) -> str:
    """Let the agent choose machines and rows."""
    document, said = run_on()
    return f"chosen: {document['plan']['chosen']['hosts']} of 3; {said}"


def slices(lab: Lab) -> str:
    """Let another slice compete with bob's logins, which weigh three times as much."""
    start = ["systemd-run", "--quiet", "--collect", "--unit=other", "--slice=other.slice"]
    weigh = ["systemctl", "set-property", "--runtime", "logins.slice"]
    lab.ask("bob", *start, PYTHON, "-I", "-S", "-c", "'while True: pass'")
    lab.ask("bob", *weigh, "CPUWeight=300")
    try:
        document, said = run_on("--blueprint", "blocked")
    finally:
        lab.ask("bob", "systemctl", "kill", "--signal=SIGKILL", "other")
        lab.ask("bob", *weigh, "CPUWeight=100")
    forecast, got = shares_of(document, "bob")
    require(abs(forecast - got) < NEAR, said)
    require(abs(got - 0.75) < NEAR, said)
    return said


def resized(lab: Lab) -> str:
    """Have a running job give a machine up and take it back."""
    said = []
    with malleable() as job:
        for hosts in (["ada", "eve"], ["ada", "bob", "eve"]):
            begin = time.monotonic()
            found = apples("resize", job, "--on", ",".join(hosts))["hosts"]
            require(sorted(found) == hosts, found)
            said.append(f"to {', '.join(hosts)} in {time.monotonic() - begin:.0f} s")
            for name in CPUS:
                require(bool(ranks(lab, name)) == (name in hosts), f"{name}: {ranks(lab, name)}")
        return f"{'; '.join(said)}; {finished(job)}"


def lost(lab: Lab) -> str:
    """Kill the emulator of a machine that computes: a malleable job goes on upon the others."""
    others = ["ada", "eve"]
    with malleable() as job:
        begin = time.monotonic()
        lab.machines["bob"].kill()
        until(lambda: sorted(there(job)["hosts"]) == others or not running(job), "it goes on")
        found = there(job)
        require(sorted(found["hosts"]) == others, f"{found['state']}: {found['reason']}")
        seconds = time.monotonic() - begin
        return f"goes on upon {', '.join(others)} after {seconds:.0f} s; {finished(job)}"


def failed(lab: Lab) -> str:
    """Kill the emulator of a machine under a run that cannot change its hosts: one line says so."""
    words = [*APPLES, "run", "--hosts", HOSTS, "--actuator", "ssh", "--blueprint", "blocked"]
    words += ["--weather", "static", "--no-verify", *LONG]
    said, begin = "", 0.0
    with subprocess.Popen(
        words, cwd=PROGRAM, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    ) as run:  # fmt: skip
        for line in run.stderr or ():
            said += line
            if " iteration " in line and not begin:
                begin = time.monotonic()
                lab.machines["eve"].kill()
    last = said.strip().splitlines()[-1:]
    require(run.returncode == 5 and "eve" in "".join(last), f"{run.returncode}: {said[-900:]}")
    return f"exit status 5 after {time.monotonic() - begin:.0f} s: {last[0]}"


@contextlib.contextmanager
def malleable() -> Iterator[str]:
    """Start a malleable job that computes for long enough to be changed, and wait until it does."""
    words = ["--actuator", "ssh", "--detach", "--weather", "static", "--verify", "full"]
    words += ["--blueprint", "blocked", "--commit", "5", *LONG]
    job = str(apples("run", "--hosts", HOSTS, *words)["id"])
    try:
        until(lambda: there(job)["iteration"] or not running(job), "it iterates")
        require(sorted(there(job)["hosts"]) == sorted(CPUS) and running(job), there(job))
        yield job
    finally:
        subprocess.run([*APPLES, "cancel", job], capture_output=True, check=False)


def there(job: str) -> dict[str, Any]:
    """Return what is known of a job."""
    return apples("jobs", job)


def running(job: str) -> bool:
    """Whether a job has not ended."""
    return there(job)["state"] in {"starting", "running"}


def finished(job: str) -> str:
    """Wait for a job; raise where its result is not the sequential run's."""
    document = apples("wait", job)
    require(document["verified"] is True, document["verification"])
    return f"the sequential run's bits after {document['execution']['iterations']} iterations"


def ranks(lab: Lab, name: str) -> list[str]:
    """Return the processes of the program on a machine."""
    return lab.ask(name, "pgrep", "-f", "'[s]olver.py'", "||", "true").split()


CLAIMS: dict[str, Callable[[Lab], str]] = {
    "Three machines with kernels of their own let an agent in, and are found fit": kernels,
    "Their speeds are measured over ssh": measured,
    "A run on 2, 1 and half a CPU has the sequential run's bits, and the share that was forecast": unequal,
    "A rank whose slice weighs three times as much as a competitor's gets the share that was forecast": slices,
    "The agent plans with live weather, and what it chose has the sequential run's bits": planned,
    "A job that runs gives a machine up, takes it back, and has the sequential run's bits": resized,
    "A machine is killed under a malleable job: it goes on without it, to the same bits": lost,
    "A machine is killed under a rigid run: the run is over, and says why": failed,
}


if __name__ == "__main__":
    sys.exit(main())
