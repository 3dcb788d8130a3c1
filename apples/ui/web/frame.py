"""What stands around every served page, with the style sheet and the script that all of them share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from importlib import resources

from apples.ui.shell import page

PAGES: Mapping[str, str] = {"/": "Runs", "/cluster": "Cluster", "/files": "Files", "/plan": "Plan"}
"""Those of ``apples serve``."""


@cache
def served_style() -> tuple[str, str]:
    """Return the style sheet, and the name of its content by which browsers keep it."""
    sheet = page("served.css.j2")
    return sheet, sha256(sheet.encode()).hexdigest()[:16]


@cache
def served_script() -> tuple[str, str]:
    """Return the script, without which every page is complete, and the name of its content."""
    script = resources.files("apples.ui").joinpath("templates/script.js").read_text("utf-8")
    return script, sha256(script.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Frame:
    """What stands around every served page.

    Attributes
    ----------
    token
        Goes into every form.
    folder, machine
        Whose files, and where.
    said
        What the last verb answered: ``good`` or ``bad``, and the text.
    here
        Which of `pages` this belongs to.
    pages
        Those that every page links to, by their addresses.
    scripted
        Whether a script may follow what happens; no page needs it.
    """

    token: str
    folder: str
    machine: str
    said: tuple[str, str] | None = None
    here: str = ""
    pages: Mapping[str, str] = field(default_factory=lambda: PAGES)
    scripted: bool = True

    @property
    def style(self) -> str:
        """Names the style sheet's content."""
        return served_style()[1]

    @property
    def script(self) -> str:
        """Names the script's content."""
        return served_script()[1]


def said_page(frame: Frame, title: str, lines: Sequence[str]) -> str:
    """Return a page that says something and no more: a refusal, a page that is not there."""
    return page("said.html.j2", {"title": title, "lines": lines}, frame)
