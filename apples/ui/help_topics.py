"""``apples help``: print the pages of the documentation, which are in every installation."""

from __future__ import annotations

from difflib import get_close_matches
from itertools import groupby
from pathlib import Path
from typing import Final, Literal

from typing_extensions import TypedDict

from apples.errors import UsageError
from apples.ui.command_line import command, show_answer
from apples.ui.options import json_option
from apples.ui.parameters import argument
from apples.ui.tables import in_columns

IN_WHEEL: Final = Path(__file__).parents[1] / "docs"
IN_CHECKOUT: Final = Path(__file__).parents[2] / "docs"
FOLDERS: Final = ("how-to", "tutorials", "reference", "explanation")


class Topic(TypedDict):
    """A page of the documentation."""

    topic: str
    """Name, for ``apples help NAME``: ``jobs`` for how-to/jobs.md, else with the folder: ``reference/files``."""
    title: str
    """First line of the page."""


class TopicsDocument(TypedDict):
    """``apples help --json``."""

    schema: Literal["apples.topics/1"]
    topics: list[Topic]
    """The how-to pages, then the tutorials, the reference and the explanations."""


class HelpDocument(TypedDict):
    """``apples help TOPIC --json``."""

    schema: Literal["apples.help/1"]
    topic: str
    """Name of the page."""
    title: str
    """First line of the page."""
    text: str
    """The whole page, Markdown."""


@command("help")
@argument("topic", required=False)
@json_option
def help_command(topic: str | None, json: bool) -> int:
    """Print a page of the documentation as Markdown, or list the pages.

    Example: apples help; apples help jobs; apples help reference/files
    """
    pages = topics()
    if topic is None:
        listed = [Topic(topic=name, title=title_of(path)) for name, path in pages.items()]
        topics_document = TopicsDocument(schema="apples.topics/1", topics=listed)
        show_answer(topics_document, lambda: contents(listed), json)
        return 0
    page = pages.get(topic)
    if page is None:
        near = get_close_matches(topic, pages, 1)
        hint = f"did you mean {near[0]}?" if near else "apples help lists the topics"
        raise UsageError(
            f"help '{topic}': unknown topic; {hint}",
            code="topic-unknown",
            value=topic,
            known=[*pages],
        )
    text = page.read_text("utf-8").rstrip()
    document = HelpDocument(schema="apples.help/1", topic=topic, title=title_of(page), text=text)
    show_answer(document, text, json)
    return 0


def topics() -> dict[str, Path]:
    """Return the pages by topic: folder by folder, each in alphabetical order."""
    docs = IN_WHEEL if IN_WHEEL.is_dir() else IN_CHECKOUT
    return {
        path.stem if folder == "how-to" else f"{folder}/{path.stem}": path
        for folder in FOLDERS
        for path in sorted((docs / folder).glob("*.md"), key=lambda path: path.stem)
    }


def contents(listed: list[Topic]) -> str:
    """Return the topics with their titles, one a line, with an empty line between folders."""
    rows = [(entry["topic"], entry["title"]) for entry in listed]
    folders = groupby(rows, lambda row: row[0].rpartition("/")[0])
    return "\n\n".join("\n".join(in_columns([*group])) for _, group in folders)


def title_of(page: Path) -> str:
    """Return the title of a page, which is its first line."""
    with page.open(encoding="utf-8") as lines:
        return lines.readline().lstrip("# ").rstrip()
