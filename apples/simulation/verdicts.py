"""The words for a change against a baseline: one builder for the terminal and the pages."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite, isnan

from apples.simulation.documents import RelativeChange
from apples.simulation.sweep import MetricChange

BETTER, WORSE, UNCLEAR = "better", "worse", "no clear difference"
ONE_RUN = "one run: no verdict"
UNKNOWN = "not known"


def relative_change(change: MetricChange | None) -> RelativeChange:
    """Return a change in its JSON form; null and 0 without a change."""
    if change is None:
        return {"change": None, "change_interval": None, "over": None, "count": 0}
    return {
        "change": change.mean,
        "change_interval": [change.low, change.high] if change.count > 1 else None,
        "over": change.over,
        "count": change.count,
    }


def verdict_word(change: RelativeChange) -> str:
    """Return the verdict of a change: better (less), worse, or the reason for neither.

    Examples
    --------
    >>> verdict_word({"change": -0.2, "change_interval": [-0.3, -0.1], "over": "seeds", "count": 3})
    'better'
    """
    mean, ends = change["change"], change["change_interval"]
    if mean is None or not isfinite(mean) or any(map(isnan, ends or ())):
        return UNKNOWN
    if ends is None:
        return ONE_RUN
    if ends[0] > 0:
        return WORSE
    return BETTER if ends[1] < 0 else UNCLEAR


def change_words(change: RelativeChange) -> str:
    """Return a change with its 95 % interval and the number of independent parts.

    Examples
    --------
    >>> change_words({"change": -0.2, "change_interval": [-0.3, -0.1], "over": "seeds", "count": 3})
    '-20.0%, -30.0% .. -10.0% over 3 seeds'
    """
    word, mean, ends = verdict_word(change), change["change"], change["change_interval"]
    if mean is None or word == UNKNOWN:
        return UNKNOWN
    if ends is None:
        return f"{_percent(mean)}, {ONE_RUN}"
    head = UNCLEAR if word == UNCLEAR else _percent(mean)
    low, high = map(_percent, ends)
    return f"{head}, {low} .. {high} over {change['count']} {change['over']}"


def overall_word(changes: Iterable[RelativeChange]) -> str:
    """Return the only clear verdict among the metrics of a policy; `UNCLEAR` without one or with both."""
    clear = {verdict_word(change) for change in changes} & {BETTER, WORSE}
    return clear.pop() if len(clear) == 1 else UNCLEAR


def tally(words: Iterable[str]) -> str:
    """Return the numbers of better, worse and other verdicts as text.

    Examples
    --------
    >>> tally(["better", "no clear difference", "better"])
    '2 of 3 better, 0 worse, 1 neither'
    """
    all_words = list(words)
    better, worse = all_words.count(BETTER), all_words.count(WORSE)
    neither = len(all_words) - better - worse
    return f"{better} of {len(all_words)} better, {worse} worse, {neither} neither"


def _percent(value: float) -> str:
    """Return a fraction in percent with its sign; never a signed zero."""
    return f"{round(value, 3) + 0.0:+.1%}" if isfinite(value) else "no limit"
