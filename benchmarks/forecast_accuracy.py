"""The accuracy of forecasts: the default profile against the classic one (the 18 predictors of NWS in 1999).

The bars are for 32 public series: CPU, network and disk of Amazon machines, CPU of PlanetLab, links of 5G and
HSDPA phones, round trips. The second halves and made-up series check that the forecasters were not fitted to them.
"""

from math import exp, log

import numpy as np

from benchmarks.common import Row
from nws import backtest

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
BEFORE = {
    "host CPU": (0.8866, 0.7886, 0.7641),
    "group CPU": (0.3380, 0.2528, 0.2122),
    "network and disk": (0.7863, 0.8027, 0.7362),
    "round trip": (0.9809, 0.6724, 0.4549),
    "PlanetLab CPU": (0.9884, 0.8037, 0.7169),
    "5G link": (0.9809, 0.7299, 0.6596),
    "HSDPA link": (0.9838, 0.8669, 0.8051),
}
"""One step, mean of 12 and of 60 by family, of the profile without analogs (measured 2026-11-22)."""


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
    """Return made-up series: noise, walks, steps, periods, bursts."""
    random, t = np.random.default_rng(seed), np.arange(size)
    noise = random.normal(size=size)
    ar = np.zeros(size)
    for i in range(1, size):
        ar[i] = 0.8 * ar[i - 1] + noise[i]
    level = np.repeat(random.normal(size=size // 250 + 1) * 5, 250)[:size]
    return {
        "white noise": noise,
        "random walk": np.cumsum(noise),
        "ar(1) 0.8": ar,
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
    """Return the ratios of one series: MAE, RMSE, mean of 12, mean of 60, coverage, width."""
    one, sixty = report["horizons"]["12"], report["horizons"]["60"]
    return (
        report["mae"] / report["classic"]["mae"],
        report["rmse"] / report["classic"]["rmse"],
        one["mae"] / one["classic_one_step_mae"],
        sixty["mae"] / sixty["classic_one_step_mae"],
        report["interval"]["coverage"],
        report["interval"]["width_ratio"],
    )


def compare(series, settings):
    """Return the ratios of each series and the means of each family."""
    rows, families = {}, {}
    for name, values in series.items():
        rows[name] = ratios(backtest(name, values, "auto"))
        families.setdefault(family_of(name), []).append(rows[name])
    settings.raw["series"] = rows
    settings.raw["families"] = {family: means_of(some) for family, some in families.items()}
    return list(rows.values()), settings.raw["families"]


def result_rows(series, settings, bars=True):
    """Yield the rows of some series; without bars if their sizes or sources differ from those of the bars."""
    rows, families = compare(series, settings)
    mae, rmse, twelve, sixty, _, width = zip(*rows, strict=True)
    coverage = [means[3] for means in families.values()]
    count = f"{len(rows)} series"
    for name, measures, value, limits in (
        ("one step", "one step", geometric(mae), (0.85, None)),
        ("worst", "one step, worst", max(mae), (1.01, None)),
        ("rmse", "RMSE", geometric(rmse), (0.93, None)),
        ("mean of 12", "mean of 12", geometric(twelve), (0.72, None)),
        ("mean of 60", "mean of 60", geometric(sixty), (0.64, None)),
        ("least coverage", "least coverage of 90 %", min(coverage), (None, 0.87)),
        ("most coverage", "greatest coverage of 90 %", max(coverage), (0.93, None)),
        ("width", "interval width over Gaussian", sum(width) / len(width), (0.641, None)),
    ):  # fmt: skip
        at_most, at_least = limits if bars else (None, None)
        yield Row(name, f"{count}: {measures}", value, at_most=at_most, at_least=at_least)
    if bars:
        for place, horizon in enumerate(("one step", "mean of 12", "mean of 60")):
            worst = max(families[f][place] / BEFORE[f][place] for f in families if f in BEFORE)
            yield Row(f"{horizon}, family", f"{horizon}: over no analogs, worst family", worst,
                      at_most=1.005)  # fmt: skip


def public(settings):
    """Compare on the 32 public series."""
    yield from result_rows(load(settings), settings)


def halves(settings):
    """Compare on the second half of each public series."""
    series = {name: values[len(values) // 2 :] for name, values in load(settings).items()}
    yield from result_rows(series, settings, bars=False)


def made_up(settings):
    """Compare on made-up series."""
    yield from result_rows(made(settings.pick(3000, 300)), settings, bars=False)


def load(settings):
    """Return the public series."""
    with np.load(settings.file("nws/series.npz")) as arrays:
        series = {name: arrays[name].astype(float) for name in arrays}
    return {name: values[: settings.pick(None, 300)] for name, values in series.items()}


PARTS = {"public": public, "halves": halves, "made": made_up}
