"""How a result was verified, for the text and the page of a run; from ``apples.run/1``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from apples.ui.formats import Formatted, Number, count, sentence

Document = Mapping[str, Any]
Parts = tuple[Formatted, ...]

FULL = "Verified: the result equals the sequential one bit for bit."
SAMPLE = (
    "Verified by a sample: the first {} of {} iterations, run again on {}, equal the sequential ones bit for bit "
    "({})."
)
WRONG = "NOT VERIFIED: the result differs from the sequential one{}."
WRONG_SAMPLE = (
    "NOT VERIFIED: after the first {} iterations, run again on {}, the result differs from the sequential "
    "one{}."
)
WRONG_ROW = ", first in row {}, which rank {} on {} had"
UNCHECKED = "Not verified ({})."


def verified_text(document: Document) -> str:
    """Return whether the result is right, and how that was found, in a sentence."""
    pattern, parts = _verified(document)
    return pattern.format(*(one.text if isinstance(one, Number) else one for one in parts))


def verified_page(document: Document) -> tuple[str, str, Markup]:
    """Return kind, word and sentence of the same for a page."""
    verified = document["verified"]
    how = document.get("verification", {}).get("how", "full")
    kind = {True: "good", False: "bad", None: "watch"}[verified]
    right = "verified by a sample" if how == "sample" else "verified"
    word = {True: right, False: "a result differs", None: "not verified"}[verified]
    pattern, parts = _verified(document)
    return kind, word, sentence(pattern, *parts)


def _verified(document: Document) -> tuple[str, Parts]:
    """Return a pattern and what goes into it; a record of an earlier version does not say how."""
    verified, found = document["verified"], document.get("verification", {})
    parts: Parts
    if verified is None:
        return UNCHECKED, (found.get("reason") or "nobody asked",)
    if found.get("how", "full") == "full":
        pattern, parts = (FULL, ()) if verified else (WRONG, ())
    else:
        place = "the same hosts" if found["sampled_on"] == "hosts" else "this machine"
        first = count(found["iterations"])
        all_of_it = count(document["execution"]["iterations"])
        if verified:
            return SAMPLE, (first, all_of_it, place, found["reason"])
        pattern, parts = WRONG_SAMPLE, (first, place)
    row = found.get("differs_at")
    if verified:
        return pattern, parts
    if not row:
        return pattern.replace("{}.", "."), parts
    return pattern.replace("{}.", f"{WRONG_ROW}."), (
        *parts,
        count(row["row"]),
        count(row["rank"]),
        row["host"],
    )
