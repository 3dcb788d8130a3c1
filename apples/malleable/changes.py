"""What a program is told at a safe point, and what it did wrong."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from apples.errors import ApplicationError
from apples.malleable.command import Member


@dataclass(frozen=True, slots=True)
class Change:
    """The hosts are others now; all data is as it was, nothing is computed again.

    Attributes
    ----------
    kind
        ``started`` at a program's first safe point, else ``resized``.
    epoch
        Number of the map.
    old, new
        Members before and after, in strip order.
    is_new
        Whether this rank joined with this change.
    """

    kind: Literal["started", "resized"]
    epoch: int
    old: tuple[Member, ...]
    new: tuple[Member, ...]
    is_new: bool
    phases: dict[str, float] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class Rollback:
    """Hosts were lost; all data is that of the last commit, and what came after it is computed again.

    Attributes
    ----------
    commit
        Number of the commit; 0: the beginning.
    lost
        Hosts that are gone.
    """

    epoch: int
    commit: int
    lost: tuple[str, ...]
    new: tuple[Member, ...]
    is_new: bool = True


class Released(SystemExit):
    """This rank's host leaves the job: unwinds the program, which ends with code 0."""

    def __init__(self) -> None:
        super().__init__(0)


class DeclarationError(ApplicationError):
    """A declaration that cannot be kept through a change of hosts. Permanent."""


class UndeclaredStateError(DeclarationError):
    """State that nobody declared would be lost on a change of hosts. Permanent."""
