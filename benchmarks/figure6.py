"""Figure 6 of Berman et al. 1996: five methods on eight hosts of two sites, at several grid sizes.

Needs root; about 20 minutes. All methods plan from one snapshot of the weather for each size and repeat, and
run back to back in rotating order. "Square blocks" is the paper's compile-time blocked decomposition.
"""

from benchmarks.common import Row
from benchmarks.labs.world import HERE, OURS, log, prediction_rows, world
from blueprints import all_resources, blocked, compile_time, minimum_execution_time, square_blocks

EQUAL, SQUARE, NO_SELECTION = "equal strips", "square blocks", "no selection"
METHODS = {
    EQUAL: blocked,
    SQUARE: square_blocks,
    "compile-time AppLeS": compile_time,
    NO_SELECTION: all_resources,
    OURS: minimum_execution_time,
}


def measure(settings):
    """Compare the five methods."""
    sizes = settings.pick((3000, 3800, 4600, 6000), (3000, 4600))
    with world(HERE / "figure6.toml", sizes, settings) as here:
        infeasible = run_methods(here)
    times = {name: here.times(name) for name in METHODS}
    here.draw("figure6", "grid", times)
    settings.raw["infeasible"] = infeasible
    ours = times[OURS]
    for other, paper in (
        (NO_SELECTION, "25 to 50 %"),
        (EQUAL, ""),
        (SQUARE, "larger"),
    ):
        for size in sizes:
            if size in times[other]:
                yield Row(
                    f"{other}, {size}", f"Figure 6: saved against {other}, {size}",
                    100 * (1 - ours[size] / times[other][size]), "%",
                    at_least=25 if other == NO_SELECTION and size == min(times[other]) else None, paper=paper,
                )  # fmt: skip
    others = {
        size: min(t[size] for name, t in times.items() if size in t and name != OURS)
        for size in ours
    }
    worst = 100 * (max(ours[size] / others[size] for size in ours) - 1)
    yield Row("worst", "Figure 6: above the best other method, worst size", worst, "%", at_most=5)
    yield from prediction_rows(here.records)


def run_methods(here):
    """Return the reason of each run without a plan, by method, size and repeat."""
    infeasible = {}
    here.warm_up((blocked, minimum_execution_time))
    for repeat in range(here.repeats):
        for size in here.sizes:
            pool = here.measure_weather(size)
            names = list(METHODS)
            turn = repeat % len(names)
            for name in names[turn:] + names[:turn]:
                estimate = here.choose(pool, METHODS[name])
                if isinstance(estimate, str):
                    log(f"  {name:24} {size:6} no plan: {estimate[:120]}")
                    infeasible[f"{name}/{size}/{repeat}"] = estimate
                else:
                    here.run(pool, estimate, name, repeat=repeat)
    return infeasible


PARTS = {"": measure}
