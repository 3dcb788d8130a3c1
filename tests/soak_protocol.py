"""Histories of the control protocol by the thousand: python tests/soak_protocol.py --n 10000 [--from SEED].

Prints one JSON line; exit code 1 and the seed where a promise is broken. A seed replays byte for byte:
`--from SEED --n 1 --trace` prints its history.
"""

import argparse
import json
import sys
from collections import Counter

from adversaries.protocol.simulation import BrokenPromiseError, SimulatedControl


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=10_000)
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--trace", action="store_true")
    asked = parser.parse_args()
    counts = Counter()
    for seed in range(asked.first, asked.first + asked.n):
        world = SimulatedControl(seed)
        try:
            world.run()
        except BrokenPromiseError as broken:
            print(json.dumps({"part": "protocol", "seed": seed, "broken": str(broken)}))
            return 1
        counts.update(world.record.told.values())
        counts.update(
            events=world.clock.events, cuts=world.network.cuts,
            epochs=len(world.record.epochs), dead=sum(not a.alive for a in world.agents),
        )  # fmt: skip
        if asked.trace:
            print(b"\n".join(world.trace).decode())
    print(json.dumps({"part": "protocol", "trials": asked.n, "failures": 0, **counts}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
