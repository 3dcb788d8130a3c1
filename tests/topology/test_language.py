from dataclasses import fields, replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from machines import said_by

from apples.errors import UsageError
from apples.topology import (
    FILTERS,
    CpuSet,
    CpusetOption,
    CpusetType,
    Placement,
    Requirement,
    RequirementError,
    merge,
    parse,
)

VALUE = st.text(st.sampled_from("ABZ09,-|. _+"), max_size=12).map(str.strip)
KEY = st.text(st.sampled_from("ABYZ_09"), max_size=8).map("K".__add__)
FOREIGN = st.builds(
    Requirement,
    broker=KEY,
    foreign=st.dictionaries(KEY, VALUE, max_size=6).map(dict.items).map(tuple),
)
REQUIREMENTS = st.builds(
    Requirement,
    count=st.integers(1, 8),
    cpus=st.none() | st.sets(st.integers(0, 99), min_size=8).map(CpuSet.of),
    max_radius=st.none() | st.floats(0, 99),
    max_cpus_per_node=st.none() | st.integers(1, 99),
    whole_cores=st.booleans(),
    placement=st.sampled_from(Placement),
    memory=st.none() | st.sets(st.integers(0, 9), min_size=1).map(CpuSet.of),
    options=st.frozensets(st.sampled_from(CpusetOption)),
    kind=st.sampled_from([CpusetType.DYNAMIC, CpusetType.NONE]),
    same_cpus_on_resume=st.booleans(),
)


@given(REQUIREMENTS | FOREIGN)
def test_printed_requirement_is_parsed_to_the_same_one(requirement):
    assert parse(str(requirement), requirement.count) == requirement


def test_the_papers_own_form_asks_for_more_than_its_list_holds():
    """Smith et al. 2001: ``bsub -n 32`` with CPUs 24-39 and 48-53, which are 22."""
    text = "CPU_LIST=24-39,48-53;CPUSET_OPTIONS=CPUSET_CPU_EXCLUSIVE|CPUSET_MEMORY_MANDATORY"
    with pytest.raises(RequirementError) as raised:
        parse(text, 32)
    fields = raised.value.fields
    assert raised.value.code == "cpu-list-too-short"
    assert (fields["field"], fields["value"], fields["needed"]) == ("CPU_LIST", 22, 32)
    asked = parse(text, 22)
    assert asked.options == {CpusetOption.EXCLUSIVE, CpusetOption.MEMORY_MANDATORY}
    assert parse(f"cpuset[ {text} ]", 22) == asked


@pytest.mark.parametrize(
    ("text", "code", "fields"),
    [
        (
            "CPUSET[MAX_RADUS=3]",
            "field-unknown",
            {"field": "MAX_RADUS", "position": 8, "suggestion": "MAX_RADIUS"},
        ),
        (
            "  MAX_RADIUS=far",
            "value-invalid",
            {"field": "MAX_RADIUS", "position": 3, "value": "far"},
        ),
        (
            "CPUSET[WHOLE_CORES=Y; MAX_RADIUS=-1]",
            "value-invalid",
            {"field": "MAX_RADIUS", "position": 23, "value": "-1"},
        ),
        ("MAX_RADIUS=nan", "value-invalid", {"field": "MAX_RADIUS", "value": "nan"}),
        ("MAX_CPU_PER_NODE=0", "value-invalid", {"field": "MAX_CPU_PER_NODE", "value": "0"}),
        (
            "CPU_LIST=3-1",
            "cpu-list-invalid",
            {"field": "CPU_LIST", "position": 1, "value": "3-1", "offset": 0},
        ),
        ("CPUSET[CPU_LIST=1", "bracket-unclosed", {"position": 17}),
        ("CPU_LIST=1]", "requirement-invalid", {"position": 1}),
        ("CPUSET[A[B]=1]", "requirement-invalid", {"position": 8, "value": "A[B]=1"}),
        (
            "WHOLE_CORES=Y;whole_cores=N",
            "field-repeated",
            {"field": "WHOLE_CORES", "position": 15},
        ),
        ("WHOLE_CORES", "requirement-invalid", {"position": 1, "value": "WHOLE_CORES"}),
        ("CPUSET_OPTIONS=FAST", "value-invalid", {"field": "CPUSET_OPTIONS", "value": "FAST"}),
        ("CPUSET_TYPE=static", "value-invalid", {"field": "CPUSET_TYPE", "value": "static"}),
        ("MAX_RADUS=", "field-unknown", {"field": "MAX_RADUS", "suggestion": "MAX_RADIUS"}),
        ("GPU[COUNT=1]", "broker-unknown", {"value": "GPU", "known": ["CPUSET"]}),
        ("CPU_LIST=1\x00", "character-invalid", {"position": 11, "value": "\x00"}),
        ("A=1;" * 2000, "value-too-long", {"value": 8000, "bound": 4096}),
    ],
)
def test_an_error_names_the_key_the_position_and_what_would_be_right(text, code, fields):
    with pytest.raises(RequirementError) as raised:
        parse(text, 1, broker="CPUSET")
    assert raised.value.code == code
    assert fields.items() <= raised.value.fields.items()
    assert "\n" not in str(raised.value)
    assert raised.value.exit_code == 2


@given(
    st.text(max_size=60)
    | st.text(st.sampled_from("CPUSET_LIST[]=;,-0123456789MAXRDI |"), max_size=60)
)
@example("0\n0")
@example("0\n0[]")
@example("CPU_LIST=0\n0")
def test_any_text_is_read_or_refused_in_one_line(text):
    def again(text):
        asked = parse(text)
        assert parse(str(asked)) == asked

    said = said_by(again, text)
    assert "\n" not in said
    assert len(said) < 400


VALUES = {
    "MAX_RADIUS": ["", "1", "2"],
    "WHOLE_CORES": ["", "N", "Y"],
    "PLACEMENT": ["", "best", "spread"],
    "CPU_LIST": ["", "0-3", "4"],
}
LAYERS = [
    st.none() | st.fixed_dictionaries({}, optional={k: st.sampled_from(v) for k, v in own.items()})
    for own in (VALUES, VALUES, VALUES)
]


def layer(entries):
    return None if entries is None else parse(";".join(f"{k}={v}" for k, v in entries.items()))


@given(*LAYERS)
def test_first_of_mandatory_job_and_default_that_names_a_key_decides_it(mandatory, job, default):
    job = job or {}
    merged = merge(layer(mandatory), layer(job), layer(default))
    expected = {**(default or {}), **job, **(mandatory or {})}
    assert merged == layer(expected)


def test_merged_requirement_keeps_its_meaning_when_printed():
    job = parse("MAX_RADIUS=;PLACEMENT=best;WHOLE_CORES=N")
    again = parse(str(job))
    default = parse("MAX_RADIUS=2;PLACEMENT=spread;WHOLE_CORES=Y")
    assert merge(None, again, default) == merge(None, job, default) == Requirement()


def test_a_mandatory_empty_value_forbids_and_other_brokers_are_left_alone():
    site = parse("CPUSET[MAX_RADIUS=]")
    assert merge(site, parse("MAX_RADIUS=3;WHOLE_CORES=Y"), None).keys == {"WHOLE_CORES": "Y"}
    merged = merge(site, parse("GPU[COUNT=2]", 3), parse("GPU[KIND=x;COUNT=1]"))
    assert (merged.broker, merged.count) == ("GPU", 3)
    assert merged.keys == {"COUNT": "2", "KIND": "x"}
    assert merge(None, parse(""), None) == Requirement()


def test_contradiction_between_site_and_job_names_both_numbers():
    with pytest.raises(RequirementError) as raised:
        merge(parse("CPU_LIST=0-3"), parse("", 8), None)
    assert raised.value.code == "cpu-list-too-short"
    assert (raised.value.fields["value"], raised.value.fields["needed"]) == (4, 8)


def test_contradictions_are_found_before_any_host_is_asked():
    for wrong in ({"count": 0}, {"count": 2**17}, {"max_cpus_per_node": 0}, {"max_radius": -1.0}):
        with pytest.raises(UsageError) as raised:
            Requirement(**{"count": 1, **wrong})
        assert raised.value.code == "value-range"
    with pytest.raises(UsageError) as raised:
        replace(parse("CPU_LIST=0-3"), count=5)
    assert raised.value.code == "cpu-list-too-short"


def test_every_filter_of_cpus_is_a_key_that_a_requirement_can_be_written_with():
    keys = {one.metadata["key"].name for one in fields(Requirement) if "key" in one.metadata}
    assert {one.key for one in FILTERS} <= keys
