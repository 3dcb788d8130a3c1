"""What every saved page is made of: numbers that carry their value, and templates that escape.

A page is one file: no request, no script, readable from a disk. Each number on it is a `formats.Number`, so
the page itself says which value of the document it shows: ``<data value=...>`` in text, ``data-value``
in SVG.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from apples.ui import formats, palette
from apples.ui.charts import patterns

SHELL = "apples.ui"
"""The package whose templates all pages stand on: frames, style sheets, and macros that any page may call."""


def render(template: str, *packages: str, **context: object) -> str:
    """Return the page of a template; text that no encoding can hold is replaced.

    Parameters
    ----------
    template
        Its file name.
    packages
        As of `environment`: the package of the template, then those of templates that it includes.
    """
    text = environment(*packages).get_template(template).render(context)
    return text.encode("utf-8", "replace").decode("utf-8")


def pieces(template: str, *packages: str, **context: object) -> Iterator[str]:
    """Yield the page of a template piece by piece, so that other callers are served in between."""
    return environment(*packages).get_template(template).generate(context)


def style_sheet() -> str:
    """Return the style of pages that are served: the saved pages' and what forms and lists need besides."""
    return render("served.css.j2")


@cache
def environment(*packages: str) -> Environment:
    """Return the Jinja environment that finds templates in packages, in this order, and last in `SHELL`.

    Parameters
    ----------
    packages
        Names of packages; each has a folder ``templates``.
    """
    made = Environment(
        loader=ChoiceLoader(
            [PackageLoader(name, "templates") for name in dict.fromkeys((*packages, SHELL))]
        ),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters.update(
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
    made.globals.update(
        colours=Markup(palette.css()),  # noqa: S704
        patterns=patterns(),
    )
    return made
