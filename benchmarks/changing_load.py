"""What the paper lacks: load that comes and goes, and a plan by forecast against one by the last value.

Run as root: python benchmarks/changing_load.py [--quick] [--first]; about 12 minutes. Two of four hosts
have spells of load (benchmarks/figures/load.toml). In each round the sensors are asked once; both plans come
from what is remembered by then: one from the forecasts, one as if the newest measurement were the future.
Writes runs/figures/changing_load.{json,svg}.
"""

import time
from dataclasses import replace
from statistics import median

from figures.world import options, prediction_errors, say, verdict, world, write

from apples.weather import history
from blueprints import minimum_execution_time

SIZES, QUICK = (5000,), (4000,)
ROUNDS, QUICK_ROUNDS = 12, 2
FORECAST, LAST = "forecast", "last value"


def by_last_value(pool):
    """Return the pool under a sky where every host goes on as it was last measured."""
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
    sky = replace(
        weather,
        cpu=as_last("availableCpu", weather.cpu),
        competitors=as_last("competitors", weather.competitors),
    )
    return replace(pool, conditions=replace(pool.conditions, weather=sky))


def main():
    asked = options(__doc__.splitlines()[0], SIZES, QUICK)
    (size,) = asked.sizes
    rounds = QUICK_ROUNDS if asked.quick else ROUNDS
    with world("load", asked) as here:
        for _ in range(1 if asked.quick else 4):
            sky = here.sky(size)  # a forecast needs a past
        here.run(sky, here.choose(sky, minimum_execution_time), "first acquaintance")
        here.records.clear()
        for number in range(rounds):
            sky = here.sky(size)
            pools = [(FORECAST, sky), (LAST, by_last_value(sky))]
            for name, pool in pools if number % 2 else pools[::-1]:
                chosen = here.choose(pool, minimum_execution_time)
                if isinstance(chosen, str):
                    say(f"  {name}: {chosen}")
                    continue
                here.run(pool, chosen, name, learn=False, round=number)
            time.sleep(3.0)  # the spells of load shall not keep step with the rounds
        records = here.records
    times = {
        n: {r["round"]: r["measured"] for r in records if r["method"] == n}
        for n in (FORECAST, LAST)
    }
    both = sorted(set(times[FORECAST]) & set(times[LAST]))
    print(f"{'round':>6}{'forecast':>14}{'last value':>14}")
    for number in both:
        row = (times[FORECAST][number], times[LAST][number])
        print(f"{number:6}" + "".join(f"{value * 1e3:11.1f} ms" for value in row))
    ratio = median(times[FORECAST][k] / times[LAST][k] for k in both)
    errors = {
        n: prediction_errors([r for r in records if r["method"] == n]) for n in (FORECAST, LAST)
    }
    print(f"median of forecast over last value: {ratio:.3f}")
    for name, (typical, bad) in errors.items():
        print(f"prediction by {name}: {typical:.1%} median error, {bad:.1%} at 95 %")
    curves = {n: (both, [times[n][k] * 1e3 for k in both]) for n in (FORECAST, LAST)}
    document = {"records": records, "ratio": ratio, "errors": errors}
    write(asked, "changing_load", document, "round", "ms an iteration", curves)
    better = errors[FORECAST][0] <= errors[LAST][0]
    verdict(
        asked,
        ("forecast over last value, time", f"{ratio:.2f}", "<= 1.02", ratio <= 1.02),
        ("the forecast predicts no worse", str(better), "True", better),
    )


if __name__ == "__main__":
    main()
