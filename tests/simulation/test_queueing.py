"""Means that queueing theory gives in closed form."""

import numpy as np
import pytest

from apples.scheduling import Equipartition, FirstFit
from apples.simulation import SERVICE_SECONDS, SimulationConfig, kale_workload, simulate

RUNS = 12


def mean_response(count, load, policy, seed, **workload):
    jobs = kale_workload(count, load, seed, **workload)
    result = simulate(jobs, policy, SimulationConfig(64))
    return (result.end - jobs.submit)[count // 10 :].mean()


def shared(minimum):
    """A case of equipartition: fewer jobs, since the event engine simulates them."""
    workload = {"adaptive": True, "minimum": minimum}
    return pytest.param(Equipartition(), 6_000, workload, marks=pytest.mark.more)


@pytest.mark.slow
@pytest.mark.parametrize("load", [0.3, 0.5, 0.7])
@pytest.mark.parametrize(
    ("policy", "count", "workload"),
    [
        (FirstFit(), 40_000, {"adaptive": False, "minimum": 64}),
        shared(64),
        shared(1),
    ],
    ids=["M/M/1 rigid", "M/M/1 equipartition", "M/M/1-PS"],
)
def test_the_mean_response_is_that_of_the_queue(load, policy, count, workload):
    """Slow: 480,000 jobs for an interval of a per cent, or 72,000 for one of three.

    Whole-machine jobs in turn and equal shares of the machine both have mean response
    E[S] / (1 - load) (Kleinrock 1976).
    """
    means = [mean_response(count, load, policy, seed, **workload) for seed in range(RUNS)]
    error = np.std(means, ddof=1) / np.sqrt(RUNS)
    expected = SERVICE_SECONDS / (1 - load)
    assert abs(np.mean(means) - expected) < 4 * error
    assert error < 0.04 * expected
