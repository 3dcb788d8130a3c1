import json
import os
import re
import shutil
import sys
import tempfile
import tomllib
from pathlib import Path

import pytest
import users

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
NEEDS = {
    "docs/how-to/c-and-fortran.md": ("make", "cc", "gfortran"),
    "docs/how-to/migration.md": ("cc",),
    "docs/how-to/nws-hosts.md": ("openssl",),
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
SHARED = ROOT / "docs/how-to/shared-scheduler.md"
"""The page whose commands several users type."""
CASES = [
    pytest.param(page, id=called(page), marks=marks(page))
    for page in PAGES
    if DONE.search(page.read_text()) and page != SHARED
]
TERMINAL = {"COLUMNS": "80", "NO_COLOR": "1", "TERM": "dumb", "LC_ALL": "C.UTF-8"}


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A folder with the examples as a clone has them, and the commands on the path."""
    copy_examples(tmp_path)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    for name, value in {**TERMINAL, "PATH": path, "XDG_STATE_HOME": f"{tmp_path}/state"}.items():
        monkeypatch.setenv(name, value)
    return tmp_path


def copy_examples(place):
    for example in ("examples/jacobi2d", "examples/blueprints"):
        folder = place / example
        folder.mkdir(parents=True)
        for file in filter(Path.is_file, (ROOT / example).iterdir()):
            shutil.copy(file, folder)


@pytest.fixture
def shared_folder(monkeypatch):
    """A folder with the examples that all users can enter and write to, with a stand-in for sudo on the path."""
    folder = Path(tempfile.mkdtemp(prefix="apples-users-"))
    folder.chmod(0o755)
    copy_examples(folder)
    (folder / "examples/jacobi2d").chmod(0o1777)
    users.write_sudo(folder)
    path = f"{folder}/bin:{Path(sys.executable).parent}:{os.environ['PATH']}"
    monkeypatch.setenv("PATH", path)
    yield folder
    users.kill_processes()
    shutil.rmtree(folder)


@pytest.mark.parametrize("page", CASES)
def test_what_a_page_shows_is_what_happens(page, clone, follow):
    follow(page.read_text(), clone)


@pytest.mark.mpi
@pytest.mark.skipif(bool(users.lacking()), reason=users.lacking())
def test_three_users_share_a_scheduler_as_its_page_shows(shared_folder, follow):
    follow(SHARED.read_text(), shared_folder)


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
