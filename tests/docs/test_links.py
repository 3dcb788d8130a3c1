import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def anchors(page):
    heads = re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"])
def test_every_link_between_pages_leads_somewhere(page):
    for link in LINK.findall(FENCE.sub("", page.read_text())):
        place, _, anchor = link.partition("#")
        if link.startswith(("http://", "https://")):
            continue
        target = (page.parent / place).resolve() if place else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_every_page_can_be_reached_from_the_index():
    index = ROOT / "docs/index.md"
    seen, waiting = set(), [index]
    while waiting:
        page = waiting.pop()
        seen.add(page)
        links = (link.partition("#")[0] for link in LINK.findall(page.read_text()))
        near = {(page.parent / link).resolve() for link in links if link.endswith(".md")}
        waiting += near & set(PAGES) - seen
    assert set(PAGES) - {ROOT / "README.md"} <= seen


def test_no_page_names_a_path_of_a_machine():
    for page in PAGES:
        assert not re.search(r"/(work|root|home|Users)/", page.read_text()), page
