"""The wishes of one job: which is waiting, which is being carried out, what became of the others.

No time passes here and nothing is sent: who asks, and over what, is the responder's business.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

from apples.malleable.command import Command
from apples.malleable.protocol.messages import Reason, Verdict, Wish

REMEMBERED = 256
"""Verdicts kept. An older command that was carried out is still refused, by its epoch."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How many hosts a job runs on, and which there are.

    Attributes
    ----------
    known
        Names of the hosts it may be sent to.
    """

    minimum: int
    maximum: int
    known: frozenset[str]

    def refusal(self, command: Command) -> tuple[Reason, str] | None:
        """Return why the limits refuse a command, in a word and a line; None if they do not."""
        strangers = [share.host for share in command.hosts if share.host not in self.known]
        if strangers:
            return (
                "unknown_host",
                f"unknown host '{strangers[0]}': the job's host list has no such",
            )
        count = len(command.hosts)
        if count < self.minimum:
            return "below_minimum", f"{count} hosts, the job needs at least {self.minimum}"
        if count > self.maximum:
            return "over_maximum", f"{count} hosts, the job can use at most {self.maximum}"
        return None


class Ledger:
    """Takes wishes in, hands them to the job one at a time, remembers what became of them.

    Attributes
    ----------
    epoch
        The last that was taken, by a command or by the job itself.
    limits
        May be replaced at any time: an evolving job asks for others.
    waiting
        What the job is to do next.
    begun
        What it is doing.
    last
        The last verdict ``done``.
    """

    def __init__(self, limits: Limits, epoch: int = 0) -> None:
        self.epoch = epoch
        self.limits = limits
        self.waiting: Wish | None = None
        self.begun: Wish | None = None
        self.last: Verdict | None = None
        self._ended = ""
        self._verdicts: OrderedDict[str, tuple[Wish, Verdict]] = OrderedDict()

    @property
    def busy(self) -> Wish | None:
        """The wish that stands in the way of another."""
        return self.begun or self.waiting

    def submit(self, wish: Wish) -> Verdict | None:
        """Take a wish in, or again; return the verdict, None while there is none."""
        if wish.id in self._verdicts:
            before, verdict = self._verdicts[wish.id]
            if before == wish or not before.command.hosts:  # none: taken back before it came
                return verdict
            return _nack(wish, "malformed", "another command has the same id")
        if self.busy == wish:
            return None
        refusal = self._refusal(wish.command)
        if refusal is not None:
            return self._settle(wish, _nack(wish, *refusal))
        self.waiting = wish
        return None

    def _refusal(self, command: Command) -> tuple[Reason, str] | None:
        if self._ended:
            return "ending", f"the job is {self._ended}"
        if self.busy is not None:
            what = "being carried out" if self.begun else "waiting"
            return "busy", f"another resize is {what}"
        if command.epoch != self.epoch + 1:
            return "stale", f"made for epoch {command.epoch - 1}, the job is in {self.epoch}"
        return self.limits.refusal(command)

    def withdraw(self, identifier: str) -> Verdict | None:
        """Take a wish back if it has not begun; return the verdict, None if it must run its course.

        One that was never heard of is refused too, and stays so should it come late: else nobody could
        know.
        """
        if identifier in self._verdicts:
            return self._verdicts[identifier][1]
        if self.begun is not None and self.begun.id == identifier:
            return None
        if self.waiting is not None and self.waiting.id == identifier:
            wish, self.waiting = self.waiting, None
        else:
            wish = Wish(identifier, Command(0, ()))
        return self._settle(wish, _nack(wish, "withdrawn", "the agent took it back"))

    def begin(self) -> Command | None:
        """Return what the job is to do now, if anything waits; it has begun then."""
        if self.waiting is None:
            return None
        wish, self.waiting = self.waiting, None
        refusal = self.limits.refusal(wish.command)  # they may have changed since
        if refusal is not None:
            self._settle(wish, _nack(wish, *refusal))
            return None
        self.begun = wish
        return wish.command

    def done(self, seconds: float, phases: Mapping[str, float]) -> Verdict:
        """Take in that the job did it; return the verdict."""
        wish = self._over()
        self.last = Verdict(
            "done", wish.id, wish.command.epoch, seconds=seconds, phases=dict(phases)
        )
        return self._settle(wish, self.last)

    def failed(self, detail: str) -> Verdict:
        """Take in that the job tried and is as it was; the epoch has passed."""
        wish = self._over()
        return self._settle(wish, Verdict("failed", wish.id, wish.command.epoch, "", detail))

    def moved(self, epoch: int) -> Verdict | None:
        """Take in that the job changed by itself (a host died); return the verdict on who waited."""
        self.epoch = max(self.epoch + 1, epoch)
        if self.waiting is None:
            return None
        wish, self.waiting = self.waiting, None
        return self._settle(wish, _nack(wish, "stale", "the job's hosts changed meanwhile"))

    def end(self, state: str) -> Verdict | None:
        """Take in that the job ends; return the verdict on the wish that was under way."""
        self._ended = state
        if self.begun is not None:
            return self.failed(f"the job is {state}")
        if self.waiting is None:
            return None
        wish, self.waiting = self.waiting, None
        return self._settle(wish, _nack(wish, "ending", f"the job is {state}"))

    def verdict(self, identifier: str) -> Verdict | None:
        """Return what is remembered of a wish."""
        known = self._verdicts.get(identifier)
        return known[1] if known else None

    def _over(self) -> Wish:
        """Return what was begun, over now; its epoch is taken."""
        if self.begun is None:
            raise RuntimeError("no command was begun")
        wish, self.begun = self.begun, None
        self.epoch = max(self.epoch, wish.command.epoch)
        return wish

    def _settle(self, wish: Wish, verdict: Verdict) -> Verdict:
        self._verdicts[wish.id] = (wish, verdict)
        while len(self._verdicts) > REMEMBERED:
            self._verdicts.popitem(last=False)
        return verdict


def _nack(wish: Wish, reason: Reason, detail: str) -> Verdict:
    return Verdict("nack", wish.id, wish.command.epoch, reason, detail)
