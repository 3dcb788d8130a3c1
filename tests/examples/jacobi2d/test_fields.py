"""Parameters and first contents of Jacobi2D."""

import numpy as np
import pytest
from fields import fill_rows, read_side
from parameters import Parameters

from apples.program import TaskError


@pytest.mark.parametrize(
    ("raw", "code", "fields"),
    [
        ({"top": "nan"}, "parameter-type", {"field": "top"}),
        (
            {"tolerance": 1e-3, "residual_every": 0},
            "parameter-range",
            {"field": "residual_every", "value": 0, "bound": 1},
        ),
    ],
)
def test_parameters_that_cannot_work_are_refused(raw, code, fields):
    with pytest.raises(TaskError) as raised:
        Parameters.read({"grid": 6, **raw})
    assert (raised.value.code, raised.value.fields) == (code, fields)


def test_a_number_in_quotes_is_a_number():
    assert Parameters.read({"grid": 6, "top": "2.5"}).top == 2.5


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
