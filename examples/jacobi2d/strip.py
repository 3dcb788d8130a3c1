"""A rank's strip (or rectangle) of the grid and the exchange of its edges with its neighbours'."""

import time
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from fields import fill_rows, read_side
from kernels import LEFT, GhostRows, Grid, allocate, unknowns
from mpi4py import MPI
from task import Contact, Parameters, RankStrip

SOUTHWARD, NORTHWARD = 1, 2
NO_GHOSTS = GhostRows()


class Strip:
    """Two arrays that take turns, and the forcing if there is a source.

    The forcing is ``0.25 h^2 f`` with ``h = 1 / (n + 1)``: the sweep then solves
    ``-laplace(u) = f`` on the unit square, the sides at 0 and 1.
    """

    def __init__(self, columns: int, arrays: tuple[Grid, Grid], forcing: Grid | None) -> None:
        self.columns, self.arrays, self.forcing = columns, arrays, forcing
        self.rows = len(arrays[0]) - 2

    @classmethod
    def begin(cls, parameters: Parameters, place: RankStrip) -> "Strip":
        """Return a rank's strip as it is before the first sweep."""
        columns = len(place.across(parameters.grid))
        arrays = allocate(place.rows, columns), allocate(place.rows, columns)
        strip = cls(columns, arrays, None)
        fill_first(strip.arrays[0], parameters, place)
        set_sides(strip.arrays[1], parameters, place)
        if parameters.source != "":
            strip.forcing = allocate(place.rows, columns)
            fill_forcing(strip.forcing, parameters, place)
        return strip

    @property
    def grids(self) -> tuple[Grid, ...]:
        """All arrays there are."""
        return self.arrays if self.forcing is None else (*self.arrays, self.forcing)

    def inside(self, turn: int) -> Grid:
        """Return the unknowns as the array of this turn (0 or 1) has them."""
        return unknowns(self.arrays[turn], self.columns)


def fill_first(array: Grid, parameters: Parameters, place: RankStrip) -> None:
    """Write the unknowns of a strip before the first sweep, and its sides."""
    grid, columns = parameters.grid, place.across(parameters.grid)
    inside = unknowns(array, len(columns))
    fill_rows("initial", parameters.initial, inside, place.first_row, grid, columns.start)
    set_sides(array, parameters, place)


def fill_forcing(array: Grid, parameters: Parameters, place: RankStrip) -> None:
    """Write the forcing of a strip."""
    grid, columns = parameters.grid, place.across(parameters.grid)
    inside = unknowns(array, len(columns))
    fill_rows("source", parameters.source, inside, place.first_row, grid, columns.start)
    np.multiply(inside, 0.25 * (1.0 / (grid + 1)) ** 2, inside)


def set_sides(array: Grid, parameters: Parameters, place: RankStrip) -> None:
    """Write the fixed values around a strip, those around the grid."""
    grid, rows, columns = parameters.grid, place.down, place.across(parameters.grid)
    wide = slice(LEFT, LEFT + len(columns))
    for name, value, there, part, here in (
        ("top", parameters.top, rows.start == 0, columns, (0, wide)),
        ("bottom", parameters.bottom, rows.stop == grid, columns, (-1, wide)),
        ("left", parameters.left, columns.start == 0, rows, (slice(1, -1), LEFT - 1)),
        ("right", parameters.right, columns.stop == grid, rows, (slice(1, -1), wide.stop)),
    ):
        if there:
            side = read_side(name, value, grid)
            array[here] = side if isinstance(side, float) else side[part.start : part.stop]


def ghost_rows(parameters: Parameters, place: RankStrip, sweeps: int) -> GhostRows:
    """Return room for so many rows of each neighbour of a strip, with the forcing of these rows."""
    grid, end = parameters.grid, place.first_row + place.rows
    rows: list[Grid | None] = []
    forcing: list[Grid | None] = []
    for there, first in ((place.first_row > 0, place.first_row - sweeps), (end < grid, end)):
        rows.append(allocate(sweeps, grid) if there else None)
        forced = allocate(sweeps, grid) if there and parameters.source != "" else None
        if forced is not None:
            fill_forcing(forced, parameters, RankStrip(place.host, first, sweeps))
        forcing.append(forced)
    return GhostRows(*rows, *forcing)


class Halo:
    """Persistent requests for a strip's edges, one set for each of the two arrays.

    Attributes
    ----------
    sweeps
        Rows that each neighbour sends, and so the sweeps that can follow before the next exchange.
    ghosts
        Where they arrive if that is more than one; a single one arrives in the array itself.
    began
        When the exchange was started, by this rank's clock.
    ended
        When it had ended with each neighbour, in the order of their ranks.
    """

    def __init__(
        self, strip: Strip, comm: MPI.Intracomm, sweeps: int = 1, ghosts: GhostRows = NO_GHOSTS
    ) -> None:
        self.sweeps, self.ghosts = sweeps, ghosts
        self._serve(_requests(array, self, strip.columns, comm) for array in strip.arrays)

    @classmethod
    def of_rectangle(
        cls, strip: Strip, comm: MPI.Intracomm, place: RankStrip, contacts: Sequence[Contact]
    ) -> "Halo":
        """Return the exchange of one line of points with every rectangle that touches this one."""
        halo = cls.__new__(cls)
        halo.sweeps, halo.ghosts = 1, NO_GHOSTS
        halo._serve(
            [_at_contact(array, place, one, comm) for one in contacts] for array in strip.arrays
        )
        return halo

    def _serve(self, sets: Iterable[list[list[MPI.Prequest]]]) -> None:
        self.sets = tuple(sets)
        self.tests = tuple([_test_of(one) for one in both] for both in self.sets)
        self.began = 0.0
        self.ended: list[float] = []

    def start(self, turn: int) -> None:
        """Send the edges of one array and ask for its halo."""
        self.began = time.perf_counter()
        self.ended = [0.0] * len(self.sets[turn])
        for requests in self.sets[turn]:
            MPI.Prequest.Startall(requests)

    def done(self, turn: int) -> bool:
        """Whether the exchange has ended and both edges and halo may be touched."""
        for k, test in enumerate(self.tests[turn]):
            if not self.ended[k] and test():
                self.ended[k] = time.perf_counter()
        return all(self.ended)

    def free(self) -> None:
        """Give the requests back; to be called before the communicator goes."""
        for both in self.sets:
            for requests in both:
                for request in requests:
                    request.Free()


def _requests(
    array: Grid, halo: Halo, columns: int, comm: MPI.Intracomm
) -> list[list[MPI.Prequest]]:
    """Return the requests at each neighbour, the one above first."""
    rank, size, sweeps = comm.Get_rank(), comm.Get_size(), halo.sweeps
    above: Grid | None
    below: Grid | None
    if sweeps == 1:
        above, first, last, below = (
            array[index, LEFT : LEFT + columns] for index in (0, 1, -2, -1)
        )
    else:
        # Whole rows, so that they are one piece, with the fixed values at their sides.
        first, last = array[1 : 1 + sweeps], array[-1 - sweeps : -1]
        above, below = (
            ghost if ghost is None else ghost[1 : 1 + sweeps] for ghost in halo.ghosts[:2]
        )
    requests = []
    if rank > 0:
        receive = comm.Recv_init(above, rank - 1, SOUTHWARD)
        requests.append([receive, comm.Send_init(first, rank - 1, NORTHWARD)])
    if rank < size - 1:
        receive = comm.Recv_init(below, rank + 1, NORTHWARD)
        requests.append([receive, comm.Send_init(last, rank + 1, SOUTHWARD)])
    return requests


def _at_contact(
    array: Grid, place: RankStrip, one: Contact, comm: MPI.Intracomm
) -> list[MPI.Prequest]:
    """Return the requests at one neighbour of a rectangle; two rectangles touch at one side only."""
    halo, edge = (_window(array, place, points) for points in (one.halo, one.edge))
    requests = [
        comm.Recv_init(halo, one.rank, SOUTHWARD),
        comm.Send_init(edge, one.rank, SOUTHWARD),
    ]
    for window in (halo, edge):
        window[2].Free()  # MPI keeps it for as long as a request needs it
    return requests


def _window(
    array: Grid, place: RankStrip, points: tuple[range, range]
) -> tuple[Grid, int, MPI.Datatype]:
    """Return some points of the grid as a message from or into the array: of a column, numbers a pitch apart."""
    rows, columns = points
    pitch = array.shape[1]
    first = (rows.start - place.first_row + 1) * pitch + columns.start - place.first_column + LEFT
    kind = MPI.DOUBLE.Create_vector(len(rows), len(columns), pitch).Commit()
    return array.reshape(-1)[first:], 1, kind


def _test_of(requests: list[MPI.Prequest]) -> Callable[[], bool]:
    return lambda: MPI.Request.Testall(requests)
