"""Random cycles of shrink, growth and regrowth by the command line, while processes of the job are killed.

``cycles.py N [--seed S] [--lab] [--kill SHARE]`` runs N resize commands on one job after another. Some commands
overlap, some give a host up and take it back at once, and beside a share of them a random process of the job is
killed (SIGKILL): rank, mpiexec, proxy, host agent, job manager, run supervisor or job supervisor. With ``--lab``
every tenth job runs over ssh on the hosts of a lab (root).

A cycle fails if a command does not return within `HANG_SECONDS`; if a loss is not reported within
`REPORT_SECONDS` (the command fails with its reason, the job goes on, or it ends with one); if the job continues
from an iteration before its last commit; or if its result has other bits than a run without resizes. Exit code 1
if any cycle failed. Commands: ``apples run --detach``, ``resize``, ``jobs``, ``restart``, ``wait``.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from apples.launch import marked
from apples.malleable import whole_manifests

APPLES = str(Path(sysconfig.get_path("scripts")) / "apples")
SAMPLE = Path(__file__).parents[1] / "jobs" / "sample"
HOSTS = ("ada", "bob", "cleo", "dan")
GRID, ITERATIONS = 60, 4000
HANG_SECONDS, REPORT_SECONDS = 120.0, 10.0
POLL_SECONDS = 0.1
COMMANDS_PER_JOB = 12
OVERLAP_SHARE, REGROW_SHARE = 0.2, 0.2
ENDED = ("finished", "failed", "cancelled", "lost")
LAB = 'name = "cycles"\nssh = true\n[[site]]\nname = "s"\nbandwidth = 1e8\n' + "".join(
    f'[[host]]\nname = "{host}"\nsite = "s"\ncpu = 0.4\n' for host in HOSTS
)
RESULT = hashlib.sha256(np.full((GRID, 4), float(ITERATIONS)).tobytes()).hexdigest()


@dataclass
class Cycles:
    """Counts of all cycles so far.

    Attributes
    ----------
    outcomes
        Number of commands by exit code, and of killed processes by name.
    failures
        One line for each cycle that failed.
    report_seconds
        Seconds from each kill until the end of the job that its record has, or until it was seen to go on.
    """

    draw: random.Random
    kill_share: float
    done: int = 0
    outcomes: collections.Counter[str] = field(default_factory=collections.Counter)
    failures: list[str] = field(default_factory=list)
    report_seconds: list[float] = field(default_factory=list)

    def fail(self, job: str, why: str) -> None:
        """Count a failed cycle and print it."""
        self.failures.append(why)
        print(f"FAILED at command {self.done}, job {job}: {why}", flush=True)


def command(*words: str) -> subprocess.Popen[str]:
    """Start an apples command."""
    return subprocess.Popen(
        [APPLES, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def result(process: subprocess.Popen[str]) -> tuple[int | None, str, str]:
    """Return exit code, stdout and stderr; the code is None if the command hangs, which is then killed."""
    try:
        out, err = process.communicate(timeout=HANG_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        return None, out, err
    return process.returncode, out, err


def record_of(job: str) -> dict[str, object]:
    """Return ``apples jobs JOB --json``."""
    code, out, err = result(command("jobs", job, "--json"))
    if code:
        raise RuntimeError(f"apples jobs {job}: {err}")
    document: dict[str, object] = json.loads(out)
    return document


def commits_of(job: str) -> Path:
    """Return the folder of a job's commits."""
    return Path(os.environ["XDG_STATE_HOME"]) / "apples" / "jobs" / job / "commits"


def ended_at(job: str) -> float:
    """Return when the job ended last, in seconds since the epoch, as its record has it."""
    lines = (commits_of(job).parent / "events").read_text().splitlines()
    ends = [event["at"] for event in map(json.loads, lines) if event["event"] == "ended"]
    return float(ends[-1]) if ends else time.time()


def committed_iteration(job: str) -> int:
    """Return the iteration of the last whole commit on disk, 0 if there is none."""
    manifest = next(whole_manifests(commits_of(job)), None)
    return int(manifest["values"]["iteration"]) if manifest else 0


def start(hosts: Path, folder: Path) -> str:
    """Start a job that commits on disk twice a second; return its id."""
    words = [
        *("run", "--detach", "--hosts", str(hosts), "--template", str(SAMPLE / "template.toml")),
        *("--user", str(folder / "user.toml"), "--weather", "static", "--no-verify", "--json"),
        *("--commit", "0.5", "--set", f"iterations={ITERATIONS}", "--set", "pause=0.01"),
        *("--set", f"grid={GRID}"),
    ]
    code, out, err = result(command(*words))
    if code != 0:
        raise RuntimeError(f"apples run: exit code {code}: {err}")
    return str(json.loads(out)["id"])


def strike(cycles: Cycles, job: str) -> str:
    """Kill a random process of the job; return its name, empty if there is none."""
    pids = marked(job)
    if not pids:
        return ""
    pid = cycles.draw.choice(sorted(pids))
    try:
        name = Path(f"/proc/{pid}/comm").read_text().strip()
        os.kill(pid, signal.SIGKILL)
    except OSError:
        return ""
    cycles.outcomes[f"killed {name}"] += 1
    return name


def moves(draw: random.Random) -> list[list[str]]:
    """Return the host sets of the next commands: two that overlap, a shrink with its regrowth, or one."""
    subset = draw.sample(HOSTS, draw.randint(1, len(HOSTS)))
    if draw.random() < REGROW_SHARE and len(subset) > 1:
        return [subset, subset[:-1], subset]
    return [subset]


def cycle(cycles: Cycles, job: str) -> None:
    """Resize the job once, perhaps with an overlapping command and a killed process; check what follows."""
    draw = cycles.draw
    for hosts in moves(draw):
        before = record_of(job)
        if before["state"] in ENDED:
            return
        commands = [command("resize", job, "--on", ",".join(hosts), "--json")]
        if draw.random() < OVERLAP_SHARE:
            other = draw.sample(HOSTS, draw.randint(1, len(HOSTS)))
            commands.append(command("resize", job, "--on", ",".join(other), "--json"))
        killed, committed, struck_at = "", 0, 0.0
        if draw.random() < cycles.kill_share:
            time.sleep(draw.uniform(0.0, 0.8))
            committed = committed_iteration(job)
            struck_at = time.time()
            killed = strike(cycles, job)
        for process in commands:
            code, _, err = result(process)
            cycles.done += 1
            refusal = f": {err.strip().rpartition(' [')[2].rstrip(']')}" if code else ""
            cycles.outcomes[f"exit code {code}{refusal}"] += 1
            if code is None:
                cycles.fail(job, f"hangs: resize --on {hosts} ({killed} killed)")
            elif code not in (0, 2, 4) and not killed:
                cycles.fail(job, f"exit code {code} of resize --on {hosts}: {err.strip()}")
        if killed:
            check_recovery(cycles, job, killed, committed, struck_at, before)


def check_recovery(
    cycles: Cycles,
    job: str,
    killed: str,
    committed: int,
    struck_at: float,
    before: dict[str, object],
) -> None:
    """Check that the loss of a process was reported, and that the job continues from its last commit or later.

    Parameters
    ----------
    struck_at
        Time of the kill, in seconds since the epoch.
    """
    begun = time.monotonic()
    while True:
        now = record_of(job)
        if now["state"] in ENDED or int(str(now["iteration"])) >= int(str(before["iteration"])):
            break
        if time.monotonic() - begun > HANG_SECONDS:
            cycles.fail(
                job, f"{killed} killed: neither ended nor at iteration {before['iteration']}"
            )
            return
        if int(str(now["iteration"])) < committed:
            cycles.fail(
                job, f"{killed} killed: iteration {now['iteration']}, committed {committed}"
            )
            return
        time.sleep(POLL_SECONDS)
    seconds = time.monotonic() - begun
    if (
        now["state"] in ENDED
    ):  # the record has the time; the commands that show it take time themselves
        seconds = ended_at(job) - struck_at
    cycles.report_seconds.append(seconds)
    if now["state"] in ENDED:
        if seconds > REPORT_SECONDS:
            cycles.fail(job, f"{killed} killed: reported after {seconds:.1f} s")
        if not now["reason"]:
            cycles.fail(job, f"{killed} killed: {now['state']} without a reason")
        check_restart(cycles, job, committed)


def check_restart(cycles: Cycles, job: str, committed: int) -> None:
    """Restart an ended job; check that it continues from its last commit or later."""
    code, out, err = result(command("restart", job, "--json"))
    cycles.outcomes[f"restart, exit code {code}"] += 1
    if code is None:
        cycles.fail(job, "restart hangs")
    elif code and committed:
        cycles.fail(job, f"restart: exit code {code}: {err.strip()}")
    elif not code and int(json.loads(out)["iteration"]) < committed:
        cycles.fail(job, f"restart from {json.loads(out)['iteration']}, committed {committed}")


def one_job(cycles: Cycles, hosts: Path, folder: Path, commands: int) -> None:
    """Run a job through its cycles, let it end, and check its result."""
    job = start(hosts, folder)
    last = cycles.done + commands
    while cycles.done < last and record_of(job)["state"] not in ENDED:
        cycle(cycles, job)
    code, out, err = result(command("wait", job, "--json"))
    if code is None:
        cycles.fail(job, "wait hangs")
    elif code:
        reason = record_of(job)["reason"]
        if committed_iteration(job):
            cycles.fail(job, f"ended with exit code {code}: {reason}: {err.strip()}")
        cycles.outcomes["job lost before its first commit"] += 1
    elif json.loads(out)["result_sha256"] != RESULT:
        cycles.fail(job, "other bits than without resizes")
    for pid in marked(job):
        with contextlib.suppress(OSError):
            cycles.fail(job, f"left behind: {Path(f'/proc/{pid}/cmdline').read_bytes()!r}")


@contextlib.contextmanager
def lab(folder: Path) -> Iterator[Path]:
    """Yield the host list of a lab."""
    (folder / "lab.toml").write_text(LAB)
    code, out, err = result(command("lab", "up", str(folder / "lab.toml"), "--json"))
    if code:
        raise RuntimeError(f"apples lab up: {err}")
    try:
        yield Path(json.loads(out)["hosts"])
    finally:
        result(command("lab", "down", "cycles"))


def main() -> int:
    """Run the cycles; return 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cycles", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kill", type=float, default=0.1, help="share of commands beside a kill")
    parser.add_argument("--lab", action="store_true", help="every tenth job over ssh, in a lab")
    options = parser.parse_args()
    cycles = Cycles(random.Random(options.seed), options.kill)
    begun, jobs = time.monotonic(), 0
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        os.environ["XDG_STATE_HOME"] = str(folder)
        (folder / "user.toml").write_text("[constraints]\nmaximum_hosts = 4\n")
        local = SAMPLE / "hosts.toml"
        remote = stack.enter_context(lab(folder)) if options.lab else local
        while cycles.done < options.cycles:
            one_job(cycles, remote if jobs % 10 == 9 else local, folder, COMMANDS_PER_JOB)
            jobs += 1
            print(f"{cycles.done} commands, {len(cycles.failures)} failed", flush=True)
    for outcome, count in sorted(cycles.outcomes.items()):
        print(f"{count:6} {outcome}")
    slowest = max(cycles.report_seconds, default=0.0)
    print(
        f"{cycles.done} commands on {jobs} jobs in {time.monotonic() - begun:.0f} s: "
        f"{len(cycles.failures)} failed; slowest recovery or report {slowest:.1f} s"
    )
    return int(bool(cycles.failures))


if __name__ == "__main__":
    sys.exit(main())
