"""`benchmarks/house.py` on a small tree with known figures."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

HOUSE = Path(__file__).parents[2] / "benchmarks/house.py"
FILES = {
    "src/shop/__init__.py": '"""Sell what there is."""\nfrom . import desk\n',
    "src/shop/desk.py": (
        '"""Tell whoever asks. `told` is a name."""\n'
        "from .store import take  # nobody reads this, so long\n"
        "raise ValueError(f'there is no {take} said the clerk')\n"
    ),
    "src/shop/store.py": (
        "COMMANDS = {'take': ('shop.store:take', 'Take the ones listed.')}\n"
        "def take():\n"
        '    """Take goods.\n\n    >>> "who said what"\n    \'who said what\'\n    """\n'
        "    print('is it what you want?')\n"
    ),
    "tests/test_desk.py": "def test_desk():\n    pass\n",
    "README.md": "# Shop\n\nOne of which\nthe owner tells.\n\n```\nwho\n```\n",
    "CHANGES.rst": "Who knows::\n\n    nobody\n",
}


@pytest.fixture
def tree(tmp_path):
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def count(tree, *options):
    command = [sys.executable, str(HOUSE), str(tree), *options]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_counts_lines_rooms_and_arrows_of_any_tree(tree):
    figures = json.loads(count(tree, "--json"))
    assert figures["lines"]["product"]["files"] == 3
    assert figures["lines"]["tests"]["all"] == 2
    assert figures["names at its top"] == 2
    assert (figures["floors"], figures["arrows"], figures["circles"]) == (3, 2, 0)
    assert (figures["words of documentation"], figures["test functions"]) == (11, 1)


def test_lists_each_counted_expression_with_its_place(tree):
    places = {tuple(line.split(": ")[:3]) for line in count(tree, "--list").splitlines()}
    desk, code = "src/shop/desk.py", "docstrings, comments"
    assert places == {
        ("src/shop/__init__.py:1", code, "what"),
        (f"{desk}:1", code, "say"),
        (f"{desk}:1", code, "who"),
        (f"{desk}:2", code, "who"),
        (f"{desk}:2", code, "so many"),
        (f"{desk}:3", "messages", "no"),
        (f"{desk}:3", "messages", "say"),
        ("src/shop/store.py:1", "help", "ones"),
        ("README.md:3", "documentation", "ones"),
        ("README.md:4", "documentation", "say"),
        ("CHANGES.rst:1", "changelog", "who"),
    }


def test_prose_index_is_per_thousand_words(tree):
    prose = json.loads(count(tree, "--json"))["prose"]
    assert prose["documentation"]["words"] == 7
    assert prose["documentation"]["all"] == pytest.approx(2000 / 7, abs=0.01)
