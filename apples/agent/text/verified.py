"""Sentences about the verification of a result, for the text and the page of a run; from ``apples.run/1``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from apples.ui.formats import Formatted, Number, count, sentence

if TYPE_CHECKING:
    from apples.agent.documents import AgentRunDocument, VerificationInfo

Parts = tuple[Formatted, ...]

FULL = "Verified: the results on {} and {} ranks are equal bit for bit."
EARLIER = "Verified: the result equals that of one process bit for bit."
ONE_RANK = "Verified on {} rank only: the partition was not tested ({})."
SAMPLE = (
    "Verified by a sample: the first {} of {} iterations, run again on {}, give equal results on {} and {} ranks, "
    "bit for bit ({})."
)
ONE_RANK_SAMPLE = (
    "Verified by a sample on {} rank only: the first {} of {} iterations, run again on {}, give the same result, "
    "bit for bit; the partition was not tested ({})."
)
WRONG = "NOT VERIFIED: the results on {} and {} ranks differ{}."
WRONG_SAMPLE = (
    "NOT VERIFIED: after {} iterations, run again on {}, the results on {} and {} ranks differ{}."
)
WRONG_ROW = ", first in row {}, which rank {} on {} had"
WRONG_CELL = "NOT VERIFIED: the results on {} and {} ranks are equal; cell {} is {}, {} gives {} (tolerance {})."
SAME_AS_FUNCTION = ", and within {} of {}."
UNCHECKED = "Not verified ({})."


def verified_text(document: AgentRunDocument) -> str:
    """Return a sentence with the outcome and the method of the verification."""
    pattern, parts = _verified(document)
    return pattern.format(*(one.text if isinstance(one, Number) else one for one in parts))


def verified_page(document: AgentRunDocument) -> tuple[str, str, Markup]:
    """Return kind, word and sentence of the verification for a page."""
    verified = document["verified"]
    how = document.get("verification", {}).get("how", "full")
    kind = {True: "good", False: "bad", None: "watch"}[verified]
    right = "verified by a sample" if how == "sample" else "verified"
    word = {True: right, False: "a result differs", None: "not verified"}[verified]
    pattern, parts = _verified(document)
    return kind, word, sentence(pattern, *parts)


def _verified(document: AgentRunDocument) -> tuple[str, Parts]:
    """Return the text pattern of the verification's outcome, and the values for its braces."""
    verified, found = document["verified"], document.get("verification")
    if verified is None:
        return UNCHECKED, ((found and found["reason"]) or "verification off",)
    if found is not None:
        return _checked(document, found)
    # A record of an earlier version has no `verification`.
    return (EARLIER, ()) if verified else (WRONG.replace("{}.", "."), ("the planned", count(1)))


def _checked(document: AgentRunDocument, found: VerificationInfo) -> tuple[str, Parts]:
    """Return text pattern and values for compared results, with the comparison by a function if one was made."""
    expected = found.get("expected_result")
    if not expected:
        return _ranks_checked(document, found)
    if cell := expected["differs_at"]:
        ranks, other, _ = _compared(found)
        index = ", ".join(map(str, cell["index"]))
        values = (f"[{index}]", cell["value"], expected["function"], cell["expected"])
        return WRONG_CELL, (ranks, other, *values, f"{expected['tolerance']:g}")
    pattern, parts = _ranks_checked(document, found)
    more = (f"{expected['tolerance']:g}", expected["function"])
    return pattern.removesuffix(".") + SAME_AS_FUNCTION, (*parts, *more)


def _ranks_checked(document: AgentRunDocument, found: VerificationInfo) -> tuple[str, Parts]:
    """Return a pattern and its parts for the compared results of two runs."""
    ranks, reference, tested = _compared(found)
    place = "the same hosts" if found.get("sampled_on") == "hosts" else "this machine"
    first: Parts = ()
    if sampled := found.get("how", "full") == "sample":
        first = (count(found["iterations"]), place)
    if not document["verified"]:
        pattern, row = WRONG_SAMPLE if sampled else WRONG, found.get("differs_at")
        owner = (count(row["row"]), count(row["rank"]), row["host"]) if row else ()
        end = f"{WRONG_ROW}." if row else "."
        return pattern.replace("{}.", end), (*first, ranks, reference, *owner)
    if sampled:
        execution = document["execution"]
        assert execution is not None  # noqa: S101 - for the type checker: only a run is verified
        first = (count(found["iterations"]), count(execution["iterations"]), place)
        reason = found["reason"]
        if tested:
            return SAMPLE, (*first, ranks, reference, reason)
        return ONE_RANK_SAMPLE, (ranks, *first, reason)
    if "compared" not in found:
        return EARLIER, ()
    return (FULL, (ranks, reference)) if tested else (ONE_RANK, (ranks, found["reason"]))


def _compared(found: VerificationInfo) -> tuple[Formatted, Formatted, bool]:
    """Return the ranks of both results, and whether the partition was tested.

    A record of an earlier version does not have the ranks: its reference was always one process.
    """
    compared = found.get("compared")
    if not compared:
        return "the planned", count(1), True
    return (
        count(compared["ranks"]),
        count(compared["reference_ranks"]),
        compared["partition_tested"],
    )
