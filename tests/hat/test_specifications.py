"""What a user wants, and what an empty file means."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import assert_problem

from hat import DocumentError, UserSpecifications, dump, parse, schema

NAMES = st.lists(st.from_regex(r"[a-z][a-z0-9.-]{0,8}", fullmatch=True), max_size=3, unique=True)
NUMBERS = st.floats(min_value=1e-9, max_value=1e12)
USERS = st.fixed_dictionaries(
    {},
    optional={
        "constraints": st.fixed_dictionaries(
            {},
            optional={
                "hosts": NAMES,
                "sites": NAMES,
                "memory": st.integers(1, 2**50) | st.sampled_from(["2 GiB", "500 MB"]),
                "maximum_hosts": st.integers(1, 99),
                "deadline": NUMBERS,
                "maximum_cost": NUMBERS,
            },
        ),
        "objective": st.sampled_from(
            [{"measure": "cost"}, {"measure": "speedup", "reference": "a"}]
        ),
        "preferences": st.fixed_dictionaries(
            {},
            optional={
                "prefer": NAMES,
                "risk": NUMBERS,
                "blueprint": st.sampled_from(
                    ["apples_run", "mine.py:go", "a.b:c", 'q"\\\u00e9\U0001f34e']
                ),
                "frame": NUMBERS,
            },
        ),
    },
)


@given(USERS)
def test_specifications_survive_being_written_and_read(user):
    wanted = UserSpecifications.model_validate(user)
    assert parse(dump(wanted), UserSpecifications) == wanted


def test_an_empty_file_names_no_host_and_sets_no_limit():
    user = parse("", UserSpecifications)
    assert user == UserSpecifications()
    assert user.objective.measure == "execution_time"
    assert user.preferences.risk == 0
    assert user.constraints.refusal("any", "where") is None


@pytest.mark.parametrize(
    ("constraints", "culprit"),
    [
        ('hosts = ["bob"]', "ada"),
        ('sites = ["attic"]', "lab"),
        ('exclude = ["ada"]', "ada"),
        ('exclude = ["lab"]', "lab"),
        ('no_access = ["lab"]', "lab"),
    ],
)
def test_a_host_the_user_does_not_want_is_refused_by_host_or_site(constraints, culprit):
    user = parse(f"[constraints]\n{constraints}", UserSpecifications)
    reason = user.constraints.refusal("ada", "lab")
    assert {"ada", "lab"} & {*reason.split()} == {culprit}


def test_a_host_that_all_constraints_allow_is_not_refused():
    user = parse('[constraints]\nhosts = ["ada"]\nsites = ["lab"]', UserSpecifications)
    assert user.constraints.refusal("ada", "lab") is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[constraints]\nmemory = 0", (2, "constraints.memory", "value-range", "0")),
        (
            "[constraints]\nmemory = true",
            (2, "constraints.memory", "value-type", "500000", "2", "true"),
        ),
        (
            "[constraints]\nminimum_hosts = 3\nmaximum_hosts = 2",
            (3, "constraints.maximum_hosts", "value-range", "3", "2"),
        ),
        (
            '[constraints]\nhosts = ["a"]\nexclude = ["a"]',
            (2, "constraints.hosts", "field-conflict"),
        ),
        ("[constraints]\ndeadline = inf", (2, "constraints.deadline", "value-range", "inf")),
        ('[constraints]\nhosts = ["-x"]', (2, "constraints.hosts[0]", "value-invalid", "'-x'")),
        (
            '[objective]\nmeasure = "time"',
            (2, "objective.measure", "measure-unknown", "execution_time", "cost", "speedup", "'time'"),
        ),
        (
            '[objective]\nreference = "a"',
            (2, "objective.reference", "field-conflict"),
        ),
        (
            '[preferences]\nprefer = ["a"]\navoid = ["b", "a"]',
            (3, "preferences.avoid[1]", "field-conflict", "a"),
        ),
        ("[preferences]\nrisk = -1", (2, "preferences.risk", "value-range", "0", "-1")),
        ("[preference]", (1, "", "field-unknown", "preference", "preferences")),
    ],
)  # fmt: skip
def test_each_mistake_of_a_user_has_its_line(text, expected):
    with pytest.raises(DocumentError) as caught:
        parse(text, UserSpecifications, source="u")
    (problem,) = caught.value.problems
    assert problem.file == "u"
    assert_problem(problem, expected)


def test_every_field_of_the_schema_is_explained():
    found = schema(UserSpecifications)
    for table in (found, *found["$defs"].values()):
        for name, field in table["properties"].items():
            assert field.get("title") or "$ref" in field, name
            assert field["description"].endswith("."), name
