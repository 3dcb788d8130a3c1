"""Whatever the bytes, reading gives a value or a `DocumentError`: never another exception."""

import math
import random

import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from apples.applications import rendered
from hat import (
    ApplicationTemplate,
    DocumentError,
    Expression,
    ExpressionError,
    UserSpecifications,
    check,
    dump,
    parse,
    schema,
)

MODELS = (ApplicationTemplate, UserSpecifications)

SCALARS = st.one_of(
    st.booleans(),
    st.sampled_from([10**400, -(2**63), 0, 1, 3, -1.5, 1e-9, math.nan, math.inf]),
    st.sampled_from(["1 GiB", "9" * 400 + " GB", "grid", "10**10**10", "any", "{python}", "a b"]),
    st.text(max_size=8),
    st.datetimes(),
)


def fields(model):
    """Every field name of a model and of the models below it."""
    found = schema(model)
    tables = [found, *found.get("$defs", {}).values()]
    return sorted({name for table in tables for name in table.get("properties", {})})


def tables(model):
    """Tables whose names are a model's own, at every depth, with any values."""
    names = st.sampled_from(fields(model)) | st.text(max_size=4)
    return st.dictionaries(
        names,
        st.recursive(
            SCALARS,
            lambda below: st.dictionaries(names, below, max_size=3) | st.lists(below, max_size=3),
            max_leaves=6,
        ),
        max_size=6,
    )


def answer(content, model):
    """Return the problems found; each is one printable line."""
    try:
        parse(content, model)
    except DocumentError as error:
        lines = str(error).split("\n")
        assert all(line.isprintable() and len(line) < 2000 for line in lines)
        return error.problems
    return []


@given(st.binary(max_size=200), st.sampled_from(MODELS))
def test_any_bytes(content, model):
    answer(content, model)


@given(st.text(alphabet=st.sampled_from("abn=.[]{}\"'\\\n #,10-:eTx_\x00\u202e"), max_size=60))
def test_any_text_that_looks_like_toml(content):
    answer(content, ApplicationTemplate)


@settings(max_examples=examples(60))
@given(tables(ApplicationTemplate))
def test_any_table_of_a_templates_names(table):
    text = dump(table)
    assert all(1 <= p.line <= text.count("\n") + 1 for p in answer(text, ApplicationTemplate))


@settings(max_examples=examples(60))
@given(tables(UserSpecifications))
def test_any_table_of_a_users_names(table):
    text = dump(table)
    assert all(1 <= p.line <= text.count("\n") + 1 for p in answer(text, UserSpecifications))


@pytest.mark.parametrize("file", ["template.toml", "user.toml"])
def test_a_damaged_document_is_answered_with_lines(file, tmp_path):
    generator = random.Random(17)
    good = rendered(file, "heat").encode()
    for _ in range(150):
        bad = bytearray(good)
        for _ in range(generator.randint(1, 4)):
            place = generator.randrange(len(bad))
            match generator.randrange(3):
                case 0:
                    bad[place] = generator.randrange(256)
                case 1:
                    del bad[place : place + generator.randint(1, 20)]
                case _:
                    bad[place:place] = good[place : place + generator.randint(1, 40)]
        path = tmp_path / file
        path.write_bytes(bad)
        check(path)


SIZES = st.text(max_size=40) | st.text(alphabet="grid0123456789+-*/%(), .emaxsqrtlo_", max_size=60)


@given(SIZES)
def test_any_expression(text):
    try:
        expression = Expression(text)
    except ExpressionError:
        return
    assert Expression(str(expression)) == expression
    try:
        value = expression.evaluate({"grid": 7, "g": 10**18})
    except ExpressionError:
        return
    assert abs(value) <= 10**18
