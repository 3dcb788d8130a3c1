"""Time stamps divide an exchange into transfer and waiting, whichever rank is late and whatever clocks show."""

import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apples.launch import hydra
from apples.program import transfers_of

seconds = st.floats(0.0, 10.0)


@given(late=st.lists(seconds, min_size=1, max_size=9), transfer=st.floats(0.01, 5.0))
def test_a_late_neighbour_is_waited_for_and_its_row_is_as_long_as_ever(late, transfer):
    began = np.arange(len(late)) * 100.0
    theirs = began + np.array(late)
    ended = theirs + transfer
    usual, share = transfers_of(began, [ended], [(theirs, ended)])
    assert usual == [pytest.approx(transfer)]
    assert share == pytest.approx(transfer * len(late) / (sum(late) + transfer * len(late)))


@given(early=st.floats(0.0, 10.0), transfer=st.floats(0.01, 5.0))
def test_a_row_that_was_there_first_is_no_short_transfer_at_the_other_end(early, transfer):
    """The neighbour sent `early` seconds before this rank came; its own row came a whole transfer later."""
    began, theirs = 50.0, 50.0 - early
    here = max(theirs + transfer, began)
    usual, share = transfers_of([began], [[here]], [([theirs], [began + transfer])])
    assert usual == [pytest.approx(transfer)]
    assert share == 1.0


def test_of_two_neighbours_the_later_one_is_waited_for():
    theirs = [([2.0], [3.0]), ([5.0], [6.0])]
    usual, share = transfers_of([0.0], [[3.0], [6.0]], theirs)
    assert usual == [pytest.approx(1.0)] * 2
    assert share == pytest.approx(1 / 6)


RANKS = """
import json, sys, time
from mpi4py import MPI
from apples.program import Transfers
comm = MPI.COMM_WORLD
rank = comm.Get_rank()
own = lambda: time.perf_counter() + 1000.0 * rank ** 2
transfers = Transfers(comm, [other for other in (rank - 1, rank + 1) if 0 <= other < 3], own)
transfers.compare_clocks()
for _ in range(3):
    comm.Barrier()
    began = own()
    comm.Barrier()
    transfers.record(began, [own() for _ in transfers.neighbours])
share = transfers.settle()
found = [[n.rank, n.ahead, n.mean, n.exchanges] for n in transfers.neighbours]
found = comm.gather([share, found])
if rank == 0:
    print(json.dumps(found), flush=True)
"""


@pytest.mark.mpi
def test_hosts_whose_clocks_differ_by_a_quarter_of_an_hour_agree_on_every_transfer(tmp_path):
    program = tmp_path / "ranks.py"
    program.write_text(RANKS)
    done = subprocess.run(
        [hydra.mpiexec(), *hydra.OPTIONS, "-n", "3", sys.executable, str(program)],
        env=hydra.environment({**hydra.LOOPBACK, **hydra.ONE_THREAD}),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    (first, middle, last) = json.loads(done.stdout.splitlines()[0])
    ((below, ahead, one, count),) = first[1]
    assert (below, count) == (1, 3)
    assert ahead == pytest.approx(1000.0, abs=10.0)
    (above, behind, same, _), (last_rank, further, other, _) = middle[1]
    assert (above, last_rank) == (0, 2)
    assert behind == pytest.approx(-ahead)
    assert further == pytest.approx(3000.0, abs=10.0)
    assert same == pytest.approx(one, abs=1e-6)
    assert last[1][0][2] == pytest.approx(other, abs=1e-6)
    assert all(0.0 <= share <= 1.0 for share, _ in (first, middle, last))
