from pathlib import Path

import numpy as np
import pytest

from apples.simulation import rigid


@pytest.fixture
def random_jobs():
    """Small logs full of ties: equal submissions and ends, exact requests, full-machine jobs."""

    def make(rng, processors, most=14, *, fractions=False):
        count = int(rng.integers(1, most + 1))
        submit = rng.integers(0, 25, count).astype(float)
        run = rng.integers(1, 15, count).astype(float)
        if fractions:
            submit += rng.random(count)
            run *= 0.01 + rng.random(count)
        slack = rng.choice([0, 0, 1, 6, 20], count)
        width = rng.choice([1, 2, processors, *range(1, processors + 1)], count)
        return rigid(submit, run, width.astype(np.int64), run + slack)

    return make


@pytest.fixture(scope="session")
def logs():
    """The folder of the archive's logs, which no clone has."""
    folder = Path(__file__).parents[3] / "shared" / "data" / "swf"
    if not folder.is_dir():
        pytest.skip(f"the archive's logs are not at {folder}")
    return folder
