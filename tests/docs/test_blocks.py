import json
import os
import re
import shutil
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
NEEDS = {
    "docs/how-to/c-and-fortran.md": ("make", "cc", "gfortran"),
    "docs/how-to/migration.md": ("cc",),
    "docs/how-to/serve.md": ("curl",),
}
"""Commands without which a page cannot be tried."""


def called(page):
    return str(page.relative_to(ROOT))


def marks(page):
    """Return how a page is marked: whether its outputs are measured, and whether a command is missing."""
    runs = re.search(r"^```console (measured|timed)$", page.read_text(), re.MULTILINE)
    found = [pytest.mark.mpi] if runs else []
    missing = [one for one in NEEDS.get(called(page), ()) if not shutil.which(one)]
    if missing:
        found.append(pytest.mark.skip(reason=f"no {', '.join(missing)}"))
    return found


DONE = re.compile(r"^```(console|python)\b|^```\w+ ?\w*\n# \w[\w.-]*\.\w+\n", re.MULTILINE)
"""What the runner of the documentation does something with: commands, Python, and files to save."""
CASES = [
    pytest.param(page, id=called(page), marks=marks(page))
    for page in PAGES
    if DONE.search(page.read_text())
]
TERMINAL = {"COLUMNS": "80", "NO_COLOR": "1", "TERM": "dumb", "LC_ALL": "C.UTF-8"}


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A folder with the examples as a clone has them, and the commands on the path."""
    for example in ("examples/jacobi2d", "examples/blueprints"):
        folder = tmp_path / example
        folder.mkdir(parents=True)
        for file in filter(Path.is_file, (ROOT / example).iterdir()):
            shutil.copy(file, folder)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    for name, value in {**TERMINAL, "PATH": path, "XDG_STATE_HOME": f"{tmp_path}/state"}.items():
        monkeypatch.setenv(name, value)
    return tmp_path


@pytest.mark.parametrize("page", CASES)
def test_what_a_page_shows_is_what_happens(page, clone, follow):
    follow(page.read_text(), clone)


def test_toml_and_json_on_all_pages_can_be_read():
    quoted = 0
    for page in PAGES:
        for kind, read in (("toml", tomllib.loads), ("json", json.loads)):
            block = rf"^```{kind}\n(.*?)^```$"
            for text in re.findall(block, page.read_text(), re.MULTILINE | re.DOTALL):
                read(text)
                quoted += 1
    assert quoted


@pytest.mark.parametrize(
    "wrong",
    [
        "```console\n$ echo 1\n2\n```\n",
        "```console\n$ echo 1\n```\n",
        "```console\n$ false\n$ true\n```\n",
        "```console measured\n$ echo 'took 1 ms, wrong'\ntook 2 ms, right\n```\n",
        "```console timed\n$ echo '7 jobs took 1 ms'\n8 jobs took 2 ms\n```\n",
        "```console mesaured\n$ echo 1\n1\n```\n",
        "```python\nassert False\n```\n",
    ],
)
def test_a_page_that_is_wrong_is_found_out(wrong, clone, follow):
    with pytest.raises((AssertionError, KeyError)):
        follow(wrong, clone)


def test_times_of_a_page_may_differ_where_it_says_so(clone, follow):
    follow("```console timed\n$ echo '7 jobs took 1.5 ms'\n7 jobs took 20 s\n```\n", clone)
