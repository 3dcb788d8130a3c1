"""Size expressions have the values of arithmetic, within bounds, and nothing else."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import assert_problem
from pydantic import BaseModel

from hat import DocumentError, Expression, ExpressionError, dump, parse, schema

VALUES = {"grid": 100, "n": 7, "share": 0.5}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("grid*grid", 10_000),
        ("8 * grid", 800),
        ("max(grid, 2)//3", 33),
        ("min(grid, n, 3)", 3),
        ("-(grid - n) % 10", 7),
        ("+n/2", 3.5),
        ("2**n", 128),
        ("n**-1", 1 / 7),
        ("ceil(grid*share + 0.2)", 51),
        ("floor(log2(grid))", 6),
        ("sqrt(grid)", 10),
        ("1_000", 1000),
        ("1e3", 1000),
        (" ( n ) ", 7),
    ],
)
def test_an_expression_has_its_value(text, value):
    assert Expression(text).evaluate(VALUES) == value


@pytest.mark.parametrize(
    ("text", "code", "parameters"),
    [
        ("10**10**10", "value-range", {}),
        ("9**9**9**9", "value-range", {}),
        ("grid**10", "value-range", {"grid": 100}),
        ("1e18*1e18", "value-range", {}),
        ("1e999", "value-range", {}),
        ("grid/(n-7)", "expression-undefined", {"grid": 100, "n": 7}),
        ("n%0", "expression-undefined", {"n": 7}),
        ("0**-1", "expression-undefined", {}),
        ("(-8)**share", "expression-undefined", {"share": 0.5}),
        ("sqrt(-n)", "expression-undefined", {"n": 7}),
        ("log2(0)", "expression-undefined", {}),
        ("rows", "parameter-missing", {}),
    ],
)
def test_an_expression_without_a_value_has_a_code_and_its_parameters(text, code, parameters):
    with pytest.raises(ExpressionError) as caught:
        Expression(text).evaluate(VALUES)
    error = caught.value
    assert (error.code, error.fields["value"], error.fields["parameters"]) == (
        code,
        text,
        parameters,
    )
    assert all(f"{name} = {value}" in str(error) for name, value in parameters.items())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "grid +",
        "().__class__",
        "grid.real",
        "__import__('os')",
        "eval(grid)",
        "grid[0]",
        "[1]",
        "'a'",
        "1j",
        "True",
        "1 if grid else 2",
        "lambda: 1",
        "1or 2",
        "grid and n",
        "grid < n",
        "~n",
        "n << 3",
        "n @ n",
        "sqrt",
        "sqrt(n, n)",
        "min(n)",
        "max(*n)",
        "log2(x=n)",
        "(n := 3)",
        "gríd",
        "n\n+1",
        "1" * 201,
        "(" * 100 + "1" + ")" * 100,
        "-" * 150 + "1",
    ],
)
def test_anything_else_is_refused(text):
    with pytest.raises(ExpressionError) as caught:
        Expression(text)
    assert caught.value.code == (
        "expression-too-long" if len(text) > 200 else "expression-invalid"
    )
    assert str(caught.value).isprintable()


def test_an_expression_knows_its_parameters():
    assert Expression("max(grid, n) + ceil(grid/2)").names == {"grid", "n"}


@given(
    st.recursive(
        st.sampled_from(["grid", "n", "2", "3.5"]),
        lambda e: st.builds("({} {} {})".format, e, st.sampled_from(["+", "-", "*", "//"]), e),
        max_leaves=8,
    )
)
def test_values_agree_with_python(text):
    try:
        expected = eval(text, {"__builtins__": {}}, dict(VALUES))  # noqa: S307 - generated here
    except ZeroDivisionError:
        return
    assert math.isclose(Expression(text).evaluate(VALUES), expected)


def test_an_expression_is_taken_as_a_field_as_it_is():
    assert Sized(size=Expression("2*n")).size.evaluate({"n": 4}) == 8


class Sized(BaseModel):
    size: Expression


def test_a_field_takes_text_and_numbers_and_is_written_as_text():
    sized = parse('size = "8*grid"', Sized)
    assert sized.size == Expression("8*grid") != Expression("grid*8")
    assert dump(sized) == 'size = "8*grid"\n'
    assert parse("size = 100", Sized).size.evaluate({}) == 100
    assert schema(Sized)["properties"]["size"]["anyOf"] == [{"type": "string"}, {"type": "number"}]


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("'10**10**10'", "value-range"),
        ("'a.b'", "expression-invalid"),
        ("true", "value-type"),
        ("nan", "value-range"),
        ("[1]", "value-type"),
        ("9e99", "value-range"),
    ],
)
def test_a_field_refuses_at_load_what_has_no_value(value, code):
    with pytest.raises(DocumentError) as caught:
        parse(f"size = {value}", Sized, source="t")
    assert_problem(caught.value.problems[0], (1, "size", code))
