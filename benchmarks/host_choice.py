"""What forecasts are worth to a scheduler: choosing a host, and cutting a grid into strips.

Run: python benchmarks/host_choice.py [--pools 60] [--deviation 0] [--data FILE.npz]
Pools of 20 PlanetLab hosts (availability = 1 - CPU use, a sample every 5 minutes, a day each). At every
twelfth sample
from the 97th on a run of 12 samples starts. Regret: the availability that the best host of the pool gave over
the run less that of the
host chosen. Makespan: eight hosts of the pool share a fixed amount of work in proportion to their forecasts;
the slowest decides;
against shares in proportion to what they really gave.
Drawn from all hosts; --deviation .05 leaves those whose use hardly varies out, which makes the choice harder.
Prints one line a method; exit 1 when the default profile misses a bar.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

from nws import MultiHorizonForecaster, classic

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "nws" / "planetlab.npz"
HOSTS, STRIPS, FRAME, START = 20, 8, 12, 96


def pools(path, count, deviation, seed=4):
    """Yield `count` pools of availabilities, (samples, hosts), drawn from hosts as busy as asked."""
    with np.load(path) as data:
        use = data["x"].astype(float) / 100
    random = np.random.default_rng(seed)
    busy = np.flatnonzero(use.std(axis=1) >= deviation)
    for _ in range(count):
        yield np.clip(1 - use[random.choice(busy, HOSTS, replace=False)].T, 0.01, 1)


def forecasts(pool):
    """Return by method the forecasts (starts, hosts) for runs that start at `starts`."""
    starts = range(START, len(pool) - FRAME + 1, FRAME)
    defaults = [MultiHorizonForecaster(engine="auto") for _ in range(HOSTS)]
    ours, lower = [], []
    choices = [classic() for _ in range(HOSTS)]
    one_step = []
    for tick, values in enumerate(pool):
        if tick in starts:
            outlooks = [forecaster.outlook(FRAME, 0.8) for forecaster in defaults]
            ours.append([outlook.value for outlook in outlooks])
            lower.append(np.clip([outlook.interval.lower for outlook in outlooks], 0.01, 1))
            one_step.append([choice.forecast() for choice in choices])
        for forecaster, choice, value in zip(defaults, choices, values.tolist(), strict=True):
            forecaster.update(value)
            choice.update(value)
    at = np.array(starts)
    return starts, {
        "static mean": np.array([pool[:s].mean(axis=0) for s in at]),
        "last value": pool[at - 1],
        "classic, one step": np.array(one_step),
        "dynamite, mean of 10": np.array([pool[s - 10 : s].mean(axis=0) for s in at]),
        "default, mean of 12": np.array(ours),
        "default, lower 10 % bound": np.array(lower),
    }


def main():
    """Print the table; return the exit code."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--pools", type=int, default=60)
    options.add_argument("--data", type=Path, default=DATA)
    options.add_argument("--deviation", type=float, default=0.0, help="least, of the hosts drawn")
    asked = options.parse_args()
    if not asked.data.exists():
        print(f"{asked.data} is not here: nothing to choose from")
        return 0
    regrets, spans = {}, {}
    for pool in pools(asked.data, asked.pools, asked.deviation):
        starts, made = forecasts(pool)
        for row, start in enumerate(starts):
            real = pool[start : start + FRAME].mean(axis=0)
            for method, values in made.items():
                chosen = values[row].argmax()
                regrets.setdefault(method, []).append(real.max() - real[chosen])
                share = np.maximum(values[row, :STRIPS], 0.01)
                share = share / share.sum()
                oracle = 1 / real[:STRIPS].sum()
                spans.setdefault(method, []).append((share / real[:STRIPS]).max() / oracle)
    print(f"{'method':<28}{'regret':>9}{'makespan / oracle':>20}{'p90':>8}")
    for method, regret in regrets.items():
        span = spans[method]
        print(
            f"{method:<28}{np.mean(regret):>9.4f}{np.mean(span):>20.4f}{np.quantile(span, 0.9):>8.3f}"
        )
    ours = "default, mean of 12"
    bars = [
        ("regret", np.mean(regrets[ours]), 0.016),
        ("makespan / oracle", np.mean(spans[ours]), 1.08),
    ]
    for what, got, bar in bars:
        print(f"{'met   ' if got <= bar else 'MISSED'} {what:<20} {got:.4f}  (asked <= {bar})")
    return 1 if any(got > bar for _, got, bar in bars) else 0


if __name__ == "__main__":
    sys.exit(main())
