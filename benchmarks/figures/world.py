"""What the figures share: a lab up and down, plans under one sky, runs of ten seconds, medians, files.

Every program plans and runs through the same parts as `apples run --actuator ssh`: sensors over ssh, the
calibrated model, what runs taught. The result is not sent to the first rank (`digest=0`): over slow links it
takes longer than the run. With ``--first`` the lab's processes run before all others of a busy
machine: a CPU quota means nothing where others take the CPU. Caches and memory are shared all the same.
The machine beneath the lab is itself not always equally fast (`figures.machine`): predictions are for its
speed before the run, and a run in which it changed is repeated.
"""

import argparse
import fcntl
import json
import math
import os
import signal
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median

from figures.machine import Machine

from apples import Coordinator, lab
from apples.agent import check, launch_plan, load_information, recall, refusal, remember
from apples.agent.models.rectangle import contacts
from apples.lab import execution as commands
from apples.launch import RecordingActuator, SshActuator, example_folder
from apples.resources.schedule import NoFeasiblePlanError
from apples.simulation.pages.charts import ChartSeries, lines, picture
from apples.weather import SensingContext

HERE = Path(__file__).parent
LEAST_SECONDS = 10.0
AIM = 1.2
"""Runs are planned so many times longer than they must be at least."""
STEADY = 0.07
"""A run in which the machine's speed changed by more tells nothing and is repeated."""
MOST_TRIES = 4
ACQUAINTANCE = "first acquaintance"
"""A run that begins so teaches whatever the machine does: without it the model knows nothing of borders."""


def options(summary, sizes, quick_sizes, **flags):
    """Return what the user wants: sizes, repeats, seconds a run, where to write; `flags` are more, with help."""
    parser = argparse.ArgumentParser(description=summary)
    parser.add_argument("--quick", action="store_true", help="a try: few, short runs; no verdict")
    parser.add_argument("--repeats", type=int, default=0)
    parser.add_argument("--first", action="store_true", help="the lab has the CPU before others")
    parser.add_argument("--lock", type=Path, help="held during each run: measurers take turns")
    parser.add_argument("--out", type=Path, default=Path("runs/figures"))
    for name, words in flags.items():
        parser.add_argument(f"--{name.replace('_', '-')}", action="store_true", help=words)
    asked = parser.parse_args()
    asked.sizes = quick_sizes if asked.quick else sizes
    asked.repeats = asked.repeats or (1 if asked.quick else 3)
    asked.seconds = 2.0 if asked.quick else LEAST_SECONDS
    asked.out.mkdir(parents=True, exist_ok=True)
    return asked


@contextmanager
def world(name, asked):
    """Yield the world of a lab file, up while inside; what is learned in it is forgotten with it."""
    with tempfile.TemporaryDirectory(prefix="figure-") as folder:
        before = dict(os.environ)
        os.environ |= {"XDG_STATE_HOME": folder, "UCX_TLS": "tcp,self"}
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # a lab goes with its program
        made = lab.up(HERE / f"{name}.toml", talk=say)
        try:
            if asked.first:
                put_first(made)
            yield World(made, asked)
        finally:
            lab.down(Path(made.folder))
            os.environ.clear()
            os.environ.update(before)


def put_first(made):
    """Give the lab's cgroup the largest weight there is; it goes with the group."""
    files = {Path(file).parents[1] for machine in made.machines for file in machine.cgroups}
    for folder in files:
        for name, most in (("cpu.shares", "262144"), ("cpu.weight", "10000")):
            if (folder / name).exists():
                (folder / name).write_text(most)


class World:
    """One lab, and the application in it."""

    def __init__(self, made, asked):
        self.lab, self.asked = made, asked
        folder = example_folder()
        self.files = (made.hosts, folder / "template.toml", folder / "user.toml")
        self.records = []
        self.machine = Machine(self.files, max(asked.sizes), say)

    def sky(self, grid, weather="live"):
        """Return the pool at this moment: sensors asked, what was learned remembered."""
        begun = time.monotonic()
        for _ in range(MOST_TRIES):  # with a tenth of a CPU a host may be too late to be used
            pool = load_information(
                *self.files,
                settings={"grid": grid, "iterations": 1, "digest": 0},
                weather=weather,
                sensing=SensingContext(log=say),
            )
            if not any(refusal(pool, host) for host in pool.hosts):
                break
        say(f"  sky of {time.strftime('%X')} in {time.monotonic() - begun:.1f} s")
        return pool

    def now(self, pool):
        """Return a sky's pool with what runs taught since, at the machine's speed of this moment."""
        learned = recall(pool.learned_key)
        return replace(pool, learned=learned).with_what_if(
            slowdown=self._drifted(self.machine.drift)
        )

    def _drifted(self, drift):
        return {machine.name: drift for machine in self.lab.machines}

    def choose(self, pool, blueprint):
        """Return what a method chooses, or the reason why it has no plan."""
        coordinator = Coordinator(self.now(pool), RecordingActuator())
        try:
            coordinator.execute(blueprint)
        except NoFeasiblePlanError as error:
            return str(error)
        return coordinator.decision_log.chosen

    def run(self, pool, chosen, method, learn=True, **more):
        """Run a choice for at least as long as asked; record predicted and measured, and learn."""
        iterations, given_up = self.asked.seconds * AIM / chosen.iteration_seconds, []
        for left in reversed(range(MOST_TRIES)):
            with self._turn():
                before = self.machine.look()
                known, most = self.now(pool), max(2, math.ceil(iterations))
                result, record = self._run(known, chosen, method, most, more)
                after = self.machine.look()
            short = record["seconds"] < self.asked.seconds
            restless = abs(after / before - 1) > STEADY
            record |= {"machine": [before, after], "short": short, "restless": restless}
            if not left or self.asked.quick or not (short or restless):
                break
            say(
                f"  {record['seconds']:.1f} s, the machine from {before:.2f} to {after:.2f}: again"
            )
            given_up.append(record)
            iterations = self.asked.seconds * AIM / record["measured"]
        record["given_up"] = given_up
        self.records.append(record)
        if learn and (not restless or method.startswith(ACQUAINTANCE)):
            # What a run teaches is of the speed while it ran, as far as anybody knows that.
            remember(result, known.with_what_if(slowdown=self._drifted((before + after) / 2)))
        return record

    def _run(self, pool, chosen, method, iterations, more):
        parameters = {"grid": pool.application.rows, "iterations": iterations, "digest": 0}
        pool = replace(pool, application=pool.template.bind(parameters))
        coordinator = Coordinator(pool, SshActuator(talk=say))
        estimate = coordinator.best([coordinator.estimate(chosen.schedule)])
        before, load = self.crossed(), os.getloadavg()[0]
        outcome = coordinator.actuator.actuate(launch_plan(estimate.schedule, pool)).outcome()
        record = {
            "method": method,
            "grid": pool.application.rows,
            "hosts": list(estimate.names),
            "rows": [int(one.height) for one in estimate.schedule.allocations],
            "iterations": outcome.iterations,
            "predicted": estimate.iteration_seconds,
            "measured": outcome.iteration_seconds,
            "seconds": outcome.seconds,
            "startup_seconds": outcome.startup_seconds,
            "crossed_bytes": self.crossed() - before,
            "load_average": load,
            "time": time.time(),
            **more,
        }
        say(
            f"  {method:24} {record['grid']:6} {' '.join(record['hosts']):40} "
            f"predicted {record['predicted'] * 1e3:7.2f} measured {record['measured'] * 1e3:7.2f} ms"
            f"  {record['seconds']:5.1f} s  load {load:.1f}"
        )
        self._assert_the_links_were_used(record, estimate)
        return check(estimate, outcome), record

    @contextmanager
    def _turn(self):
        """Hold the lock that other measuring programs of this machine wait for."""
        if self.asked.lock is None:
            yield
            return
        with self.asked.lock.open("a") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            yield

    def crossed(self):
        """Return the bytes that went through the shaped links of sites so far."""
        text = commands.in_network(self.lab.switch.pid, ["tc", "-s", "-j", "qdisc", "show"], "")
        shaped = [q for q in json.loads(text) if q["kind"] == "tbf" and q["dev"].startswith("up")]
        return sum(q["bytes"] for q in shaped)

    def spilled(self):
        """Return how often the kernel killed for want of memory, and the bytes it swapped out, by limited host."""
        found = {}
        for machine in self.lab.machines:
            for folder in (Path(file).parent for file in machine.cgroups):
                texts = [folder / name for name in ("memory.oom_control", "memory.events")]
                words = dict(
                    line.split() for text in texts if text.exists() for line in text.open()
                )
                swap = [folder / "memory.swap.current"]
                stat = folder / "memory.stat"
                lines = dict(line.split() for line in stat.open()) if stat.exists() else {}
                swapped = int(lines.get("total_swap", 0))
                swapped += sum(int(one.read_text()) for one in swap if one.exists())
                if "oom_kill" in words:
                    found[machine.name] = (int(words["oom_kill"]), swapped)
        return found

    def _assert_the_links_were_used(self, record, estimate):
        """Refuse a run whose borders did not cross the emulated links: they went by shared memory."""
        sites = [host.site for host in estimate.schedule.resources]
        crossing = record["grid"] * sum(a != b for a, b in pairwise(sites))
        if tiles := estimate.schedule.rectangles:
            found = contacts(tiles)
            ends = zip(found.first, found.second, found.points, strict=True)
            crossing = sum(points for i, j, points in ends if sites[i] != sites[j])
        least = 0.9 * crossing * record["iterations"] * 8
        assert record["crossed_bytes"] >= least, (record, least)


def medians(records, *keys):
    """Return the median measured time by the values of some keys."""
    groups = {}
    for record in records:
        groups.setdefault(tuple(record[key] for key in keys), []).append(record["measured"])
    return {key: median(values) for key, values in groups.items()}


def prediction_errors(records):
    """Return median and 95th percentile of the relative error of the predicted iteration time."""
    errors = sorted(abs(r["predicted"] / r["measured"] - 1) for r in records)
    return median(errors), errors[min(len(errors) - 1, math.ceil(0.95 * len(errors)) - 1)]


def write(asked, name, document, x_name, y_name, curves):
    """Write the JSON and the plot of a figure; `curves` by name: (x, y)."""
    document = {"quick": asked.quick, "first": asked.first, **document}
    kept = [record for record in document["records"] if record["short"] or record["restless"]]
    tries = sum(len(record["given_up"]) for record in document["records"])
    print(f"{tries} tries were too short or restless and made again; {len(kept)} such runs remain")
    (asked.out / f"{name}.json").write_text(json.dumps(document, indent=1))
    series = [ChartSeries(label, x, y) for label, (x, y) in curves.items()]
    (asked.out / f"{name}.svg").write_text(picture(lines("chart", name, x_name, y_name, series)))
    print(f"written: {asked.out / name}.json, .svg")


def verdict(asked, *bars):
    """Print each bar (what, measured, demanded, whether it holds); exit 1 when one is missed."""
    missed = False
    for what, measured, demanded, holds in bars:
        print(f"{'ok  ' if holds else 'MISS'}  {what}: {measured} (demanded: {demanded})")
        missed |= not holds
    sys.exit(1 if missed and not asked.quick else 0)


def say(line):
    """Talk: what happens meanwhile."""
    print(line, file=sys.stderr, flush=True)
