"""Trials: a process of a run over ssh is killed at a random moment, and the run ends clearly, soon, and whole.

``ssh_trials.py N [--seed S] [--at-once K]`` makes N of them, through the connections that the hosts were looked
at through, and prints how often each stage and each process was hit and what came of it. A trial is its seed:
alone with it (``--one SEED``) it kills the same kind of process in the same stage.

agent --> supervisor --> mpiexec --> proxy --> rank        (this machine)
agent --> ssh ==> sshd --> remote --> proxy --> rank
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from sshd import Sshd  # noqa: E402 - beside the tests

from apples.launch import job_processes  # noqa: E402

KINDS = ("agent", "supervisor", "mpiexec", "ssh", "remote", "proxy", "rank")
STAGES = ("look", "launch", "launch", "loop", "end", "end")
WINDOW = {"look": 0.6, "hosts": 2.0, "links": 1.0, "launch": 0.8, "loop": 0.8, "end": 0.15}
"""Seconds after the beginning of a stage within which the signal falls."""
END_SECONDS = float(os.environ.get("APPLES_END_SECONDS", "8"))
"""From the signal to the end of the agent. More where others have the machine too."""
GONE_SECONDS = float(os.environ.get("APPLES_GONE_SECONDS", "5"))
"""From the end of the agent until nothing is left."""
PATIENCE_SECONDS = 40.0
BEGIN = time.time()
NAMED = {
    "supervisor": "the supervisor of the run was killed",
    "mpiexec": "mpiexec was ended by SIGKILL",
    "ssh": "h",
    "remote": "h",
    "proxy": "h",
    "rank": "rank",
}
"""What a message of a run that was killed has to say, by what was killed."""


@dataclass
class Outcome:
    """What came of a trial; `wrong` says what must not be, `segments` what a rank in MPI_Init left."""

    seed: int
    stage: str = "never"
    kind: str = "nobody"
    code: int | None = None
    seconds: float = 0.0
    said: str = ""
    talk: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    segments: list[str] = field(default_factory=list)


def trial(seed: int) -> Outcome:
    """Run one trial in this process, which inherits whatever is left."""
    job_processes.become_subreaper()
    draw = random.Random(seed)
    stage, kind = draw.choice(STAGES), draw.choice(KINDS)
    weather = draw.choice(("static", "static", "static", "live"))
    if weather == "live" and stage == "look":
        stage = draw.choice(("look", "hosts", "links"))
    iterations = 300 if stage == "end" else 6000
    outcome = Outcome(seed)
    with tempfile.TemporaryDirectory(prefix="ssh-trial-") as name:
        folder = Path(name)
        for each in ("tmp", "state", "sshd"):
            (folder / each).mkdir()
        server = Sshd(folder / "sshd")
        try:
            _strike(outcome, folder, server, (stage, kind, weather, iterations), draw)
        finally:
            server.close()
            job_processes.kill_descendants(os.getpid())
    return outcome


def _strike(outcome: Outcome, folder: Path, server: Sshd, drawn, draw) -> None:
    stage, kind, weather, iterations = drawn
    here = '[[host]]\nname = "here"\naddress = "localhost"\nseconds_per_point = 1e-9\n'
    text = server.host_list(2).replace("[[host]]", here + "[[host]]", 1)
    (folder / "hosts.toml").write_text(text)
    agent = subprocess.Popen(
        [sys.executable, str(HERE / "programs" / "session_agent.py"), str(folder), weather,
         str(iterations)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=folder,
        env={**os.environ, "TMPDIR": str(folder / "tmp"), "XDG_STATE_HOME": str(folder / "state")},
    )  # fmt: skip
    lines = _Lines(agent)
    lines.until(lambda: f"stage {stage}" in lines.heard, PATIENCE_SECONDS)
    lines.until(lambda: False, draw.random() * WINDOW[stage])
    there = _processes(agent.pid, server.process.pid)
    shared = _shared_memory(there)
    outcome.stage = lines.stage
    if not there[kind] and agent.poll() is None:
        kind = draw.choice(sorted(one for one, pids in there.items() if pids))
    if there[kind] and agent.poll() is None:
        outcome.kind = kind
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.kill(draw.choice(sorted(there[kind])), signal.SIGKILL)
    struck = time.monotonic()
    while agent.poll() is None and time.monotonic() - struck < PATIENCE_SECONDS:
        lines.until(lambda: agent.poll() is not None, 0.05)
        shared |= _shared_memory(_processes(agent.pid, server.process.pid))
    outcome.seconds = time.monotonic() - struck
    lines.until(lambda: lines.ended, 1.0)
    outcome.code = agent.poll()
    outcome.talk = [one for one in lines.heard if one.split()[:1] not in (["stage"], ["job"])][-3:]
    outcome.said = next((one for one in lines.heard if one.startswith("error ")), "")
    if outcome.code is None:
        agent.send_signal(signal.SIGUSR1)
        lines.until(lambda: False, 1.0)
        outcome.wrong.append(f"hangs: {lines.heard[-40:]}")
        agent.kill()
        agent.wait()
    else:
        _judge(outcome, lines.heard)
    # No process removes the files that an agent wrote for a supervisor that it had not started. The speeds of
    # hosts are measured, by launches, while links are.
    excused = (
        outcome.stage in ("links", "launch")
        and outcome.kind == "agent"
        and not there["supervisor"]
    )
    _demand_nothing_left(outcome, folder, server, lines.job, shared, files=not excused)


class _Lines:
    """The lines that the agent says."""

    def __init__(self, agent: subprocess.Popen[bytes]) -> None:
        self.pipe, self.heard, self.rest, self.ended = agent.stdout, list[str](), b"", False

    def until(self, condition, seconds: float) -> None:
        """Listen until a condition holds, at most so long."""
        deadline = time.monotonic() + seconds
        while not condition() and (left := deadline - time.monotonic()) > 0:
            if self.ended:
                return
            if select.select([self.pipe], [], [], left)[0]:
                data = os.read(self.pipe.fileno(), 1 << 16)
                self.ended = not data
                *whole, self.rest = (self.rest + data).split(b"\n")
                self.heard += [line.decode(errors="replace") for line in whole]

    @property
    def stage(self) -> str:
        return next((s.split()[1] for s in reversed(self.heard) if s.startswith("stage ")), "none")

    @property
    def job(self) -> str:
        return next((s.split()[1] for s in self.heard if s.startswith("job ")), "")


def _processes(agent: int, server: int) -> dict[str, list[int]]:
    """Return kind -> processes of the trial."""
    found: dict[str, list[int]] = {kind: [] for kind in KINDS}
    family = dict(job_processes.descendants(os.getpid()))
    for pid, parent in family.items():
        words = job_processes.read(f"/proc/{pid}/cmdline").decode(errors="replace").split("\0")
        kind = _kind(pid, parent, words, agent, family, server)
        if kind and job_processes.state_of(pid) != "Z":
            found[kind].append(pid)
    return found


def _kind(pid, parent, words, agent, family, server) -> str:
    if pid == agent:
        return "agent"
    program = Path(words[0]).name
    simple = {"hydra_pmi_proxy": "proxy", "mpiexec": "mpiexec", "mpiexec.hydra": "mpiexec"}
    if program in simple:
        return simple[program]
    if program == "ssh" and parent == agent:
        return "ssh"
    for part, kind in (
        ("host_agent.py", "supervisor"),
        ("rank_wrapper.py", "rank"),  # on this machine, until it is the program
        ("bind.py", "rank"),  # likewise, on a host of its own
        ("solver.py", "rank"),
    ):
        if any(word.endswith(part) for word in words[1:6]):
            return kind
    far = parent != server and _below(pid, server, family)
    return "remote" if far and program.startswith("python") else ""


def _below(pid: int, ancestor: int, family: dict[int, int]) -> bool:
    while pid in family:
        pid = family[pid]
        if pid == ancestor:
            return True
    return False


def _shared_memory(there: dict[str, list[int]]) -> set[str]:
    """Return the files of shared memory that ranks have in use, and those that bear their numbers."""
    found = set()
    for pid in there["rank"]:
        for line in job_processes.read(f"/proc/{pid}/maps").decode(errors="replace").splitlines():
            _, _, name = line.partition("/dev/shm/")  # noqa: S108 - where the C library puts them
            if name and not name.endswith(" (deleted)"):
                found.add(name)
        for file in Path("/dev/shm").glob(f"{pid}:*"):  # noqa: S108
            with contextlib.suppress(FileNotFoundError):
                # An older one was another process's of that number.
                if file.stat().st_mtime >= BEGIN:
                    found.add(file.name)
    return found


def _judge(outcome: Outcome, heard: list[str]) -> None:
    """Say what is wrong with the way in which the agent ended."""
    if any(line.startswith("Traceback") for line in heard):
        outcome.wrong.append(f"a traceback: {heard[-6:]}")
    if outcome.kind in ("agent", "nobody"):
        return
    if outcome.seconds > END_SECONDS and outcome.code:
        outcome.wrong.append(f"failed only after {outcome.seconds:.1f} s")
    if outcome.code not in (0, 3, 4, 5):
        outcome.wrong.append(f"exit code {outcome.code}: {heard[-4:]}")
    if outcome.code and not outcome.said:
        outcome.wrong.append(f"says nothing: {heard[-4:]}")
    if outcome.code in (4, 5) and outcome.stage in ("launch", "loop", "end"):
        named = NAMED[outcome.kind]
        if named not in outcome.said or "asked to end" in outcome.said:
            outcome.wrong.append(f"does not name '{named}': {outcome.said}")


def _demand_nothing_left(
    outcome: Outcome, folder: Path, server: Sshd, job: str, shared, *, files: bool
) -> None:
    """Demand that no process, segment of shared memory or, where `files`, file of the agent's is left."""
    deadline, left = time.monotonic() + GONE_SECONDS, [""]
    while left and time.monotonic() < deadline:
        left = _left(folder, server, job, shared)
        time.sleep(0.02)  # between looks at the condition
    names = [one for one in left if one.startswith("segment")]
    if outcome.stage == "launch":
        # Nobody but the rank itself knew the name yet (docs/reference/guarantees.md).
        outcome.segments, left = names, [one for one in left if one not in names]
    outcome.wrong += [one for one in left if files or not one.startswith("left in TMPDIR")]


def _left(folder: Path, server: Sshd, job: str, shared) -> list[str]:
    left = []
    for pid, _ in job_processes.descendants(os.getpid()):
        if pid != server.process.pid and job_processes.state_of(pid) not in "ZX":
            words = job_processes.read(f"/proc/{pid}/cmdline").replace(b"\0", b" ").decode()
            left.append(f"process left: {words[:120]}")
    left += [f"left in TMPDIR: {one}" for one in sorted((folder / "tmp").rglob("*"))]
    left += [f"file left: {one}" for one in Path("/tmp").glob(f"apples-{job}-*") if job]  # noqa: S108
    return left + [f"segment left: {one}" for one in shared if (Path("/dev/shm") / one).exists()]  # noqa: S108


def _apart(seed: int) -> Outcome:
    """Run one trial in a process of its own."""
    words = [sys.executable, __file__, "1", "--one", str(seed)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        return Outcome(seed, wrong=[f"the trial itself failed: {done.stderr[-400:]}"])
    return Outcome(**json.loads(done.stdout.splitlines()[-1]))


def main(count: int, first: int, at_once: int, *, every: bool) -> int:
    """Run so many trials; return how many went wrong."""
    table: collections.Counter[tuple[str, str, str]] = collections.Counter()
    wrong, slowest, segments = 0, 0.0, 0
    with ThreadPoolExecutor(at_once) as pool:
        for found in pool.map(_apart, range(first, first + count)):
            how = "done" if found.code == 0 else "killed" if found.kind == "agent" else "failed"
            table[found.stage, found.kind, how] += 1
            wrong += bool(found.wrong)
            segments += len(found.segments)
            slowest = max(slowest, found.seconds if how == "failed" else 0.0)
            if found.wrong or every:
                print(json.dumps(asdict(found)), flush=True)
    for (stage, kind, how), times in sorted(table.items()):
        print(f"{stage:8} {kind:12} {how:8} {times}")
    hit = sum(times for (_, kind, _), times in table.items() if kind != "nobody")
    print(
        f"{count} trials, {hit} hit, {wrong} wrong, slowest clear failure {slowest:.1f} s, "
        f"{segments} segments left by ranks that were killed in MPI_Init"
    )
    return wrong + (hit < count // 2)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--one", type=int)
    parser.add_argument("--every", action="store_true", help="print each trial")
    asked = parser.parse_args()
    if asked.one is not None:
        print(json.dumps(asdict(trial(asked.one))))
        sys.exit(0)
    sys.exit(1 if main(asked.count, asked.seed, asked.at_once, every=asked.every) else 0)
