"""Run Figures 7 and 8 of Kale et al. 2002 with real jobs: equipartition against first fit.

    python experiments/kale_live.py [--jobs 50 --seconds 20 --loads 0.5 --seeds 1,2,3]
                                    [--hosts 8] [--lab | --solver | --log FILE]

Each host stands for 64 / HOSTS of the paper's processors. The jobs of `paced/` are malleable MPI programs that
wait as long as their work takes (Amdahl, serial part 0.02). Both schedulers run side by side on the same arrivals.
Each live run is then replayed from its log, which must give the same decisions, and simulated with the measured
start and resize times. `--lab`: hosts of a lab over ssh (root). `--solver`: the jobs are Jacobi2D. `--log` with
`--hour` and `--faster`: jobs of an hour of a log, 30 % of them malleable. Without options: a few short jobs.

Result: `benchmarks/results/kale_live.json`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apples import lab
from apples.agent.session.spec import RunSpec
from apples.cluster.host_preference import HostPreference
from apples.cluster.replay import DECISIONS, replayed
from apples.errors import UsageError
from apples.io.journal import parse
from apples.jobs.scheduler_client import SchedulerClient
from apples.jobs.spec import JobSpec
from apples.launch.job_processes import kill_marked
from apples.resources import read_host_list
from apples.scheduling import Equipartition, FirstFit
from apples.simulation import (
    SimulationConfig,
    amdahl,
    interval,
    kale_workload,
    simulate,
)
from apples.simulation.config import ReconfigurationCost
from apples.simulation.sources import load_workload
from apples.simulation.speedup import Speedup
from apples.simulation.workload import Workload, rigid
from apples.weather.load.nodes import known_nodes

HERE = Path(__file__).resolve().parent
PROCESSORS = 64
SERVICE_SECONDS = 64.5
"""Of 100 iterations on 64 processors, in the paper."""
ITERATIONS = 40.0
"""Of a mean job: each costs its ranks processor time, which the paper's 100 cost another machine."""
POLICIES = {"equipartition": Equipartition, "first_fit": FirstFit}
HISTORY = "history.json"
Histories = dict[str, list[dict[str, Any]]]
"""By policy, its jobs as `apples queue --all --json` has them."""
OVER = {"finished", "failed", "cancelled", "lost"}
HOUR, LOG_PROCESSORS, MALLEABLE = 3600, 100, 0.3
SHORT_ITERATION = 0.2
"""Of a log's jobs on all hosts, seconds: what their run times are rounded to."""
CPU = 0.45
"""Of each host of a lab."""
SOLVER = HERE.parent / "examples" / "jacobi2d" / "template.toml"
GRID, MEASURED_ITERATIONS = 1500, 500
Whole = NDArray[np.int64]


def curve(hosts: int) -> Speedup:
    """Return the speed-up by hosts, each of which is 64 / `hosts` of the paper's processors; 1 on one host."""
    each = PROCESSORS / hosts
    return lambda count: amdahl(each * count, serial=0.02) / amdahl(each, serial=0.02)


@dataclass
class Experiment:
    """Arrivals of one load and seed, scaled to a mean service time on all hosts."""

    hosts: int
    jobs: int
    load: float
    seed: int
    seconds: float

    def __post_init__(self) -> None:
        self.speedup, self.each = self.pace()
        drawn = kale_workload(self.jobs, self.load, self.seed, adaptive=True)
        scale = self.seconds / SERVICE_SECONDS
        self.submit = (drawn.submit - drawn.submit[0]) * scale
        wanted = np.rint(drawn.run * scale / self.each)
        self.iterations = np.maximum(1, wanted).astype(int)
        self.width = np.ceil(drawn.minimum * self.hosts / PROCESSORS).astype(int)
        self.least, self.most = self.width, np.full(self.jobs, self.hosts)
        self.malleable = np.ones(self.jobs, dtype=bool)

    def pace(self) -> tuple[Speedup, float]:
        """Return the speed-up by hosts, and the seconds of an iteration on all of them."""
        return curve(self.hosts), self.seconds / ITERATIONS

    def range_of(self, adaptive: bool) -> tuple[Whole, Whole]:
        """Return the fewest and most hosts of each job, where adaptive ones are submitted as such, or none is."""
        free = self.malleable & adaptive
        return np.where(free, self.least, self.width), np.where(free, self.most, self.width)

    def iteration_seconds(self, hosts: int) -> float:
        """Return what an iteration takes on so many hosts."""
        return self.each * self.speedup(self.hosts) / self.speedup(hosts)

    def program(self) -> tuple[Path, dict[str, str]]:
        """Return the template of the jobs, and what is set of it beside the iterations."""
        paced = " ".join(f"{self.iteration_seconds(n):.6g}" for n in range(1, self.hosts + 1))
        return HERE / "paced" / "template.toml", {"seconds": paced}

    def submission(self, job: int, folder: Path, adaptive: bool) -> dict[str, Any]:
        """Return what is submitted."""
        template, sets = self.program()
        spec = RunSpec(
            folder / "hosts.toml", template, None, {"iterations": str(self.iterations[job]), **sets},
            "minimum_execution_time", "static", verify="none",
        )  # fmt: skip
        least, most = (int(each[job]) for each in self.range_of(adaptive))
        malleable = adaptive and bool(self.malleable[job])
        return {
            "minimum": least, "maximum": most, "kind": "malleable" if malleable else "rigid",
            "requested": float(self.iterations[job] * self.iteration_seconds(least)),
            "name": f"paced-{job + 1}", "work": JobSpec(spec).document(),
        }  # fmt: skip

    def workload(
        self, live: list[dict[str, Any]], adaptive: bool, start_seconds: float
    ) -> Workload:
        """Return the same jobs for the simulator, as they came, each longer by what a start took."""
        came = np.array([one["submitted"] for one in live]) - live[0]["submitted"]
        least, most = self.range_of(adaptive)
        had = np.array([one["mean_hosts"] for one in live])
        rate = [self.speedup(n) / self.speedup(top) for n, top in zip(had, most, strict=True)]
        each = np.array([self.iteration_seconds(n) for n in most])
        run = self.iterations * each + start_seconds * np.array(rate)
        made = rigid(came, run, most, run)
        return replace(made, minimum=least, malleable=self.malleable & adaptive)


@dataclass
class RealSolver(Experiment):
    """The same arrivals of jobs that compute: Jacobi2D on hosts that are each a CPU of this machine."""

    def pace(self) -> tuple[Speedup, float]:
        """Return both as the solver has them here, rigid, on one to all hosts, before the experiment."""
        seconds = [solver_seconds(n) for n in range(1, self.hosts + 1)]
        print(f"the solver: {', '.join(f'{1e3 * one:.2f}' for one in seconds)} ms an iteration")
        counts = np.arange(1, self.hosts + 1)
        rates = seconds[0] / np.array(seconds)
        return lambda hosts: np.interp(hosts, counts, rates), seconds[-1]

    def program(self) -> tuple[Path, dict[str, str]]:
        """Return the template of the jobs, and what is set of it beside the iterations."""
        return SOLVER, {"grid": str(GRID), "digest": "0"}


@dataclass
class HourOfLog(Experiment):
    """The jobs that came in an hour of a log, in a part of its time; some are malleable.

    Attributes
    ----------
    log, hour
        Which, of 100 processors; each host stands for as many of them as another.
    """

    log: str = ""
    hour: int = 0

    def __post_init__(self) -> None:
        self.speedup = curve(self.hosts)
        known = load_workload(self.log, LOG_PROCESSORS).workload
        there = np.flatnonzero(known.submit // HOUR == self.hour)
        self.jobs, self.each = len(there), SHORT_ITERATION
        self.submit = (known.submit[there] - self.hour * HOUR) / self.load
        self.width = np.ceil(known.processors[there] * self.hosts / LOG_PROCESSORS).astype(int)
        each = np.array([self.iteration_seconds(n) for n in self.width])
        wanted = np.rint(known.run[there] / self.load / each)
        self.iterations = np.maximum(1, wanted).astype(int)
        self.least, self.most = -(-self.width // 2), np.minimum(2 * self.width, self.hosts)
        self.malleable = np.random.default_rng(self.seed).random(self.jobs) < MALLEABLE


def here(hosts: int, lines: Sequence[str] = ()) -> str:
    """Return the list of so many hosts of this machine, each with a line of its own, if any."""
    entries = [
        f'[[host]]\nname = "h{n + 1}"\nseconds_per_point = 1e-6\n{lines[n] if lines else ""}'
        for n in range(hosts)
    ]
    return "".join(entries) + "[default_link]\nlatency = 1e-6\nbandwidth = 1e9\n"


def on_cpus(hosts: int) -> str:
    """Return the list of so many hosts, each a CPU of this machine."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < hosts:
        raise SystemExit(f"{hosts} CPUs are needed, one a host; there are {len(cpus)}")
    return here(hosts, [f"cpus = [{cpu}]\n" for cpu in cpus])


def solver_seconds(hosts: int) -> float:
    """Return what an iteration of the solver takes on so many CPUs."""
    with tempfile.TemporaryDirectory() as place:
        words = {"grid": GRID, "iterations": MEASURED_ITERATIONS, "digest": 0}
        (listed := Path(place) / "hosts.toml").write_text(on_cpus(hosts))
        found = subprocess.run(
            [sys.executable, "-m", "apples", "run", "--json", "--template", SOLVER, "--hosts", listed,
             "--blueprint", "blocked", "--weather", "static", "--no-verify",
             *(word for name, value in words.items() for word in ("--set", f"{name}={value}"))],
            stdout=subprocess.PIPE, check=True, env={**os.environ, "XDG_STATE_HOME": place},
        )  # fmt: skip
    return float(json.loads(found.stdout)["execution"]["iteration_seconds"])


@contextlib.contextmanager
def in_lab(folder: Path, hosts: int) -> Iterator[str]:
    """Yield the host list of a lab, which is there meanwhile."""
    each = "".join(f'[[host]]\nname = "h{n + 1}"\ncpu = {CPU}\n' for n in range(hosts))
    (folder / "lab.toml").write_text(f'name = "kale"\n{each}')
    made = lab.up(folder / "lab.toml")
    try:
        yield made.hosts.read_text()
    finally:
        lab.down(lab.labs() / made.name)


def end_at_sigterm() -> None:
    """Have SIGTERM end this process as Ctrl-C does, once: schedulers and labs that it has made end, too."""

    def end(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sys.exit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, end)


class Site:
    """A live scheduler on the hosts of a list."""

    def __init__(self, folder: Path, policy: str, hosts: str, actuator: str = "local") -> None:
        self.folder, self.policy = folder, policy
        folder.mkdir()
        (folder / "hosts.toml").write_text(hosts)
        self.place = folder / "apples" / "schedulers" / "local"
        self.client = SchedulerClient(self.place)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "apples", "scheduler", "--policy", policy, "--actuator", actuator],
            cwd=folder, env={**os.environ, "XDG_STATE_HOME": str(folder)}, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stderr is not None
        try:
            line = self.process.stderr.readline()
        except BaseException:  # nobody has it yet who would end it
            self.process.terminate()
            raise
        if "ready at" not in line:
            self.process.kill()  # or it goes on, and what it says has no end
            raise SystemExit(f"the scheduler does not start: {line}{self.process.stderr.read()}")

    def submit(self, submission: dict[str, Any]) -> None:
        """Submit a job."""
        body = {"request": secrets.token_hex(8), "submission": submission}
        self.client.ask("POST", "/v1/jobs", body)

    def states(self) -> list[str]:
        """Return where each job is."""
        return [one["state"] for one in self.client.ask("GET", "/v1/queue")["jobs"]]

    def close(self) -> None:
        """End all jobs, and the scheduler; where they do not end kill them."""
        try:
            self._end()
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait(30)
                for record in (self.folder / "apples" / "jobs").glob("*/"):
                    kill_marked(record.name, 10.0)

    def _end(self) -> None:
        if self.process.poll() is None:
            for one in self.client.ask("GET", "/v1/queue")["jobs"]:
                if one["state"] not in OVER:
                    self.client.ask("POST", f"/v1/jobs/{one['job']}/cancel")
            deadline = time.monotonic() + 60.0
            while set(self.states()) - OVER and time.monotonic() < deadline:
                time.sleep(0.2)
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(30)


@contextlib.contextmanager
def sites(
    folder: Path, experiment: Experiment, policies: Collection[str], far: bool
) -> Iterator[dict[str, Site]]:
    """Yield a scheduler of each policy, and end them all."""
    hosts = experiment.hosts
    listed = on_cpus(hosts) if isinstance(experiment, RealSolver) else here(hosts)
    with (
        in_lab(folder, hosts) if far else contextlib.nullcontext(listed) as known,
        contextlib.ExitStack() as made,
    ):
        actuator = "ssh" if far else "local"
        yield {
            policy: made.enter_context(
                contextlib.closing(Site(folder / policy, policy, known, actuator))
            )
            for policy in policies
        }


def run(experiment: Experiment, folder: Path, far: bool) -> Histories:
    """Return the history of each policy's jobs after all have run, one after another where they compute."""
    if isinstance(experiment, RealSolver):
        turns = [run_beside(experiment, folder, [policy], far) for policy in POLICIES]
        return {policy: jobs for turn in turns for policy, jobs in turn.items()}
    return run_beside(experiment, folder, list(POLICIES), far)


def run_beside(
    experiment: Experiment, folder: Path, policies: Collection[str], far: bool
) -> Histories:
    """Return the history of the jobs of schedulers that run beside each other."""
    with sites(folder, experiment, policies, far) as made:
        begun = time.monotonic()
        for job in range(experiment.jobs):
            time.sleep(max(0.0, begun + experiment.submit[job] - time.monotonic()))
            for policy, site in made.items():
                adaptive = policy == "equipartition"
                site.submit(experiment.submission(job, site.folder, adaptive))
        while any(set(site.states()) - OVER for site in made.values()):
            time.sleep(2.0)
        found = {p: site.client.ask("GET", "/v1/history")["jobs"] for p, site in made.items()}
        for policy, site in made.items():
            said = site.client.ask("GET", "/v1/queue")["alarms"]
            for one in said:
                print(f"{policy}: {one['text']}", file=sys.stderr)
    return found


# ------------------------------------------------------------------------------- what came of it
def live_figures(jobs: list[dict[str, Any]], hosts: int) -> dict[str, float]:
    """Return mean response and utilisation."""
    response = [one["ended"] - one["submitted"] for one in jobs]
    span = max(one["ended"] for one in jobs) - min(one["submitted"] for one in jobs)
    used = sum(one["mean_hosts"] * (one["ended"] - one["started"]) for one in jobs)
    return {
        "response": statistics.fmean(response),
        "utilisation": used / (hosts * span),
        "resizes": sum(one["resizes"] for one in jobs),
        "finished": sum(one["state"] == "finished" and one["attempt"] == 1 for one in jobs),
    }


def records_of(site: Path) -> list[dict[str, Any]]:
    """Return the records of a scheduler's log."""
    found, _, _ = parse((site / "apples/schedulers/local/journal").read_bytes())
    return [one for one in found if "job" in one and "is" in one]


def costs(records: list[dict[str, Any]]) -> tuple[float, ReconfigurationCost]:
    """Return the mean seconds of a start, and of a shrink and a growth, as the log has them."""
    starts: list[float] = []
    shrinks: list[float] = []
    growths: list[float] = []
    before: dict[int, dict[str, Any]] = {}
    since: dict[int, float] = {}
    for one in records:
        number = one["job"]
        if one["do"] in {"start", "resize"}:
            since[number] = one["at"]
        if one["do"] == "running":
            starts.append(one["at"] - since[number])
        if one["do"] == "verdict":
            was, now = len(before[number]["hosts"]), len(one["is"]["hosts"])
            if now != was:
                (shrinks if now < was else growths).append(one["at"] - since[number])
        before[number] = one["is"]
    mean = lambda values: statistics.fmean(values) if values else 0.0  # noqa: E731
    return mean(starts), ReconfigurationCost(shrink=mean(shrinks), expand=mean(growths))


def decided_again(site: Path, policy: str) -> tuple[int, int]:
    """Return how many decisions a scheduler's log has, and how many one makes alike that is told the same."""
    records, _, _ = parse((site / "apples/schedulers/local/journal").read_bytes())
    hosts = read_host_list(site / "hosts.toml")
    try:
        found = replayed(records, POLICIES[policy](), HostPreference.of(hosts), known_nodes(hosts))
    except UsageError as error:
        print(f"{policy}: {error}", file=sys.stderr)
        return sum(one["do"] in DECISIONS for one in records), 0
    if found.parting is not None:
        print(
            f"{policy}: the log has {found.parting[0]}; replayed: {found.parting[1]}",
            file=sys.stderr,
        )
    return found.decisions, found.alike


def simulated(
    experiment: Experiment, jobs: list[dict[str, Any]], policy: str, records: list[dict[str, Any]]
) -> float:
    """Return the mean response of the same jobs in the simulator, with what starts and resizes took."""
    start, cost = costs(records)
    workload = experiment.workload(jobs, policy == "equipartition", start)
    config = SimulationConfig(experiment.hosts, speedup=experiment.speedup, cost=cost)
    result = simulate(workload, POLICIES[policy](), config)
    return float((result.end - workload.submit).mean())


def table(one: Experiment, histories: Histories, folder: Path) -> dict[str, dict[str, float]]:
    """Return what came of one load and seed, by policy."""
    found = {}
    for policy, jobs in histories.items():
        records = records_of(folder / policy)
        start, cost = costs(records)
        decisions, alike = decided_again(folder / policy, policy)
        found[policy] = live_figures(jobs, one.hosts) | {
            "simulated": simulated(one, jobs, policy, records),
            "decisions": decisions, "alike": alike,
            "start": start, "shrink": cost.shrink, "grow": cost.expand,
        }  # fmt: skip
    return found


def show(one: Experiment, found: dict[str, dict[str, float]], loads: tuple[float, float]) -> None:
    """Print what came of one load and seed."""
    paper = "the paper: better at every load, drawn and not said in numbers"
    for policy, each in found.items():
        print(
            f"{one.load:5.2f} {one.seed:5d} {policy:>14} {each['response']:9.1f} {each['simulated']:9.1f}"
            f" {each['utilisation']:6.1%} {each['resizes']:7.0f} {each['start']:6.2f} {each['shrink']:6.2f}"
            f" {each['grow']:6.2f} {each['alike']:4.0f}/{each['decisions']:<4.0f}"
            f" {each['finished']:5.0f}/{one.jobs}"
        )
    ratio = found["equipartition"]["response"] / found["first_fit"]["response"]
    print(
        f"      equipartition / first fit: response {ratio:.2f} ({paper}). "
        f"Load of the machine {loads[0]:.0f} to {loads[1]:.0f}"
    )
    print(json.dumps({"load": one.load, "seed": one.seed, "jobs": one.jobs, **found}), flush=True)


def main() -> int:
    """Run the experiments that were asked for."""
    end_at_sigterm()
    parser = argparse.ArgumentParser()
    parser.add_argument("--hosts", type=int, default=8)
    parser.add_argument("--jobs", type=int, default=6)
    parser.add_argument(
        "--seconds", type=float, default=4.0, help="mean service time on all hosts"
    )
    parser.add_argument("--loads", default="0.5")
    parser.add_argument("--seeds", default="1")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--lab", action="store_true", help="on the hosts of a lab, over ssh")
    where.add_argument("--solver", action="store_true", help="jobs compute; a host is a CPU")
    parser.add_argument(
        "--log", default="", help="a log of 100 processors in place of the paper's jobs"
    )
    parser.add_argument("--hour", type=int, default=319, help="of the log")
    parser.add_argument("--faster", type=float, default=8.0, help="so many times its time")
    parser.add_argument(
        "--keep", type=Path, help="a folder for the logs; where they are, they are read"
    )
    asked = parser.parse_args()
    print(
        f"{'load':>5} {'seed':>5} {'policy':>14} {'response':>9} {'simulated':>9} {'use':>6} {'resizes':>7}"
        f" {'start':>6} {'shrink':>6} {'grow':>6} {'alike':>9} {'finished':>8}"
    )
    all_found: dict[str, list[dict[str, dict[str, float]]]] = {}
    loads = [str(asked.faster)] if asked.log else asked.loads.split(",")
    for load, seed in product(loads, asked.seeds.split(",")):
        drawn = asked.hosts, asked.jobs, float(load), int(seed), asked.seconds
        kind = RealSolver if asked.solver else Experiment
        one = HourOfLog(*drawn, asked.log, asked.hour) if asked.log else kind(*drawn)
        with tempfile.TemporaryDirectory(prefix="k-", dir="/tmp") as place:
            folder = (asked.keep or Path(place)) / f"{load}-{seed}"
            before = os.getloadavg()[0]
            if not (folder / HISTORY).exists():
                folder.mkdir(parents=True)
                (folder / HISTORY).write_text(json.dumps(run(one, folder, asked.lab)))
            histories = json.loads((folder / HISTORY).read_text())
            found = table(one, histories, folder)
            show(one, found, (before, os.getloadavg()[0]))
            if asked.log:
                of_kinds(one, histories)
            all_found.setdefault(load, []).append(found)
    for load, each in all_found.items():
        summary(load, each)
    return 0


def of_kinds(one: Experiment, histories: Histories) -> None:
    """Print the mean response of the jobs that were malleable under one policy, and of the others."""
    for name, mask in (("malleable", one.malleable), ("other", ~one.malleable)):
        rigid_, adaptive = (
            statistics.fmean(
                job["ended"] - job["submitted"]
                for job, mine in zip(histories[policy], mask, strict=True)
                if mine
            )
            for policy in ("first_fit", "equipartition")
        )
        print(
            f"      {mask.sum()} {name} jobs: response {rigid_:.1f} s if all are rigid, {adaptive:.1f} s so"
        )


def summary(load: str, found: list[dict[str, dict[str, float]]]) -> None:
    """Print means over the seeds of a load with their 95 % intervals."""
    if len(found) < 2:
        return
    both = [(one["equipartition"], one["first_fit"]) for one in found]

    def said(values: list[float], form: str) -> str:
        one = interval(values)
        return f"{one.mean:{form}} +- {one.half or 0.0:{form}}"

    live = said([a["response"] / b["response"] for a, b in both], ".2f")
    alike = said([a["simulated"] / b["simulated"] for a, b in both], ".2f")
    use = said([a["utilisation"] - b["utilisation"] for a, b in both], ".1%")
    apart = [one["response"] / one["simulated"] - 1 for pair in both for one in pair]
    print(
        f"load {load}, {len(found)} seeds: response {live} of first fit's, simulated {alike}; utilisation {use} "
        f"more; live against simulated response {min(apart):+.1%} to {max(apart):+.1%}"
    )


if __name__ == "__main__":
    sys.exit(main())
