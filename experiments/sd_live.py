"""Run Figure 9 of D'Amico et al. 2019 with real jobs: SD-Policy against EASY.

    python experiments/sd_live.py [--jobs 120 --seconds 60 --seeds 1,2,3]

Each host stands for a node of 4 CPUs and has a topology daemon with a synthetic machine. The jobs of `paced/` wait
as long as their work takes on their CPUs: half are compute-bound, half memory-bound (the paper's PILS and STREAM).
Arrivals are those of the Cirne-like generator. Both schedulers run side by side and are simulated with the
measured start times. Without options: a few short jobs.

Result: `benchmarks/results/sd_live.json`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from kale_live import HERE, HISTORY, OVER, Histories, Site, costs, end_at_sigterm, here, records_of

from apples.agent.session.spec import RunSpec
from apples.jobs.spec import JobSpec
from apples.scheduling import Easy, SlowdownDriven
from apples.simulation import (
    CirneLike,
    SimulationConfig,
    cirne_like_workload,
    job_outcomes,
    makespan,
    mark_malleable,
    simulate,
)
from apples.simulation.workload import Workload, rigid

CPUS = 4
ITERATION_SECONDS = 0.4
"""On all CPUs, about: at the end of each a job takes up what it has been told."""
SHORTEST, LONGEST = 0.3, 4.0
"""Run times, as parts of the mean: what starts take would be most of shorter ones."""
LOAD = 1.3
POLICIES = {"sd": SlowdownDriven(), "easy": Easy()}
PAPER = "makespan -7 %, response and slowdown -16 %; 539 of 2,000 jobs started as guests"


@dataclass
class Experiment:
    """Arrivals of one seed, scaled to a mean run time."""

    hosts: int
    jobs: int
    seed: int
    seconds: float

    def __post_init__(self) -> None:
        many = CirneLike(load=LOAD)
        drawn = cirne_like_workload(
            self.jobs, self.hosts, CPUS, self.hosts, self.seed, coefficients=many
        )
        parts = drawn.run / drawn.run.mean()
        run = np.clip(parts, SHORTEST, LONGEST) * self.seconds
        self.width = np.ceil(drawn.processors / CPUS).astype(int)
        self.iterations = np.maximum(1, np.rint(run / ITERATION_SECONDS)).astype(int)
        self.run = self.iterations * ITERATION_SECONDS
        self.requested = np.maximum(self.run, self.run * drawn.requested / drawn.run)
        span = float((self.run * self.width).sum()) / (self.hosts * LOAD)
        came = drawn.submit - drawn.submit[0]
        self.submit = came * span / came[-1] if self.jobs > 1 else came
        rng = np.random.default_rng(self.seed)
        self.memory_bound = rng.permutation(self.jobs) < self.jobs // 2

    def submission(self, job: int, folder: Path, shares: bool) -> dict[str, Any]:
        """Return what is submitted; where nothing is shared a job is as fast as on all CPUs of its hosts."""
        each = [ITERATION_SECONDS] * max(CPUS, self.hosts)
        if shares:
            needs = CPUS / 2 if self.memory_bound[job] else CPUS
            each = [max(1.0, needs / cpus) * ITERATION_SECONDS for cpus in range(1, CPUS + 1)]
        spec = RunSpec(
            folder / "hosts.toml", HERE / "paced" / "template.toml", None,
            {"iterations": str(self.iterations[job]), "seconds": " ".join(f"{s:.6g}" for s in each)},
            "minimum_execution_time", "static", verify="none",
        )  # fmt: skip
        width = int(self.width[job])
        return {
            "minimum": width, "maximum": width, "kind": "malleable",
            "requested": float(self.requested[job]), "name": f"paced-{job + 1}",
            "work": JobSpec(spec).document(),
        }  # fmt: skip

    def workload(self, live: list[dict[str, Any]], start_seconds: float) -> Workload:
        """Return the same jobs for the simulator, as they came, each longer by what a start took."""
        came = np.array([one["submitted"] for one in live]) - live[0]["submitted"]
        run, requested = self.run + start_seconds, self.requested + start_seconds
        return mark_malleable(rigid(came, run, self.width * CPUS, requested), 1.0, 0)


@contextlib.contextmanager
def daemons(folder: Path, hosts: int) -> Iterator[list[Path]]:
    """Yield the sockets of a topology daemon for each host, and end them."""
    folder.mkdir()
    made: list[subprocess.Popen[str]] = []
    try:
        for number in range(hosts):
            run = folder / f"d{number + 1}"
            made.append(
                subprocess.Popen(
                    [
                        sys.executable, "-m", "apples", "topologyd", "--fence", "dry-run", "--topology",
                        f"pu:{CPUS}", "--directory", f"{run}.state", "--run", str(run),
                    ],
                    stderr=subprocess.PIPE, text=True,
                )
            )  # fmt: skip
        for one in made:
            assert one.stderr is not None
            line = one.stderr.readline()
            if "CPUs" not in line:
                raise SystemExit(f"a topology daemon does not start: {line}{one.stderr.read()}")
        yield [folder / f"d{number + 1}" / "topologyd.sock" for number in range(hosts)]
    finally:
        for one in made:
            one.terminate()
        for one in made:
            one.wait(30)


@contextlib.contextmanager
def sites(folder: Path, hosts: int) -> Iterator[dict[str, Site]]:
    """Yield a scheduler of each policy, and end them all."""
    with daemons(folder / "daemons", hosts) as sockets, contextlib.ExitStack() as made:
        found = {}
        for policy in POLICIES:
            lines = [f'topologyd = "{socket}"\n' for socket in sockets if policy == "sd"]
            one = Site(folder / policy, policy, here(hosts, lines))
            found[policy] = made.enter_context(contextlib.closing(one))
        yield found


def run(experiment: Experiment, folder: Path) -> Histories:
    """Return the history of each policy's jobs after all of them have run."""
    with sites(folder, experiment.hosts) as made:
        begun = time.monotonic()
        for job in range(experiment.jobs):
            time.sleep(max(0.0, begun + experiment.submit[job] - time.monotonic()))
            for policy, site in made.items():
                site.submit(experiment.submission(job, site.folder, policy == "sd"))
        while any(set(site.states()) - OVER for site in made.values()):
            time.sleep(0.5)
        found = {p: site.client.ask("GET", "/v1/history")["jobs"] for p, site in made.items()}
        for policy, site in made.items():
            for one in site.client.ask("GET", "/v1/queue")["alarms"]:
                print(f"{policy}: {one['text']}", file=sys.stderr)
    return found


# ------------------------------------------------------------------------------- what came of it
def live_figures(one: Experiment, jobs: list[dict[str, Any]]) -> dict[str, float]:
    """Return makespan, mean response and mean slowdown: response by the run time on all CPUs."""
    response = np.array([each["ended"] - each["submitted"] for each in jobs])
    return {
        "makespan": max(each["ended"] for each in jobs) - jobs[0]["submitted"],
        "response": float(response.mean()),
        "slowdown": float((response / one.run).mean()),
        "finished": sum(each["state"] == "finished" and each["attempt"] == 1 for each in jobs),
    }


def sharing_figures(one: Experiment, records: list[dict[str, Any]]) -> dict[str, float]:
    """Return how many jobs were guests and mates, and how many of the guests were faster than in proportion.

    A guest's part of the CPUs is half; one whose run takes less than twice its run time is faster than that.
    """
    guests: dict[int, tuple[int, ...]] = {}
    ran: dict[int, float] = {}
    begun: dict[int, float] = {}
    for record in records:
        number, now = record["job"], record["is"]
        if record["do"] == "start" and now.get("mates"):
            guests[number] = tuple(now["mates"])
        if record["do"] == "running":
            begun[number] = record["at"]
        if record["do"] == "end":
            ran[number] = record["at"] - begun.get(number, record["at"])
    mates = {mate for each in guests.values() for mate in each}
    fast = sum(bool(ran[number] < 1.9 * one.run[number - 1]) for number in guests)
    return {"guests": len(guests), "mates": len(mates), "faster": fast}


def table(one: Experiment, histories: Histories, folder: Path) -> dict[str, dict[str, float]]:
    """Return what came of one seed, by policy, live and simulated."""
    found = {}
    for policy, jobs in histories.items():
        records = records_of(folder / policy)
        start, _ = costs(records)
        workload = one.workload(jobs, start)
        result = simulate(workload, POLICIES[policy], SimulationConfig(one.hosts, CPUS))
        outcome = job_outcomes(workload, result)
        found[policy] = live_figures(one, jobs) | sharing_figures(one, records) | {
            "start": start,
            "simulated_makespan": float(makespan(workload, result)),
            "simulated_response": float(outcome.response.mean()),
            "simulated_slowdown": float((outcome.response / one.run).mean()),
            "simulated_guests": int(result.guest.sum()),
        }  # fmt: skip
    return found


NAMES = ("makespan", "response", "slowdown")


def show(one: Experiment, found: dict[str, dict[str, float]], loads: tuple[float, float]) -> None:
    """Print what came of one seed."""
    for policy, each in found.items():
        print(
            f"{one.seed:4d} {policy:>6}"
            + "".join(f" {each[name]:9.1f} ({each[f'simulated_{name}']:7.1f})" for name in NAMES)
            + f" {each['guests']:6.0f} ({each['simulated_guests']:2.0f}) {each['mates']:5.0f}"
            + f" {each['faster']:6.0f} {each['start']:5.1f} {each['finished']:5.0f}/{one.jobs}"
        )
    sd, easy = found["sd"], found["easy"]
    words = [
        f"{name} {sd[name] / easy[name] - 1:+.1%} "
        f"(simulated {sd[f'simulated_{name}'] / easy[f'simulated_{name}'] - 1:+.1%})"
        for name in NAMES
    ]
    print(f"     sd against easy: {', '.join(words)}. Load {loads[0]:.0f} to {loads[1]:.0f}")
    print(json.dumps({"seed": one.seed, "jobs": one.jobs, **found}), flush=True)


def main() -> int:
    """Run the experiments that were asked for."""
    end_at_sigterm()
    parser = argparse.ArgumentParser()
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--jobs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0, help="mean run time on all CPUs")
    parser.add_argument("--seeds", default="1")
    parser.add_argument(
        "--keep", type=Path, help="a folder for the logs; where they are, they are read"
    )
    asked = parser.parse_args()
    print(f"The paper: {PAPER}. In brackets: simulated")
    changes = []
    for seed in asked.seeds.split(","):
        one = Experiment(asked.hosts, asked.jobs, int(seed), asked.seconds)
        with tempfile.TemporaryDirectory(prefix="s-", dir="/tmp") as place:
            folder = (asked.keep or Path(place)) / seed
            before = os.getloadavg()[0]
            if not (folder / HISTORY).exists():
                folder.mkdir(parents=True)
                (folder / HISTORY).write_text(json.dumps(run(one, folder)))
            found = table(one, json.loads((folder / HISTORY).read_text()), folder)
            show(one, found, (before, os.getloadavg()[0]))
            changes.append([found["sd"][name] / found["easy"][name] - 1 for name in NAMES])
    for name, values in zip(NAMES, zip(*changes, strict=True), strict=True):
        wide = f" (from {min(values):+.1%} to {max(values):+.1%})" if len(values) > 1 else ""
        print(f"{name}: {statistics.fmean(values):+.1%}{wide} over {len(values)} seeds")
    return 0


if __name__ == "__main__":
    sys.exit(main())
