"""How right the forecasts are: the default profile against the classic one, on real and made series.

Run: python benchmarks/forecast_accuracy.py [--data FILE.npz] [--halves] [--made]
Prints one line a series, one a family of series (geometric means; of one step the least and the greatest)
and one a bar with what was asked and what came out; exit 1 when a bar is missed. The bars are for the 32
series of ../shared/data/nws/series.npz (Numenta AWS, PlanetLab, 5G, HSDPA, RTT); --halves runs the second
half of each on its own, --made runs made-up ones, both to see that nothing was tuned to the whole.
"""

import argparse
import sys
from math import exp, log
from pathlib import Path

import numpy as np

from nws import backtest

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "nws" / "series.npz"
ROW = "{:<26}{:>7}{:>8.3f}{:>8.3f}{:>8.3f}{:>8.3f}{:>9.3f}{:>8.3f}"
FAMILIES = {
    "aws_cpu": "host CPU",
    "aws_rds": "host CPU",
    "asg_cpu": "group CPU",
    "aws_netin": "network and disk",
    "aws_diskw": "network and disk",
    "ec2": "round trip",
    "rtt": "round trip",
    "plab": "PlanetLab CPU",
    "5g": "5G link",
    "hsdpa": "HSDPA link",
}
FAMILY = "{:<26}{:>7}{:>8}{:>8}{:>8}{:>8}{:>8}{:>9}{:>8}"
BEFORE = {
    "host CPU": (0.8866, 0.7886, 0.7641),
    "group CPU": (0.3380, 0.2528, 0.2122),
    "network and disk": (0.7863, 0.8027, 0.7362),
    "round trip": (0.9809, 0.6724, 0.4549),
    "PlanetLab CPU": (0.9884, 0.8037, 0.7169),
    "5G link": (0.9809, 0.7299, 0.6596),
    "HSDPA link": (0.9838, 0.8669, 0.8051),
}
"""One step, mean of 12 and of 60 by family, of the profile without analogs (22 November 2026)."""


def family_of(name):
    """Return the family of a series."""
    return next((family for start, family in FAMILIES.items() if name.startswith(start)), "made")


def means_of(rows):
    """Return of a family: MAE, mean of 12, of 60 (geometric means); coverage and width (means)."""
    one, _, twelve, sixty, coverage, width = zip(*rows, strict=True)
    averages = (sum(coverage) / len(rows), sum(width) / len(rows))
    return (geometric(one), geometric(twelve), geometric(sixty), *averages)


def geometric(numbers):
    """Return the geometric mean."""
    return exp(sum(map(log, numbers)) / len(numbers))


def made(size=3000, seed=20):
    """Return series that no one measured: noise, walks, steps, beats, bursts, gaps in the beat."""
    random, t = np.random.default_rng(seed), np.arange(size)
    noise = random.normal(size=size)
    ar = np.zeros(size)
    for i in range(1, size):
        ar[i] = 0.8 * ar[i - 1] + noise[i]
    level = np.repeat(random.normal(size=size // 250 + 1) * 5, 250)[:size]
    return {
        "white noise": noise,
        "random walk": np.cumsum(noise),
        "ar(1) .8": ar,
        "steps and noise": level + 0.3 * noise,
        "cron, every 13": 5.0 * (t % 13 == 0) + 0.2 * noise,
        "day of 96 and noise": np.sin(2 * np.pi * t / 96) + 0.3 * noise,
        "bursts": np.where(
            random.random(size) < 0.02, random.exponential(50, size), 1 + 0.1 * noise
        ),
        "share, clipped": np.clip(0.7 + 0.2 * ar, 0, 1),
        "heavy tails": random.standard_t(2, size),
        "saw": (t % 40) / 40 + 0.02 * noise,
    }


def ratios(report):
    """Return what is compared, of one series."""
    one, sixty = report["horizons"]["12"], report["horizons"]["60"]
    return (
        report["mae"] / report["classic"]["mae"],
        report["rmse"] / report["classic"]["rmse"],
        one["mae"] / one["classic_one_step_mae"],
        sixty["mae"] / sixty["classic_one_step_mae"],
        report["interval"]["coverage"],
        report["interval"]["width_ratio"],
    )


def main():
    """Print the tables; return the exit code."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--data", type=Path, default=DATA)
    options.add_argument("--halves", action="store_true")
    options.add_argument("--made", action="store_true")
    asked = options.parse_args()
    if asked.made:
        series = made()
    elif asked.data.exists():
        with np.load(asked.data) as arrays:
            series = {name: arrays[name].astype(float) for name in arrays}
    else:
        print(f"{asked.data} is not here: made-up series instead")
        series = made()
    if asked.halves:
        series = {name: values[len(values) // 2 :] for name, values in series.items()}
    print(
        f"{'series':<26}{'n':>7}{'MAE':>8}{'RMSE':>8}{'H=12':>8}{'H=60':>8}{'coverage':>9}{'width':>8}"
    )
    rows, families = [], {}
    for name, values in series.items():
        rows.append(ratios(backtest(name, values, "auto")))
        families.setdefault(family_of(name), []).append(rows[-1])
        print(ROW.format(name[:25], len(values), *rows[-1]), flush=True)
    mae, rmse, twelve, sixty, _, width = zip(*rows, strict=True)
    print(
        FAMILY.format("family", "n", "MAE", "least", "most", "H=12", "H=60", "coverage", "width")
    )
    means = {family: means_of(of) for family, of in families.items()}
    for family, of in families.items():
        one = [row[0] for row in of]
        first, *others = means[family]
        figures = [f"{n:.3f}" for n in (first, min(one), max(one), *others)]
        print(FAMILY.format(family, len(of), *figures))
    bars = [
        ("one-step MAE / classic, geometric mean", geometric(mae), "<=", 0.85),
        ("one-step MAE / classic, worst", max(mae), "<=", 1.01),
        ("one-step RMSE / classic, geometric mean", geometric(rmse), "<=", 0.93),
        ("mean of 12, MAE / classic one-step", geometric(twelve), "<=", 0.72),
        ("mean of 60, MAE / classic one-step", geometric(sixty), "<=", 0.64),
        ("coverage of 90 %, least of a family", min(m[3] for m in means.values()), ">=", 0.87),
        ("coverage of 90 %, greatest of a family", max(m[3] for m in means.values()), "<=", 0.93),
        ("width / Gaussian, mean", sum(width) / len(width), "<=", 0.641),
    ]
    known = [family for family in families if family in BEFORE]
    for place, what in enumerate(("one step", "mean of 12", "mean of 60")):
        worst = max((means[f][place] / BEFORE[f][place] for f in known), default=1.0)
        bars.append((f"{what}, worst family / without analogs", worst, "<=", 1.005))
    missed = 0
    for what, got, sign, bar in bars:
        met = got <= bar if sign == "<=" else got >= bar
        missed += not met
        print(f"{'met   ' if met else 'MISSED'} {what:<42} {got:.4f}  (asked {sign} {bar})")
    return 1 if missed and not (asked.made or asked.halves) else 0


if __name__ == "__main__":
    sys.exit(main())
