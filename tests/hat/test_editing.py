"""Forms both ways: what a document says is in its fields, and what is changed there loses no comment."""

import tomllib

import pytest
from drawn import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hat
from apples.applications import host_list_model
from hat import comments_of, fields_of, merged

NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,7}", fullmatch=True)
NOTES = st.sampled_from(["", "  # a note", "  # says 'x = 1'", "\t# \u00e9"])
MEMORY = st.sampled_from(['"2 GiB"', "4_000_000"])
CPUS = st.sampled_from(["[0, 1]", "[ 0,1 , ]", "[\n  0, # first\n  1,\n]"])
ABOVE = st.sampled_from(["", "# above\n", "\n# two\n# lines\n"])


@st.composite
def host_lists(draw):
    """TOML text of a host list with comments in all kinds of places."""
    lines = [draw(ABOVE)]
    for k in range(draw(st.integers(1, 4))):
        lines.append(
            f'{draw(ABOVE)}[[host]]{draw(NOTES)}\nname = "{draw(NAMES)}{k}"{draw(NOTES)}\n'
        )
        if draw(st.booleans()):
            lines.append(f"cpu = {draw(st.sampled_from(['0.5', '1.0', '5e-1']))}{draw(NOTES)}\n")
        if draw(st.booleans()):
            lines.append(f"{draw(ABOVE)}free_memory = {draw(MEMORY)}{draw(NOTES)}\n")
        if draw(st.booleans()):
            lines.append(f"cpus = {draw(CPUS)}{draw(NOTES)}\n")
        if draw(st.booleans()):
            lines.append(f"slots = {draw(st.integers(1, 9))}{draw(NOTES)}\n")
    if draw(st.booleans()):
        lines.append(
            f"{draw(ABOVE)}[default_link]\nlatency = 1e-4{draw(NOTES)}\nbandwidth = 1e8\n"
        )
    if draw(st.booleans()):
        lines.insert(0, f"ssh_config = 'x'{draw(NOTES)}\n")
    lines.append(draw(ABOVE))
    return "".join(lines)


SAID = st.sampled_from(
    ["", "0.25", "3", "1 GiB", "bob", "true", "x y", "1\n2", "\u00e9#'\"", "1e-9"]
)


def alike(shown, said):
    """Whether boxes show what was said, be it in another spelling of a number."""
    return len(shown) == len(said) and all(
        one == other or float(one) == float(other) for one, other in zip(shown, said, strict=True)
    )


@pytest.mark.more
@settings(
    max_examples=examples(200),
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(host_lists(), st.data())
def test_a_changed_field_changes_that_and_loses_no_comment(text, data):
    model = host_list_model()
    fields = fields_of(text, model)
    boxes = {field.name: field.text for field in fields}
    assert merged(text, text, boxes, model) == text
    changed = data.draw(
        st.lists(st.sampled_from(fields), min_size=1, max_size=3, unique_by=lambda f: f.name)
    )
    wanted = {field.name: data.draw(SAID) for field in changed}
    try:
        after = merged(text, text, boxes | wanted, model)
    except hat.NotEditableError as error:
        refused = error.fields["field"]
    else:
        refused = ""
    if refused:
        assert refused in wanted
        return
    assert comments_of(text) <= comments_of(after)
    now = {field.name: field.text for field in fields_of(after, model)}
    for field in fields:
        said = wanted.get(field.name, field.text)
        shown = now[field.name]
        if field.is_list:
            assert alike(shown.split(), said.split()) or field.name not in wanted
        elif field.name in wanted:
            assert alike([shown], [said.strip()])
        else:
            assert shown == field.text
    # And back: the text that was changed by hand gives the boxes of a form made from it.
    assert merged(after, after, now, model) == after


def test_a_field_and_the_text_beside_it_may_both_be_changed_and_the_text_wins():
    base = '[[host]]\nname = "ada"  # ours\ncpu = 0.5\n'
    text = '[[host]]\nname = "eve"  # ours\ncpu = 0.5\nslots = 2\n'
    boxes = {"host[0].name": "bob", "host[0].cpu": "0.75"}
    after = merged(base, text, boxes, host_list_model())
    assert after == '[[host]]\nname = "eve"  # ours\ncpu = 0.75\nslots = 2\n'


def test_a_value_that_goes_leaves_its_comment():
    text = '[[host]]\nname = "ada"\nslots = 2  # two cores\ncpu = 0.5\n'
    after = merged(text, text, {"host[0].slots": ""}, host_list_model())
    assert tomllib.loads(after) == {"host": [{"name": "ada", "cpu": 0.5}]}
    assert "# two cores" in after


def test_a_table_that_was_not_there_is_made():
    after = merged("", "", {"constraints.hosts": "ada\r\nbob", "constraints.deadline": "9"}, hat.UserSpecifications)  # fmt: skip  # noqa: E501
    assert tomllib.loads(after) == {"constraints": {"hosts": ["ada", "bob"], "deadline": 9}}


def test_an_array_with_comments_inside_is_left_to_the_text():
    text = '[constraints]\nhosts = [\n  "ada",  # the fast one\n]\n'
    (field,) = (one for one in fields_of(text, hat.UserSpecifications) if one.label == "hosts")
    assert field.locked
    with pytest.raises(hat.NotEditableError) as raised:
        merged(text, text, {"constraints.hosts": "bob"}, hat.UserSpecifications)
    assert raised.value.code == "field-not-editable"
    assert raised.value.fields["field"] == "constraints.hosts"


def test_what_is_no_toml_is_refused_with_its_line():
    with pytest.raises(hat.DocumentError) as raised:
        fields_of("a = \n", hat.UserSpecifications)
    assert (raised.value.code, raised.value.fields["line"]) == ("file-invalid", 1)


def test_every_field_of_the_sample_is_named_as_problems_name_it():
    text = 'name = "heat"\nprogram = ["{python}", "heat.py"]\n[parameters.grid]\ndefault = 5\n'
    fields = {field.name: field for field in fields_of(text, hat.ApplicationTemplate)}
    assert fields["program"].text == "{python}\nheat.py"
    assert fields["parameters.grid.default"].text == "5"
    assert fields["malleable"].choices == ("true", "false")
    assert fields["name"].help == "Name of the application."
