"""The lines found are those that values stand on, whatever the form of the document."""

import re
import tomllib

import pytest
import tomlkit
from hypothesis import given
from hypothesis import strategies as st

from hat import Document, lines_of

KEYS = st.sampled_from(["a", "b", "c.d", "host", "[x]", "#"]) | st.text(min_size=1, max_size=6)
TAILS = st.sampled_from(["", "\n", "\nx\n[[host]]\ny = 1\n", "]", '"', "\\", "#"])


def marker(n):
    """A value that stands nowhere else in the text."""
    return f"<{n}>"


@st.composite
def documents(draw):
    """A TOML text of many forms, each of whose leaves is a marker."""
    count = iter(range(10_000))

    def table(depth, new):
        made = new()
        for key in draw(st.lists(KEYS, max_size=3, unique=True)):
            kind = draw(st.sampled_from("vvvmlita" if depth else "vvml"))
            add(made, key, kind, depth)
        return made

    def add(made, key, kind, depth):
        if kind == "v":
            made.add(key, tomlkit.string(marker(next(count)), literal=draw(st.booleans())))
        elif kind == "m":
            text = marker(next(count)) + draw(TAILS)
            made.add(key, tomlkit.string(text, multiline=True))
        elif kind == "l":
            entries = tomlkit.array([marker(next(count)) for _ in range(draw(st.integers(0, 3)))])
            made.add(key, entries.multiline(draw(st.booleans())))
        elif kind == "i":
            made.add(key, table(0, tomlkit.inline_table))
        elif kind == "t":
            made.add(key, table(depth - 1, tomlkit.table))
        else:
            entries = tomlkit.aot()
            for _ in range(draw(st.integers(1, 3))):
                entries.append(table(depth - 1, tomlkit.table))
            made.add(key, entries)

    comment = draw(st.sampled_from(["", "# [[host]]\n\n", "#'''\n"]))
    return comment + tomlkit.dumps(table(3, tomlkit.document))


def leaves(data, loc=()):
    """Yield the place of each marker and the marker."""
    if isinstance(data, str):
        yield loc, re.search(r"<\d+>", data)[0]
        return
    entries = data.items() if isinstance(data, dict) else enumerate(data)
    for key, below in entries:
        yield from leaves(below, (*loc, key))


@given(documents())
def test_every_value_is_on_the_line_that_is_found(text):
    lines = lines_of(text)
    for loc, mark in leaves(tomllib.loads(text)):
        assert lines[loc] == text[: text.index(mark)].count("\n") + 1


@given(st.text() | st.text(alphabet="ab=.,[]{}\"'\\#\n "))
def test_no_text_makes_the_finder_fail(text):
    assert all(1 <= line <= text.count("\n") + 1 for line in lines_of(text).values())


def test_the_forms_of_toml_drawn():
    text = """\
# a comment with [[host]]            1
title = "x"                        # 2
owner.name = "a"                   # 3
[[host]]                           # 4
name = "a"                         # 5
  [host.place]                     # 6
  "rack 1" = 3                     # 7
[[host]]                           # 8
cpus = [                           # 9
  0,                               # 10
  [1, 2],                          # 11
]                                  # 12
links = [                          # 13
  {to = "b", via = {port = 1}},    # 14
  {to = "c"},                      # 15
]                                  # 16
note = '''                         # 17
[[host]]
''' # 19
last = 1                           # 20
[[host.disk]]                      # 21
size = 1                           # 22
[[host.disk]]                      # 23
size = 2                           # 24
["a.b".'c']                        # 25
"\\u0064" = 1                       # 26
"""
    expected = {
        ("title",): 2,
        ("owner",): 3,
        ("owner", "name"): 3,
        ("host",): 4,
        ("host", 0): 4,
        ("host", 0, "place"): 6,
        ("host", 0, "place", "rack 1"): 7,
        ("host", 1): 8,
        ("host", 1, "cpus"): 9,
        ("host", 1, "cpus", 0): 10,
        ("host", 1, "cpus", 1, 1): 11,
        ("host", 1, "links", 0, "via", "port"): 14,
        ("host", 1, "links", 1, "to"): 15,
        ("host", 1, "note"): 17,
        ("host", 1, "last"): 20,
        ("host", 1, "disk", 0, "size"): 22,
        ("host", 1, "disk", 1): 23,
        ("host", 1, "disk", 1, "size"): 24,
        ("a.b", "c"): 25,
        ("a.b", "c", "d"): 26,
    }
    document = Document.parse(text)
    assert {loc: document.line(loc) for loc in expected} == expected


def test_what_is_not_there_is_on_the_line_of_what_encloses_it():
    document = Document.parse("a = 1\n[b]\nc = 1\n")
    assert [document.line(loc) for loc in [("b", "x"), ("b", "c", 3), ("z",), ()]] == [2, 3, 1, 1]


@pytest.mark.parametrize(
    ("text", "loc", "line"),
    [
        ("[[a]]\nx=1\n[b]\n[[a]]\nx=2\n", ("a", 1, "x"), 5),
        ("[a]\n[b.c]\nd=1\n[a.x]\ny=1\n", ("a", "x", "y"), 5),
        ("[a.b]\nc=1\n[a]\nd=2\n", ("a", "d"), 4),
        ("[[a]]\n[[a.b]]\n[[a.b]]\n[[a]]\n[[a.b]]\nc=3\n", ("a", 1, "b", 0, "c"), 6),
        ("a.b.c=1\na.b.d=2\n[e]\nf.g=1\nf.h=2\n", ("e", "f", "h"), 5),
        ("a = {b = 1, d.e = [\n{f=1},\n{g=2}]}\nh=1\n", ("a", "d", "e", 1, "g"), 3),
        ("a = [ # 1\n# 1\n\n 1,\n # 2\n 2 ]\nz=1\n", ("a", 1), 6),
    ],
)
def test_tables_out_of_order_keep_their_lines(text, loc, line):
    assert Document.parse(text).line(loc) == line
