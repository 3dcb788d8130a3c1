"""What every saved page is made of: numbers that carry their value, and templates that escape.

A page is one file: no request, no script, readable from a disk. Each number on it is a `shown.Number`, so
the page itself says which value of the document it shows: ``<data value=...>`` in text, ``data-value``
in SVG.
"""

from __future__ import annotations

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from apples.views import palette, shown
from apples.views.drawing import patterns


def render(template: str, **context: object) -> str:
    """Return the page of a template; text that no encoding can hold is replaced."""
    text = _environment().get_template(template).render(context)
    return text.encode("utf-8", "replace").decode("utf-8")


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
        seconds=shown.seconds,
        count=shown.count,
        size=shown.size,
        share=shown.share,
        percent=shown.percent,
        signed=shown.signed,
        plain=shown.plain,
        exact=shown.exact,
    )
    # Both are constants of this package: no text of a document is in them.
    environment.globals.update(
        colours=Markup(palette.css()),  # noqa: S704
        patterns=patterns(),
    )
    return environment
