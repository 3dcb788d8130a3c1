"""The frame of every served page, and the style sheet and script that all pages share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from importlib import resources

from apples.ui.shell import page

PAGES: Mapping[str, str] = {"/": "Runs", "/cluster": "Cluster", "/files": "Files", "/plan": "Plan"}
"""Pages of ``apples serve``."""


@cache
def served_style() -> tuple[str, str]:
    """Return the style sheet, and the digest of its content for browser caches."""
    sheet = page("served.css.j2")
    return sheet, sha256(sheet.encode()).hexdigest()[:16]


@cache
def served_script() -> tuple[str, str]:
    """Return the script, which no page needs, and the digest of its content."""
    script = resources.files("apples.ui").joinpath("templates/script.js").read_text("utf-8")
    return script, sha256(script.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Frame:
    """The frame of a served page.

    Attributes
    ----------
    token
        Token of the session, for every form.
    folder, machine
        Folder of the files, and name of the machine.
    said
        Result of the last action: ``good`` or ``bad``, and the text.
    here
        The entry of `pages` to which the page belongs.
    pages
        Pages that every page links to, by address.
    scripted
        Whether a script may update the page; no page needs it.
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
        """Digest of the style sheet."""
        return served_style()[1]

    @property
    def script(self) -> str:
        """Digest of the script."""
        return served_script()[1]


def said_page(frame: Frame, title: str, lines: Sequence[str]) -> str:
    """Return a page with only a message, for example for a refusal or a missing page."""
    return page("said.html.j2", {"title": title, "lines": lines}, frame)
