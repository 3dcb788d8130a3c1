"""Kale et al. 2002, Figures 7-8 with real jobs: response and utilisation, equipartition against first fit.

Each host of the list stands for 64 / HOSTS of the paper's processors. The jobs are `benchmarks/paced`: real
malleable MPI programs that wait as long as their work takes (Amdahl, serial part .02, in place of Figure 6), so
that the scheduler is measured, not this machine. Both schedulers run beside each other on the same arrivals. Then
each live run is (1) replayed: a fresh scheduler is told what the log says that jobs and hosts said, when they said
it, and must decide the same; (2) simulated, with the start and resize times that were measured.

    python benchmarks/kale_live.py [--jobs 50 --seconds 20 --loads 0.5 --seeds 1] [--hosts 8]

Without options: a few short jobs, to see that it works. Prints a table and one JSON line a load and seed.
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
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from apples.agent.session.spec import RunSpec
from apples.jobs.spec import JobSpec
from apples.scheduling import Equipartition, FirstFit
from apples.scheduling.server.client import SchedulerClient
from apples.scheduling.server.live_job import submission_of
from apples.scheduling.server.log import SchedulerLog
from apples.scheduling.server.orders import (
    LAST,
    AttemptPhase,
    HostLeft,
    JobReport,
    Report,
    ResizeOrder,
    StartOrder,
)
from apples.scheduling.server.scheduler import LiveScheduler
from apples.simulation import (
    SimulationConfig,
    amdahl,
    kale_workload,
    simulate,
)
from apples.simulation.config import ReconfigurationCost
from apples.simulation.speedup import Speedup
from apples.simulation.workload import Workload, rigid
from apples.storage.journal import parse

HERE = Path(__file__).resolve().parent
PROCESSORS = 64
SERVICE_SECONDS = 64.5
"""Of 100 iterations on 64 processors, in the paper."""
ITERATIONS = 100.0
POLICIES = {"equipartition": Equipartition, "first_fit": FirstFit}
HISTORY = "history.json"
Histories = dict[str, list[dict[str, Any]]]
"""By policy, its jobs as `apples history --json` has them."""
OVER = {"finished", "failed", "cancelled", "lost"}


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
        drawn = kale_workload(self.jobs, self.load, self.seed, adaptive=True)
        scale = self.seconds / SERVICE_SECONDS
        self.submit = (drawn.submit - drawn.submit[0]) * scale
        wanted = np.rint(drawn.run * scale / self.seconds * ITERATIONS)
        self.iterations = np.maximum(1, wanted).astype(int)
        self.least = np.ceil(drawn.minimum * self.hosts / PROCESSORS).astype(int)
        self.speedup = curve(self.hosts)

    def iteration_seconds(self, hosts: int) -> float:
        """Return what an iteration takes on so many hosts."""
        return self.seconds / ITERATIONS * self.speedup(self.hosts) / self.speedup(hosts)

    def submission(self, job: int, folder: Path, adaptive: bool) -> dict[str, Any]:
        """Return what is submitted."""
        paced = " ".join(f"{self.iteration_seconds(n):.6g}" for n in range(1, self.hosts + 1))
        spec = RunSpec(
            folder / "hosts.toml", HERE / "paced" / "template.toml", None,
            {"iterations": str(self.iterations[job]), "seconds": paced},
            "minimum_execution_time", "static", verify="none",
        )  # fmt: skip
        least = int(self.least[job])
        return {
            "minimum": least, "maximum": self.hosts if adaptive else least,
            "kind": "malleable" if adaptive else "rigid",
            "requested": float(self.iterations[job] * self.iteration_seconds(least)),
            "name": f"paced-{job + 1}", "work": JobSpec(spec).document(),
        }  # fmt: skip

    def workload(
        self, live: list[dict[str, Any]], adaptive: bool, start_seconds: float
    ) -> Workload:
        """Return the same jobs for the simulator, as they came, each longer by what a start took."""
        came = np.array([one["submitted"] for one in live]) - live[0]["submitted"]
        if adaptive:
            rate = [self.speedup(one["mean_hosts"]) / self.speedup(self.hosts) for one in live]
            run = self.iterations * self.iteration_seconds(self.hosts) + start_seconds * np.array(
                rate
            )
            made = rigid(came, run, np.full(self.jobs, self.hosts), run)
            return replace(made, minimum=self.least, malleable=np.ones(self.jobs, dtype=bool))
        each = np.array([self.iteration_seconds(n) for n in self.least])
        run = self.iterations * each + start_seconds
        return rigid(came, run, self.least, run)


class Site:
    """A live scheduler on hosts of this machine."""

    def __init__(self, folder: Path, policy: str, hosts: int) -> None:
        self.folder, self.policy = folder, policy
        folder.mkdir()
        entries = [
            f'[[host]]\nname = "h{n + 1}"\nseconds_per_point = 1e-6\n' for n in range(hosts)
        ]
        link = "[default_link]\nlatency = 1e-6\nbandwidth = 1e9\n"
        (folder / "hosts.toml").write_text("".join(entries) + link)
        self.place = folder / "apples" / "schedulers" / "local"
        self.client = SchedulerClient(self.place)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "apples", "scheduler", "--policy", policy],
            cwd=folder, env={**os.environ, "XDG_STATE_HOME": str(folder)}, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        if "ready at" not in line:
            raise SystemExit(f"the scheduler does not start: {line}{self.process.stderr.read()}")

    def submit(self, submission: dict[str, Any]) -> None:
        """Submit a job."""
        body = {"request": secrets.token_hex(8), "submission": submission}
        self.client.ask("POST", "/v1/jobs", body)

    def states(self) -> list[str]:
        """Return where each job is."""
        return [one["state"] for one in self.client.ask("GET", "/v1/queue")["jobs"]]

    def close(self) -> None:
        """End all jobs, and the scheduler."""
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
def sites(folder: Path, hosts: int) -> Iterator[dict[str, Site]]:
    """Yield a scheduler of each policy, and end them all."""
    made: dict[str, Site] = {}
    try:
        for policy in POLICIES:
            made[policy] = Site(folder / policy, policy, hosts)
        yield made
    finally:
        for one in made.values():
            one.close()


def run(experiment: Experiment, folder: Path) -> Histories:
    """Return the history of each policy's jobs after all of them have run."""
    with sites(folder, experiment.hosts) as made:
        begun = time.monotonic()
        for job in range(experiment.jobs):
            time.sleep(max(0.0, begun + experiment.submit[job] - time.monotonic()))
            for policy, site in made.items():
                adaptive = policy == "equipartition"
                site.submit(experiment.submission(job, site.folder, adaptive))
        while any(set(site.states()) - OVER for site in made.values()):
            time.sleep(0.5)
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


class Replay:
    """A fresh scheduler that hears what a log says that another one heard, when that one heard it.

    Attributes
    ----------
    wanted, made
        The decisions of that one and of this one: job, verb and hosts.
    """

    def __init__(self, policy: str, hosts: int, folder: Path) -> None:
        self.wanted: list[tuple[object, ...]] = []
        self.made: list[tuple[object, ...]] = []
        self._seen: set[tuple[object, ...]] = set()
        self._log = SchedulerLog.open(folder)
        names = [f"h{n + 1}" for n in range(hosts)]
        token = partial(secrets.token_hex, 4)
        self.scheduler = LiveScheduler(self._log, POLICIES[policy](), names, 0.0, 0.0, token)

    def run(self, records: list[dict[str, Any]]) -> None:
        """Replay a log."""
        before: dict[int, dict[str, Any]] = {}
        for one in records:
            number, at, do, now = one["job"], one["at"], one["do"], one["is"]
            self._pass_time(at)
            if do == "submit":
                self.scheduler.submit(at, submission_of(one["submission"]))
            elif do in {"start", "resize"}:
                hosts = now["hosts" if do == "start" else "wanted"]
                self.wanted.append((number, do, tuple(sorted(hosts))))
                if len(self.made) < len(self.wanted):
                    self.scheduler.tick(at)
            else:
                for report in self._reports(number, do, now, before[number]):
                    self.scheduler.report(at, report)
            self._take_orders()
            before[number] = now
        self._log.close()

    def _pass_time(self, until: float) -> None:
        """Have the scheduler do what is due before a moment."""
        while (due := self.scheduler.now + self.scheduler.next_time()) < until:
            self.scheduler.tick(due)
            self._take_orders()

    @staticmethod
    def _reports(
        number: int, do: str, now: dict[str, Any], was: dict[str, Any]
    ) -> Iterator[Report]:
        """Yield what was said that made a record."""
        where, epoch = (number, now["attempt"]), now.get("epoch", 0)
        if do in {"running", "lose"}:
            hosts = tuple(now["hosts"]) if do == "lose" else ()
            yield JobReport(*where, AttemptPhase.RUNNING, epoch, hosts=hosts)
        elif do == "verdict":
            refused = now["hosts"] != was["wanted"]
            yield JobReport(*where, AttemptPhase.RUNNING, epoch, refused)
        elif do == "left":
            for host in was["leaving"].keys() - now.get("leaving", {}).keys():
                yield HostLeft(*where, host, LAST)
        elif do == "end":
            state = now.get("outcome", now["state"])
            state = "failed" if state == "queued" else state
            code = now.get("exit_code")
            yield JobReport(*where, AttemptPhase.ENDED, state=state, exit_code=code)

    def _take_orders(self) -> None:
        for order in self.scheduler.turn():
            if isinstance(order, (StartOrder, ResizeOrder)):
                epoch = order.epoch if isinstance(order, ResizeOrder) else 0
                if (key := (order.job, order.attempt, epoch)) not in self._seen:
                    self._seen.add(key)
                    verb = "resize" if epoch else "start"
                    self.made.append((order.job, verb, tuple(sorted(order.hosts))))


def replayed(records: list[dict[str, Any]], policy: str, hosts: int) -> tuple[int, int]:
    """Return how many decisions a log has, and how many a scheduler makes alike that hears the same."""
    with tempfile.TemporaryDirectory() as folder:
        one = Replay(policy, hosts, Path(folder))
        one.run(records)
    return len(one.wanted), sum(a == b for a, b in zip(one.wanted, one.made, strict=False))


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
        decisions, alike = replayed(records, policy, one.hosts)
        found[policy] = live_figures(jobs, one.hosts) | {
            "simulated": simulated(one, jobs, policy, records),
            "decisions": decisions, "alike": alike,
            "start": start, "shrink": cost.shrink, "grow": cost.expand,
        }  # fmt: skip
    return found


def show(one: Experiment, found: dict[str, dict[str, float]], loads: tuple[float, float]) -> None:
    """Print what came of one load and seed."""
    for policy, each in found.items():
        print(
            f"{one.load:5.2f} {one.seed:5d} {policy:>14} {each['response']:9.1f} {each['simulated']:9.1f}"
            f" {each['utilisation']:6.1%} {each['resizes']:7.0f} {each['start']:6.2f} {each['shrink']:6.2f}"
            f" {each['grow']:6.2f} {each['alike']:4.0f}/{each['decisions']:<4.0f}"
            f" {each['finished']:5.0f}/{one.jobs}"
        )
    ratio = found["equipartition"]["response"] / found["first_fit"]["response"]
    print(
        f"      equipartition / first fit: response {ratio:.2f}. The paper: better at every load, drawn and not "
        f"said in numbers. Load of the machine {loads[0]:.0f} to {loads[1]:.0f}"
    )
    print(json.dumps({"load": one.load, "seed": one.seed, "jobs": one.jobs, **found}), flush=True)


def main() -> int:
    """Run the experiments that were asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--hosts", type=int, default=8)
    parser.add_argument("--jobs", type=int, default=6)
    parser.add_argument(
        "--seconds", type=float, default=4.0, help="mean service time on all hosts"
    )
    parser.add_argument("--loads", default="0.5")
    parser.add_argument("--seeds", default="1")
    parser.add_argument(
        "--keep", type=Path, help="a folder for the logs; where they are, they are read"
    )
    asked = parser.parse_args()
    print(
        f"{'load':>5} {'seed':>5} {'policy':>14} {'response':>9} {'simulated':>9} {'use':>6} {'resizes':>7}"
        f" {'start':>6} {'shrink':>6} {'grow':>6} {'alike':>9} {'finished':>8}"
    )
    for load, seed in product(asked.loads.split(","), asked.seeds.split(",")):
        one = Experiment(asked.hosts, asked.jobs, float(load), int(seed), asked.seconds)
        with tempfile.TemporaryDirectory(prefix="k-", dir="/tmp") as place:
            folder = (asked.keep or Path(place)) / f"{load}-{seed}"
            before = os.getloadavg()[0]
            if not (folder / HISTORY).exists():
                folder.mkdir(parents=True)
                (folder / HISTORY).write_text(json.dumps(run(one, folder)))
            histories = json.loads((folder / HISTORY).read_text())
            show(one, table(one, histories, folder), (before, os.getloadavg()[0]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
