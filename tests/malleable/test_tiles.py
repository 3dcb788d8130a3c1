"""Tiles: every cell once, areas as the strips', shortest borders; a change sends each cell at most once."""

from itertools import accumulate, pairwise, product

import numpy as np
import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from mpi4py import MPI

from apples.malleable import (
    CsrMatrix,
    DeclarationError,
    RowArray,
    RowRange,
    TileArray,
    bands,
    tiles,
    transfers,
)

HEIGHTS = st.lists(st.integers(1, 40), min_size=1, max_size=9)


def strips_of(heights):
    return [RowRange(a, b) for a, b in pairwise(accumulate(heights, initial=0))]


@given(HEIGHTS, st.integers(1, 60))
@settings(max_examples=examples(60))
def test_tiles_cover_every_cell_once_and_no_rank_has_none(heights, columns):
    seen = np.zeros((sum(heights), columns), int)
    for one in tiles(strips_of(heights), columns):
        assert len(one)
        seen[one.slices] += 1
    assert (seen == 1).all()


@given(HEIGHTS, st.integers(20, 60))
@settings(max_examples=examples(60))
def test_a_tile_has_the_area_of_its_strip_to_a_column(heights, columns):
    for one, rows in zip(tiles(strips_of(heights), columns), heights, strict=True):
        share = rows * columns / len(one.rows)
        assert max(1.0, share - 1) <= len(one.columns) + 1e-9 or share < 1
        assert len(one.columns) <= max(1.0, share + 1) + 1e-9


def border(counts, heights, columns):
    """Return the length of all borders between tiles, the outer frame's last row of them included."""
    left = iter(heights)
    return sum((n - 1) * sum(next(left) for _ in range(n)) + columns for n in counts)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=7), st.integers(1, 60))
@settings(max_examples=examples(40))
def test_no_other_bands_have_shorter_borders(heights, columns):
    def divisions(count):
        for cuts in product([False, True], repeat=count - 1):
            ends = [0, *(i + 1 for i, cut in enumerate(cuts) if cut), count]
            yield [b - a for a, b in pairwise(ends)]

    allowed = [one for one in divisions(len(heights)) if max(one) <= columns]
    best = min(border(one, heights, columns) for one in allowed)
    found = bands(heights, columns)
    assert border(found, heights, columns) == best
    assert max(found) <= columns


@st.composite
def changes(draw):
    """Return an array's shape, and each rank's strip before and after; ranks may join and leave."""
    ranks, halo = draw(st.integers(1, 6)), draw(st.integers(0, 3))
    rows, columns = draw(st.integers(ranks, 40)), draw(st.integers(1, 40))

    def layout():
        members = draw(st.permutations(range(ranks)))[: draw(st.integers(1, ranks))]
        cuts = draw(
            st.lists(
                st.integers(1, rows - 1), unique=True,
                min_size=len(members) - 1, max_size=len(members) - 1,
            )
            if rows > 1 else st.just([])
        )  # fmt: skip
        ranges = strips_of([b - a for a, b in pairwise([0, *sorted(cuts), rows])])
        placed = dict(zip(members, ranges, strict=True))
        return [placed.get(rank, RowRange(0, 0)) for rank in range(ranks)]

    return rows, columns, halo, layout(), layout()


def numbered(array):
    """Write its number into every cell of a part, halos included, as `fill` would."""
    part = array.needed(array.tile)
    rows, columns = (np.arange(r.first, r.stop) for r in (part.rows, part.columns))
    if len(part):
        array.local[...] = (1e3 * rows[:, None] + columns).reshape(array.local.shape)


def right(array):
    before = array.local.copy()
    numbered(array)
    return np.array_equal(before, array.local)


@given(changes())
@settings(max_examples=examples(60), deadline=None)
@pytest.mark.parametrize("kind", ["rows", "tiles"])
def test_after_a_change_everyone_has_its_part_and_each_cell_came_once(kind, change):
    """Ranks and their messages are played by this process: a message is a copy."""
    rows, columns, halo, old, new = change

    def made():
        if kind == "rows":
            return RowArray("u", (rows,), halo=halo)
        return TileArray("u", (rows, columns), halo=halo)

    every = [made() for _ in old]
    for rank, array in enumerate(every):
        array.allocate(array.parts(old), rank)
        numbered(array)
    first = every[0]
    before, after = first.parts(old), first.parts(new)
    owned, needed = [first.owned(t) for t in before], [first.needed(t) for t in after]
    plans = [transfers(rank, owned, needed) for rank in range(len(old))]
    memories = [array.expect(after, rank) for rank, array in enumerate(every)]
    for rank, array in enumerate(every):
        came = sum(len(part) for _, part in plans[rank].receives)
        stays = owned[rank] & needed[rank]
        assert came == len(needed[rank]) - len(stays)
        for other, part in plans[rank].receives:
            assert (rank, part) in plans[other].sends
            memories[rank].bytes(part)[...] = every[other].bytes(part)
        array.keep()
    for array in every:
        array.arrive()
        assert right(array)


@pytest.mark.parametrize(
    ("given_rows", "field"),
    [
        (([0], [], []), "indptr"),
        (([0, 2, 1, 2], [0, 1], [1.0, 1.0]), "indptr"),
        (([0.0, 0.5, 1.0, 2.0], [0, 1], [1.0, 1.0]), "indptr"),
        (([0, 1, 1, 2], [0], [1.0]), "entries"),
        (([0, 1, 1, 2], [0, 9], [1.0, 1.0]), "columns"),
        (([0, 1, 1, 2], [0, 3], [1j, 1.0]), "data"),
        (([0, 1, 1, 2], [0.5, 3], [1.0, 1.0]), "indices"),
        (np.eye(3), "type"),
    ],
)
def test_rows_that_are_no_rows_of_the_matrix_are_refused_in_one_line(given_rows, field):
    matrix = CsrMatrix("A", (3, 4), lambda *_: given_rows)
    with pytest.raises(DeclarationError) as refused:
        matrix.begin(MPI.COMM_SELF, [RowRange(0, 3)])
    assert "\n" not in str(refused.value)
    assert refused.value.code == "fill-invalid"
    expected = {"name": "A", "field": field, "rows": [0, 2]}
    assert refused.value.fields.items() >= expected.items()


@pytest.mark.parametrize(
    ("declare", "code", "fields"),
    [
        (
            lambda: TileArray("t", (5,)),
            "declared-shape-invalid",
            {"name": "t", "value": [5], "halo": 0},
        ),
        (lambda: TileArray("t", (5, 0)), "declared-shape-invalid", {"value": [5, 0]}),
        (lambda: TileArray("t", (5, 5), halo=-1), "declared-shape-invalid", {"halo": -1}),
        (lambda: TileArray("t", (5, 5), object), "type-unsupported", {"name": "t"}),
        (
            lambda: CsrMatrix("A", (5,), list),
            "declared-shape-invalid",
            {"name": "A", "value": [5]},
        ),
        (lambda: CsrMatrix("A", (5, 5), list, object), "type-unsupported", {}),
        (lambda: CsrMatrix("A", (5, 5), np.eye(5)), "fill-invalid", {"value": "ndarray"}),
    ],
)
def test_what_cannot_be_shared_out_is_refused_where_it_is_declared(declare, code, fields):
    with pytest.raises(DeclarationError) as refused:
        declare()
    assert refused.value.code == code
    assert refused.value.fields.items() >= fields.items()
