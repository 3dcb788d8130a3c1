"""Figure 6 of the paper: four methods on eight hosts of two sites, at several sizes.

Run as root: python benchmarks/figure6.py [--quick] [--first] [--square-blocks]; about 20 minutes. Brings up the
lab benchmarks/figures/figure6.toml, plans all methods under one measured sky for each size and repeat, runs them
back to back in turning order, prints the table, writes runs/figures/figure6.{json,svg}, and takes the lab down.
`blocked` are equal strips; --square-blocks adds HPF's square blocks, the paper's own compile-time method, which
take no implementation of several sweeps an exchange. Exit 1 when a bar is missed.
"""

from figures.world import medians, options, prediction_errors, say, verdict, world, write

from blueprints import (
    all_resources,
    blocked,
    compile_time,
    minimum_execution_time,
    square_blocks,
)

METHODS = {
    "blocked": blocked,
    "compile-time AppLeS": compile_time,
    "run-time, no selection": all_resources,
    "run-time AppLeS": minimum_execution_time,
}
SIZES, QUICK = (3000, 3800, 4600, 6000), (3000, 4600)
OURS, NO_SELECTION = "run-time AppLeS", "run-time, no selection"


def measure(here, asked):
    """Return why a method had no plan, by (method, size, repeat); the runs are in the world's records."""
    refused = {}
    learn_the_world(here, asked)
    for repeat in range(asked.repeats):
        for size in asked.sizes:
            sky = here.sky(size)
            names = list(METHODS)
            turn = repeat % len(names)
            for name in names[turn:] + names[:turn]:
                chosen = here.choose(sky, METHODS[name])
                if isinstance(chosen, str):
                    say(f"  {name:24} {size:6} no plan: {chosen[:120]}")
                    refused[f"{name}/{size}/{repeat}"] = chosen
                else:
                    here.run(sky, chosen, name, repeat=repeat)
    return refused


def learn_the_world(here, asked):
    """Run twice before anything counts: what a link really costs is learned from runs."""
    for blueprint in (blocked, minimum_execution_time):
        sky = here.sky(asked.sizes[-1])
        chosen = here.choose(sky, blueprint)
        if not isinstance(chosen, str):
            here.run(sky, chosen, "first acquaintance")
    here.records.clear()


def main():
    more = "the paper's square blocks too, beside equal strips"
    asked = options(__doc__.splitlines()[0], SIZES, QUICK, square_blocks=more)
    if asked.square_blocks:
        METHODS["square blocks"] = square_blocks
    with world("figure6", asked) as here:
        refused = measure(here, asked)
        records = here.records
    table = medians(records, "method", "grid")
    print(f"{'size':>6}" + "".join(f"{name:>24}" for name in METHODS))
    for size in asked.sizes:
        cells = [table.get((name, size)) for name in METHODS]
        print(
            f"{size:6}"
            + "".join(f"{c * 1e3:21.1f} ms" if c else f"{'no plan':>24}" for c in cells)
        )
    feasible = [size for size in asked.sizes if (NO_SELECTION, size) in table]
    worst = max(
        table[OURS, size] / min(table[name, size] for name in METHODS if (name, size) in table)
        for size in asked.sizes
    )
    typical, bad = prediction_errors(records)
    infeasible = any(run.startswith(f"{NO_SELECTION}/") for run in refused)
    gain = 1 - table[OURS, feasible[0]] / table[NO_SELECTION, feasible[0]] if feasible else 0.0
    curves = {
        name: ([s for s in asked.sizes if (name, s) in table],
               [table[name, s] * 1e3 for s in asked.sizes if (name, s) in table])
        for name in METHODS
    }  # fmt: skip
    document = {"records": records, "refused": refused, "gain": gain, "worst": worst}
    write(asked, "figure6", document, "grid", "ms an iteration", curves)
    first = feasible[0] if feasible else "no size"
    verdict(
        asked,
        (f"gain over no selection at {first}", f"{gain:.0%}", ">= 25 %", gain >= 0.25),
        ("no selection has no plan at some size", str(infeasible), "True", infeasible),
        ("against the best other, worst", f"{worst - 1:+.1%}", "<= +5 %", worst <= 1.05),
        ("prediction, median error", f"{typical:.1%}", "<= 10 %", typical <= 0.10),
        ("prediction, 95th percentile", f"{bad:.1%}", "<= 25 %", bad <= 0.25),
    )


if __name__ == "__main__":
    main()
