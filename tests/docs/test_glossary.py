"""The glossary against the code: each term once, each place importable."""

import importlib
import re
from collections import Counter
from pathlib import Path

import pytest

ROWS = re.findall(
    r"^\| (.+?) \| (.+?) \| (.+?) \| `([\w.]+)` \|$",
    (Path(__file__).parents[2] / "docs/glossary.md").read_text(),
    re.MULTILINE,
)


def test_the_glossary_has_rows_and_each_term_once():
    terms = Counter(term for row in ROWS for term in row[0].split(", "))
    assert len(ROWS) > 60
    assert [term for term, times in terms.items() if times > 1] == []


@pytest.mark.parametrize("place", sorted({row[3] for row in ROWS}))
def test_what_the_glossary_names_is_there(place):
    home, _, name = place.rpartition(".")
    try:
        importlib.import_module(place)
    except ModuleNotFoundError:
        assert getattr(importlib.import_module(home), name) is not None
