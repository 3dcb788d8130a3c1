"""The chosen set of hosts against every subset of five hosts, all measured.

Needs root; about 30 minutes. Each of the 31 subsets has balanced strips in its best order.
"""

from itertools import combinations, permutations

from benchmarks.common import Row
from benchmarks.labs.world import HERE, log, medians, prediction_rows, world
from blueprints import minimum_execution_time

CHOSEN = "chosen"


def only(names):
    """Return a blueprint that balances exactly these hosts, in their best order."""

    def blueprint(coordinator):
        listed = coordinator.select_resources("listed")
        hosts = tuple(h for hosts in listed for h in hosts if h.name in names)
        orders = [
            o for o in permutations(hosts) if o[0].name <= o[-1].name
        ]  # a chain read in one direction
        schedules = [coordinator.plan(order) for order in orders]
        whole = [s for s in schedules if len(s.resources) == len(hosts)]
        kept = [coordinator.estimate(s) for s in whole if coordinator.is_feasible(s)]
        return coordinator.actuate(coordinator.best(kept))

    return blueprint


def measure(settings):
    """Run the chosen set and every subset."""
    size = settings.pick(5000, 4000)
    with world(HERE / "subsets.toml", (size,), settings) as here:
        infeasible = run_subsets(here, size)
    subsets = [run for run in here.records if run["method"] != CHOSEN]
    times = {subset: seconds for (subset,), seconds in medians(subsets, "subset").items()}
    ranked = sorted(times, key=times.get)
    here.draw(
        "subsets",
        "subsets, fastest first",
        {"measured": dict(enumerate(times[s] for s in ranked))},
    )
    settings.raw["infeasible"], settings.raw["ranked"] = infeasible, ranked
    ours = medians([run for run in here.records if run["method"] == CHOSEN], "method")[CHOSEN,]
    yield Row(
        "chosen", f"chosen set above the best of {len(ranked)} subsets",
        100 * (ours / times[ranked[0]] - 1), "%", at_most=10, paper="the right resources",
    )  # fmt: skip
    yield from prediction_rows(here.records)


def run_subsets(here, size):
    """Return the reason of each subset without a plan."""
    hosts = [machine.name for machine in here.lab.machines]
    subsets = [s for k in range(1, len(hosts) + 1) for s in combinations(hosts, k)]
    subsets = subsets[:: here.settings.pick(1, 6)]
    here.warm_up((only(hosts), only(hosts[:3])))
    infeasible = {}
    for repeat in range(here.repeats):
        pool = here.measure_weather(size)
        best = here.choose(pool, minimum_execution_time)
        here.run(pool, best, CHOSEN, False, repeat=repeat, subset=" ".join(sorted(best.names)))
        for names in subsets:
            estimate = here.choose(pool, only(names))
            if isinstance(estimate, str) or len(estimate.names) < len(names):
                reason = (
                    estimate if isinstance(estimate, str) else "faster without one of its hosts"
                )
                log(f"  {' '.join(names)}: {reason[:110]}")
                infeasible[" ".join(names)] = reason
                continue
            here.run(
                pool, estimate, "subset", False, repeat=repeat, subset=" ".join(sorted(names))
            )
    return infeasible


PARTS = {"": measure}
