"""Workloads and results of simulations in a REPL."""

from apples.scheduling import Easy
from apples.simulation import SimulationConfig, lublin_workload, simulate


def test_a_workload_and_a_result_are_one_short_line():
    workload = lublin_workload(150, 64, 0)
    result = simulate(workload, Easy(), SimulationConfig(16, 4))
    for value in (workload, result):
        assert "150 jobs" in repr(value)
        assert len(repr(value)) <= 200
        assert "\n" not in repr(value)
