"""Forms both ways: what a document says is in its fields, and what is changed there loses no comment."""

import tomllib

import pytest
from drawn import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hat
from apples.applications import host_list_model
from hat import add_entry, comments_of, copy_entry, fields_of, form_of, merged, remove_entry

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
        if field.is_pair:
            assert alike(shown.split(", "), said.split(","))  # no drawn text has a comma
        elif field.is_list:
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


LIST = """# ours
[[host]]
name = "ada"  # fast
slots = 2

# the slow one
[[host]]
name = "bob"
cpus = [
  0, # first
]

# links
[[link]]
between = ["ada", "bob"]
latency = 1e-4
bandwidth = 1e8
"""


def table_named(text, model, name):
    return next(table for table in form_of(text, model).walk() if table.name == name)


def test_entry_is_added_after_the_last_of_its_list():
    model = host_list_model()
    after, place = add_entry(LIST, model, table_named(LIST, model, "host"), {"name": "eve"})
    assert place == ("host", 2)
    assert after == LIST.replace("# links", '[[host]]\nname = "eve"\n\n# links')
    bare = '[[host]]\nname = "ada"'
    link = {"between": ["ada", "ada"]}
    after, place = add_entry(bare, model, table_named(bare, model, "link"), link)
    assert place == ("link", 0)
    assert tomllib.loads(after) == {"host": [{"name": "ada"}], "link": [link]}


def test_copy_of_an_entry_keeps_its_values_but_those_named():
    model = host_list_model()
    entry = table_named(LIST, model, "host[0]")
    after, place = copy_entry(LIST, model, entry, {"name": "ada-2"}, without=("slots",))
    assert tomllib.loads(after)["host"][2] == {"name": "ada-2"}
    assert place == ("host", 2)
    assert comments_of(after) == comments_of(LIST)


def test_removed_entry_leaves_comments_around_it():
    after = remove_entry(LIST, ("host", 0))
    assert after == LIST.replace('[[host]]\nname = "ada"  # fast\nslots = 2\n', "", 1)
    assert remove_entry(LIST, ("host", 1)).count("#") == 4
    alone = remove_entry(LIST, ("link", 0))
    assert "link" not in tomllib.loads(alone)


def test_entry_of_a_mapping_is_added_and_removed_by_its_name():
    model = hat.ApplicationTemplate
    text = 'name = "heat"\nprogram = ["x"]\n[parameters.grid]\ndefault = 5\n[structure]\nrows = "grid"\n'
    table = table_named(text, model, "parameters")
    assert (table.kind, table.noun) == ("map", "parameter")
    after, place = add_entry(text, model, table, {}, "a b")
    assert place == ("parameters", "a b")
    assert tomllib.loads(after)["parameters"] == {"grid": {"default": 5}, "a b": {}}
    assert remove_entry(after, place).split() == text.split()
    with pytest.raises(hat.NotEditableError):
        add_entry(text, model, table, {}, "grid")


def test_value_of_a_mapping_is_added_in_its_own_kind():
    model = hat.ApplicationTemplate
    text = 'name = "heat"\n[[implementation]]\nname = "fast"  # ours\n[[task]]\nname = "sweep"\n'
    table = table_named(text, model, "implementation[0].measured")
    assert table.kind == "values"
    after, place = add_entry(text, model, table, {"value": "1e-9"}, "x86_64")
    assert tomllib.loads(after)["implementation"] == [
        {"name": "fast", "measured": {"x86_64": 1e-9}}
    ]
    assert tomllib.loads(remove_entry(after, place))["task"] == [{"name": "sweep"}]


def test_inline_list_of_tables_is_left_to_the_text():
    model = hat.ApplicationTemplate
    text = 'name = "heat"\ntask = [{name = "sweep"}]\n'
    with pytest.raises(hat.NotEditableError):
        add_entry(text, model, table_named(text, model, "task"), {"name": "new"})
    with pytest.raises(hat.NotEditableError):
        remove_entry(text, ("task", 0))


@pytest.mark.more
@settings(max_examples=examples(200), deadline=None, suppress_health_check=list(HealthCheck))
@given(host_lists(), st.data())
def test_added_then_removed_entry_gives_the_same_document(text, data):
    model = host_list_model()
    name = data.draw(st.sampled_from(["host", "link"]))
    after, place = add_entry(text, model, table_named(text, model, name), {"name": "new"})
    assert comments_of(after) == comments_of(text)
    assert tomllib.loads(remove_entry(after, place)) == tomllib.loads(text)
    assert comments_of(remove_entry(after, place)) == comments_of(text)


def test_field_has_the_description_unit_default_and_example_of_the_schema():
    fields = {
        field.name: field for field in fields_of('[[host]]\nname = "ada"\n', host_list_model())
    }
    memory = fields["host[0].free_memory"]
    assert (memory.unit, memory.example, memory.label) == ("bytes", "2 GiB", "free memory")
    assert fields["host[0].slots"].default == "1"
    assert fields["host[0].name"].required
    assert all(field.help for field in fields.values())


def test_pair_is_one_line_with_a_comma():
    model = host_list_model()
    field = next(one for one in fields_of(LIST, model) if one.name == "link[0].between")
    assert (field.text, field.is_pair) == ("ada, bob", True)
    after = merged(LIST, LIST, {"link[0].between": "ada,eve"}, model)
    assert tomllib.loads(after)["link"][0]["between"] == ["ada", "eve"]
