import json

import numpy as np
import pytest
from fields import fill_rows, read_side
from hypothesis import given
from hypothesis import strategies as st
from jacobi2d_support import rectangles_task, run_task, validator
from task import TaskError, read_task, share_rows

CALIBRATE = {
    "schema": "apples.task/1",
    "mode": "calibrate",
    "parameters": {"grid": 9},
    "implementation": "numpy",
    "sizes": [1, 9],
}


def read(task):
    return read_task(json.dumps(task).encode())


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 30)), min_size=1, max_size=5))
def test_strips_are_contiguous_and_a_host_shares_as_equally_as_whole_rows_allow(hosts):
    pieces = [(ranks + more, ranks) for ranks, more in hosts]
    task = read(run_task({"grid": sum(rows for rows, _ in pieces)}, pieces))
    row = 0
    for strip in task.strips:
        assert strip.first_row == row
        row += strip.rows
    assert row == task.parameters.grid
    for index, (rows, ranks) in enumerate(pieces):
        shares = [strip.rows for strip in task.strips if strip.host == index]
        assert shares == share_rows(rows, ranks) == sorted(shares, reverse=True)
        assert max(shares) - min(shares) <= 1


@pytest.mark.parametrize(
    ("change", "code", "fields"),
    [
        ({"schema": "apples.task/2"}, "task-invalid", {"field": "schema"}),
        ({"mode": "walk"}, "task-invalid", {"field": "mode"}),
        ({"parameters": {}}, "program-parameter-missing", {"field": "grid"}),
        ({"parameters": {"grid": 6, "girth": 1}}, "program-parameter-unknown", {"field": "girth"}),
        ({"parameters": {"grid": 6.5}}, "parameter-type", {"field": "grid", "value": 6.5}),
        ({"parameters": {"grid": True}}, "parameter-type", {"field": "grid", "value": True}),
        (
            {"parameters": {"grid": 6, "iterations": 0}},
            "parameter-range",
            {"field": "iterations", "value": 0, "bound": 1},
        ),
        (
            {"parameters": {"grid": 6, "tolerance": -1}},
            "parameter-range",
            {"field": "tolerance", "value": -1.0, "bound": 0},
        ),
        ({"parameters": {"grid": 6, "top": "nan"}}, "parameter-type", {"field": "top"}),
        (
            {"parameters": {"grid": 6, "tolerance": 1e-3, "residual_every": 0}},
            "parameter-range",
            {"field": "residual_every", "value": 0, "bound": 1},
        ),
        ({"parameters": {"grid": 7}}, "program-rows-differ", {"value": 6, "bound": 7}),
        ({"partition": []}, "task-invalid", {"field": "partition"}),
        (
            {"partition": [{"host": "a", "ranks": 3, "first_row": 0, "rows": 2}]},
            "ranks-exceed-rows",
            {"index": 0, "value": 3, "bound": 2},
        ),
        (
            {"partition": [{"host": "a", "ranks": 1, "first_row": 1, "rows": 6}]},
            "partition-invalid",
            {"index": 0, "value": 1, "bound": 0},
        ),
        ({"save": True}, "task-invalid", {"field": "output"}),
        ({"implementations": {"h0": 3}}, "task-invalid", {"host": "h0"}),
    ],
)
def test_a_task_that_cannot_be_done_is_refused_with_its_reason(change, code, fields):
    with pytest.raises(TaskError) as raised:
        read(run_task({"grid": 6}, [(6, 2)]) | change)
    assert (raised.value.code, raised.value.fields) == (code, fields)


@pytest.mark.parametrize(
    ("text", "code"),
    [(b"", "task-not-json"), (b"{", "task-not-json"), (b"[]", "task-invalid"), (b"\xff", "task-not-json")],
)  # fmt: skip
def test_a_text_that_is_no_task_is_refused(text, code):
    with pytest.raises(TaskError) as raised:
        read_task(text)
    assert raised.value.code == code


@pytest.mark.parametrize("sizes", [None, [], [0], [1.5]])
def test_calibrate_wants_whole_positive_sizes(sizes):
    with pytest.raises(TaskError) as raised:
        read(CALIBRATE | {"sizes": sizes})
    assert raised.value.fields["field"] == "sizes"


def test_a_number_in_quotes_is_a_number():
    assert read(run_task({"grid": 6, "top": "2.5"}, [(6, 1)])).parameters.top == 2.5


def test_the_schema_takes_what_the_solver_takes_and_no_mixture_of_modes():
    valid = validator("task").is_valid
    task = run_task({"grid": 6}, [(4, 2), (2, 1)])
    assert valid(task)
    assert valid(CALIBRATE)
    assert not valid(task | {"sizes": [1]})
    assert not valid(CALIBRATE | {"partition": task["partition"]})
    assert not valid(task | {"partition": []})
    assert not validator("event").is_valid({"event": "error", "message": "two\nlines"})


def test_only_the_rows_asked_for_are_filled_whatever_the_number_type(tmp_path):
    whole = np.arange(36, dtype=">f4").reshape(6, 6)
    np.save(tmp_path / "u.npy", whole)
    rows = np.zeros((2, 6))
    fill_rows("initial", str(tmp_path / "u.npy"), rows, 3, 6)
    assert np.array_equal(rows, whole[3:5])


@pytest.mark.parametrize(
    ("values", "code"),
    [
        (np.zeros(5), "array-shape"),
        (np.zeros(6, complex), "array-type"),
        (np.full(6, np.inf), "array-not-finite"),
        (np.array([None] * 6), "array-unreadable"),
    ],
)
def test_a_profile_that_does_not_fit_is_refused_and_no_pickle_is_opened(tmp_path, values, code):
    np.save(tmp_path / "side.npy", values)
    with pytest.raises(TaskError) as raised:
        read_side("top", str(tmp_path / "side.npy"), 6)
    assert raised.value.code == code
    assert raised.value.fields == {"field": "top", "file": str(tmp_path / "side.npy")}


FOUR = [(0, 4, 0, 3, 2), (4, 2, 0, 3, 1), (0, 1, 3, 3, 1), (1, 5, 3, 3, 1)]


def test_ranks_share_the_rows_of_a_rectangle_and_touch_where_a_part_of_a_side_is_common():
    task = read(rectangles_task({"grid": 6}, FOUR))
    assert task.of_rectangles
    assert [(one.first_row, one.rows, one.first_column, one.columns) for one in task.strips] == [
        (0, 2, 0, 3), (2, 2, 0, 3), (4, 2, 0, 3), (0, 1, 3, 3), (1, 5, 3, 3),
    ]  # fmt: skip
    # 0 0 0 3 3 3
    # 0 0 0 4 4 4
    # 1 1 1 4 4 4
    # 1 1 1 4 4 4
    # 2 2 2 4 4 4
    # 2 2 2 4 4 4
    beside = {rank: [one.rank for one in task.contacts(rank)] for rank in range(5)}
    assert beside == {0: [1, 3, 4], 1: [0, 2, 4], 2: [1, 4], 3: [0, 4], 4: [0, 1, 2, 3]}
    for rank in range(5):
        for one in task.contacts(rank):
            (back,) = (other for other in task.contacts(one.rank) if other.rank == rank)
            assert (one.edge, one.halo) == (back.halo, back.edge)
    assert task.contacts(4)[1].edge == (range(2, 4), range(3, 4))
    assert task.contacts(4)[3].halo == (range(1), range(3, 6))


@pytest.mark.parametrize(
    ("tiles", "code", "fields"),
    [
        (
            [(0, 6, 0, 6, 1), (0, 1, 0, 1, 1)],
            "rectangles-incomplete",
            {"value": 37, "bound": 36},
        ),
        ([(0, 6, 0, 5, 1)], "rectangles-incomplete", {"value": 30, "bound": 36}),
        ([(0, 6, 0, 3, 1), (0, 6, 2, 3, 1)], "rectangles-overlap", {"row": 0}),
        ([(0, 6, 1, 6, 1)], "rectangle-invalid", {"index": 0}),
        ([(-1, 6, 0, 6, 1)], "rectangle-invalid", {"index": 0}),
        ([(0, 6, 0, 0, 1)], "rectangle-invalid", {"index": 0}),
        ([(0, 6, 0, 6, 7)], "ranks-exceed-rows", {"index": 0, "value": 7, "bound": 6}),
        ([(0, 0, 0, 6, 1)], "ranks-exceed-rows", {"index": 0, "value": 1, "bound": 0}),
        (
            [(0, 6, 0, 6.5, 1)],
            "parameter-type",
            {"field": "partition entry 0: columns", "value": 6.5},
        ),
    ],
)
def test_rectangles_that_are_no_partition_are_refused(tiles, code, fields):
    with pytest.raises(TaskError) as raised:
        read(rectangles_task({"grid": 6}, tiles))
    assert (raised.value.code, raised.value.fields) == (code, fields)


def test_strips_among_rectangles_are_refused():
    task = rectangles_task({"grid": 6}, FOUR)
    del task["partition"][2]["first_column"], task["partition"][2]["columns"]
    with pytest.raises(TaskError) as raised:
        read(task)
    assert raised.value.fields == {"field": "partition entry 2: first_column", "value": None}
