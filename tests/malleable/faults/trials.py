"""Trials: a process of a job is killed or stopped, or its disk is full: it goes on right or fails clearly, soon.

``trials.py N [--seed S] [--at-once K] [--least L] [--log FILE]`` runs N of them and prints how often each phase
was hit, by what, and what came of it; with `--least` each phase must have been hit so often. A trial is its seed:
run alone with it, it strikes the same kind of process in the same phase. With `--log` each trial is a line of JSON
in a file as soon as it is over, and what is printed is of all that are in the file: several runs may share one,
and N may be 0. At SIGTERM no trial is begun any more, and the tables are printed.

Half of them strike from outside, at a random moment; the others inside the job manager's loop, because most stages
of a change are too short to be met otherwise. There a newcomer's loss must refuse the command and nothing else.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import random
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

from apples.launch import MARK, marked
from apples.malleable import SUPERVISOR

sys.path.append(str(Path(__file__).parents[2]))
from strikes import AFTER, LEAVER, MEMBER, NEWCOMER, VICTIMS

HOWS = ("KILL", "KILL", "STOP", "PAUSE")
HERE = Path(__file__).parent
HOSTS = ("ada", "bob", "eve")
KINDS = ("agent", "watchdog", "manager", "supervisor", "mpiexec", "proxy", "rank")
PHASES = ("launch", "idle", "start", "merge", "wait", "change", "leave", "finish")
INSIDE = (
    "idle",
    "start",
    "merge",
    "wait",
    "prefetch",
    "change",
    "save",
    "clear",
    "launch",
    "leave",
)
"""Stages in which the manager's loop strikes."""
SELDOM = ("clear", "clear", "prefetch", "merge")
"""Of these, what is seldom hit is tried more often."""
DISK = "disk"
"""A trial whose commits do not fit on their disk; where this user may mount one."""
DISK_BYTES = 40 << 10
"""For one commit, and not for two."""
UNAVOIDABLE = "hosts are left of"
"""What a job says that fails though it has a commit: it lost every host."""
NOBODY = "nobody"
"""What a trial hit in which there was no such process at that moment."""
CLEAR_SECONDS = 5.0
"""From the signal to a clear failure."""
END_SECONDS = float(os.environ.get("APPLES_END_SECONDS", CLEAR_SECONDS))
"""What is taken for that here. More where others have the machine too."""
PATIENCE_SECONDS = 180.0
"""For a job that goes on: to its end. What runs trials as a test waits for longer, and pytest for longer still."""


@dataclass(frozen=True)
class Trial:
    """What is to be done to which process, when."""

    seed: int

    @property
    def draw(self):
        return random.Random(self.seed)

    def plan(self):
        draw = self.draw
        maps = [draw.sample(HOSTS, draw.randint(1, 3)) for _ in range(3)]
        return maps, draw.choice(KINDS), draw.choice(["KILL", "STOP"]), draw.choice(PHASES), draw

    @property
    def pause(self):
        """Seconds between iterations: mostly few, for then a trial is short."""
        draw = random.Random(-self.seed)
        return round(10 ** draw.uniform(-2.0, 0.7 if draw.random() < 0.2 else -1.0), 4)

    @property
    def strikes(self):
        """What the manager's loop is to strike; nothing where the trial strikes from outside."""
        draw = random.Random(f"inside {self.seed}")
        if draw.random() < 0.5:
            return []
        stage, host = draw.choice(INSIDE + SELDOM), MEMBER
        if stage in ("start", "merge", "wait", "prefetch", "change") and draw.random() < 0.7:
            host = NEWCOMER
        elif stage == "leave" and draw.random() < 0.5:
            host = LEAVER
        one = {
            "stage": stage,
            "host": host,
            "victim": draw.choice(VICTIMS),
            "how": draw.choice(HOWS),
            "after": draw.choice([0, 0, 1, 4]),
        }
        one["first"] = refuses(one)
        first = {"stage": "change", "host": NEWCOMER, "victim": "rank"}
        return [first, one] if stage in AFTER else [one]

    @property
    def maps(self):
        """The maps of a trial that strikes inside: two hosts, then the third joins, one leaves, then any."""
        draw = random.Random(f"maps {self.seed}")
        order = draw.sample(HOSTS, 3)
        fewer = draw.sample(order, 2)
        return [order[:2], order, fewer, draw.sample(HOSTS, draw.randint(1, 3))]


def refuses(strike):
    """Whether a strike must end in a refusal and nothing else: a newcomer that cannot become a member any more."""
    at_once = strike["after"] == 0 and strike["how"] != "PAUSE"
    return strike["host"] == NEWCOMER and at_once


@dataclass
class Outcome:
    """What came of a trial; `wrong` says what must not be."""

    kind: str
    how: str
    phase: str
    result: str
    seconds: float
    wrong: str = ""
    inside: list = field(default_factory=list)
    beyond: float = 0.0
    """Seconds that a stage of a change took beyond its limit."""
    seed: int = 0
    load: float = 0.0
    """Of the machine, when it was over."""


def run(seed: int) -> Outcome:
    """Run one trial."""
    trial = Trial(seed)
    maps, kind, how, phase, draw = trial.plan()
    strikes = trial.strikes
    if strikes:
        maps = trial.maps
    folder = Path(tempfile.mkdtemp(prefix="apples-trial-"))
    (folder / "commits").mkdir()
    disk = not strikes and random.Random(f"disk {seed}").random() < 0.1
    full = disk and _mounted(folder / "commits")
    job = f"trial{os.getpid()}x{seed}"
    agent = subprocess.Popen(
        [
            *(sys.executable, str(HERE / "agent.py"), job, json.dumps(maps), str(folder)),
            *(str(trial.pause), json.dumps(strikes)),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, MARK: job, "TMPDIR": str(folder)},
    )
    heard: list[str] = []
    try:
        if full:
            outcome = Outcome(DISK, "FULL", DISK, "", 0.0)
            return _judge(agent, heard, job, outcome, time.monotonic(), folder)
        if strikes:
            last = strikes[-1]
            kind = f"{last['host']}'s {last['victim']}"
            outcome = Outcome(kind, last["how"], last["stage"], "", 0.0, inside=strikes)
            return _judge(agent, heard, job, outcome, time.monotonic(), folder)
        hit = _until(agent, heard, folder, phase, draw)
        victim = _victim(job, agent.pid, kind, draw)
        if not victim:
            kind = NOBODY
        else:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(victim, getattr(signal, f"SIG{how}"))
        struck = time.monotonic()
        return _judge(agent, heard, job, Outcome(kind, how, hit, "", 0.0), struck, folder)
    finally:
        if agent.poll() is None:
            agent.kill()
        agent.wait()
        for pid in marked(job):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if full:
            unmount = ["/usr/bin/env", "umount", "--lazy", str(folder / "commits")]
            subprocess.run(unmount, check=False)
        shutil.rmtree(folder, ignore_errors=True)


def _mounted(folder: Path) -> bool:
    """Mount a disk that holds one commit and not two; whether this user may."""
    small = [
        "/usr/bin/env",
        "mount",
        "-t",
        "tmpfs",
        "-o",
        f"size={DISK_BYTES}",
        "none",
        str(folder),
    ]
    return subprocess.run(small, capture_output=True, check=False).returncode == 0


def _until(agent, heard, folder, phase, draw) -> str:
    """Listen until the job is in a phase; return the phase it was really caught in."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    times = 1 if phase in ("launch", "finish") else draw.randint(1, 2)
    while time.monotonic() < deadline and agent.poll() is None:
        line = _line(agent, 0.02)
        if line:
            heard.append(line)
        if phase == "commit" and any((folder / "commits").glob("*.data")):
            break
        if line == f"output stage {phase}":
            times -= 1
            if times == 0:
                break
        if line == "output stage finish":
            break
    time.sleep(draw.random() * {"launch": 0.6, "idle": 0.2, "start": 0.4}.get(phase, 0.03))
    while line := _line(agent, 0.0):
        heard.append(line)
    stages = [line.split()[-1] for line in heard if line.startswith("output stage ")]
    return phase if phase == "commit" else (stages or ["launch"])[-1]


_buffers: dict[int, bytes] = {}


def _line(agent, seconds: float) -> str:
    """Return the next line the agent repeats, empty if none comes."""
    pipe = agent.stdout.fileno()
    while b"\n" not in _buffers.setdefault(agent.pid, b""):
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            if not selector.select(seconds):
                return ""
        data = os.read(pipe, 1 << 16)
        if not data:
            return ""
        _buffers[agent.pid] += data
    line, _, _buffers[agent.pid] = _buffers[agent.pid].partition(b"\n")
    return line.decode(errors="replace")


def _victim(job: str, agent: int, kind: str, draw) -> int:
    """Return a process of this kind, 0 if there is none."""
    words = {"watchdog": "launch/host_agent.py", "manager": "scripted_manager.py",
             "supervisor": SUPERVISOR, "proxy": "hydra_pmi_proxy", "rank": "counting.py",
             "mpiexec": "/mpiexec"}  # fmt: skip
    if kind == "agent":
        return agent
    found = []
    for pid in marked(job):
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            name = Path(f"/proc/{pid}/comm").read_text().strip()
        except OSError:
            continue
        first = name if name == SUPERVISOR else " ".join(command.split()[:5])
        if words[kind] in first and not (kind == "rank" and "mpiexec" in first):
            found.append(pid)
    return draw.choice(sorted(found)) if found else 0


def _judge(agent, heard, job, outcome: Outcome, struck: float, folder: Path) -> Outcome:
    """Wait for the end, and say whether it is one that may be."""
    if outcome.kind == "agent":
        if outcome.how == "STOP":
            time.sleep(0.3)
            agent.kill()  # a stopped agent harms nobody; when it goes, all must
        return _gone(job, outcome, struck, "gone with its agent")
    while time.monotonic() - struck < PATIENCE_SECONDS:
        line = _line(agent, 0.05)
        if line:
            heard.append(line)
            struck = time.monotonic() if line.startswith("output struck ") else struck
        elif agent.poll() is not None:
            break
    else:
        outcome.wrong = "hangs: " + " / ".join(heard[-4:])
        return outcome
    outcome.seconds = time.monotonic() - struck
    words = [line.split()[-1] for line in heard if line.startswith("output beyond ")]
    outcome.beyond = float(words[-1]) if words else 0.0
    outcome.wrong = _fault(agent.returncode, heard, outcome.seconds)
    outcome.wrong = outcome.wrong or _lost(agent.returncode, heard, folder, outcome)
    if outcome.inside and sum(line.startswith("output struck") for line in heard) < len(
        outcome.inside
    ):
        outcome.kind = NOBODY
    elif outcome.inside:
        outcome.wrong = outcome.wrong or _broken_promise(heard, outcome)
    result = "failed clearly" if agent.returncode else "went on"
    return _gone(job, outcome, time.monotonic(), result)


def _fault(code: int, heard: list[str], seconds: float) -> str:
    """Return what is wrong with the way a job ended, empty if nothing is."""
    totals = [line for line in heard if "total" in line]
    if "Traceback (most recent call last):" in heard:  # what ranks say has its source before it
        return f"the agent itself failed: {heard[-4:]}"
    if any("wrong" in line for line in totals):
        return f"silently wrong: {totals}"
    if code == 0:
        return "" if totals else f"no result, and no failure: {heard[-4:]}"
    went_on = any("notice RolledBack" in line or "notice ResizeDone" in line for line in heard)
    late = seconds > END_SECONDS and not went_on
    return f"failed only after {seconds:.1f} s: {heard[-4:]}" if late else ""


def _lost(code: int, heard: list[str], folder: Path, outcome: Outcome) -> str:
    """Return what is wrong where a job failed that had a commit to go on from."""
    whole = any((folder / "commits").glob("commit-*.json"))
    said = " ".join(line for line in heard if "notice JobEnded" in line)
    parts = outcome.kind not in ("agent", "watchdog", "manager")
    if code and parts and (outcome.kind == DISK or (whole and UNAVOIDABLE not in said)):
        return f"lost, though there is a commit: {heard[-4:]}"
    return ""


def _broken_promise(heard: list[str], outcome: Outcome) -> str:
    """Return what is wrong where the loss of a newcomer must have been a refusal."""
    if len(outcome.inside) > 1 or not refuses(outcome.inside[0]):
        return ""
    answers = [line.split()[2] for line in heard if line.startswith("output notice ")]
    if "RolledBack" in answers or "ResizeRefused" not in answers:
        return f"a newcomer's loss was no refusal: {answers}"
    return ""


def _gone(job: str, outcome: Outcome, since: float, result: str) -> Outcome:
    """Demand that no process is left."""
    outcome.result = result
    while (left := marked(job)) and time.monotonic() - since < END_SECONDS:
        time.sleep(0.1)  # a look reads what every process of the machine is
    outcome.seconds = outcome.seconds or time.monotonic() - since
    if left:
        outcome.wrong = outcome.wrong or f"processes are left: {left}"
    return outcome


def main(count: int, first: int, at_once: int, least: int = 0, log: Path | None = None) -> int:
    """Run so many trials; return how many went wrong, one more where most, or in a phase too few, hit anybody."""
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())

    def one(seed: int) -> Outcome | None:
        if over.is_set():
            return None
        found = run(seed)
        found.seed, found.load = seed, round(os.getloadavg()[0], 1)
        if found.wrong:
            print(
                f"seed {seed}: {found.kind} {found.how} in {found.phase}: {found.wrong}",
                flush=True,
            )
        if log:
            with log.open("a") as file:
                file.write(json.dumps(asdict(found)) + "\n")
        return found

    with ThreadPoolExecutor(at_once) as pool:
        there = [found for found in pool.map(one, range(first, first + count)) if found]
    if log:
        there = [Outcome(**json.loads(line)) for line in log.read_text().splitlines()]
    return told(there, least)


def told(there: list[Outcome], least: int) -> int:
    """Print what came of the trials; return how many were wrong, and more where they hit too little."""
    results = collections.Counter((one.phase, one.result or "wrong") for one in there)
    hit = [one for one in there if one.kind != NOBODY]
    phases = collections.Counter(one.phase for one in hit)
    struck = collections.Counter((f"{one.kind} {one.how}", one.phase) for one in hit)
    clear = [one for one in there if one.result == "failed clearly"]
    wrong = sum(bool(one.wrong) for one in there)
    for (phase, result), times in sorted(results.items()):
        print(f"{phase:8} {result:20} {times}")
    columns = sorted({*PHASES, *INSIDE, *phases})
    print(f"{'hit':28}", *(f"{phase:>6}" for phase in columns))
    for what in sorted({what for what, _ in struck}):
        print(f"{what:28}", *(f"{struck[what, phase] or '-':>6}" for phase in columns))
    print(f"{'all':28}", *(f"{phases[phase]:>6}" for phase in columns))
    slowest = max((one.seconds for one in clear), default=0.0)
    late = sum(one.seconds > CLEAR_SECONDS for one in clear)
    beyond = max((one.beyond for one in there), default=0.0)
    print(
        f"{len(there)} trials, {len(hit)} hit, {wrong} wrong, slowest clear failure {slowest:.1f} s"
        f" ({late} of {len(clear)} over {CLEAR_SECONDS:g} s), a stage {beyond:.1f} s beyond its limit at most,"
        f" load {min((one.load for one in there), default=0.0):.0f}"
        f" to {max((one.load for one in there), default=0.0):.0f}"
    )
    few = {phase: phases[phase] for phase in columns if phases[phase] < least}
    if few:
        print(f"hit less often than {least} times: {few}")
    return wrong + bool(few) + (len(hit) < len(there) // 2)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--least", type=int, default=0)
    parser.add_argument("--log", type=Path)
    asked = parser.parse_args()
    sys.exit(1 if main(asked.count, asked.seed, asked.at_once, asked.least, asked.log) else 0)
