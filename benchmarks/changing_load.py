"""Plans by forecast against plans by the last value, while load comes and goes.

Needs root; about 12 minutes. Two of four equal hosts have spells of load. In each round both plans use the same
history: one its forecasts, one its newest measurements.
"""

import random
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

from apples.weather import history
from benchmarks.common import Row
from benchmarks.labs.world import log, prediction_errors, world
from blueprints import minimum_execution_time

FORECAST, LAST = "forecast", "last value"
MINUTES = 25


def lab_file(folder):
    """Write the lab: four hosts, and spells of 2 to 9 seconds of load on two of them; return its path."""
    draw = random.Random(1996)
    lines = ['name = "load"']
    lines += [
        f'[[host]]\nname = "{name}"\ncpu = 0.4' for name in ("calm1", "calm2", "busy1", "busy2")
    ]
    for host in ("busy1", "busy2"):
        now = 0.0
        while (now := now + draw.uniform(2, 9)) < 60 * MINUTES:
            stop = now + draw.uniform(2, 9)
            spell = f'host = "{host}"\nprocesses = 1\nstart = {now:.1f}\nstop = {stop:.1f}'
            lines.append(f"[[load]]\n{spell}")
            now = stop
    path = Path(folder) / "load.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


def by_last_value(pool):
    """Return the pool with the last measured value of every host in place of its forecast."""
    newest = {
        (name.resource, name.host): values[-1].value
        for name, values in history.recall(pool.hosts).items()
        if values
    }

    def as_last(resource, forecasts):
        return {
            h: replace(f, value=newest.get((resource, h), f.value)) for h, f in forecasts.items()
        }

    weather = pool.conditions.weather
    last = replace(
        weather,
        cpu=as_last("availableCpu", weather.cpu),
        competitors=as_last("competitors", weather.competitors),
    )
    return replace(pool, conditions=replace(pool.conditions, weather=last))


def measure(settings):
    """Compare plans by forecast and by last value."""
    size = settings.pick(5000, 4000)
    with (
        tempfile.TemporaryDirectory() as folder,
        world(lab_file(folder), (size,), settings) as here,
    ):
        for _ in range(settings.pick(4, 1)):  # a forecast needs a history
            here.measure_weather(size)
        here.warm_up((minimum_execution_time,))
        for number in range(settings.pick(12, 2)):
            pool = here.measure_weather(size)
            pools = [(FORECAST, pool), (LAST, by_last_value(pool))]
            for name, known in pools if number % 2 else pools[::-1]:
                estimate = here.choose(known, minimum_execution_time)
                if isinstance(estimate, str):
                    log(f"  {name}: {estimate}")
                    continue
                here.run(known, estimate, name, False, round=number)
            time.sleep(3.0)  # so that rounds and spells of load do not keep step
    runs = {name: [r for r in here.records if r["method"] == name] for name in (FORECAST, LAST)}
    times = {name: {r["round"]: r["measured"] for r in some} for name, some in runs.items()}
    here.draw("changing_load", "round", times)
    both = sorted(set(times[FORECAST]) & set(times[LAST]))
    ratio = median(times[FORECAST][k] / times[LAST][k] for k in both)
    errors = {name: prediction_errors(some)[0] for name, some in runs.items()}
    yield Row(
        "time", "changing load: time by forecast over last value", ratio,
        at_most=1.02, paper="below 1",
    )  # fmt: skip
    yield Row(
        "prediction", "changing load: prediction error by forecast", errors[FORECAST], "%",
        at_most=errors[LAST], peer=f"{errors[LAST]:.3g} % by last value",
    )  # fmt: skip


PARTS = {"": measure}
