"""Figure 7 of the paper: predicted against measured over sizes; the link between the sites collapses half-way.

Run as root: python benchmarks/figure7.py [--quick] [--first]; about 25 minutes. Blocked and run-time
AppLeS over the sizes, interleaved; at the middle size the link between the sites falls to 0.5 MB/s, as when
the paper's gateway went down, and comes back after it. Writes runs/figures/figure7.{json,svg}.
"""

from statistics import median

from figures.world import medians, options, prediction_errors, say, verdict, world, write

from apples.lab import shape
from blueprints import blocked, minimum_execution_time

METHODS = {"blocked": blocked, "run-time AppLeS": minimum_execution_time}
SIZES, QUICK = (3600, 4200, 4800, 5400, 6000, 6600, 7200), (3600, 5400, 7200)
COLLAPSE, WHOLE, COLLAPSED = 5400, 20e6, 5e5


def measure(here, asked):
    """Return what the weather said of the link at every size, by repeat."""
    seen = []
    for name, blueprint in METHODS.items():
        sky = here.sky(asked.sizes[-1])
        chosen = here.choose(sky, blueprint)
        here.run(sky, chosen, f"first acquaintance, {name}")
    here.records.clear()
    for repeat in range(asked.repeats):
        for size in asked.sizes:
            collapsed = size == COLLAPSE
            if collapsed:
                shape(here.lab, "east", COLLAPSED)
            sky = here.sky(size)
            hosts = sky.hosts
            link = sky.conditions.link(hosts["east1"], hosts["west1"]).link
            say(
                f"  link of the sites: {link.bandwidth / 1e6:.2f} MB/s, {link.latency * 1e3:.2f} ms"
            )
            seen.append({"grid": size, "repeat": repeat, "bandwidth": link.bandwidth})
            order = list(METHODS.items())
            for name, blueprint in order if repeat % 2 else order[::-1]:
                chosen = here.choose(sky, blueprint)
                if isinstance(chosen, str):
                    say(f"  {name}: {chosen}")
                    continue
                # What a link of a fortieth teaches does not hold for the whole one.
                here.run(
                    sky, chosen, name, learn=not collapsed, repeat=repeat, collapsed=collapsed
                )
            if collapsed:
                shape(here.lab, "east", WHOLE)
    return seen


def main():
    asked = options(__doc__.splitlines()[0], SIZES, QUICK)
    with world("figure7", asked) as here:
        links = measure(here, asked)
        records = here.records
    table = medians(records, "method", "grid")
    predicted = {
        size: median(r["predicted"] for r in records
                     if r["grid"] == size and r["method"] == "run-time AppLeS")
        for size in asked.sizes
    }  # fmt: skip
    print(f"{'size':>6}{'blocked':>14}{'AppLeS':>14}{'predicted':>14}")
    for size in asked.sizes:
        row = (table["blocked", size], table["run-time AppLeS", size], predicted[size])
        print(f"{size:6}" + "".join(f"{value * 1e3:11.1f} ms" for value in row))
    down = [link["bandwidth"] for link in links if link["grid"] == COLLAPSE]
    crossing = [
        r for r in records
        if r["collapsed"] and r["method"] == "run-time AppLeS" and len({h[:4] for h in r["hosts"]}) > 1
    ]  # fmt: skip
    typical, bad = prediction_errors(records)
    mine = prediction_errors([r for r in records if r["method"] == "run-time AppLeS"])
    curves = {name: (asked.sizes, [table[name, s] * 1e3 for s in asked.sizes]) for name in METHODS}
    curves["AppLeS, predicted"] = (asked.sizes, [predicted[s] * 1e3 for s in asked.sizes])
    write(
        asked, "figure7", {"records": records, "links": links}, "grid", "ms an iteration", curves
    )
    print(
        f"{len(records)} runs; of run-time AppLeS alone: {mine[0]:.1%} median, {mine[1]:.1%} at 95 %"
    )
    verdict(
        asked,
        ("runs", str(len(records)), ">= 40", len(records) >= 40),
        ("collapse seen by the sensors, MB/s", f"{max(down) / 1e6:.2f}", "<= 1", max(down) <= 1e6),
        ("plans across the dead link", str(len(crossing)), "0", not crossing),
        ("prediction, median error", f"{typical:.1%}", "<= 10 %", typical <= 0.10),
        ("prediction, 95th percentile", f"{bad:.1%}", "<= 25 %", bad <= 0.25),
    )


if __name__ == "__main__":
    main()
