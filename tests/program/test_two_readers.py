"""The readers of a task, `apples.program` and that of a job without it, accept and refuse the same tasks."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apples.malleable import AgentTaskError, read_agent_task
from apples.program import STRIP, TaskError, read_task

TASK = {
    "schema": "apples.task/1",
    "mode": "run",
    "parameters": {"grid": 24},
    "sizes": [8, 16],
    "distances": {"ada": {"bob": 1.0}, "bob": {"ada": 2}},
    "partitions": "tight",
    "partition": [
        {"host": "ada", "address": "127.0.0.1", "ranks": 2, "first_row": 0, "rows": 17},
        {"host": "bob", "address": "127.0.0.2", "ranks": 1, "first_row": 17, "rows": 7},
    ],
}
READ_BY_BOTH = ("schema", "mode", "distances", "partitions", "partition")


def found_by(read, error, text):
    """What a reader makes of a task: the parts that both read, or its refusal."""
    try:
        task = read(text)
    except error as refused:
        return refused.code, str(refused), refused.fields
    pieces = [{name: getattr(piece, name) for name in STRIP} for piece in task.pieces]
    return task.mode, pieces, task.distances, task.partitions


def both(text):
    """What each of the two readers makes of a task."""
    return found_by(read_agent_task, AgentTaskError, text), found_by(read_task, TaskError, text)


def strips(*pieces):
    return [dict(zip(STRIP, piece, strict=True)) for piece in pieces]


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"mode": "calibrate"},
        {"mode": "calibrate", "partition": None},
        {"distances": {}},
        {"distances": {"ada": {}}},
        {"partitions": ""},
        {"partition": strips(("ada", 1, 0, 1))},
        {"partition": strips(("bob", 3, 5, 3), ("ada", 1, 0, 5))},
        {"partition": strips(("ada", 1, 0, 4), ("ada", 2, 4, 4))},
        {"unknown": [1, 2]},
    ],
)
def test_both_accept_a_good_task_and_read_the_same(change):
    one, other = both(json.dumps(TASK | change))
    assert one == other
    assert one[0] == (TASK | change)["mode"]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"schema": "apples.task/2"}, "task-invalid"),
        ({"schema": None}, "task-invalid"),
        ({"mode": "dream"}, "task-invalid"),
        ({"mode": []}, "task-invalid"),
        ({"distances": []}, "task-invalid"),
        ({"distances": {"ada": {"bob": 0}}}, "task-invalid"),
        ({"distances": {"ada": {"bob": True}}}, "task-invalid"),
        ({"distances": {"ada": {"bob": float("nan")}}}, "task-invalid"),
        ({"distances": {"ada": {"bob": float("inf")}}}, "task-invalid"),
        ({"partitions": None}, "task-invalid"),
        ({"partition": []}, "task-invalid"),
        ({"partition": {}}, "task-invalid"),
        ({"partition": ["ada"]}, "partition-invalid"),
        ({"partition": [{"host": "ada"}]}, "partition-invalid"),
        ({"partition": strips((7, 1, 0, 5))}, "partition-invalid"),
        ({"partition": strips(("ada", 1, 0, True))}, "partition-invalid"),
        ({"partition": strips(("ada", 1, 0, 5.0))}, "partition-invalid"),
        ({"partition": strips(("ada", 0, 0, 5))}, "partition-invalid"),
        ({"partition": strips(("ada", 6, 0, 5))}, "partition-invalid"),
        ({"partition": strips(("ada", 1, 1, 5))}, "partition-invalid"),
        ({"partition": strips(("ada", 1, 0, 5), ("bob", 1, 6, 5))}, "partition-invalid"),
        ({"partition": strips(("ada", 1, 0, 5), ("bob", 1, 4, 5))}, "partition-invalid"),
        ({"partition": [strips(("ada", 1, 0, 5))[0] | {"first_column": 0, "columns": 5}]},
         "rectangles-undeclared"),
    ],
)  # fmt: skip
def test_both_refuse_a_bad_task_with_the_same_code_and_message(change, code):
    one, other = both(json.dumps(TASK | change))
    assert one == other
    assert one[0] == code


@pytest.mark.parametrize(
    ("text", "code"),
    [("", "task-not-json"), ("{", "task-not-json"), (b"\xff", "task-not-json"), ("[]", "task-invalid")],
)  # fmt: skip
def test_both_refuse_a_text_that_is_no_object_alike(text, code):
    one, other = both(text)
    assert one == other
    assert one[0] == code


LEAVES = (
    st.none() | st.booleans() | st.integers(-1, 30) | st.floats() | st.sampled_from(["", "ada"])
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["ada", "bob", *STRIP]), inner, max_size=3)
    ),
    max_leaves=6,
)
PIECES = st.fixed_dictionaries(
    {"host": st.sampled_from(["ada", "bob"]), "ranks": st.integers(0, 3)}
    | {"first_row": st.sampled_from([0, 0, 4, 8]), "rows": st.sampled_from([4, 4, 1])}
)


@settings(max_examples=300, deadline=None)
@given(
    changes=st.dictionaries(st.sampled_from(READ_BY_BOTH), VALUES, max_size=2),
    pieces=st.none() | st.lists(PIECES | VALUES, max_size=3),
)
def test_both_agree_on_drawn_tasks(changes, pieces):
    task = TASK | ({} if pieces is None else {"partition": pieces}) | changes
    one, other = both(json.dumps(task))
    assert repr(one) == repr(other)  # NaN, which a refusal may hold, is not equal to itself
