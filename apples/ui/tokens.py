"""The tokens of a service: its command issues and revokes them, its file keeps their hashes."""

from __future__ import annotations

from collections.abc import Sequence

import nws
from apples.errors import UsageError, coded
from apples.ui.command_line import say, show


def issue(
    known: nws.TokenFile, name: str, scopes: Sequence[str], seconds: float | None = None
) -> int:
    """Make a token and print it.

    Raises
    ------
    UsageError
        An unknown scope, or too many tokens.
    """
    try:
        show(known.issue(name, scopes, seconds))
    except (ValueError, nws.TokenFileError) as error:
        raise UsageError(str(error), **coded(error, code="value-invalid")) from None
    say(f"this token of {name} is good for {', '.join(scopes)} and is not shown again")
    return 0


def revoke(known: nws.TokenFile, name: str) -> int:
    """Revoke all tokens of a name.

    Raises
    ------
    UsageError
        No token has this name.
    """
    try:
        count = known.revoke(name)
    except nws.TokenFileError as error:
        raise UsageError(str(error), **coded(error, code="file-invalid")) from None
    if not count:
        raise UsageError(f"no token has the name {name}", code="token-unknown", value=name)
    say(f"revoked {count} tokens of {name}")
    return 0
