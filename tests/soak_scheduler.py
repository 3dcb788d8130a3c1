"""Kills of a scheduler while real jobs run: python tests/soak_scheduler.py --n 1000 [--seed S].

Malleable jobs of the sample come, are resized by equipartition, cancelled, and end; the scheduler is killed (-9)
at a drawn moment, and another takes over. At the end every job is over as it was asked to be, no attempt that ran
was given up, and each finished one has the sequential run's result. Prints one JSON line; exit code 1 where any of
it is not so. At SIGTERM it kills no more, and looks at what there is.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

SAMPLE = Path(__file__).parent / "jobs" / "sample"
OVER = {"finished", "failed", "cancelled", "lost"}


class Scheduler:
    """The scheduler's process, and its user's commands."""

    def __init__(self, folder):
        self.environment = {**os.environ, "XDG_STATE_HOME": str(folder)}

    def start(self):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "apples", "scheduler", "--policy", "equipartition"],
            cwd=SAMPLE, env=self.environment, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        line = self.process.stderr.readline()
        if "ready at" not in line:
            raise SystemExit(f"it does not start: {line}")

    def kill(self, number=signal.SIGKILL):
        self.process.send_signal(number)
        self.process.wait()
        self.process.stderr.close()

    def ask(self, *words):
        done = subprocess.run(
            [sys.executable, "-m", "apples", *words, "--json"],
            cwd=SAMPLE, env=self.environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            print(" ".join(words), done.stderr.strip(), file=sys.stderr)
        return json.loads(done.stdout) if done.returncode == 0 else None


def wrong(one, cancelled, records):
    """Return what is wrong with a job that is over, empty: nothing."""
    if one["job"] in cancelled and one["state"] == "cancelled":
        return ""
    if one["state"] != "finished":
        return f"{one['job']} is {one['state']}: {one['reason']}"
    if records[one["record"]]["verified"] is not True:
        return f"{one['job']} is not verified"
    return ""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    chance, asked_to_end = random.Random(asked.seed), threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: asked_to_end.set())
    with tempfile.TemporaryDirectory() as folder:
        one, kills, cancelled, submitted = Scheduler(folder), 0, set(), 0
        one.start()
        while kills < asked.n and not asked_to_end.is_set():
            if len([j for j in one.ask("queue")["jobs"] if j["state"] not in OVER]) < 4:
                least = str(chance.randint(1, 2))
                iterations = f"iterations={chance.randint(20, 300)}"
                submitted += one.ask(
                    "submit", "--min", least, "--max", str(chance.randint(2, 3)), "--weather", "static",
                    "--set", iterations, "--set", "pause=0.02",
                ) is not None  # fmt: skip
            if chance.random() < 0.1 and submitted:
                job = f"local.{chance.randint(1, submitted)}"
                if one.ask("cancel", job) is not None:
                    cancelled.add(job)
            time.sleep(chance.choice((chance.uniform(0.0, 2.0), chance.uniform(2.0, 8.0))))
            one.kill()
            kills += 1
            one.start()
        for number in range(1, submitted + 1):
            one.ask("wait", f"local.{number}")
        jobs = one.ask("queue", "--all")["jobs"]
        records = {each["id"]: each for each in one.ask("jobs")["runs"]}
        found = [text for job in jobs if (text := wrong(job, cancelled, records))]
        last = {job["record"] for job in jobs}
        found += [
            f"record {key}: an attempt that ran was given up"
            for key, each in records.items()
            if key not in last and each["iteration"]
        ]
        if len(jobs) != submitted:
            found.append(f"{submitted} jobs were acknowledged, {len(jobs)} are known")
        one.kill(signal.SIGTERM)
    states = [job["state"] for job in jobs]
    counts = {state: states.count(state) for state in set(states)}
    resizes = sum(job["resizes"] for job in jobs)
    print(json.dumps({"part": "scheduler", "kills": kills, "jobs": submitted, **counts,
                      "resizes": resizes, "records": len(records), "wrong": found}))  # fmt: skip
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
