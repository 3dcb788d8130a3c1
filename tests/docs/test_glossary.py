"""The glossary: each term once."""

import re
from collections import Counter
from pathlib import Path

ROWS = re.findall(
    r"^- \*\*(.+?)\*\*: (.+)$",
    (Path(__file__).parents[2] / "docs/glossary.md").read_text(),
    re.MULTILINE,
)


def test_each_term_stands_once():
    terms = Counter(term for row in ROWS for term in row[0].split(", "))
    assert terms
    assert [term for term, times in terms.items() if times > 1] == []
