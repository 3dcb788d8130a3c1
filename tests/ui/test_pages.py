from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import FileSystemLoader, UndefinedError

from apples.ui import Frame, environment, matching, page, part_of


def test_no_two_rooms_have_a_template_of_one_name():
    names = Counter(
        name
        for folder in environment().loader.searchpath
        for name in environment_of(folder).list_templates()
    )
    assert [name for name, count in names.items() if count > 1] == []


def environment_of(folder):
    return environment().overlay(loader=FileSystemLoader(folder))


@dataclass(frozen=True)
class Said:
    title: str

    @property
    def lines(self):
        return [f"{self.title} again"]


def test_a_template_reads_fields_and_properties_of_its_model():
    text = page("said.html.j2", Said("<b>"), Frame("", "here", "ada"))
    assert "<h1>&lt;b&gt;</h1>" in text
    assert "<p><bdi>&lt;b&gt; again</bdi></p>" in text
    assert text == page(
        "said.html.j2", {"title": "<b>", "lines": ["<b> again"]}, Frame("", "here", "ada")
    )


def test_a_name_that_the_model_lacks_is_an_error():
    with pytest.raises(UndefinedError):
        page("said.html.j2", {"title": "alone"}, Frame("", "here", "ada"))


def test_text_that_no_encoding_holds_is_replaced():
    text = page("said.html.j2", {"title": "\udc80", "lines": []}, Frame("", "here", "ada"))
    assert "<h1>?</h1>" in text


@given(st.integers(0, 700), st.integers(-3, 20), st.integers(1, 200))
def test_the_pages_of_a_list_have_every_entry_once(count, page, size):
    entries = [{"job": str(k)} for k in range(count)]
    first = part_of(entries, 1, size)
    shown = [one for k in range(first.pages) for one in part_of(entries, k + 1, size).entries]
    assert shown == entries
    assert part_of(entries, page, size).page in range(1, first.pages + 1)


def test_all_words_must_be_in_the_values_or_hosts_of_an_entry():
    entries = [{"id": "1", "state": "running", "hosts": ["ada"]}, {"id": "2", "state": None}]
    assert matching(entries, "RUN ada", ["state"]) == entries[:1]
    assert matching(entries, "run bob", ["state"]) == []
    assert matching(entries, "2", ["id", "state"]) == entries[1:]
    assert matching(entries, "", ["state"]) == entries
