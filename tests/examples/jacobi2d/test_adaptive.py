"""The solver as a malleable job, with several sweeps an exchange, over hosts that come and go."""

import shutil
import sys

import pytest
from jacobi2d_support import SOLVER, run_task

from apples.malleable import HostShare, ResizeDone, rehearse

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.more,
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler"),
]

SLOTS = {"ada": 1, "bob": 2, "eve": 1}
WALK = (("bob", "ada"), ("bob", "eve", "ada"), ("eve",), ("ada", "bob"))


@pytest.mark.parametrize("odd", ["wavefront", "numpy"])
def test_a_walk_over_hosts_gives_the_bits_of_one_rank_that_makes_one_sweep_at_a_time(solve, odd):
    """`odd` runs on one of the hosts: while it takes part, an exchange is good for one sweep."""
    parameters = {"grid": 500, "iterations": 20_000, "residual_every": 19, "source": 3}
    order = run_task(parameters, [(500, 1)], "compiled", progress_seconds=0)
    expected = solve(order).only("result")
    order["implementations"] = {"ada": "wavefront", "bob": "wavefront", "eve": odd}
    maps = ([HostShare(host, 1.0 + k) for k, host in enumerate(hosts)] for hosts in WALK)

    run = rehearse((sys.executable, str(SOLVER)), SLOTS, [HostShare("ada")], maps, task=order)

    (result,) = run.events("result")
    assert run.ended.state == "finished"
    assert sum(isinstance(notice, ResizeDone) for notice in run.notices) >= 2
    assert {key: result[key] for key in ("sha256", "iterations", "residual")} == {
        key: expected[key] for key in ("sha256", "iterations", "residual")
    }
