"""Whatever the files say, `apples plan` ends with 0, 2 or 3 and no traceback."""

import math

import pytest
from commands import EXAMPLE, HOSTS, TEMPLATE, planned
from drawn import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hat
from apples.resources import HostListDocument

MANY = settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
NAMES = st.sampled_from(
    ["ada", "bob", "far", "local", "abroad", "nobody", "-x", "; rm -rf", "a\n"]
)
NUMBERS = st.one_of(
    st.sampled_from([0, 1, -1, 1e-15, 1e15, 1e-300, 1e300, 5e-324, math.nan, math.inf, 10**400]),
    st.floats(),
    st.integers(-5, 5000),
)
VALUES = st.one_of(
    NUMBERS, NAMES, st.booleans(), st.sampled_from(["2 GiB", "9" * 400 + " GB", ""]),
    st.lists(NAMES, max_size=3), st.lists(st.integers(-1, 9), max_size=3),
)  # fmt: skip


def fields(model):
    """Return the names of the fields of each table of a document's JSON Schema."""
    schema = hat.schema(model)
    return {title: sorted(table.get("properties", {})) for title, table in schema["$defs"].items()}


HOST_FIELDS = fields(HostListDocument)["Host"]
USER_FIELDS = {
    "constraints": fields(hat.UserSpecifications)["Constraints"],
    "objective": fields(hat.UserSpecifications)["Objective"],
    "preferences": fields(hat.UserSpecifications)["Preferences"],
}


def sane(done):
    """The exit code is one of three, and what is said is no traceback and no internal error."""
    assert done.code in {0, 2, 3}, done.err
    assert "Traceback" not in done.err
    assert "internal error" not in done.err
    assert done.err or done.code == 0
    assert (done.code == 2) == (done.out == "")
    assert all(line.isprintable() for line in done.err.splitlines())


@MANY
@given(
    st.text(max_size=200) | st.binary(max_size=200), st.sampled_from(["hosts", "template", "user"])
)
def test_any_text_in_any_file(tmp_path, text, name):
    sane(
        planned(
            tmp_path,
            **{name: text if isinstance(text, bytes) else text.encode("utf-8", "replace")},
        )
    )


@pytest.mark.more
@MANY
@given(
    st.lists(st.dictionaries(st.sampled_from(HOST_FIELDS), VALUES, max_size=4), max_size=4),
    st.lists(
        st.fixed_dictionaries(
            {"latency": NUMBERS, "bandwidth": NUMBERS},
            optional={"between": st.lists(NAMES, max_size=3), "from": NAMES, "to": NAMES},
        ),
        max_size=3,
    ),
    st.booleans(),
)
def test_any_values_in_the_fields_of_a_host_list(tmp_path, hosts, links, named):
    hosts = [{"name": f"h{i}", **host} if named else host for i, host in enumerate(hosts)]
    sane(planned(tmp_path, hosts=hat.dump({"host": hosts, "link": links})))


@pytest.mark.more
@MANY
@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "seconds_per_point": st.floats(1e-15, 1e15),
                "cpu": st.floats(1e-15, 1),
                "free_memory": st.integers(0, 2**62),
                "cost_per_second": st.floats(0, 1e15),
                "slots": st.integers(1, 4096),
            }
        ),
        min_size=1,
        max_size=4,
    ),
    st.floats(0, 1e15),
    st.floats(1e-15, 1e15),
    st.sampled_from(["execution_time", "cost", "speedup"]),
    st.sampled_from(["time_balancing", "linear"]),
    st.sampled_from([1, 2, 3, 1000, 10**9]),
)
def test_any_legal_host_list_has_a_plan_or_reasons(
    tmp_path, hosts, latency, bandwidth, measure, planner, grid
):
    document = {
        "host": [{"name": f"h{i}", **host} for i, host in enumerate(hosts)],
        "default_link": {"latency": latency, "bandwidth": bandwidth},
    }
    user = hat.dump({"objective": {"measure": measure}})
    done = planned(
        tmp_path, "--json", "--planner", planner, "--set", f"grid={grid}",
        hosts=hat.dump(document), user=user,
    )  # fmt: skip
    sane(done)
    assert done.code != 2
    chosen = done.document["chosen"]
    if chosen:
        assert sum(chosen["rows"]) == grid
        assert min(chosen["rows"]) >= 1
        assert math.isfinite(chosen["execution_seconds"])
    else:
        assert done.document["rejected_total"] >= 1


@MANY
@given(
    st.dictionaries(st.sampled_from(USER_FIELDS["constraints"]), VALUES, max_size=4),
    st.dictionaries(st.sampled_from(USER_FIELDS["objective"]), VALUES, max_size=2),
    st.dictionaries(st.sampled_from(USER_FIELDS["preferences"]), VALUES, max_size=3),
    st.sampled_from(["minimum_execution_time", "all_resources", "blocked", "single_host"]),
)
def test_any_values_in_the_fields_of_a_user_file(
    tmp_path, constraints, objective, preferences, blueprint
):
    user = {"constraints": constraints, "objective": objective, "preferences": preferences}
    sane(planned(tmp_path, "--blueprint", blueprint, "--set", "grid=100", user=hat.dump(user)))


@MANY
@given(
    st.lists(
        st.sampled_from(
            TEMPLATE.splitlines() + (EXAMPLE / "template.toml").read_text().splitlines()
        ),
        max_size=40,
    )
)
def test_lines_of_templates_in_any_order(tmp_path, lines):
    sane(planned(tmp_path, template="\n".join(lines)))


@MANY
@given(st.integers(0, len(HOSTS)), st.integers(0, len(HOSTS)), st.characters())
def test_a_host_list_with_a_piece_cut_out(tmp_path, start, length, letter):
    text = HOSTS[:start] + letter + HOSTS[start + length % 40 :]
    sane(planned(tmp_path, hosts=text.encode("utf-8", "replace")))
