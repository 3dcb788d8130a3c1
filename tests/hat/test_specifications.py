"""What a user wants, and what an empty file means."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    ("constraints", "reason"),
    [
        ('hosts = ["bob"]', "host ada is not among the user's hosts"),
        ('sites = ["attic"]', "site lab is not among the user's sites"),
        ('exclude = ["ada"]', "ada is excluded by the user"),
        ('exclude = ["lab"]', "lab is excluded by the user"),
        ('no_access = ["lab"]', "the user has no access to lab"),
        ('hosts = ["ada"]\nsites = ["lab"]', None),
    ],
)
def test_a_host_the_user_does_not_want_is_refused_with_the_reason(constraints, reason):
    user = parse(f"[constraints]\n{constraints}", UserSpecifications)
    assert user.constraints.refusal("ada", "lab") == reason


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[constraints]\nmemory = 0", "u:2: constraints.memory: must be greater than 0 (is 0)"),
        (
            "[constraints]\nmemory = true",
            'u:2: constraints.memory: must be a number of bytes, such as 500000 or "2 GiB" (is true)',
        ),
        (
            "[constraints]\nminimum_hosts = 3\nmaximum_hosts = 2",
            "u:3: constraints.maximum_hosts: must be at least minimum_hosts, 3 (is 2)",
        ),
        (
            '[constraints]\nhosts = ["a"]\nexclude = ["a"]',
            "u:2: constraints.hosts: every one of them is excluded too",
        ),
        ("[constraints]\ndeadline = inf", "u:2: constraints.deadline: must be a finite number (is inf)"),
        ('[constraints]\nhosts = ["-x"]', ("u:2: constraints.hosts[0]: must have the form "
         "[A-Za-z0-9][A-Za-z0-9._-]* (is '-x')")),
        (
            '[objective]\nmeasure = "time"',
            ("u:2: objective.measure: must be 'execution_time', 'cost', 'speedup', or your own metric "
            "as module:name or file.py:name (is 'time'): "
            "did you mean 'execution_time'?"),
        ),
        (
            '[objective]\nreference = "a"',
            'u:2: objective.reference: only measure = "speedup" has a reference',
        ),
        (
            '[preferences]\nprefer = ["a"]\navoid = ["b", "a"]',
            "u:3: preferences.avoid[1]: 'a' is preferred too",
        ),
        ("[preferences]\nrisk = -1", "u:2: preferences.risk: must be at least 0 (is -1)"),
        ("[preference]", "u:1: unknown field 'preference': did you mean 'preferences'?"),
    ],
)  # fmt: skip
def test_each_mistake_of_a_user_has_its_line(text, line):
    with pytest.raises(DocumentError) as caught:
        parse(text, UserSpecifications, source="u")
    assert str(caught.value) == line


def test_every_field_of_the_schema_is_explained():
    found = schema(UserSpecifications)
    for table in (found, *found["$defs"].values()):
        for name, field in table["properties"].items():
            assert field.get("title") or "$ref" in field, name
            assert field["description"].endswith("."), name
