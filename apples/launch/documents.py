"""The JSON document of ``apples doctor``, as types."""

from __future__ import annotations

from typing import Literal, NotRequired

from typing_extensions import TypedDict


class CheckEntry(TypedDict):
    """One check of a machine or of a program."""

    name: str
    """Name of the check."""
    detail: str
    """Finding of the check."""
    status: NotRequired[Literal["ok", "warn", "fail"]]
    """Verdict of a check of a machine."""
    cure: NotRequired[str]
    """Remedy if `status` is not ``ok``; else empty."""
    ok: NotRequired[bool | None]
    """Whether a program passed; null: not checked, `detail` gives the reason."""


class HostChecks(TypedDict):
    """The checks of one host."""

    host: str
    """Name of the host."""
    fit: bool
    """Whether the host can be used."""
    checks: list[CheckEntry]
    """Its checks."""


class DoctorDocument(TypedDict):
    """``apples doctor --json``, with and without ``--hosts`` or ``--program``."""

    schema: Literal["apples.doctor/1"]
    """Name and version of the form."""
    checks: NotRequired[list[CheckEntry]]
    """Checks of this machine, or with ``--program`` of the program."""
    hosts: NotRequired[list[HostChecks]]
    """With ``--hosts``: the hosts of the list."""
    here: NotRequired[list[str]]
    """With ``--hosts``: hosts that are this machine."""
