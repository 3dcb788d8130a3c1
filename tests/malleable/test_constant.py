"""What is declared constant is written by its fill and by nobody else; who tries is told which array it was."""

import subprocess
import sys
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from mpi4py import MPI
from scipy.sparse import csr_array

from apples.malleable import CsrMatrix, RowArray, RowRange, TileArray, written_constants

ROWS = RowRange(0, 6)


def ones(*place):
    place[-1][...] = 1.0


def declared():
    """Return an array that changes and what does not, all on one rank."""
    entries = partial(csr_array, np.eye(6))
    found = SimpleNamespace(
        u=RowArray("u", (6, 2), halo=1, fill=ones),
        rows=RowArray("rows", (6, 2), halo=1, fill=ones, constant=True),
        tiles=TileArray("tiles", (6, 4), fill=ones, constant=True),
        sparse=CsrMatrix("sparse", (6, 6), lambda *_: entries(), constant=True),
    )
    for one in (found.u, found.rows, found.tiles):
        one.begin(one.parts([ROWS]), 0)
    found.sparse.begin(MPI.COMM_SELF, [ROWS])
    return found


def item_of_rows(of):
    of.rows.local[2] = of.u.local[2]


def through_a_function(of):
    found = partial(getattr, of, "rows")
    found().local[2] = 0.0


def rows_in_place(of):
    view = of.rows.own[1:]
    view += 1.0


def rows_as_output(of):
    rows, u = of.rows, of.u
    np.add(u.own, 1.0, out=rows.own)


def tile(of):
    tiles = of.tiles
    tiles.own[...] = 0.0


def value_of_matrix(of):
    matrix = of.sparse.own
    matrix.data[0] = 2.0


def inside_a_call(of):
    def clear(data):
        data[...] = 0.0

    clear(of.tiles.local)


def receive(of):
    tiles = of.tiles
    MPI.COMM_SELF.Sendrecv(np.zeros_like(tiles.local), 0, recvbuf=tiles.local, source=0)


def sum_of_products(of):
    np.einsum("ij->ij", np.zeros((6, 4)), out=of.tiles.local)


def bytes_of_memory(of):
    rows = of.rows
    memoryview(rows.own)[0, 0] = 0.0


ATTEMPTS = {
    item_of_rows: ["rows"],
    through_a_function: ["rows", "tiles", "sparse.indptr", "sparse.indices", "sparse.data"],
    rows_in_place: ["rows"],
    rows_as_output: ["rows"],
    tile: ["tiles"],
    value_of_matrix: ["sparse.data"],
    inside_a_call: ["tiles"],
    receive: ["tiles"],
    sum_of_products: ["tiles"],
    bytes_of_memory: ["rows"],
}
"""Who writes, and what that may be as far as the lines tell, of which one names nothing that shows it."""


@pytest.mark.parametrize("attempt", ATTEMPTS, ids=lambda one: one.__name__)
def test_a_write_to_a_constant_array_is_an_error_that_names_it(attempt):
    of = declared()
    with pytest.raises((ValueError, TypeError, BufferError)) as raised:
        attempt(of)
    arrays = [of.u, of.rows, of.tiles, *of.sparse.arrays]
    assert written_constants(arrays, raised.value, raised.tb) == ATTEMPTS[attempt]
    assert (of.rows.local == 1.0).all()
    assert (of.tiles.local == 1.0).all()
    assert (of.sparse.data.own == 1.0).all()


def test_an_error_of_another_kind_is_left_as_it_is():
    of = declared()
    full = OSError(30, "Read-only file system")
    assert written_constants([of.u, of.rows], full, None) == []
    for other in (ValueError("this database is read-only"), RuntimeError("tile is not writable")):
        assert written_constants([of.u, of.rows], other, None) == []
    assert written_constants([of.u], ValueError("assignment destination is read-only"), None) == []


def test_what_is_constant_can_be_read_multiplied_and_its_halo_exchanged():
    of = declared()
    of.u.own[...] += of.rows.own
    of.rows.exchange()
    assert (of.u.own == 2.0).all()
    assert np.array_equal(of.sparse.own @ np.ones(6), np.ones(6))
    assert of.tiles.local.sum() == 24


def test_a_program_that_writes_to_a_constant_array_ends_with_its_name(tmp_path):
    path = tmp_path / "writes.py"
    path.write_text(
        "from apples import malleable\n"
        "try:\n"
        "    with malleable.Job() as job:\n"
        "        mask = job.array('mask', (6, 3), constant=True)\n"
        "        state = job.state(iteration=0)\n"
        "        while state.iteration < 3:\n"
        "            job.safepoint()\n"
        "            mask.local[0] = 1.0\n"
        "            state.iteration += 1\n"
        "except malleable.DeclarationError as error:\n"
        "    print(error.code, error.fields['names'])\n"
        "    raise\n"
    )
    run = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False)
    assert run.stdout.splitlines() == ["constant-written ['mask']"], run.stderr
    assert run.returncode == 1
