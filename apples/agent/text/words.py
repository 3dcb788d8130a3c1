"""Words shared by texts and pages of runs: implementations, time spent, verification, reasons for a plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypedDict

from apples.ui.units import listed

if TYPE_CHECKING:
    from apples.agent.documents import (
        Binding,
        ExecutionInfo,
        HostRun,
        LeftOut,
        PlanDocument,
        SlowHostEntry,
    )

MAX_REASONS = 20


class Reasons(TypedDict):
    """Reasons for the hosts of a plan, each list cut to `MAX_REASONS` entries."""

    plan: PlanDocument
    left_out: list[LeftOut]
    binding: list[Binding]
    refused: list[str]
    assumed: list[str]
    more: bool
    """Whether the plan has more reasons."""


def kinds_of(plans: Sequence[PlanDocument]) -> list[str | None]:
    """Return the implementations in use, in a stable order."""
    return sorted(
        {
            strip["implementation"]
            for plan in plans
            if plan["chosen"]
            for strip in plan["chosen"]["strips"]
        },
        key=lambda name: name or "",
    )


def slow_host_lines(found: Iterable[SlowHostEntry] | None) -> Iterator[str]:
    """Yield a line for each entry of ``execution.slow_hosts``."""
    if not found:
        return
    from apples.agent.slow_hosts import slow_host_text  # noqa: PLC0415 - most runs have no slow host

    yield from map(slow_host_text, found)


def verified_words(verified: Sequence[bool | None]) -> tuple[str, str, str]:
    """Return kind, word and sentence for the verifications of several results."""
    if not verified:
        return "watch", "nothing ran", "No result to verify."
    if any(one is False for one in verified):
        return "bad", "a result differs", "A result differs from the sequential run's."
    if all(one is True for one in verified):
        return "good", "verified", "Every result equals the sequential one bit for bit."
    return "watch", "not verified", "Not every result was compared with the sequential one."


def reasons(plan: PlanDocument | None) -> Reasons | None:
    """Return the reasons for the hosts of a plan, cut to fit a page."""
    if plan is None:
        return None
    from apples.agent.text.plan import unmeasured_speeds  # noqa: PLC0415 - it loads NumPy, a list of runs needs none

    refused = [one["reason"] for one in plan["rejected"]]
    speeds = unmeasured_speeds(plan, never=plan["weather"]["kind"] != "static")
    assumed = [f"speed of {listed(hosts)}: {reason}" for reason, hosts in speeds.items()]
    assumed += plan["assumed"]
    return {
        "plan": plan,
        "left_out": plan["left_out"][:MAX_REASONS],
        "binding": plan.get("binding", [])[:MAX_REASONS],
        "refused": refused[:MAX_REASONS],
        "assumed": assumed[:MAX_REASONS],
        "more": plan["rejected_total"] > min(len(refused), MAX_REASONS)
        or len(plan["left_out"]) > MAX_REASONS
        or len(assumed) > MAX_REASONS,
    }


def spending(host: HostRun) -> list[tuple[str, float, str]]:
    """Return the parts of a host's iteration, which add up to it: word, seconds, fill."""
    compute, halo = host["compute_per_iteration"], host["communicate_per_iteration"]
    wait, other = host.get("wait_per_iteration"), host.get("other_per_iteration")
    spent = [("compute", compute, "fill-0")]
    if wait is None:
        spent.append(("halo and wait", halo, "fill-1"))
    else:
        spent += [("halo", halo, "fill-1"), ("wait", wait, "fill-2")]
    if other is not None:  # a record of an earlier version
        spent.append(("other", other, "fill-3"))
    return spent


def words_of(executions: Sequence[ExecutionInfo]) -> dict[str, str]:
    """Return the words of `spending` that occur in these runs, in its order, with the fill of each."""
    told = {
        word: kind
        for one in executions
        for host in one["hosts"]
        for word, _, kind in spending(host)
    }
    return dict(sorted(told.items(), key=lambda pair: pair[1]))
