"""Run 24 tasks that move one by one between lab hosts with owners that come and go, by decider.

    python experiments/owners_tasks.py [--seeds N] [--seconds S] [--weight W] [--keep FILE]

Needs root. Twelve hosts, four of them twice as fast, 12.5 MB/s between any two. The tasks are threads with 5 MB of
state. Every five seconds a decider uses the mean loads of the last five: never moving, Dynamite's rule, `migrate`,
or an oracle. Each seed has the same owners and first placement for all deciders.

Result: `benchmarks/results/owners_tasks.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from adversaries.owners_model import OwnersWorld, step_by_foresight
from kale_live import end_at_sigterm
from owners import BEHIND, BETTER, interval, mean
from owners_live import SPEED_OF_TIME, Owners

from apples import jobs, lab
from apples.agent.session.spec import RunSpec
from apples.errors import ApplesError
from apples.lab.record import Lab
from apples.resources import read_host_list
from apples.scheduling.decider import NodeCapacity, check_for_migration
from apples.scheduling.payback import MigrationRule, SharedHost, migrate
from apples.weather.load.monitor import LoadMonitor
from apples.weather.load.remote import load_slaves
from apples.weather.load.snapshot import NOBODY, NodeSnapshot

HERE = Path(__file__).resolve().parent
CPU, TASKS, WORK = 0.08, 24, 0.02
HOSTS = tuple(SharedHost(f"h{n}", CPU * (2 if n % 3 == 0 else 1)) for n in range(12))
BANDWIDTH = 12.5e6
EVERY, PERIOD, FORESIGHT = 1.0, 5, 30
"""Seconds between two snapshots and two decisions, and what the oracle knows: half of the emulated world's."""
RULE = MigrationRule(horizon=FORESIGHT, base_seconds=1.0, move_seconds=0.5, hold=10.0)
"""Of `migrate` and the oracle; what a step costs was measured with seeds that are not the experiment's."""
THRESHOLD = 0.5
"""The best of .5, .55, .6 and .7 for the paper's rule where this world is emulated."""
WAYS = ("never", "decider", "migrate", "oracle")


def drawn(seed: int, seconds: int, *, changes: bool = True) -> OwnersWorld:
    """Return the world of a seed, by our seconds."""
    world = OwnersWorld.drawn(
        seed, hosts=len(HOSTS), tasks=TASKS, seconds=seconds * SPEED_OF_TIME, changes=changes
    )
    return replace(world, hosts=HOSTS, others=world.others[::SPEED_OF_TIME])


class TaskJob:
    """The job on all hosts of a lab, whose tasks go where they are told to."""

    def __init__(self, made: Lab, folder: Path) -> None:
        self._placed, self._track = folder / "placed.json", folder / "track.jsonl"
        self._number, self._read = 0, 0
        self.owners: list[int] = []
        self.track: list[dict[str, Any]] = []
        (folder / "user.toml").write_text(
            f"[constraints]\nminimum_hosts = {len(HOSTS)}\nmaximum_hosts = {len(HOSTS)}\n"
        )
        parameters = {
            "iterations": "100000000", "work": str(WORK), "rows": str(TASKS),
            "placed": str(self._placed), "track": str(self._track),
        }  # fmt: skip
        spec = RunSpec(
            made.hosts, HERE / "loaded" / "tasks.toml", folder / "user.toml", parameters,
            f"{HERE}/loaded/blueprints.py:never", "static", actuator="ssh", verify="none",
        )  # fmt: skip
        self.id = jobs.submit(spec).id

    def look(self) -> bool:
        """Read how far it is; say whether all tasks are where they were last told to go."""
        if self._track.exists():
            with self._track.open() as file:
                file.seek(self._read)
                while (line := file.readline()).endswith("\n"):
                    self.track.append(json.loads(line))
                    self._read = file.tell()
        return bool(self.track) and self.track[-1]["number"] == self._number

    def place(self, owners: Sequence[int]) -> None:
        """Have each task on a host."""
        self.owners = list(owners)
        self._number += 1
        new = self._placed.with_suffix(".new")
        new.write_text(json.dumps({"number": self._number, "owners": self.owners}))
        new.replace(self._placed)

    def wait(self, seconds: float) -> None:
        """Wait until all tasks are where they were told to go."""
        end = time.monotonic() + seconds
        while not self.look():
            if time.monotonic() > end:
                raise TimeoutError(f"{self.id}: no placement {self._number} in {seconds} s")
            time.sleep(0.2)


class Heard:
    """The means of each host's latest snapshots."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._latest: dict[str, NodeSnapshot] = {}

    def __call__(self, one: NodeSnapshot) -> None:
        """Take in a snapshot, from any thread."""
        with self._lock:
            self._latest[one.host] = one

    def now(self) -> list[NodeSnapshot]:
        """Return what is known, in the order of the hosts; empty before all were heard."""
        with self._lock:
            known = dict(self._latest)
        return [known[host.name] for host in HOSTS] if len(known) == len(HOSTS) else []


def by_the_paper(nodes: Sequence[NodeSnapshot], owners: Sequence[int]) -> list[tuple[int, int]]:
    """Return the moves of Dynamite's rule."""
    capacities = [
        NodeCapacity(
            node.host, node.available, tuple(t for t, owner in enumerate(owners) if owner == place)
        )
        for place, node in enumerate(nodes)
    ]
    return [(move.task, move.target) for move in check_for_migration(capacities, THRESHOLD)]


def one_run(
    job: TaskJob, owners: Owners, heard: Heard, world: OwnersWorld, way: str
) -> dict[str, Any]:
    """Return what came of the tasks under a decider."""
    owners.set(world.others[0])
    job.place(world.planned())
    job.wait(120)
    time.sleep(8)  # the monitor has heard this for a window
    known = [world.at(second) for second in range(len(world.others))]
    last = [-RULE.hold] * len(HOSTS)
    began, moved = time.time(), 0
    for second, wanted in enumerate(world.others):
        owners.set(wanted)
        steps: list[tuple[int, int]] = []
        due = way == "oracle" or (second and second % PERIOD == 0)
        nodes = heard.now()
        if due and nodes and job.look():
            if way == "decider":
                steps = by_the_paper(nodes, job.owners)
            elif way == "migrate":
                means = [node.wanting.get(NOBODY, 0.0) for node in nodes]
                held = [host for host, when in enumerate(last) if second - when < RULE.hold]
                found = migrate(world.at(second, means), job.owners, RULE, held)
                steps = [(move.task, move.target) for move in found]
            elif way == "oracle":
                steps = step_by_foresight(known[second : second + FORESIGHT], job.owners, RULE)
        if steps:
            there = list(job.owners)
            for task, target in steps:
                last[there[task]] = last[target] = second
                there[task] = target
            moved += len(steps)
            job.place(there)
        time.sleep(max(0.0, began + second + 1 - time.time()))
    ended = time.time()
    job.wait(120)
    inside = [one for one in job.track if began <= one["at"] <= ended]
    steps_made = [one for one in inside if "moved" in one]
    seconds = inside[-1]["at"] - inside[0]["at"]
    return {
        "way": way, "iterations": (inside[-1]["iteration"] - inside[0]["iteration"]) / seconds * len(known),
        "moves": moved, "steps": len(steps_made), "seconds": len(known),
        "stalls": [round(one["seconds"], 2) for one in steps_made], "load": round(os.getloadavg()[0], 1),
        "track": [[round(one["at"] - began, 2), one["iteration"]] for one in inside],
        "moved": [[round(one["at"] - began, 2), one["moved"], one["seconds"]] for one in steps_made],
    }  # fmt: skip


def one_seed(
    made: Lab, folder: Path, seed: int, ways: Sequence[str], seconds: int, *, changes: bool
) -> list[dict[str, Any]]:
    """Return the runs of a seed, in one job."""
    runs = []
    owners, heard = Owners(made), Heard()
    hosts = read_host_list(made.hosts)
    job = TaskJob(made, folder)
    try:
        with LoadMonitor(load_slaves(hosts, list(hosts), EVERY), heard):
            job.wait(180)
            world = drawn(seed, seconds, changes=changes)
            turn = seed % len(ways)
            for way in (*ways[turn:], *ways[:turn]):
                runs.append(
                    {"seed": seed, "calm": not changes} | one_run(job, owners, heard, world, way)
                )
                print(
                    json.dumps({k: v for k, v in runs[-1].items() if k not in {"track", "moved"}}),
                    flush=True,
                )
    finally:
        owners.set([0] * len(HOSTS))
        jobs.cancel(job.id)
    return runs


def summary(runs: Sequence[dict[str, Any]]) -> None:
    """Print of each way its part of the oracle's iterations, and the ratios that have bars."""
    calm = [one["moves"] for one in runs if one["calm"]]
    if calm:
        print(f"constant load: {sum(calm)} moves in {len(calm)} runs")
    found: dict[str, dict[int, float]] = {
        way: {
            one["seed"]: one["iterations"] for one in runs if one["way"] == way and not one["calm"]
        }
        for way in WAYS
    }
    for way in WAYS:
        moves = [one["moves"] for one in runs if one["way"] == way and not one["calm"]]
        parts = over(found[way], found["oracle"])
        if parts:
            print(f"{way:8} {interval(parts)} of the oracle, {mean(moves):.1f} moves")
    for title, parts, held in (
        (
            "migrate over the decider",
            over(found["migrate"], found["decider"]),
            lambda m: m >= BETTER,
        ),
        ("oracle over migrate", over(found["oracle"], found["migrate"]), lambda m: m <= BEHIND),
    ):
        if parts:
            print("ok  " if held(mean(parts)) else "OVER", f"{title}: {interval(parts)}")


def over(some: dict[int, float], others: dict[int, float]) -> list[float]:
    """Return the ratios of the seeds that both have."""
    return [some[seed] / others[seed] for seed in sorted(some.keys() & others.keys())]


def weigh(made: Lab, weight: int) -> None:
    """Let the hosts have their quotas beside other programs of this machine (control groups of version 1)."""
    for joined in {Path(one).parent.parent for one in made.machines[0].cgroups}:
        shares = joined / "cpu.shares"
        if shares.exists():
            shares.write_text(str(int(shares.read_text()) * weight))


def main() -> int:
    """Make the lab, run, print the ratios."""
    end_at_sigterm()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--calm", action="store_true", help="the loads of the first second stay")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--keep", type=Path, help="all that is known of each run, a line each")
    parser.add_argument(
        "--weight",
        type=int,
        default=1,
        help="of the lab, times the usual: where others use this machine",
    )
    parser.add_argument(
        "--told", type=Path, help="print the ratios of what --keep has, and run nothing"
    )
    asked = parser.parse_args()
    if asked.told is not None:
        summary([json.loads(line) for line in asked.told.read_text().splitlines()])
        return 0
    runs: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="o-", dir="/tmp") as name:
        folder = Path(name)
        os.environ["XDG_STATE_HOME"] = str(folder / "state")
        hosts = "".join(
            f'[[host]]\nname = "{host.name}"\ncpu = {host.speed}\nbandwidth = {BANDWIDTH}\n'
            for host in HOSTS
        )
        (folder / "lab.toml").write_text(f'name = "tasks"\n{hosts}')
        made = lab.up(folder / "lab.toml")
        weigh(made, asked.weight)
        try:
            for seed in range(asked.first, asked.first + asked.seeds):
                mine = folder / str(seed)
                mine.mkdir()
                try:
                    found = one_seed(
                        made,
                        mine,
                        seed,
                        asked.ways.split(","),
                        asked.seconds,
                        changes=not asked.calm,
                    )
                except (TimeoutError, ApplesError) as error:
                    print(f"seed {seed}: {error}", file=sys.stderr, flush=True)
                    continue
                runs += found
                if asked.keep is not None:
                    with asked.keep.open("a") as file:
                        file.writelines(json.dumps(one) + "\n" for one in found)
        finally:
            lab.down(lab.labs() / made.name)
    summary(runs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
