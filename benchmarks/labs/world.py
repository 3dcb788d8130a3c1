"""The parts that benchmarks in a lab share: the lab, plans from one snapshot of the weather, runs of ten seconds.

Plans and runs use the parts of `apples run --actuator ssh`: sensors over ssh, the calibrated model, the
corrections of earlier runs. The result is not sent to the first rank (`digest=0`): over slow links that takes
longer than the run. A prediction is for the machine's speed before the run. If the speed changes during a run,
the run is repeated.
"""

import json
import math
import os
import signal
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median

from apples import Coordinator, lab
from apples.agent import check, launch_plan, load_information, recall, refusal, remember
from apples.agent.models.rectangle import contacts
from apples.errors import ApplesError
from apples.lab import execution as commands
from apples.launch import RecordingActuator, SshActuator, example_folder
from apples.resources.schedule import NoFeasiblePlanError
from apples.simulation.pages.charts import ChartSeries, lines, picture
from apples.weather import SensingContext
from benchmarks.common import Row, Skipped, need_root
from benchmarks.labs.machine import Machine

HERE = Path(__file__).parent
OURS = "run-time AppLeS"
RUN_MARGIN = 1.2
"""Runs are planned to be longer than their minimum by this factor."""
MAX_DRIFT = 0.07
"""A run in which the machine's speed changed by more is repeated."""
MAX_TRIES = 4
FIRST_RUN = "first run"
"""Runs before the measurement: they teach the model the borders, at any speed of the machine."""


@contextmanager
def world(file, sizes, settings):
    """Yield the world of a lab file while the lab is up. Its corrections are forgotten afterwards.

    Raises
    ------
    Skipped
        A lab cannot be brought up here.
    """
    need_root()
    with tempfile.TemporaryDirectory(prefix="figure-") as folder:
        before = dict(os.environ)
        os.environ |= {"XDG_STATE_HOME": folder, "UCX_TLS": "tcp,self"}
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the lab ends with its program
        try:
            made = lab.up(file, talk=log)
        except ApplesError as error:
            raise Skipped(f"no lab: {error}") from error
        try:
            yield World(made, sizes, settings)
        finally:
            lab.down(Path(made.folder))
            os.environ.clear()
            os.environ.update(before)


class World:
    """One lab and the application in it.

    Attributes
    ----------
    records
        A table of predicted and measured times for each run.
    """

    def __init__(self, made, sizes, settings):
        self.lab, self.sizes, self.settings = made, sizes, settings
        self.seconds = settings.pick(10.0, 2.0)
        self.repeats = settings.pick(3, 1)
        folder = example_folder()
        self.files = (made.hosts, folder / "template.toml", folder / "user.toml")
        self.records = []
        self.machine = Machine(self.files, max(sizes), log)

    def measure_weather(self, grid):
        """Return the pool at this moment, from sensors and remembered corrections."""
        for _ in range(MAX_TRIES):  # a host with a tenth of a CPU can answer too late
            pool = load_information(
                *self.files,
                settings={"grid": grid, "iterations": 1, "digest": 0},
                weather="live",
                sensing=SensingContext(log=log),
            )
            if not any(refusal(pool, host) for host in pool.hosts):
                break
        return pool

    def warm_up(self, blueprints):
        """Run each blueprint once on the largest grid, so that the model learns the costs of the links."""
        for blueprint in blueprints:
            pool = self.measure_weather(self.sizes[-1])
            estimate = self.choose(pool, blueprint)
            if not isinstance(estimate, str):
                self.run(pool, estimate, FIRST_RUN)
        self.records.clear()

    def updated(self, pool):
        """Return a pool with the newest corrections, at the machine's present speed."""
        learned = recall(pool.learned_key)
        return replace(pool, learned=learned).with_what_if(
            slowdown=self._drifted(self.machine.drift)
        )

    def _drifted(self, drift):
        return {machine.name: drift for machine in self.lab.machines}

    def choose(self, pool, blueprint):
        """Return the estimate of a blueprint's plan, or the reason why it has no plan."""
        coordinator = Coordinator(self.updated(pool), RecordingActuator())
        try:
            coordinator.execute(blueprint)
        except NoFeasiblePlanError as error:
            return str(error)
        return coordinator.decision_log.chosen

    def run(self, pool, estimate, method, learn=True, **more):
        """Run a plan for at least the wanted seconds, record predicted and measured time, and learn."""
        iterations = self.seconds * RUN_MARGIN / estimate.iteration_seconds
        for repeated in range(MAX_TRIES):
            before = self.machine.measure()
            known, count = self.updated(pool), max(2, math.ceil(iterations))
            result, record = self._run(known, estimate, method, count, more)
            after = self.machine.measure()
            short = record["seconds"] < self.seconds
            drifted = abs(after / before - 1) > MAX_DRIFT
            record |= {
                "machine": [before, after],
                "short": short,
                "drifted": drifted,
                "repeated": repeated,
            }
            if repeated == MAX_TRIES - 1 or self.settings.quick or not (short or drifted):
                break
            log(f"  {record['seconds']:.1f} s, machine from {before:.2f} to {after:.2f}: repeated")
            iterations = self.seconds * RUN_MARGIN / record["measured"]
        self.records.append(record)
        if learn and (not drifted or method == FIRST_RUN):
            # The corrections are for the mean speed during the run.
            remember(result, known.with_what_if(slowdown=self._drifted((before + after) / 2)))
        return record

    def _run(self, pool, estimate, method, iterations, more):
        parameters = {"grid": pool.application.rows, "iterations": iterations, "digest": 0}
        pool = replace(pool, application=pool.template.bind(parameters))
        coordinator = Coordinator(pool, SshActuator(talk=log))
        estimate = coordinator.best([coordinator.estimate(estimate.schedule)])
        before = self.crossed_bytes()
        outcome = coordinator.actuator.actuate(launch_plan(estimate.schedule, pool)).outcome()
        record = {
            "method": method,
            "grid": pool.application.rows,
            "hosts": list(estimate.names),
            "rows": [int(part.height) for part in estimate.schedule.allocations],
            "iterations": outcome.iterations,
            "predicted": estimate.iteration_seconds,
            "measured": outcome.iteration_seconds,
            "seconds": outcome.seconds,
            "startup_seconds": outcome.startup_seconds,
            "crossed_bytes": self.crossed_bytes() - before,
            "load": os.getloadavg()[0],
            **more,
        }
        log(
            f"  {method:24} {record['grid']:6} {' '.join(record['hosts']):40} "
            f"predicted {record['predicted'] * 1e3:7.2f} measured {record['measured'] * 1e3:7.2f} ms"
        )
        self._check_links(record, estimate)
        return check(estimate, outcome), record

    def crossed_bytes(self):
        """Return the bytes that the shaped links between sites have carried."""
        text = commands.in_network(self.lab.switch.pid, ["tc", "-s", "-j", "qdisc", "show"], "")
        shaped = [q for q in json.loads(text) if q["kind"] == "tbf" and q["dev"].startswith("up")]
        return sum(q["bytes"] for q in shaped)

    def swapped(self):
        """Return the number of out-of-memory kills and the swapped bytes of each limited host."""
        hosts = {}
        for machine in self.lab.machines:
            for folder in (Path(file).parent for file in machine.cgroups):
                texts = [folder / name for name in ("memory.oom_control", "memory.events")]
                words = dict(
                    line.split() for text in texts if text.exists() for line in text.open()
                )
                swap = [folder / "memory.swap.current"]
                stat = folder / "memory.stat"
                values = dict(line.split() for line in stat.open()) if stat.exists() else {}
                count = int(values.get("total_swap", 0))
                count += sum(int(file.read_text()) for file in swap if file.exists())
                if "oom_kill" in words:
                    hosts[machine.name] = (int(words["oom_kill"]), count)
        return hosts

    def _check_links(self, record, estimate):
        """Reject a run if its borders used shared memory instead of the emulated links."""
        sites = [host.site for host in estimate.schedule.resources]
        crossing = record["grid"] * sum(a != b for a, b in pairwise(sites))
        if tiles := estimate.schedule.rectangles:
            borders = contacts(tiles)
            ends = zip(borders.first, borders.second, borders.points, strict=True)
            crossing = sum(points for i, j, points in ends if sites[i] != sites[j])
        expected = 0.9 * crossing * record["iterations"] * 8
        assert record["crossed_bytes"] >= expected, (record, expected)

    def times(self, method):
        """Return the median measured seconds of a method, by grid."""
        return {
            grid: t
            for (name, grid), t in medians(self.records, "method", "grid").items()
            if name == method
        }

    def draw(self, name, x_name, curves):
        """Keep the raw records and draw curves; `curves` by name: a table x -> seconds an iteration."""
        self.settings.raw["records"] = self.records
        series = [
            ChartSeries(label, list(curve), [1e3 * y for y in curve.values()])
            for label, curve in curves.items() if curve
        ]  # fmt: skip
        chart = picture(lines("chart", name, x_name, "ms an iteration", series))
        self.settings.pictures[name] = chart


def medians(records, *keys):
    """Return the median measured time by the values of some keys."""
    groups = {}
    for record in records:
        groups.setdefault(tuple(record[key] for key in keys), []).append(record["measured"])
    return {key: median(values) for key, values in groups.items()}


def prediction_errors(records):
    """Return the median and the 95th percentile of the error of the predicted iteration time, in per cent."""
    errors = sorted(100 * abs(r["predicted"] / r["measured"] - 1) for r in records)
    return median(errors), errors[min(len(errors) - 1, math.ceil(0.95 * len(errors)) - 1)]


def prediction_rows(records):
    """Yield the rows of the prediction error."""
    typical, bad = prediction_errors(records)
    yield Row(
        "prediction", f"prediction error of {len(records)} runs, median", typical, "%", at_most=10
    )
    yield Row("prediction, 95 %", "prediction error, 95th percentile", bad, "%", at_most=25)


def log(line):
    """Print progress on stderr."""
    print(line, file=sys.stderr, flush=True)
