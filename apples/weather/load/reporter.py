"""``python -m apples.weather.load.reporter HOSTS``: the monitor's slave, a snapshot a line until its input ends.

HOSTS is a JSON object: each host on this machine with a list of its processors (empty: all).
"""

from __future__ import annotations

import argparse
import json
import os
import select
import sys

from apples.weather.load.snapshot import NodeSampler, line_of

EVERY_SECONDS = 2.0
GLANCES = 2
"""Samples of the processes that want a processor; each snapshot has their mean."""


def main() -> int:
    """Print snapshots until standard input or output closes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("hosts", type=json.loads)
    parser.add_argument("--every", type=float, default=EVERY_SECONDS)
    options = parser.parse_args()
    sampler = NodeSampler(options.hosts)
    with open(0, "rb", closefd=False) as asked:
        try:
            while True:
                for _ in range(GLANCES):
                    if select.select([asked], [], [], options.every / GLANCES)[0]:
                        if not os.read(0, 1 << 12):
                            return 0
                    else:
                        sampler.glance()
                sys.stdout.write(line_of(sampler.snapshot()))
                sys.stdout.flush()
        except (BrokenPipeError, KeyboardInterrupt):
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python flushes stdout at exit
            return 0


if __name__ == "__main__":
    sys.exit(main())
