"""What the paper lacks: the subset that is chosen, against every subset measured.

Run as root: python benchmarks/subsets.py [--quick] [--first]; about 30 minutes. Five hosts on two sites,
31 subsets; each is planned in its best order with balanced strips and run, three rounds over all of them.
Writes runs/figures/subsets.{json,svg}.
"""

from itertools import combinations, permutations

from figures.world import medians, options, prediction_errors, say, verdict, world, write

from blueprints import minimum_execution_time

SIZES, QUICK = (5000,), (4000,)
CHOSEN = "chosen"


def only(names):
    """Return a blueprint that balances exactly these hosts, in the order that suits them best."""

    def blueprint(coordinator):
        listed = coordinator.select_resources("listed")
        hosts = tuple(h for hosts in listed for h in hosts if h.name in names)
        orders = [o for o in permutations(hosts) if o[0].name <= o[-1].name]  # not both ways round
        schedules = [coordinator.plan(order) for order in orders]
        whole = [s for s in schedules if len(s.resources) == len(hosts)]
        kept = [coordinator.estimate(s) for s in whole if coordinator.is_feasible(s)]
        return coordinator.actuate(coordinator.best(kept))

    return blueprint


def measure(here, asked):
    """Return the subset chosen in each round, and the subsets that had no plan."""
    (size,) = asked.sizes
    hosts = [machine.name for machine in here.lab.machines]
    subsets = [s for k in range(1, len(hosts) + 1) for s in combinations(hosts, k)]
    if asked.quick:
        subsets = subsets[::6]
    for names in (hosts, hosts[:3]):
        sky = here.sky(size)
        here.run(sky, here.choose(sky, only(names)), "first acquaintance")
    here.records.clear()
    picked, refused = [], {}
    for repeat in range(asked.repeats):
        sky = here.sky(size)
        best = here.choose(sky, minimum_execution_time)
        picked.append(sorted(best.names))
        here.run(
            sky, best, CHOSEN, learn=False, repeat=repeat, subset=" ".join(sorted(best.names))
        )
        for names in subsets:
            chosen = here.choose(sky, only(names))
            if isinstance(chosen, str) or len(chosen.names) < len(names):
                reason = chosen if isinstance(chosen, str) else "a host of it is better left out"
                say(f"  {' '.join(names)}: {reason[:110]}")
                refused[" ".join(names)] = reason
                continue
            subset = " ".join(sorted(chosen.names))
            here.run(sky, chosen, "subset", learn=False, repeat=repeat, subset=subset)
    return picked, refused


def main():
    asked = options(__doc__.splitlines()[0], SIZES, QUICK)
    with world("subsets", asked) as here:
        picked, refused = measure(here, asked)
        records = here.records
    measured = [r for r in records if r["method"] != CHOSEN]
    table = {subset: time for (subset,), time in medians(measured, "subset").items()}
    ranked = sorted(table, key=table.get)
    print(f"{'ms':>8}  subset")
    for subset in ranked:
        mark = "  <- chosen" if subset.split() in picked else ""
        print(f"{table[subset] * 1e3:8.2f}  {subset}{mark}")
    ours = medians([r for r in records if r["method"] == CHOSEN], "method")[CHOSEN,]
    best = table[ranked[0]]
    typical, bad = prediction_errors(records)
    curves = {"measured": (list(range(len(ranked))), [table[s] * 1e3 for s in ranked])}
    document = {"records": records, "picked": picked, "refused": refused, "ranked": ranked}
    write(asked, "subsets", document, "subsets, fastest first", "ms an iteration", curves)
    verdict(
        asked,
        ("chosen against the best measured", f"{ours / best - 1:+.1%}", "<= +10 %", ours <= 1.1 * best),
        ("prediction, median error", f"{typical:.1%}", "<= 10 %", typical <= 0.10),
        ("prediction, 95th percentile", f"{bad:.1%}", "<= 25 %", bad <= 0.25),
    )  # fmt: skip


if __name__ == "__main__":
    main()
