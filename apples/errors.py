"""Everything that can go wrong, as one tree; each error knows the exit code it ends a command with.

The codes are those of every command: 2 usage or bad input, 3 no feasible plan, 4 resources or launch
failed (also: busy), 5 application failed, 6 verification failed, 7 time-out.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar


class ApplesError(Exception):
    """Anything apples refuses or fails to do; the message is one clear line a user can act on."""

    exit_code: ClassVar[int] = 1


class UsageError(ApplesError):
    """Bad input: an option, a file, a name. Permanent until the input changes."""

    exit_code = 2


@contextmanager
def told_of(place: object) -> Iterator[None]:
    """Have the usage errors of a block name what they are about, such as a file.

    Examples
    --------
    >>> with told_of("sweep.toml"):
    ...     raise UsageError("work: must be positive")
    Traceback (most recent call last):
    apples.errors.UsageError: sweep.toml: work: must be positive
    """
    try:
        yield
    except UsageError as error:
        raise UsageError(f"{place}: {error}") from None


class ModelError(ApplesError):
    """A model, planner or distance returned something that is no number of seconds or rows."""

    exit_code = 2


class InfeasibleError(ApplesError):
    """No plan satisfies the constraints. Permanent under this weather."""

    exit_code = 3


class LaunchError(ApplesError):
    """The resources could not be had or the program did not start. Often transient."""

    exit_code = 4


class ManagerUnreachableError(LaunchError):
    """A resource manager cannot be asked: nothing is known of what it would say of a schedule."""


class ApplicationError(ApplesError):
    """The program started and then failed, or said something outside the protocol."""

    exit_code = 5


class VerificationError(ApplesError):
    """The program's result is not that of the sequential run."""

    exit_code = 6


class DeadlineError(ApplesError):
    """A wait took longer than its deadline."""

    exit_code = 7
