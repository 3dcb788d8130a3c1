"""The shell of all pages: a template and a typed model make a page; numbers include their value, text is escaped.

A saved page is a single file: no requests, no script, readable from a disk. Each number on it is a
`formats.Number`, so the page includes the exact value of the document: ``<data value=...>`` in text,
``data-value`` in SVG.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from apples.ui import formats, palette
from apples.ui.charts import patterns

NOTHING: Mapping[str, object] = {}


def page(template: str, model: object = NOTHING, frame: object = None) -> str:
    """Return the page of a template; text that no encoding can hold is replaced.

    Parameters
    ----------
    template
        File name. The names are unique over all packages, so that templates can include those of other packages.
    model
        Object with the names of the template as public attributes, or a mapping of names.
    frame
        The `Frame` of a served page; None: a saved page.
    """
    text = environment().get_template(template).render(_names(model), frame=frame)
    return text.encode("utf-8", "replace").decode("utf-8")


def page_pieces(template: str, model: object, frame: object) -> Iterator[str]:
    """Yield a page in pieces, so that other requests are served in between; parameters as of `page`."""
    return environment().get_template(template).generate(_names(model), frame=frame)


def _names(model: object) -> Mapping[str, object]:
    if isinstance(model, Mapping):
        return model
    return {name: getattr(model, name) for name in dir(model) if not name.startswith("_")}


@cache
def environment() -> Environment:
    """Return the Jinja environment with the templates of all packages."""
    rooms = Path(__file__).parents[1]
    made = Environment(
        loader=FileSystemLoader(sorted(rooms.glob("*/templates"))),
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
    # Both are constants of this package, so that no text of a document is in them.
    made.globals.update(
        colours=Markup(palette.css()),  # noqa: S704
        patterns=patterns(),
    )
    return made
