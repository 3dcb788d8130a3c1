"""Trials: a run is killed, interrupted, or loses its disk at a random moment; all it had measured is on record.

``record_trials.py N [--seed S] [--at-once K]`` makes N of them and prints how often each phase of a run was hit by
each fault, and what was wrong. A trial is its seed: ``--one SEED`` is it alone.

The agent under test also writes what it hears from the program, before anything else is done with it, to a file
of its own (`HEARD`): every report in there, but for one that was just being recorded, must be on record. Disks are
filled, which needs root, by a file on a small tmpfs; a record's folder is made read-only by its mode, for an agent
that has no right to pass over that.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

MOUNT, UMOUNT, FLOCK, SETPRIV = (
    shutil.which(name) or name for name in ("mount", "umount", "flock", "setpriv")
)
PHASES = ("plan", "launch", "loop", "verify", "end")
FAULTS = ("kill", "interrupt", "full", "read-only", "kill the supervisor")
PATIENCE_SECONDS = 90.0
TMPFS_BYTES = 2_000_000
ITERATIONS, STEP_SECONDS = 12, 0.05

PROGRAM = """
import json, os, sys, time
from pathlib import Path
task = json.loads(Path(os.environ["APPLES_TASK"]).read_text())
count, step = task["parameters"]["iterations"], task["parameters"]["step"]
def say(event, **fields):
    os.write(1, (json.dumps({"event": event, **fields}) + "\\n").encode())
if os.environ["PMI_RANK"] == "0":
    say("ready", protocol=1, program="steps", version="1", ranks=sum(e["ranks"] for e in task["partition"]))
    for k in range(1, count + 1):
        time.sleep(step)
        hosts = [{"host": e["host"], "compute_seconds": 0.8 * k * step, "communicate_seconds": 0.1 * k * step}
                 for e in task["partition"]]
        say("progress", iteration=k, iterations=count, seconds=k * step, hosts=hosts)
    say("result", iterations=count, seconds=count * step, startup_seconds=0.1, sha256="0f" * 32, hosts=hosts)
    say("done")
"""
TEMPLATE = """
name = "steps"
program = ["{python}", "-S", "steps.py"]
[parameters.grid]
default = 20
[parameters.iterations]
default = 12
[parameters.step]
default = 0.05
"""
HOSTS = '[[host]]\nname = "ada"\nseconds_per_point = 1e-4\n[[host]]\nname = "bob"\nseconds_per_point = 1e-4\n'

AGENT = """
import os, sys
from apples.launch import run
heard, taken = os.open(os.environ["HEARD"], os.O_WRONLY | os.O_CREAT | os.O_APPEND), run.Run._on_line
def told(self, source, line):
    event = taken(self, source, line)
    if type(event).__name__ == "Progress":
        os.write(heard, b"%d\\n" % event.iteration)
    return event
run.Run._on_line = told
from apples.__main__ import main
main()
"""


@dataclass(frozen=True)
class Trial:
    """One run and what happens to it."""

    seed: int
    fault: str
    phase: str
    delay: float


def trial_of(seed: int, faults: tuple[str, ...]) -> Trial:
    """Return the trial of a seed; phases and faults come in turn."""
    drawn = random.Random(seed)
    fault, phase = faults[seed % len(faults)], PHASES[seed // len(faults) % len(PHASES)]
    return Trial(
        seed, fault, phase, drawn.uniform(0.0, {"plan": 0.6, "loop": 0.5}.get(phase, 0.1))
    )


@contextlib.contextmanager
def state_folder(fault: str) -> Iterator[Path]:
    """Yield a state folder: on a small tmpfs where its disk is to be filled."""
    with tempfile.TemporaryDirectory(prefix="records-") as name:
        if fault == "full":
            subprocess.run(
                [MOUNT, "-t", "tmpfs", "-o", f"size={TMPFS_BYTES}", "records", name], check=True
            )
        try:
            yield Path(name)
        finally:
            if fault == "full":
                subprocess.run([UMOUNT, "-l", name], check=True)
            for path in Path(name).rglob("*"):
                if path.is_dir():
                    path.chmod(0o700)


def carried_out(trial: Trial) -> tuple[str, list[str]]:
    """Carry a trial out; return the phase that was hit and what is wrong."""
    with state_folder(trial.fault) as state, tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        for name, text in (
            ("steps.py", PROGRAM), ("template.toml", TEMPLATE), ("hosts.toml", HOSTS), ("user.toml", ""),
        ):  # fmt: skip
            (folder / name).write_text(text)
        heard = folder / "heard"
        job = trial.fault == "kill the supervisor"
        environment = {**os.environ, "XDG_STATE_HOME": str(state), "HEARD": str(heard)}
        words = ["run", "--weather", "static", *(["--detach"] if job else [])]
        command = [sys.executable, "-c", AGENT, *words]
        if (
            trial.fault == "read-only"
        ):  # root may write whatever the mode says, without this it may not
            command = [SETPRIV, "--bounding-set=-dac_override,-dac_read_search", *command]
        agent = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )  # fmt: skip
        record = wait_for(state, trial, agent)
        strike(trial, agent, record, state)
        hit = phase_of(record)
        out, err = agent.communicate(timeout=PATIENCE_SECONDS)
        wrong: list[str] = []
        if job:
            subprocess.run(
                [FLOCK, "-s", record / "lock", "true"], timeout=PATIENCE_SECONDS, check=True
            )
        if trial.fault == "full":
            (state / "filler").unlink()
        for path in (record, record.parent):
            path.chmod(0o700)
        wrong += wrong_record(trial, record, heard, environment)
        if trial.fault in {"full", "read-only"}:
            wrong += wrong_answer(agent.returncode, out, err)
        return hit, [f"{one} (exit {agent.returncode}: {err[-300:]!r})" for one in wrong]


def wait_for(state: Path, trial: Trial, agent: subprocess.Popen[str]) -> Path:
    """Return the folder of the record once the run is in the phase that is to be hit."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    begins = ("order.json", "plan.json", "progress", "measured", "result.json")
    there = dict(zip(PHASES, begins, strict=True))[trial.phase]
    while time.monotonic() < deadline:
        for record in (state / "apples" / "jobs").glob("????????"):
            events = record / "events"
            if "." in there:
                found = (record / there).exists()
            else:
                found = events.exists() and f'"{there}"' in events.read_text()
            if found or agent.poll() is not None:
                time.sleep(trial.delay)
                return record
        time.sleep(0.002)
    raise TimeoutError(f"{trial}: the run never came to {trial.phase}")


def strike(trial: Trial, agent: subprocess.Popen[str], record: Path, state: Path) -> None:
    """Do what the trial is about."""
    if trial.fault == "kill":
        agent.kill()
    elif trial.fault == "interrupt":
        agent.send_signal(signal.SIGINT)
    elif trial.fault == "kill the supervisor":
        with contextlib.suppress(ProcessLookupError, ValueError, OSError):
            os.kill(int((record / "lock").read_text()), signal.SIGKILL)
    elif trial.fault == "read-only":
        record.chmod(0o500)
        record.parent.chmod(0o500)
    else:
        with contextlib.suppress(OSError), (state / "filler").open("wb", buffering=0) as filler:
            for size in (1 << 16, 1 << 12, 1):
                with contextlib.suppress(OSError):
                    while filler.write(bytes(size)):
                        pass


def phase_of(record: Path) -> str:
    """Return the phase that a record has come to."""
    if (record / "result.json").exists():
        return "end"
    events = record / "events"
    told = events.read_text() if events.exists() else ""
    if '"measured"' in told:
        return "verify"
    if '"progress"' in told:
        return "loop"
    return "launch" if (record / "plan.json").exists() else "plan"


def events_of(record: Path) -> list[dict[str, object]]:
    """Return the events of a record, each line of which must be whole."""
    path = record / "events"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def wrong_record(
    trial: Trial, record: Path, heard: Path, environment: dict[str, str]
) -> list[str]:
    """Return what is wrong with the record of a run that a trial has ended, or tried to."""
    wrong = []
    try:
        told = [one["iteration"] for one in events_of(record) if one["event"] == "progress"]
    except ValueError:
        return ["a line of the events is not whole"]
    if told != sorted(set(told)):
        wrong.append(f"reports out of order: {told}")
    known = [int(line) for line in heard.read_text().split()] if heard.exists() else []
    known = known[:ITERATIONS]  # what comes after is of the verification
    if trial.fault in {"kill", "interrupt"} and told[: len(known) - 1] != known[:-1]:
        wrong.append(f"heard {known}, recorded {told}")
    if trial.fault in {"full", "read-only"} and not set(told) <= set(known):
        wrong.append(f"heard {known}, recorded {told}")
    state = json.loads((record / "job.json").read_text())
    if trial.fault == "kill the supervisor" and (state["iteration"] or 0) > max(told, default=0):
        wrong.append(f"at iteration {state['iteration']}, recorded {told}")
    listed = asked("jobs", "--json", environment=environment)
    row = json.loads(listed.stdout)["runs"][0] if listed.returncode == 0 else {}
    ended = {"kill": {"failed", "finished"}, "interrupt": {"cancelled", "finished"}}
    if row.get("state") not in ended.get(trial.fault, {"failed", "finished"}):
        wrong.append(f"apples jobs says {row or listed.stderr}")
    if (record / "plan.json").exists():
        made = asked(
            "report", record.name, "-o", "page.html", environment=environment, where=heard.parent
        )
        if made.returncode or "steps" not in (heard.parent / "page.html").read_text():
            wrong.append(f"no page: {made.stderr}")
    return wrong


def asked(
    *words: str, environment: dict[str, str], where: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Return what a command says."""
    command = [sys.executable, "-c", "from apples.__main__ import main; main()", *words]
    return subprocess.run(
        command, env=environment, cwd=where, capture_output=True, text=True, check=False
    )


def wrong_answer(code: int, out: str, err: str) -> list[str]:
    """Return what is wrong with the answer of a run whose record could not be written any more."""
    wrong = []
    if code != 0 or not out.startswith(f"{ITERATIONS} iterations in "):
        wrong.append(f"the run was lost: {out!r}")
    warned = [line for line in err.splitlines() if "record" in line or "how it ended" in line]
    if len(warned) > 3:
        wrong.append(f"warned {len(warned)} times")
    return wrong


def main() -> int:
    """Make the trials and print what came of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("n", type=int, nargs="?", default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--one", type=int)
    options = parser.parse_args()
    faults = FAULTS if os.geteuid() == 0 else ("kill", "interrupt", "kill the supervisor")
    seeds = (
        [options.one] if options.one is not None else range(options.seed, options.seed + options.n)
    )
    hits: collections.Counter[tuple[str, str]] = collections.Counter()
    bad = 0
    with ThreadPoolExecutor(options.at_once) as pool:
        trials = [trial_of(seed, faults) for seed in seeds]
        for trial, (hit, wrong) in zip(trials, pool.map(carried_out, trials), strict=True):
            hits[trial.fault, hit] += 1
            bad += bool(wrong)
            for line in wrong:
                print(f"seed {trial.seed}, {trial.fault} at {trial.phase}: {line}")
    print(f"{len(trials)} trials, {bad} wrong; hit were")
    print(f"{'':22}" + "".join(f"{phase:>8}" for phase in PHASES))
    for fault in faults:
        print(f"{fault:22}" + "".join(f"{hits[fault, phase]:8}" for phase in PHASES))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
