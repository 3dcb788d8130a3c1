"""Run a job of 24 tasks on lab hosts with owners that come and go, by decider.

    python experiments/owners_live.py [--seeds N] [--seconds S] [--calm N] [--hosts 12] [--used 6] [--keep FILE]

Needs root. Each host has 0.2 of a CPU; owners are endless loops. Each seed has four runs with the same owners:
never moving, `decider`, `migrate` and an oracle. `--calm N`: N runs of `migrate` with constant loads, which count
its moves. `--keep` writes all measurements.

Result (2026-11-23): ten seconds after an owner came, one global step had balanced the job; without moves an
iteration took three times as long.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from adversaries.owners_model import OwnersWorld, step_by_foresight
from kale_live import end_at_sigterm

import hat
from apples import jobs, lab
from apples.agent.session.spec import RunSpec
from apples.errors import ApplesError
from apples.jobs.store import job as stored
from apples.jobs.store import read_events
from apples.lab.execution import entering, environment
from apples.lab.record import Lab
from apples.scheduling.payback import MigrationRule, SharedHost, SharedHosts

HERE = Path(__file__).resolve().parent
CPU, TASKS, WORK = 0.2, 24, 0.01
FORESIGHT = 60
SPEED_OF_TIME = 2
"""Seconds of a drawn world in one of ours: owners stay about a minute."""
COST = MigrationRule(shorter=0.0, horizon=FORESIGHT, base_seconds=1.0, move_seconds=0.5)
WAYS = ("never", "decider", "migrate", "oracle")
SPIN = ["/usr/bin/env", "python3", "-c", "while True: pass"]


class Owners:
    """Endless loops on the hosts of a lab, as many as are wanted."""

    def __init__(self, made: Lab) -> None:
        self._lab = made
        self._running: dict[str, list[subprocess.Popen[bytes]]] = {
            one.name: [] for one in made.machines
        }

    def set(self, loads: Sequence[float]) -> None:
        """Have so many on each host."""
        for (name, there), load in zip(self._running.items(), loads, strict=True):
            while len(there) > load:
                one = there.pop()
                one.kill()
                one.wait()
            while len(there) < load:
                words = entering(self._lab.machine(name), SPIN)
                there.append(subprocess.Popen(words, env=environment(self._lab)))


def one_run(
    made: Lab, folder: Path, used: int, way: str, loads: Sequence[Sequence[float]]
) -> dict[str, Any]:
    """Return what came of a job on so many hosts under owners whose loads are given by second."""
    names = [one.name for one in made.machines]
    owners = Owners(made)
    best = sorted(range(len(names)), key=lambda n: loads[0][n])
    (folder / "user.toml").write_text(
        f"[constraints]\nminimum_hosts = {used}\nmaximum_hosts = {used}\n"
    )
    blueprint = "never" if way == "oracle" else way
    spec = RunSpec(
        in_order(made.hosts, folder, [names[n] for n in best]), HERE / "loaded" / "template.toml",
        folder / "user.toml", {"iterations": "1000000", "work": str(WORK), "rows": str(TASKS)},
        f"{HERE}/loaded/blueprints.py:{blueprint}", "static", actuator="ssh", verify="none",
    )  # fmt: skip
    job = jobs.submit(spec).id
    try:
        while not (jobs.status(job).iteration or 0):
            time.sleep(0.2)
        owners.set(loads[0])
        time.sleep(12)  # the monitor has heard all hosts for a window
        began = time.time()
        refused = 0
        for second, wanted in enumerate(loads):
            owners.set(wanted)
            if way == "oracle":
                refused += not foreseen(job, names, loads[second : second + FORESIGHT])
            time.sleep(max(0.0, began + second + 1 - time.time()))
        ended = time.time()
    finally:
        owners.set([0] * len(names))
        jobs.cancel(job)
    events = read_events(stored(job).events)
    done = [one for one in events if one["event"] == "progress"]
    # Whoever carries out a move reads no progress meanwhile: by the program's clock, not by when it was read.
    late = min(one["at"] - one["seconds"] for one in done)
    inside = [one for one in done if began <= one["seconds"] + late <= ended]
    moved = [one for one in events if one["event"] == "moved" and began <= one["at"] <= ended]
    return {
        "way": way, "iterations": inside[-1]["iteration"] - inside[0]["iteration"], "moves": len(moved),
        "refused": refused, "seconds": len(loads), "load": round(os.getloadavg()[0], 1), "job": job,
        "track": [[round(one["seconds"] + late - began, 2), one["iteration"]] for one in inside],
        "moved": [[round(one["at"] - began, 2), one["seconds"], one["hosts"]] for one in moved],
        "reasons": [one["explanation"] for one in events if one["event"] == "decision"],
    }  # fmt: skip


def in_order(hosts: Path, folder: Path, names: Sequence[str]) -> Path:
    """Return a host list with its hosts in this order."""
    content = tomllib.loads(hosts.read_text())
    content["host"].sort(key=lambda one: names.index(one["name"]))
    place = folder / "hosts.toml"
    place.write_text(hat.dump(content))
    return place


def foreseen(job: str, names: Sequence[str], loads: Sequence[Sequence[float]]) -> bool:
    """Take the step after which the job is furthest in a minute; say whether it was carried out, or none is."""
    status = jobs.status(job)
    if not status.hosts:
        return True
    hosts = [SharedHost(name, CPU, room=1) for name in names]
    work = tuple(float(rows) * WORK for rows in status.rows)
    coming = [
        SharedHosts(
            tuple(
                SharedHost(h.name, h.speed, others=o, room=1)
                for h, o in zip(hosts, now, strict=True)
            ),
            work,
        )
        for now in loads
    ]
    at = [names.index(host) for host in status.hosts]
    steps = step_by_foresight(coming, at, COST)
    try:
        for task, target in steps:
            jobs.migrate(job, status.hosts[task], names[target])
    except ApplesError as error:
        print(f"oracle: {error}", file=sys.stderr, flush=True)
        return False
    return True


def drawn(seed: int, hosts: int, seconds: int, *, changes: bool = True) -> list[tuple[float, ...]]:
    """Return the loads of owners, by second."""
    world = OwnersWorld.drawn(
        seed, hosts=hosts, tasks=TASKS, seconds=seconds * SPEED_OF_TIME, changes=changes
    )
    return list(world.others[::SPEED_OF_TIME])


def main() -> int:
    """Make the lab, run, print the ratios."""
    end_at_sigterm()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--hosts", type=int, default=12)
    parser.add_argument("--used", type=int, default=6)
    parser.add_argument("--calm", type=int, default=0)
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--summary", type=Path, help="print the summary of a file of --keep")
    asked = parser.parse_args()
    if asked.summary is not None:
        runs = [json.loads(line) for line in asked.summary.read_text().splitlines()]
        summary(runs)
        return 0
    runs = []
    with tempfile.TemporaryDirectory(prefix="o-", dir="/tmp") as name:
        folder = Path(name)
        os.environ["XDG_STATE_HOME"] = str(folder / "state")
        hosts = "".join(f'[[host]]\nname = "h{n}"\ncpu = {CPU}\n' for n in range(asked.hosts))
        (folder / "lab.toml").write_text(f'name = "owners"\n{hosts}')
        made = lab.up(folder / "lab.toml")
        try:
            for number in range(asked.calm):
                loads = drawn(number, asked.hosts, 40, changes=False)
                runs.append(
                    {"seed": number, "calm": True}
                    | one_run(made, folder, asked.used, "migrate", loads)
                )
                told(runs[-1], asked.keep)
            for seed in range(asked.first, asked.first + asked.seeds):
                loads = drawn(seed, asked.hosts, asked.seconds)
                for way in asked.ways.split(","):
                    runs.append(
                        {"seed": seed, "calm": False}
                        | one_run(made, folder, asked.used, way, loads)
                    )
                    told(runs[-1], asked.keep)
        finally:
            lab.down(lab.labs() / made.name)
    summary(runs)
    return 0


def told(run: dict[str, Any], keep: Path | None) -> None:
    """Print a run, and keep all that is known of it."""
    few = {k: v for k, v in run.items() if k not in {"track", "moved", "reasons"}}
    print(json.dumps(few), flush=True)
    if keep is not None:
        with keep.open("a") as file:
            file.write(json.dumps(run) + "\n")


def summary(runs: Sequence[dict[str, Any]]) -> None:
    """Print the means of the seeds, as parts of the oracle's, and how often calm runs moved."""
    calm = [one["moves"] for one in runs if one["calm"]]
    if calm:
        print(f"constant load: {sum(calm)} moves in {len(calm)} runs")
    by_seed = {(one["seed"], one["way"]): one for one in runs if not one["calm"]}
    for way in WAYS:
        mine = {seed: one for (seed, name), one in by_seed.items() if name == way}
        parts = [
            one["iterations"] / by_seed[seed, "oracle"]["iterations"]
            for seed, one in mine.items()
            if (seed, "oracle") in by_seed
        ]
        if parts:
            moves = statistics.fmean(one["moves"] for one in mine.values())
            each = ", ".join(f"{part:.2f}" for part in parts)
            print(
                f"{way:8} {statistics.fmean(parts):.2f} of the oracle ({each}), {moves:.1f} moves"
            )


if __name__ == "__main__":
    sys.exit(main())
