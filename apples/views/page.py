"""What every saved page is made of: numbers that carry their value, and templates that escape.

A page is one file: no request, no script, readable from a disk. Each number on it is a `formats.Number`, so
the page itself says which value of the document it shows: ``<data value=...>`` in text, ``data-value``
in SVG.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from apples.views import formats, palette
from apples.views.drawing import patterns


def render(template: str, **context: object) -> str:
    """Return the page of a template; text that no encoding can hold is replaced."""
    text = _environment().get_template(template).render(context)
    return text.encode("utf-8", "replace").decode("utf-8")


def pieces(template: str, **context: object) -> Iterator[str]:
    """Yield the page of a template piece by piece, for whoever has to let others go on in between."""
    return _environment().get_template(template).generate(context)


def style_sheet() -> str:
    """Return the style of pages that are served: the saved pages' and what forms and lists need besides."""
    return render("served.css.j2")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("apples.views", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(
        seconds=formats.seconds,
        count=formats.count,
        size=formats.size,
        share=formats.share,
        percent=formats.percent,
        signed=formats.signed,
        plain=formats.plain,
        number=formats.number,
        exact=formats.exact,
        moment=formats.moment,
    )
    # Both are constants of this package: no text of a document is in them.
    environment.globals.update(
        colours=Markup(palette.css()),  # noqa: S704
        patterns=patterns(),
    )
    return environment


Document = dict[str, Any]

MOST_REASONS = 20


def kinds_of(plans: Sequence[Document]) -> list[str]:
    """Return the implementations in use, in an order that stays."""
    return sorted(
        {
            strip["implementation"]
            for plan in plans
            if plan["chosen"]
            for strip in plan["chosen"]["strips"]
        }
    )


def verified_words(verified: Sequence[bool | None]) -> tuple[str, str, str]:
    """Return kind, word and sentence for the checks of the results."""
    if not verified:
        return "watch", "nothing ran", "There is no result to verify."
    if any(one is False for one in verified):
        return "bad", "a result differs", "A result differs from the sequential run's."
    if all(one is True for one in verified):
        return "good", "verified", "Every result equals the sequential one bit for bit."
    return "watch", "not verified", "Not every result was compared with the sequential one."


def reasons(plan: Document | None) -> Document | None:
    """Return why a plan uses its hosts: left out, refused, assumed, each cut to what a page holds."""
    if plan is None:
        return None
    refused = [one["reason"] for one in plan["rejected"]]
    return {
        "plan": plan,
        "left_out": plan["left_out"][:MOST_REASONS],
        "refused": refused[:MOST_REASONS],
        "assumed": plan["assumed"][:MOST_REASONS],
        "more": plan["rejected_total"] > min(len(refused), MOST_REASONS)
        or len(plan["left_out"]) > MOST_REASONS
        or len(plan["assumed"]) > MOST_REASONS,
    }
