"""Figure 7 of Berman et al. 1996: predicted and measured time by grid size, while a link between sites fails.

Needs root; about 25 minutes. Equal strips and run-time AppLeS run in turn at each size. At the middle size the
link falls to 0.5 MB/s, as when the paper's gateway failed, and recovers after it.
"""

from apples.lab import shape
from benchmarks.common import Row
from benchmarks.labs.world import HERE, OURS, log, prediction_rows, world
from blueprints import blocked, minimum_execution_time

EQUAL = "equal strips"
METHODS = {EQUAL: blocked, OURS: minimum_execution_time}
COLLAPSE, WHOLE, COLLAPSED = 5400, 20e6, 5e5


def measure(settings):
    """Compare equal strips and run-time AppLeS."""
    sizes = settings.pick((3600, 4200, 4800, 5400, 6000, 6600, 7200), (3600, 5400, 7200))
    with world(HERE / "figure7.toml", sizes, settings) as here:
        links = run_sizes(here)
    times = {name: here.times(name) for name in METHODS}
    here.draw("figure7", "grid", times)
    settings.raw["links"] = links
    saved = [100 * (1 - times[OURS][size] / times[EQUAL][size]) for size in sizes]
    spike = times[EQUAL][COLLAPSE] / times[OURS][COLLAPSE]
    crossing = sum(
        len({host[:4] for host in run["hosts"]}) > 1
        for run in here.records if run["collapsed"] and run["method"] == OURS
    )  # fmt: skip
    seen = max(link["bandwidth"] for link in links if link["grid"] == COLLAPSE) / 1e6
    yield from prediction_rows(here.records)
    yield Row("saved", "Figure 7: saved against equal strips, least size", min(saved), "%")
    yield Row(
        "spike", "Figure 7: equal strips over ours, failed link", spike,
        paper="a spike",
    )  # fmt: skip
    yield Row(
        "crossing", "Figure 7: plans across the failed link", crossing, at_most=0, paper="avoided"
    )
    yield Row("seen", "bandwidth of the failed link, by the sensors", seen, "MB/s", at_most=1)


def run_sizes(here):
    """Return the measured bandwidth between the sites at every size, by repeat."""
    links = []
    here.warm_up(METHODS.values())
    for repeat in range(here.repeats):
        for size in here.sizes:
            collapsed = size == COLLAPSE
            if collapsed:
                shape(here.lab, "east", COLLAPSED)
            pool = here.measure_weather(size)
            hosts = pool.hosts
            link = pool.conditions.link(hosts["east1"], hosts["west1"]).link
            links.append({"grid": size, "repeat": repeat, "bandwidth": link.bandwidth})
            order = list(METHODS.items())
            for name, blueprint in order if repeat % 2 else order[::-1]:
                estimate = here.choose(pool, blueprint)
                if isinstance(estimate, str):
                    log(f"  {name}: {estimate}")
                    continue
                # Corrections of the failed link do not hold for the whole one.
                here.run(pool, estimate, name, not collapsed, repeat=repeat, collapsed=collapsed)
            if collapsed:
                shape(here.lab, "east", WHOLE)
    return links


PARTS = {"": measure}
