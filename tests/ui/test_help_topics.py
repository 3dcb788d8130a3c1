"""``apples help``: the pages of documentation of the installation."""

import tomllib
from pathlib import Path

import pytest

from tests.commands import command, refused

ROOT = Path(__file__).parents[2]
FOLDERS = ("how-to", "tutorials", "reference", "explanation")
PAGES = {
    f"{folder}/{page.stem}".removeprefix("how-to/"): page.read_text()
    for folder in FOLDERS
    for page in sorted((ROOT / "docs" / folder).glob("*.md"))
}


def test_topics_are_the_pages_with_how_to_first():
    listed = [entry["topic"] for entry in command("apples", "help", "--json").document["topics"]]
    assert sorted(listed) == sorted(PAGES)
    how_to = [topic for topic in listed if "/" not in topic]
    assert listed[: len(how_to)] == sorted(how_to)


@pytest.mark.parametrize("topic", sorted(PAGES))
def test_topic_prints_its_page(topic):
    assert command("apples", "help", topic).out.rstrip() == PAGES[topic].rstrip()


def test_unknown_topic_is_refused():
    failure = refused("apples", "help", "jbos")
    assert failure["code"] == "topic-unknown"
    assert "jobs" in failure["fields"]["known"]


def test_wheel_contains_the_pages():
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    included = wheel["targets"]["wheel"]["force-include"]
    assert all((ROOT / source).is_dir() for source in included)
    assert {included[f"docs/{folder}"] for folder in FOLDERS} == {
        f"apples/docs/{folder}" for folder in FOLDERS
    }
