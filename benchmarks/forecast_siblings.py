"""Whether a series is forecast better from its siblings: an experiment.

Run: python benchmarks/forecast_siblings.py [--data FILE.npz] [--each 150] [--seed 1]
Series: CPU of PlanetLab's virtual machines (days of 288 samples, "day/host_slice"). Siblings are the other
slices of the same host on the same day; earlier days of the same slice give its profile of a day, and those
of the same weekday theirs. Each way to use them is one more expert; the answer is then the default profile's
or the mixture of ML-Poly of both, whichever had the lower cumulative error. One line a way: MAE over the
default profile's alone, geometric mean, 10th and 90th percentile, worst, share of series that gain or lose 2 %.
"""

import argparse
import sys
from datetime import date
from pathlib import Path

import numpy as np

from nws import MultiHorizonForecaster
from nws.engine.vectorised import regress

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "nws" / "planetlab.npz"
FRAME, UNSCORED, VARIES = 12, 32, 3.0


def read(path):
    """Return day -> slice -> its 288 values, as availability."""
    days = {}
    with np.load(path) as arrays:
        for name, used in zip(arrays["names"].tolist(), arrays["x"], strict=True):
            day, machine = name.split("/")
            days.setdefault(day, {})[machine] = 1.0 - used.astype(float) / 100.0
    return days


def host_of(machine, hosts):
    """Return the longest host name that others of the day share with `machine`."""
    parts = machine.split("_")
    for size in range(len(parts) - 1, 1, -1):
        host = "_".join(parts[:size])
        if hosts.get(host, 0) > 1:
            return host
    return machine


def families(day):
    """Return host -> its slices, of a day; hosts of one slice are left out."""
    hosts = {}
    for machine in day:
        parts = machine.split("_")
        for size in range(2, len(parts)):
            host = "_".join(parts[:size])
            hosts[host] = hosts.get(host, 0) + 1
    found = {}
    for machine in day:
        found.setdefault(host_of(machine, hosts), []).append(machine)
    return {host: slices for host, slices in found.items() if len(slices) > 1}


def forecasts(values, warm=None):
    """Return what the default profile forecasts of `values` (T, N): one step, and the mean of a frame."""
    one, frame = np.full((2, *values.shape), np.nan)
    for column, series in enumerate(values.T.tolist()):
        forecaster = MultiHorizonForecaster(horizons=(1, FRAME), engine="auto")
        for value in [] if warm is None else warm[:, column].tolist():
            forecaster.update(value)
        for tick, value in enumerate(series):
            if tick or warm is not None:
                one[tick, column] = forecaster.forecast()
                frame[tick, column] = forecaster.outlook(FRAME).value
            forecaster.update(value)
    return one, frame


def regression(values, regressors, horizon):
    """Return forecasts of the mean of the next `horizon` values by recursive least squares.

    `regressors` (T, R, N): what is known before each value. Each mean teaches once it is known.
    """
    ticks, size, count = regressors.shape
    p = np.repeat(100.0 * np.eye(size)[:, :, None], count, axis=2)  # shares vary by a tenth
    w = np.zeros((size, count))
    made = np.full(values.shape, np.nan)
    total = np.vstack([np.zeros((1, count)), np.cumsum(values, axis=0)])
    low, high = np.minimum.accumulate(values), np.maximum.accumulate(values)
    for tick in range(1, ticks):
        begin = tick - horizon
        if begin > 0:
            actual = (total[tick] - total[begin]) / horizon
            regress(p, w, regressors[begin], actual - regressors[begin, 0])
        made[tick] = regressors[tick, 0] + (w * regressors[tick]).sum(axis=0)
        made[tick] = np.clip(made[tick], low[tick - 1], high[tick - 1])
    return made


def combined(first, second, values, horizon):
    """Return the answers of a choice among `first`, and the ML-Poly mixture of it and `second`."""
    total = np.vstack([np.zeros((1, values.shape[1])), np.cumsum(values, axis=0)])
    both, regret, power = np.stack([first, second]), 0.0, 1e-6
    mixed, answer = np.full(values.shape, np.nan), np.full(values.shape, np.nan)
    cost = np.zeros((2, values.shape[1]))
    for tick in range(1, len(values)):
        begin = tick - horizon
        if begin > 0:
            actual = (total[tick] - total[begin]) / horizon
            slope = np.sign(mixed[begin] - actual)
            each = slope * (mixed[begin] - both[:, begin])
            regret, power = regret + each, power + each * each
            cost += np.abs(np.stack([first[begin], mixed[begin]]) - actual)
        weight = np.maximum(regret, 0.0) / power * np.ones_like(cost)
        whole = weight.sum(axis=0)
        mixture = (weight * both[:, tick]).sum(axis=0) / np.where(whole > 0, whole, 1.0)
        mixed[tick] = np.where(whole > 0, mixture, first[tick])
        answer[tick] = np.where(cost[1] < cost[0], mixed[tick], first[tick])
    return answer


def error(made, values, horizon):
    """Return the mean absolute error of each series."""
    total = np.vstack([np.zeros((1, values.shape[1])), np.cumsum(values, axis=0)])
    actual = (total[horizon:] - total[:-horizon]) / horizon
    return np.abs(made[UNSCORED : len(actual)] - actual[UNSCORED:]).mean(axis=0)


def lagged(values):
    """Return regressors known before each value: the last one, and how far those before were from it."""
    past = [np.vstack([np.repeat(values[:1], lag, axis=0), values[:-lag]]) for lag in (1, 2, 3)]
    return [past[0], past[0] - past[1], past[1] - past[2], np.ones_like(values)]


def profile_of(earlier, machine):
    """Return the mean day of a slice, a little smoothed; None without an earlier day."""
    known = [day[machine] for day in earlier if machine in day]
    return np.convolve(np.mean(known, axis=0), np.ones(5) / 5, mode="same") if known else None


def expected(shape, horizon):
    """Return how far the mean of a profile's next values is from its last one."""
    longer = np.vstack([shape, np.repeat(shape[-1:], horizon, axis=0)])
    total = np.vstack([np.zeros((1, shape.shape[1])), np.cumsum(longer, axis=0)])
    ahead = (total[horizon : horizon + len(shape)] - total[: len(shape)]) / horizon
    return ahead - np.vstack([shape[:1], shape[:-1]])


def cases(days, each, seed):
    """Yield what is compared: the series of a day, and by way the regressors of each."""
    random, names = np.random.default_rng(seed), sorted(days)
    for place, name in enumerate(names):
        day = days[name]
        kin = {m: slices for slices in families(day).values() for m in slices}
        able = [m for m in sorted(kin) if day[m].std() > VARIES / 100]
        drawn = random.choice(able, min(each, len(able)), replace=False).tolist()
        weekday = date(int(name[:4]), int(name[4:6]), int(name[6:])).weekday()
        earlier = [days[other] for other in names[:place]]
        same = [
            days[other]
            for other in names[:place]
            if date(int(other[:4]), int(other[4:6]), int(other[6:])).weekday() == weekday
        ]
        yield name, drawn, day, kin, earlier, same


def main():
    """Print the table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--data", type=Path, default=DATA)
    options.add_argument("--each", type=int, default=150, help="series of a day")
    options.add_argument("--seed", type=int, default=1)
    asked = options.parse_args()
    if not asked.data.exists():
        print(f"{asked.data} is not here")
        return 0
    ratios = {}

    def compare(way, base, values, regressors, shape=None):
        for horizon, made in zip((1, FRAME), base, strict=True):
            ahead = [] if shape is None else [expected(shape, horizon), shape]
            second = regression(values, np.stack([*regressors, *ahead], axis=1), horizon)
            ours = error(combined(made, second, values, horizon), values, horizon)
            ratios.setdefault((way, horizon), []).append(ours / error(made, values, horizon))

    days = read(asked.data)
    for name, drawn, day, kin, earlier, same in cases(days, asked.each, asked.seed):
        values = np.stack([day[m] for m in drawn], axis=1)
        base = forecasts(values)
        own = lagged(values)
        siblings = np.stack(
            [np.mean([day[o] for o in kin[m] if o != m], axis=0) for m in drawn], axis=1
        )
        compare("its own last values (nothing new)", base, values, own)
        compare("the siblings' mean", base, values, [*own, *lagged(siblings)[:3]])
        for way, of in (("profile of earlier days", earlier), ("profile of the weekday", same)):
            known = [(i, profile_of(of, m)) for i, m in enumerate(drawn)]
            known = [(i, each) for i, each in known if each is not None]
            if known:
                columns = [i for i, _ in known]
                shape = np.stack([each for _, each in known], axis=1)
                part = [each[:, columns] for each in base]
                compare(way, part, values[:, columns], [each[:, columns] for each in own], shape)
        went_on = [i for i, m in enumerate(drawn) if earlier and m in earlier[-1]]
        if went_on:
            now = values[:, went_on]
            yesterday = np.stack([earlier[-1][drawn[i]] for i in went_on], axis=1)
            for horizon, made, fresh in zip(
                (1, FRAME), forecasts(now, yesterday), base, strict=True
            ):
                ratio = error(made, now, horizon) / error(fresh[:, went_on], now, horizon)
                ratios.setdefault(("goes on from an earlier day", horizon), []).append(ratio)
        print(f"# {name}: {len(drawn)} series", file=sys.stderr, flush=True)
    heading = ("H", "series", "mean", "10 %", "90 %", "worst", "gain", "lose")
    print(f"{'one more expert from':<36}" + "".join(f"{each:>8}" for each in heading))
    for (way, horizon), parts in ratios.items():
        each = np.concatenate(parts)
        each = each[np.isfinite(each) & (each > 0)]
        low, high = np.quantile(each, [0.1, 0.9])
        figures = (np.exp(np.log(each).mean()), low, high, each.max())
        shares = ((each < 0.98).mean(), (each > 1.02).mean())
        print(
            f"{way:<36}{horizon:>8}{len(each):>8}"
            + "".join(f"{n:>8.3f}" for n in figures + shares)
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
