"""The request that the button "submit" of a plan's page sends to a scheduler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import hat
from apples.applications.folder import DocumentFolder
from apples.cluster.submission import JobRequest
from apples.errors import UsageError
from apples.jobs.pages.plan import files_of, settings_of

MOST_HOSTS = 10**6


def submission(folder: DocumentFolder, wanted: Mapping[str, str], hosts: tuple[str, str]) -> Any:
    """Return what a scheduler is sent, as ``apples submit`` sends it.

    Parameters
    ----------
    hosts
        The fewest and the most, as somebody typed them; empty: 1, and as many as the fewest.
    """
    _, template, user = files_of(folder, {**wanted, "hosts": wanted["template"]})
    least, most = (
        _count(name, text) for name, text in zip(("--min", "--max"), hosts, strict=True)
    )
    request = JobRequest(
        template, user, settings_of(wanted["set"]), least or 1, most, directory=folder.path
    )
    return request.body()


def _count(option: str, text: str) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 9 and 1 <= int(text) <= MOST_HOSTS):
        raise UsageError(
            f"{option} {hat.printable(text)}: must be a whole number from 1 to {MOST_HOSTS}",
            code="value-range", option=option, value=text, bound=[1, MOST_HOSTS],
        )  # fmt: skip
    return int(text)
