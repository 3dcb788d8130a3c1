"""The forecasts beside those of statsforecast and river, where they are installed.

Run: pip install statsforecast river; python benchmarks/forecast_peers.py [--series 15] [--origins 60]
The last 600 samples of each series; statsforecast refits a window of 200 at each of `origins` places in them,
river and the NWS
see every sample. MAE over the same places for all, as ratio to the classic profile (geometric mean), and the
cost of a forecast.
"""

import argparse
import sys
import time
import warnings
from importlib import import_module
from importlib.util import find_spec
from math import exp, log
from pathlib import Path

import numpy as np

from nws import trace

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "nws" / "series.npz"
LAST, WINDOW = 600, 200


def windowed(values, places, model):
    """Return the one-step forecasts of a statsforecast model that is refitted at each place."""
    return np.array([model.forecast(y=values[p - WINDOW : p], h=1)["mean"][0] for p in places])


def streamed(values, places, model):
    """Return the one-step forecasts of a river model that sees every sample."""
    made, wanted = [], set(places.tolist())
    for place, value in enumerate(values.tolist()):
        if place in wanted:
            made.append(model.forecast(horizon=1)[0])
        model.learn_one(value)
    return np.array(made)


def peers():
    """Return what is installed: name -> function of (values, places)."""
    found = {}
    if find_spec("statsforecast"):
        models = import_module("statsforecast.models")

        found["statsforecast AutoETS w200"] = lambda v, p: windowed(v, p, models.AutoETS())
        found["statsforecast AutoTheta w200"] = lambda v, p: windowed(v, p, models.AutoTheta())
    if find_spec("river"):
        series = import_module("river.time_series")

        found["river HoltWinters(.3, .1)"] = lambda v, p: streamed(
            v, p, series.HoltWinters(0.3, 0.1)
        )
    return found


def main():
    """Print the table; return the exit code."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--series", type=int, default=15)
    options.add_argument("--origins", type=int, default=60)
    asked = options.parse_args()
    warnings.simplefilter("ignore")
    if not DATA.exists():
        print(f"{DATA} is not here")
        return 0
    with np.load(DATA) as arrays:
        names = list(arrays)[:: max(1, len(arrays.files) // asked.series)][: asked.series]
        series = {name: arrays[name].astype(float) for name in names}
    ratios, costs = {}, {}
    for values in series.values():
        places = np.linspace(
            max(len(values) - LAST, WINDOW), len(values) - 1, asked.origins
        ).astype(int)
        start = time.process_time()
        run = trace(values, "auto")
        costs.setdefault("default profile", []).append((time.process_time() - start) / len(values))
        actual = values[places]
        classic = np.abs(run.classic[places, 0] - actual).mean()
        made = {"last value": values[places - 1], "default profile": run.absolute[places, 0]}
        for name, forecast in peers().items():
            start = time.process_time()
            made[name] = forecast(values, places)
            steps = len(values) if "river" in name else len(places)
            costs.setdefault(name, []).append((time.process_time() - start) / steps)
        for name, forecasts in made.items():
            ratios.setdefault(name, []).append(np.abs(forecasts - actual).mean() / classic)
    print(f"{'one step, ratio to the classic profile':<40}{'MAE':>8}{'worst':>9}{'us each':>12}")
    for name, each in ratios.items():
        cost = f"{1e6 * np.median(costs[name]):.1f}" if name in costs else ""
        print(f"{name:<40}{exp(sum(map(log, each)) / len(each)):>8.3f}{max(each):>9.3f}{cost:>12}")
    missing = [name for name in ("statsforecast", "river") if not find_spec(name)]
    if missing:
        print(f"not installed: {', '.join(missing)} (pip install {' '.join(missing)})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
