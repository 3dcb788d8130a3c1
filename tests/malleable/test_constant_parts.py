"""Constant parts come whole to whoever proves to be a rank of the change, and to nobody else."""

import socket
import threading
from pathlib import Path

import numpy as np
import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from mpi4py import MPI

from apples.launch import addresses, interface_of
from apples.malleable import (
    ConstantParts,
    CsrMatrix,
    RowArray,
    RowRange,
    TileArray,
    constant_parts,
    locations,
)

ROWS, COLUMNS = 12, 30
SECRET = "5" * 32
NOTHING = RowRange(0, 0)
WAIT = 30.0


def number(rows, block):
    block[...] = np.array(rows)[:, None]


def number_tile(index, block):
    rows, columns = map(np.array, index)
    block[...] = 100.0 * rows[:, None] + columns


def entries(rows):
    counts = np.array(rows) % 4
    indices = np.concatenate([np.arange(n) for n in counts])
    return np.concatenate(([0], np.cumsum(counts))), indices, indices + 1.0


def declared():
    rows = RowArray("rows", (ROWS, 3), halo=1, fill=number, constant=True)
    tiles = TileArray("tiles", (ROWS, COLUMNS), fill=number_tile, constant=True)
    sparse = CsrMatrix("sparse", (ROWS, COLUMNS), entries, constant=True)
    return rows, tiles, sparse


def held(strip):
    """Return arrays of which this rank has a strip, and all of them in a row."""
    rows, tiles, sparse = declared()
    for one in (rows, tiles):
        one.begin(one.parts([strip]), 0)
    sparse.begin(MPI.COMM_SELF, [strip])
    return [rows, tiles, *sparse.arrays]


class Fetched:
    """Waits for the word of one rank."""

    def __init__(self):
        self.event, self.whole = threading.Event(), None

    def __call__(self, whole):
        self.whole = whole
        self.event.set()

    def wait(self):
        assert self.event.wait(WAIT)
        return self.whole


def moved(parts, bytes_a_piece=1 << 20, secret=SECRET):
    """Have rank 1, which joins, fetch its rows from rank 0, which has all; return both ends and what came."""
    constant_parts.PIECE_BYTES = bytes_a_piece
    old, new = [RowRange(0, ROWS), NOTHING], parts
    rows, tiles, sparse = declared()
    has, gets = held(old[0]), [rows, tiles, *sparse.arrays]
    for one in has:
        one.locate(MPI.COMM_SELF, old, new)
    places = locations(has)
    for one in gets:
        one.place(places.get(one.name))
    giver = ConstantParts(has, old, new, 0, SECRET)
    taker, told = ConstantParts(gets, old, new, 1, secret), Fetched()
    source = giver.give()
    taker.fetch([source, ([], 0)], told)
    return giver, taker, told, has, gets


@given(cut=st.integers(0, ROWS), first=st.booleans(), piece=st.sampled_from([1, 7, 100, 1 << 20]))
@settings(max_examples=examples(12), deadline=None)
def test_what_a_rank_is_to_have_comes_to_it_as_it_was(cut, first, piece):
    mine = RowRange(0, cut) if first else RowRange(cut, ROWS)
    left = RowRange(cut, ROWS) if first else RowRange(0, cut)
    new = [left, mine]
    giver, taker, told, has, gets = moved(new, piece)
    assert told.wait() is True
    assert taker.received == sum(
        one.size(one.owned(one.parts([RowRange(0, ROWS)])[0]) & one.needed(one.parts(new)[1]))
        for one in has
    )
    for one in gets:
        one.arrive()
    if len(mine):
        rows, tiles, *_ = gets
        expected = np.arange(mine.first - 1, mine.stop + 1)[:, None]
        assert (rows.local == expected).all()
        whole = has[1].local
        assert np.array_equal(tiles.own, whole[tiles.tile.slices])
        at = has[2].local[1:]
        begin, end = at[mine.first], at[mine.stop] if mine.stop < ROWS else has[3].own.size
        for one, other in zip(gets[3:], has[3:], strict=True):
            assert np.array_equal(one.own, other.own[begin:end])
    giver.close()
    taker.close()


def test_who_does_not_know_the_secret_gets_nothing():
    giver, taker, told, _, gets = moved([NOTHING, RowRange(0, ROWS)], secret="6" * 32)
    assert told.wait() is False
    assert taker.received == 0
    taker.forget()
    giver.forget()
    assert not any(one.expecting for one in gets)


@pytest.mark.parametrize("said", [b"", b"\0" * 36, b"\0\0\0\1" + b"x" * 32, b"\xff" * 36])
def test_a_stranger_gets_not_a_byte(said):
    old, new = [RowRange(0, ROWS), NOTHING], [NOTHING, RowRange(0, ROWS)]
    has = held(old[0])
    giver = ConstantParts(has, old, new, 0, SECRET)
    found, port = giver.give()
    with socket.create_connection((found[-1], port), WAIT) as stranger:
        stranger.sendall(said)
        stranger.shutdown(socket.SHUT_WR)
        assert stranger.recv(1) == b""
    giver.close()


def test_threads_end_with_the_change_whoever_is_at_the_other_end():
    before = set(threading.enumerate())
    old, new = [RowRange(0, ROWS), NOTHING], [NOTHING, RowRange(0, ROWS)]
    silent = socket.create_server(("127.0.0.1", 0))
    taker, told = ConstantParts(held(NOTHING)[:1], old, new, 1, SECRET), Fetched()
    giver = ConstantParts(held(old[0]), old, new, 0, SECRET)
    found, port = giver.give()
    caller = socket.create_connection((found[-1], port), WAIT)
    taker.fetch([(["127.0.0.1"], silent.getsockname()[1])], told)
    silent.accept()[0].close()
    assert told.wait() is False
    taker.close()
    giver.close()
    assert set(threading.enumerate()) <= before
    caller.close()
    silent.close()


def test_what_came_ahead_of_a_change_that_is_refused_is_given_back():
    size = 4 << 20
    array = RowArray("big", (8, size // 8), constant=True, fill=number)
    array.begin(array.parts([RowRange(0, 2), RowRange(2, 8)]), 0)
    there = array.expect(array.parts([RowRange(0, 8), NOTHING]), 0)
    address, before = array.local.ctypes.data, array.local.copy()
    there.bytes(array.parts([RowRange(2, 8)])[0])[...] = 1
    taken = needed_bytes()
    array.give_up()
    assert taken - needed_bytes() >= 5 * size
    assert array.local.ctypes.data == address
    assert (array.local == before).all()


def needed_bytes():
    """Return the bytes that this process has, but those that the kernel may take when it needs some."""
    signs = {"Rss:": 1, "Swap:": 1, "LazyFree:": -1}
    words = (line.split() for line in Path("/proc/self/smaps").read_text().splitlines())
    return 1024 * sum(signs.get(name, 0) * int(size) for name, size, *_ in words if name in signs)


def test_addresses_are_those_of_the_interfaces_that_are_named():
    assert addresses("lo") == ["127.0.0.1"]
    every = addresses()
    assert every[-1] == "127.0.0.1"
    for one in every:
        assert one in addresses(interface_of(one))
    assert addresses("none0") == []
