"""The block table: decompositions of the Dynamite paper, moves, and objects as bytes."""

import contextlib

import numpy as np
import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from apples.errors import ApplicationError, UsageError
from apples.malleable import BlockTable, Decomposition, Processor, packed, runs, unpacked

SPEEDS = st.lists(st.floats(0.1, 10), min_size=2, max_size=6)
KINDS = st.sampled_from(["tight", "redundant", "redundant:1", "redundant:9", "sparse", "sparse:1"])


@given(kind=KINDS, speeds=SPEEDS)
@settings(max_examples=examples(50))
def test_shares_add_up_and_every_block_begins_somewhere(kind, speeds):
    processors = [Processor(f"h{i}", speed) for i, speed in enumerate(speeds)]
    decomposition = Decomposition.read(kind)
    shares, table = decomposition.shares(processors), decomposition.begin(processors)
    assert len(shares) == len(table) == decomposition.blocks(len(processors))
    assert sum(shares) == pytest.approx(1)
    assert set(table.owners) <= set(range(len(processors)))


def test_a_sparse_decomposition_leaves_the_slowest_processors_idle():
    processors = [Processor("a", 1.0), Processor("b", 0.5), Processor("c", 2.0)]
    assert Decomposition.read("sparse").begin(processors).owners == (0, 2)
    assert Decomposition.read("sparse").shares(processors) == pytest.approx((1 / 3, 2 / 3))


def test_a_tight_fit_has_one_block_a_processor_in_proportion():
    processors = [Processor("a", 1.0), Processor("b", 3.0)]
    assert Decomposition.read("tight").begin(processors).owners == (0, 1)
    assert Decomposition.read("tight").shares(processors) == (0.25, 0.75)


@pytest.mark.parametrize(
    "text", ["", "loose", "tight:2", "sparse:0", "redundant:", "redundant:-1", "redundant:999999"]
)
def test_a_decomposition_nobody_knows_is_refused_with_what_there_is(text):
    with pytest.raises(UsageError) as refused:
        Decomposition.read(text)
    assert refused.value.code == "value-invalid"
    assert refused.value.fields == {"field": "decomposition", "value": text}


def test_a_sparse_decomposition_without_blocks_says_how_many_processors_it_needs():
    with pytest.raises(UsageError) as refused:
        Decomposition.read("sparse:2").blocks(2)
    assert refused.value.code == "value-range"
    assert refused.value.fields == {"field": "processors", "value": 2, "bound": 3}


def test_runs_of_no_blocks_are_refused():
    with pytest.raises(UsageError) as refused:
        runs(0, [Processor("a")])
    assert (refused.value.code, refused.value.fields["value"]) == ("value-range", 0)


def test_moves_name_the_blocks_that_change_hands():
    assert BlockTable((0, 1)).moves(BlockTable((0, 1))) == {}
    assert BlockTable((0, 1)).moves(BlockTable((1, 1))) == {0: (0, 1)}


SHAPES = st.lists(st.integers(0, 4), max_size=3)
NUMBERS = st.sampled_from(["<f8", "<i4", "|u1", "<c16", "|b1", ">f4"])


@given(st.dictionaries(st.text(max_size=8), st.tuples(NUMBERS, SHAPES), max_size=4))
@settings(max_examples=examples(50))
def test_arrays_come_back_as_they_went(kinds):
    random = np.random.default_rng(1)
    named = {
        name: random.integers(0, 2, size=shape).astype(dtype)
        for name, (dtype, shape) in kinds.items()
    }
    back = unpacked(packed(named))
    assert list(back) == list(named)
    for name, value in named.items():
        assert back[name].dtype == value.dtype
        assert back[name].shape == value.shape
        assert back[name].tobytes() == value.tobytes()
        assert back[name].flags.writeable


@given(st.data())
@settings(max_examples=examples(100))
def test_damaged_bytes_are_refused_and_never_believed(data):
    whole = packed({"x": np.arange(5.0), "n": np.arange(3)})
    kind = data.draw(st.sampled_from(["cut", "flip", "foreign"]))
    if kind == "cut":
        whole = whole[: data.draw(st.integers(0, len(whole) - 1))]
    elif kind == "flip":
        place = data.draw(st.integers(0, 50))
        whole[place] ^= data.draw(st.integers(1, 255))
    else:
        whole = np.frombuffer(data.draw(st.binary(max_size=80)), dtype=np.uint8)
    # What still reads as a block is one; anything else is refused, and nothing else is raised.
    with contextlib.suppress(ApplicationError):
        unpacked(whole, "cells 3")


@pytest.mark.parametrize(
    ("sent", "damaged"),
    [(b"<f8", b",f8"), (b"<f8", b"<,8"), (b"<f8", b"|O8"), (b"5, 2", b"[],2")],
)
def test_a_type_or_shape_that_numpy_cannot_take_is_damage(sent, damaged):
    whole = packed({"x": np.zeros((5, 2))}).tobytes()
    assert sent in whole
    with pytest.raises(ApplicationError) as refused:
        unpacked(np.frombuffer(whole.replace(sent, damaged), np.uint8), "cells 3")
    assert refused.value.code == "block-damaged"


def test_a_length_beyond_64_bits_is_damage():
    whole = packed({"x": np.zeros((0, 10**18), np.uint8)}).tobytes()
    damaged = whole.replace(b"1" + 18 * b"0", 19 * b"9")
    with pytest.raises(ApplicationError) as refused:
        unpacked(np.frombuffer(damaged, np.uint8), "cells 3")
    assert refused.value.code == "block-damaged"


def test_a_damaged_block_is_named():
    with pytest.raises(ApplicationError) as damaged:
        unpacked(packed({"x": np.arange(5.0)})[:-16], "cells 3")
    assert (damaged.value.code, damaged.value.fields["block"]) == ("block-damaged", "cells 3")


@pytest.mark.parametrize("wrong", [{"x": np.array([object()])}, {1: np.zeros(1)}, {"x": ["a"]}])
def test_what_cannot_travel_is_refused_where_it_is_packed(wrong):
    with pytest.raises(UsageError) as refused:
        packed(wrong)
    (name,) = wrong
    assert (refused.value.code, refused.value.fields["name"]) == ("pack-invalid", str(name))
    with pytest.raises(UsageError) as refused:
        packed([1.0])
    assert (refused.value.code, refused.value.fields) == ("pack-invalid", {"value": "list"})
