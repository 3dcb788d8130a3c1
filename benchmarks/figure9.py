"""Figure 9 of the paper: two fast hosts with little memory, a pool behind a slow link; sizes past their memory.

Run as root: python benchmarks/figure9.py [--quick] [--first]; about 15 minutes. Equal strips on the two
fast hosts against run-time AppLeS on all. Where equal strips do not fit, the paper's nodes paged; these have
no swap, so the memory filter refuses them and nothing is run. Writes runs/figures/figure9.{json,svg}.
"""

from itertools import pairwise

from figures.world import medians, options, prediction_errors, say, verdict, world, write

from apples import equal_strips
from blueprints import minimum_execution_time

SIZES, QUICK = (4200, 4800, 5400, 6000, 6600, 7200), (4200, 6000, 7200)
OURS, PAIR = "run-time AppLeS", "equal strips on the two fast hosts"


def equal_on_the_pair(coordinator):
    """Give the two fast hosts half each."""
    listed = coordinator.select_resources("listed")
    hosts = tuple(h for hosts in listed for h in hosts if h.site == "pair")
    schedule = coordinator.plan(hosts, planner=equal_strips)
    kept = [coordinator.estimate(schedule)] if coordinator.is_feasible(schedule) else []
    return coordinator.actuate(coordinator.best(kept))


def measure(here, asked):
    """Return why equal strips had no plan, by run, and what the kernel killed or swapped for want of memory."""
    refused, before = {}, here.spilled()
    sky = here.sky(asked.sizes[-1])
    here.run(sky, here.choose(sky, minimum_execution_time), "first acquaintance")
    here.records.clear()
    for repeat in range(asked.repeats):
        for size in asked.sizes:
            sky = here.sky(size)
            for name, blueprint in ((PAIR, equal_on_the_pair), (OURS, minimum_execution_time)):
                chosen = here.choose(sky, blueprint)
                if isinstance(chosen, str):
                    say(f"  {name} {size}: {chosen[:120]}")
                    refused[f"{name}/{size}/{repeat}"] = chosen
                    continue
                here.run(sky, chosen, name, repeat=repeat)
    return refused, {host: now for host, now in here.spilled().items() if now != before[host]}


def main():
    asked = options(__doc__.splitlines()[0], SIZES, QUICK)
    with world("figure9", asked) as here:
        refused, spilled = measure(here, asked)
        records = here.records
    table = medians(records, "method", "grid")
    names = (PAIR, OURS)
    print(f"{'size':>6}{'equal, pair':>16}{'AppLeS':>16}   hosts of AppLeS")
    for size in asked.sizes:
        used = {" ".join(r["hosts"]) for r in records if r["grid"] == size and r["method"] == OURS}
        cells = [table.get((name, size)) for name in names]
        shown = "".join(f"{c * 1e3:13.1f} ms" if c else f"{'no plan':>16}" for c in cells)
        print(f"{size:6}{shown}   {' | '.join(sorted(used))}")
    # Where more memory is found elsewhere the time per point rises with the slower hosts, without a jump:
    # a spilled strip takes a hundred times longer.
    per_point = [table[OURS, size] / size**2 for size in asked.sizes]
    jump = max(b / a for a, b in pairwise(per_point))
    typical, bad = prediction_errors(records)
    curves = {
        name: ([s for s in asked.sizes if (name, s) in table],
               [table[name, s] * 1e3 for s in asked.sizes if (name, s) in table])
        for name in names
    }  # fmt: skip
    document = {"records": records, "refused": refused, "spilled": spilled, "jump": jump}
    write(asked, "figure9", document, "grid", "ms an iteration", curves)
    verdict(
        asked,
        ("hosts where the kernel killed or swapped", str(len(spilled)), "0", not spilled),
        ("equal strips refused past the knee", str(bool(refused)), "True", bool(refused)),
        ("every size has a plan of ours", str(len(per_point)), str(len(asked.sizes)), True),
        ("largest step of time per point", f"x{jump:.2f}", "<= x2", jump <= 2.0),
        ("prediction, median error", f"{typical:.1%}", "<= 10 %", typical <= 0.10),
        ("prediction, 95th percentile", f"{bad:.1%}", "<= 25 %", bad <= 0.25),
    )


if __name__ == "__main__":
    main()
