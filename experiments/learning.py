"""Compare plans with learned corrections and plans without, both measured.

    python experiments/learning.py [--worlds 12] [--seed 1] [--aside] [--runs 6] [--pairs 2]

Needs root. A world is a lab of 2 to 6 hosts with random quotas, links and competitors, and a program made by
`hat new`. It runs up to six times; after each run, two plans are made from the same weather. If they differ, both
run. `--aside` runs the third of the worlds that is otherwise kept aside. Writes runs/figures/learning.json.

Result (2026-11-29, 2 CPUs, load 1 to 2, --worlds 5): mean ratio 0.997 (bar 0.97, missed), worst 1.000 (bar 1.05).
"""

import argparse
import json
import math
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

from apples import Coordinator, lab
from apples.agent import Learned, check, launch_plan, load_information, remember
from apples.launch import RecordingActuator, SshActuator
from apples.resources.schedule import NoFeasiblePlanError
from apples.weather import SensingContext
from blueprints import minimum_execution_time

WRITTEN = Path("runs/figures/learning.json")
SECONDS_PER_POINT = {"python": 4e-9, "c": 1.5e-9}
"""About what a CPU needs for a point; only the size of a world's grid is chosen by it."""
CPUS = 1.6
"""Quotas of a world add up to no more of this machine's CPUs: a quota that is not to be had is none."""
OWN_LINK = 0.3
"""Part of the hosts that have a link of their own, slower than their site's network."""
SAME_ROWS = 0.01
"""Plans on the same hosts, no strip of which differs by more of the grid, are the same."""
MEAN, WORST = 0.97, 1.05


@dataclass(frozen=True)
class World:
    """One lab and one program, drawn from a seed."""

    number: int
    quotas: tuple[float, ...]
    bandwidths: tuple[float, ...]
    sites: tuple[int, ...]
    own_links: tuple[float | None, ...]
    load: int | None
    language: str
    grid: int

    @property
    def document(self):
        """The lab file."""
        lines = [f'name = "learn{self.number}"']
        for site, rate in enumerate(self.bandwidths):
            lines += ["[[site]]", f'name = "s{site}"', f"bandwidth = {rate:.0f}"]
        for host, (quota, site) in enumerate(zip(self.quotas, self.sites, strict=True)):
            lines += ["[[host]]", f'name = "h{host}"', f'site = "s{site}"', f"cpu = {quota:.3f}"]
            own = self.own_links[host]
            lines += [] if own is None else [f"bandwidth = {own:.0f}"]
        if self.load is not None:
            lines += ["[[load]]", f'host = "h{self.load}"']
        return "\n".join(lines)


def drawn(number, seed):
    """Return the world of a number."""
    draw = random.Random(f"{seed}-{number}")
    count = draw.randint(2, 6)
    quotas = [draw.uniform(0.15, 1.0) for _ in range(count)]
    scale = min(1.0, CPUS / sum(quotas))
    sites = draw.randint(1, min(3, count))
    language = draw.choice(["python", "c"])
    iteration = math.exp(draw.uniform(math.log(5e-5), math.log(5e-2)))
    grid = int(math.sqrt(iteration * min(CPUS, sum(quotas)) / SECONDS_PER_POINT[language]))

    def rate():
        return math.exp(draw.uniform(math.log(5e5), math.log(1e8)))

    return World(
        number,
        tuple(max(0.05, quota * scale) for quota in quotas),
        tuple(rate() for _ in range(sites)),
        tuple(draw.randrange(sites) for _ in range(count)),
        tuple(rate() if draw.random() < OWN_LINK else None for _ in range(count)),
        draw.randrange(count) if number % 3 == 1 else None,
        language,
        max(40, grid),
    )


def say(line):
    """Tell what happens meanwhile."""
    print(line, file=sys.stderr, flush=True)


def scaffold(world, folder):
    """Make the program that a user begins with; return its template."""
    name = f"learn{world.number}"
    hat = Path(sys.executable).with_name("hat")
    kind = ["--c"] if world.language == "c" else []
    subprocess.run(
        [hat, "new", name, *kind, "--into", folder], check=True, stdout=subprocess.DEVNULL
    )
    if kind:
        subprocess.run(["make", "-s"], cwd=folder / name, check=True)  # noqa: S607 - the user's own make
    return folder / name / "template.toml"


class Session:
    """A user of one world: plans, runs, and what the runs taught."""

    def __init__(self, world, hosts, template, seconds):
        self.world, self.hosts, self.template, self.seconds = world, hosts, template, seconds

    def pool(self):
        """Return what is known at this moment, with what runs taught."""
        return load_information(
            self.hosts,
            self.template,
            None,
            settings={"grid": self.world.grid, "iterations": 1},
            weather="live",
            sensing=SensingContext(log=say),
        )

    def choose(self, pool):
        """Return the plan that a pool leads to."""
        coordinator = Coordinator(pool, RecordingActuator())
        coordinator.execute(minimum_execution_time)
        return coordinator.decision_log.chosen

    def run(self, pool, schedule, learn=False):
        """Run a schedule; return its measured seconds of an iteration."""
        predicted = pool.model_of(schedule).iteration_seconds(schedule)
        count = max(20, min(20_000, math.ceil(self.seconds / predicted)))
        settings = {"grid": self.world.grid, "iterations": count}
        pool = replace(pool, application=pool.template.bind(settings))
        coordinator = Coordinator(pool, SshActuator(talk=say))
        estimate = coordinator.best([coordinator.estimate(schedule)])
        outcome = coordinator.actuator.actuate(launch_plan(estimate.schedule, pool)).outcome()
        if learn:
            remember(check(estimate, outcome), pool)
        return outcome.iteration_seconds


def same(one, other, rows):
    """Whether two schedules are of the same hosts, in any direction, with nearly the same rows."""
    first, second = (dict(zip(s.resources, s.rows, strict=True)) for s in (one, other))
    first = {host.name: held for host, held in first.items()}
    second = {host.name: held for host, held in second.items()}
    if first.keys() != second.keys():
        return False
    return all(abs(first[name] - second[name]) <= SAME_ROWS * rows for name in first)


def plan_text(schedule):
    """Return hosts and rows in a few characters."""
    pairs = zip(schedule.resources, schedule.rows, strict=True)
    return " ".join(f"{host.name}:{held:.0f}" for host, held in pairs)


def measure(world, asked, folder):
    """Return what one world showed: a record after each run."""
    template = scaffold(world, folder)
    lab_file = folder / "lab.toml"
    lab_file.write_text(world.document)
    made = lab.up(lab_file, talk=say)
    records = []
    try:
        session = Session(world, made.hosts, template, asked.seconds)
        pool = session.pool()
        for run in range(1, asked.runs + 1):
            chosen = session.choose(pool)
            session.run(pool, chosen.schedule, learn=True)
            pool = session.pool()
            learned, plain = session.choose(pool), session.choose(replace(pool, learned=Learned()))
            record = {
                "world": world.number,
                "run": run,
                "learned": plan_text(learned.schedule),
                "plain": plan_text(plain.schedule),
                "pairs": [],
                "ratio": 1.0,
            }
            if not same(learned.schedule, plain.schedule, world.grid):
                for _ in range(asked.pairs):
                    with_it = session.run(pool, learned.schedule)
                    without = session.run(pool, plain.schedule)
                    again = session.run(pool, learned.schedule)
                    record["pairs"].append((with_it, without, again))
                both = statistics.median(t for w, _, a in record["pairs"] for t in (w, a))
                record["ratio"] = both / statistics.median(p for _, p, _ in record["pairs"])
                record["noise"] = max(max(w, a) / min(w, a) - 1.0 for w, _, a in record["pairs"])
            records.append(record)
            say(
                f"  world {world.number} after {run}: {record['ratio']:.3f}"
                f"  learned {record['learned']}  plain {record['plain']}"
                f"  noise {record.get('noise', 0.0):.2f}"
            )
    finally:
        lab.down(Path(made.folder))
    return records


def main():
    """Measure the worlds asked for, and compare with the bars."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worlds", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--aside", action="store_true", help="the worlds kept aside, and no others"
    )
    parser.add_argument("--runs", type=int, default=6)
    parser.add_argument("--pairs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1.5)
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # a lab goes with its program
    records, begun = [], time.monotonic()
    for number in range(asked.worlds):
        if (number % 3 == 2) != asked.aside:
            continue
        world = drawn(number, asked.seed)
        say(f"{time.monotonic() - begun:5.0f} s  {world}")
        with tempfile.TemporaryDirectory(prefix="learning-") as folder:
            os.environ["XDG_STATE_HOME"] = folder + "/state"
            try:
                records += measure(world, asked, Path(folder))
            except NoFeasiblePlanError as error:
                say(f"  world {number}: {error}")
    WRITTEN.parent.mkdir(parents=True, exist_ok=True)
    WRITTEN.write_text(json.dumps({"load": os.getloadavg(), "records": records}, indent=1))
    ratios = [record["ratio"] for record in records]
    beyond = [r["ratio"] / (1.0 + r.get("noise", 0.0)) for r in records]
    mean, worst = statistics.mean(ratios), max(beyond)
    differ = sum(bool(record["pairs"]) for record in records)
    print(
        f"{len(ratios)} comparisons in {len({r['world'] for r in records})} worlds, {differ} with different plans"
    )
    print(f"worst as measured {max(ratios):.3f}; load {os.getloadavg()[0]:.1f}")
    ok = [(mean <= MEAN, "mean", mean, MEAN), (worst <= WORST, "worst beyond noise", worst, WORST)]
    for holds, what, value, bar in ok:
        print(f"{'ok  ' if holds else 'MISS'}  {what}: {value:.3f} (demanded: <= {bar})")
    sys.exit(0 if all(holds for holds, *_ in ok) else 1)


if __name__ == "__main__":
    main()
