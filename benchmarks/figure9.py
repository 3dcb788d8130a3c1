"""Figure 9 of Berman et al. 1996: two fast hosts with little memory, and slow hosts behind a slow link.

Needs root; about 15 minutes. Equal strips on the two fast hosts against run-time AppLeS on all. The paper's
nodes paged when equal strips outgrew them. The lab has no swap, so the memory filter finds no such plan.
"""

from itertools import pairwise

from apples import equal_strips
from benchmarks.common import Row
from benchmarks.labs.world import HERE, OURS, log, prediction_rows, world
from blueprints import minimum_execution_time

PAIR = "equal strips on the two fast hosts"


def equal_on_the_pair(coordinator):
    """Give the two fast hosts half each."""
    listed = coordinator.select_resources("listed")
    hosts = tuple(h for hosts in listed for h in hosts if h.site == "pair")
    schedule = coordinator.plan(hosts, planner=equal_strips)
    kept = [coordinator.estimate(schedule)] if coordinator.is_feasible(schedule) else []
    return coordinator.actuate(coordinator.best(kept))


def measure(settings):
    """Compare the pair with all hosts."""
    sizes = settings.pick((4200, 4800, 5400, 6000, 6600, 7200), (4200, 6000, 7200))
    with world(HERE / "figure9.toml", sizes, settings) as here:
        before = here.swapped()
        here.warm_up((minimum_execution_time,))
        infeasible = run_sizes(here)
        swapped = sum(now != before[host] for host, now in here.swapped().items())
    ours = here.times(OURS)
    here.draw("figure9", "grid", {PAIR: here.times(PAIR), OURS: ours})
    settings.raw["infeasible"] = infeasible
    refused = {int(key.split("/")[1]) for key in infeasible if key.startswith(PAIR)}
    # With memory from slower hosts the time a point rises slowly; a strip in swap takes a hundred times as long.
    per_point = [ours[size] / size**2 for size in sizes if size in ours]
    jump = max(b / a for a, b in pairwise(per_point))
    yield Row(
        "refused", "Figure 9: sizes without a plan of equal strips", len(refused),
        at_least=1, paper="they page",
    )  # fmt: skip
    yield Row("plans", "Figure 9: sizes with a plan of ours", len(ours), at_least=len(sizes))
    yield Row(
        "jump", "Figure 9: largest rise of time a point", jump, "x",
        at_most=2, paper="smooth",
    )  # fmt: skip
    yield Row("swapped", "hosts where the kernel swapped or killed", swapped, at_most=0)
    yield from prediction_rows(here.records)


def run_sizes(here):
    """Return the reason of each run without a plan, by method, size and repeat."""
    infeasible = {}
    for repeat in range(here.repeats):
        for size in here.sizes:
            pool = here.measure_weather(size)
            for name, blueprint in ((PAIR, equal_on_the_pair), (OURS, minimum_execution_time)):
                estimate = here.choose(pool, blueprint)
                if isinstance(estimate, str):
                    log(f"  {name} {size}: {estimate[:120]}")
                    infeasible[f"{name}/{size}/{repeat}"] = estimate
                else:
                    here.run(pool, estimate, name, repeat=repeat)
    return infeasible


PARTS = {"": measure}
