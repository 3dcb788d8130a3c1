"""Words that pages of runs and plans share: implementations, verification, and the reasons of a plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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
