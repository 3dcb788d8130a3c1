"""Results in a notebook: the first lines of their text, their table, and the chart of their page.

The chart is an image with its style inside, so that styles and names of one output do not affect another.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from markupsafe import Markup

from apples.agent.pages import charts
from apples.agent.text.plan import no_plan, plan_head, plan_table
from apples.agent.text.run import run_head, run_table
from apples.agent.text.words import kinds_of, spending
from apples.ui.charts import picture
from apples.ui.palette import fixed
from apples.ui.shell import page

if TYPE_CHECKING:
    from apples.agent.documents import AgentRunDocument, PlanDocument

SHOWN_HOSTS = 50
DRAWN_HOSTS = 16


def plan_html(document: PlanDocument) -> str:
    """Return the HTML of a plan: its first lines, a row per host, and its strips or rectangles to scale."""
    chosen = document["chosen"]
    if chosen is None:
        return output(no_plan(document))
    drawn = Markup()
    if "rectangle" in chosen["strips"][0]:
        drawn = charts.rectangles("rectangles", chosen)
    elif len(chosen["strips"]) <= DRAWN_HOSTS:
        drawn = charts.strips("strips", chosen, kinds_of([document]))
    return output(
        plan_head(document, chosen),
        plan_table(chosen, SHOWN_HOSTS),
        len(chosen["strips"]) - SHOWN_HOSTS,
        drawn,
    )


def run_html(document: AgentRunDocument) -> str:
    """Return the HTML of a run: its first lines, a row per host, and a chart of an iteration's time."""
    execution = document["execution"]
    assert execution is not None  # noqa: S101 - for the type checker: a `RunResult` has an execution
    hosts = execution["hosts"]
    drawn = Markup()
    if 0 < len(hosts) <= DRAWN_HOSTS:
        longest = [sum(seconds for _, seconds, _ in spending(host)) for host in hosts]
        limit = max([execution["iteration_seconds"], *longest]) * 1.02
        drawn = charts.times("times", execution, limit)
    rows = run_table(execution)
    return output(
        run_head(document, execution), rows[: SHOWN_HOSTS + 1], len(rows) - 1 - SHOWN_HOSTS, drawn
    )


def output(
    lines: Iterable[str],
    rows: Sequence[Sequence[str]] = (),
    more: int = 0,
    drawn: Markup = Markup(),  # noqa: B008 - immutable
) -> str:
    """Return lines, a table and a chart as the HTML of a notebook's output; all text is escaped.

    Parameters
    ----------
    rows
        The titles, then the cells of each row; the first cell names the row.
    more
        Number of hosts that the table leaves out.
    """
    parts = [Markup("<p>{}</p>").format(Markup("<br>").join("\n".join(lines).splitlines()))]
    if rows:
        titles = Markup("").join(Markup('<th scope="col">{}</th>').format(t) for t in rows[0])
        body = Markup("").join(_row(row) for row in rows[1:])
        parts.append(
            Markup("<table><thead><tr>{}</tr></thead><tbody>{}</tbody></table>").format(
                titles, body
            )
        )
    if more > 0:
        parts.append(Markup("<p>and {} more hosts</p>").format(more))
    if drawn:
        parts.append(_image(drawn))
    return str(Markup('<div class="apples-result">{}</div>').format(Markup("").join(parts)))


def _row(cells: Sequence[str]) -> Markup:
    rest = Markup("").join(Markup("<td>{}</td>").format(cell) for cell in cells[1:])
    return Markup('<tr><th scope="row">{}</th>{}</tr>').format(cells[0], rest)


def _image(drawn: Markup) -> Markup:
    """Return a drawing as an image; its alternative text is the title and description."""
    file = picture(drawn, fixed(page("style.css.j2")))
    words = re.findall(r"<(?:title|desc) [^>]*>(.*?)</(?:title|desc)>", drawn)
    return Markup(
        '<img style="max-width:100%" alt="{}" src="data:image/svg+xml;base64,{}">'
    ).format(
        ". ".join(Markup(text).striptags() for text in words),  # noqa: S704 - escaped in the drawing
        base64.b64encode(file.encode()).decode(),
    )
