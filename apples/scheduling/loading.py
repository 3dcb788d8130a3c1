"""Create a scheduling policy from its name and options.

A simulation runs a user's policy in its own process. A live scheduler uses `guard.GuardedPolicy`; its child
process loads the policy with this module.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import fields, is_dataclass

from apples.errors import UsageError, where_in_users_code
from apples.io.plugins import did_you_mean, resolve
from apples.scheduling.passes import shortened
from apples.scheduling.policies import POLICIES
from apples.scheduling.policy import SchedulingPolicy


def is_of_user(name: str) -> bool:
    """Return whether a name refers to a user's own policy: ``FILE.py:NAME`` or ``module:NAME``."""
    return ":" in name and name not in POLICIES


def load_policy(
    name: str, options: Mapping[str, str], others: Collection[str] = ()
) -> SchedulingPolicy:
    """Create the policy of a name, or a user's own policy (``FILE.py:NAME`` or ``module:NAME``), in this process.

    Parameters
    ----------
    others
        Names of the simulation's own options, for messages.

    Raises
    ------
    UsageError
        The policy, its file or its name does not exist, or it lacks an option. Permanent.
    """
    made = resolve(name, POLICIES, "policy")
    known = _fields_of(made)
    for key, text in options.items():
        if known is not None and key not in known:
            hint = did_you_mean(key, [*known, *others])
            more = f"; a simulation has {', '.join(others)}" if others else ""
            raise UsageError(
                f"option {key}: {hint}policy {name} has {', '.join(known) or 'none'}{more}",
                code="option-unknown",
                option=key,
                policy=name,
                known=[*known],
            )
        if known is not None and not _is_a(known[key], option_value(text)):
            raise UsageError(
                f"option {key}={text}: not {MEANT[known[key]]}",
                code="value-type",
                option=key,
                value=text,
                policy=name,
            )
    values = {key: option_value(text) for key, text in options.items()}
    try:
        policy = made(**values)
    except UsageError:
        raise
    except Exception as error:
        failed = where_in_users_code(error) or f"policy {name}"
        raise UsageError(
            f"{failed}: {type(error).__name__}: {error}",
            code="user-code-failed",
            policy=name,
            where=failed,
            kind=type(error).__name__,
        ) from error
    if not callable(getattr(policy, "decide", None)):
        raise UsageError(
            f"policy {name}: has no method decide(cluster)",
            code="policy-invalid",
            policy=name,
            field="decide",
        )
    _check_half_life(policy)
    return policy


def _check_half_life(policy: SchedulingPolicy) -> None:
    """Reject a policy if its `usage_half_life` is not a number of seconds."""
    given = getattr(policy, "usage_half_life", None)
    if given is None or (
        isinstance(given, int | float) and not isinstance(given, bool) and 0 <= given < math.inf
    ):
        return
    name, shown = type(policy).__name__, shortened(given)
    raise UsageError(
        f"policy {name}: usage_half_life is {shown}, must be seconds, 0 or more",
        code="value-invalid", policy=name, field="usage_half_life", value=shown, bound=0,
    )  # fmt: skip


def _fields_of(made: object) -> dict[str, str] | None:
    """Return the fields of a dataclass and their annotations as text, None for anything else."""
    if not (isinstance(made, type) and is_dataclass(made)):
        return None
    return {one.name: str(getattr(one.type, "__name__", one.type)) for one in fields(made)}


#: Annotation of an option's field -> its allowed values, for messages.
MEANT: Mapping[str, str] = {"bool": "on or off", "int": "a whole number", "float": "a number"}


def _is_a(kind: str, value: bool | int | float | str) -> bool:
    """Return whether a value has a field's annotated type; True for a type other than bool, int and float."""
    allowed = {"bool": (bool,), "int": (int,), "float": (int, float)}
    return kind not in allowed or type(value) in allowed[kind]


def option_value(text: str) -> bool | int | float | str:
    """Return the value of an option's text: a bool for on or off, a number, otherwise the text.

    Examples
    --------
    >>> option_value("on"), option_value("3"), option_value("0.5"), option_value("age")
    (True, 3, 0.5, 'age')
    """
    words = {"true": True, "on": True, "false": False, "off": False}
    if text.lower() in words:
        return words[text.lower()]
    try:
        number = float(text)
    except ValueError:
        return text
    return int(number) if text.lstrip("+-").isdigit() else number
