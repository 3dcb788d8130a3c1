"""The documentation as a site: a broken link is refused, it asks nobody for anything, and its search finds."""

import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commands import validator
from pages.browser import DEADLINE, Browser, chromium

ROOT = Path(__file__).parents[2]
MAX_BYTES = 300_000
FOUND = "document.querySelector('#search-results')?.textContent"

pytest.importorskip("furo", reason="Sphinx and furo come with make check (the extra docs)")
pytestmark = [pytest.mark.more, pytest.mark.xdist_group("the site")]


def build(source, out):
    command = [sys.executable, "-m", "sphinx", "-W", "-q", "-b", "html", "-c", source / "docs"]
    return subprocess.run(
        [*command, source, out], capture_output=True, text=True, check=False, timeout=300
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    out = tmp_path_factory.mktemp("site")
    done = build(ROOT, out)
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture
def browser(tmp_path):
    if chromium() is None:
        pytest.skip("no chromium on this machine")
    one = Browser(tmp_path)
    yield one
    one.close()


def test_every_page_of_the_repository_is_in_the_sidebar_and_none_is_too_large(site):
    front = (site / "docs/index.html").read_text()
    pages = [path.relative_to(ROOT / "docs").with_suffix("") for path in ROOT.glob("docs/**/*.md")]
    sidebar = front.partition('class="sidebar-tree"')[2].partition("</aside>")[0]
    for page in pages:
        assert f"{page}.html" in sidebar or page.name == "index"
    assert [path for path in site.rglob("*.html") if path.stat().st_size > MAX_BYTES] == []


def test_the_gallery_has_a_page_behind_every_link(site):
    front = (site / "docs/gallery.html").read_text()
    links = re.findall(r'href="(gallery/[\w./-]+)"', front)
    assert len(links) == 3
    for link in links:
        assert "<svg" in (site / "docs" / link).read_text()


@pytest.mark.parametrize(("name", "schema"), [("run", "apples.run"), ("demo", "apples.demo")])
def test_what_the_gallery_draws_is_what_a_command_prints(name, schema):
    document = json.loads((ROOT / f"docs/gallery/{name}.json").read_text())
    validator(schema).validate(document)
    assert document["verified"] is True


def test_a_link_that_leads_nowhere_is_an_error(tmp_path):
    source = tmp_path / "source"
    (source / "docs").mkdir(parents=True)
    for name in ("conf.py", "glossary.md"):
        shutil.copy(ROOT / "docs" / name, source / "docs")
    shutil.copytree(ROOT / "docs/_static", source / "docs/_static")
    shutil.copy(ROOT / "pyproject.toml", source)
    for name in ("README", "CHANGELOG", "CONTRIBUTING", "SECURITY"):
        (source / f"{name}.md").write_text(f"# {name}\n")
    index = source / "docs/index.md"
    links = ("glossary.md", "nowhere.md", "glossary.md#no-such-heading")
    index.write_text("# All\n\n**Pages**\n\n" + "".join(f"[to]({link})\n\n" for link in links))
    wrong = build(source, tmp_path / "wrong")
    assert wrong.returncode != 0
    assert "index.md:5: " not in wrong.stderr
    assert "index.md:7: WARNING" in wrong.stderr
    assert "index.md:9: WARNING" in wrong.stderr


@pytest.mark.browser
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("page", ["index", "tutorials/first-plan", "reference/json", "evidence"])
def test_a_page_asks_nobody_and_fits_a_narrow_screen(page, dark, site, browser):
    browser.open(site / f"docs/{page}.html", width=320, dark=dark)
    assert [url for url in browser.requests if not url.startswith(("file:", "data:"))] == []
    assert browser.evaluate("document.documentElement.scrollWidth") <= 320
    assert browser.complaints == []


@pytest.mark.browser
def test_the_search_works_from_a_file(site, browser):
    browser.open(site / "search.html")
    browser.evaluate("location.search = '?q=straggler'")
    end = time.monotonic() + DEADLINE
    while "The model" not in (browser.evaluate(FOUND) or ""):
        assert time.monotonic() < end
        time.sleep(0.05)  # between two looks, with a deadline: results come one by one
    assert [url for url in browser.requests if not url.startswith(("file:", "data:"))] == []
