"""The steps of a migration, as a generator that asks keepers and is sent their answers; nothing happens here.

The order of van Albada et al. 1999 ("Migration of communicating tasks"): what is needed on the target is made
ready first, then the program is signalled, checkpointed, and restarted from the checkpoint. Until the checkpoint
is written whatever fails leaves the program running where it was; after it, a restart that fails is followed
by one on the source.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any

SupervisorAnswer = Mapping[str, Any]
LOOK_SECONDS = 25.0
LONG_SECONDS = 660.0


@dataclass(frozen=True, slots=True)
class SupervisorRequest:
    """Tell the keeper on `host` and wait for its answer, at most `seconds`."""

    host: str
    command: Mapping[str, Any]
    seconds: float


@dataclass(frozen=True, slots=True)
class MigrationRequest:
    """What is to move: from a host to another, through which folder.

    Attributes
    ----------
    folder
        Where the checkpoint goes: not there yet, on a file system that both hosts share.
    token
        A file in the job's folder, by which the target knows that it is shared.
    place
        CPUs and cgroup of each host.
    signal, signal_seconds
        Sent to processes that catch it before the checkpoint; how long they may take to stop themselves.
    """

    source: str
    target: str
    folder: str
    token: str
    place: Mapping[str, Mapping[str, Any]]
    signal: int = 0
    signal_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class MigrationDone:
    """It runs on the target."""

    phases: Mapping[str, float]
    bytes: int


@dataclass(frozen=True, slots=True)
class MigrationRefused:
    """It runs on the source, as before."""

    reason: str


@dataclass(frozen=True, slots=True)
class MigrationLost:
    """It runs nowhere. The checkpoint, where one was written, is left in its folder."""

    reason: str


MigrationSteps = Generator[
    SupervisorRequest, SupervisorAnswer, MigrationDone | MigrationRefused | MigrationLost
]
GONE: SupervisorAnswer = {"said": "gone", "reasons": ["its keeper ended or fell silent"]}
"""What an anchor answers for a keeper that does not."""


def migration(asked: MigrationRequest) -> MigrationSteps:
    """Yield what to ask whom; return what came of it.

    Examples
    --------
    >>> steps = migration(MigrationRequest("ada", "bob", "/job/1", "/job/token", {}))
    >>> steps.send(None).host, steps.send({"said": "seen", "pids": [7], "files": [], "kernel": ""}).host
    ('ada', 'bob')
    """
    seen = yield SupervisorRequest(asked.source, {"do": "inspect"}, LOOK_SECONDS)
    if seen["said"] != "seen":
        return _gone_or(seen, MigrationRefused(_why(seen, asked.source)))
    look = {
        "do": "look",
        "pids": seen["pids"],
        "files": seen["files"],
        "token": asked.token,
        "kernel": seen["kernel"],
    }
    fit = yield SupervisorRequest(asked.target, look, LOOK_SECONDS)
    if fit["said"] != "fit":
        return MigrationRefused(_why(fit, asked.target))
    checkpoint = {
        "do": "checkpoint",
        "folder": asked.folder,
        "signal": asked.signal,
        "signal_seconds": asked.signal_seconds,
    }
    written = yield SupervisorRequest(asked.source, checkpoint, LONG_SECONDS)
    if written["said"] == "refused":
        return MigrationRefused(_why(written, asked.source))
    if written["said"] != "written":
        return MigrationLost(_why(written, asked.source))
    return (yield from _restart(asked, written))


def _restart(asked: MigrationRequest, written: SupervisorAnswer) -> MigrationSteps:
    """Restart what was checkpointed: on the target, or else where it came from."""
    restart = {"do": "restart", "folder": asked.folder}
    restart |= {name: written[name] for name in ("pid", "stopped")}
    there = yield SupervisorRequest(
        asked.target, {**restart, **asked.place[asked.target]}, LONG_SECONDS
    )
    if there["said"] == "restarted":
        return MigrationDone({**written["phases"], "restart": there["seconds"]}, written["bytes"])
    here = yield SupervisorRequest(
        asked.source, {**restart, **asked.place[asked.source]}, LONG_SECONDS
    )
    failed = f"{_why(there, asked.target)}; the checkpoint was restarted on {asked.source}"
    if here["said"] == "restarted":
        return MigrationRefused(failed)
    return MigrationLost(
        f"{_why(there, asked.target)}; {_why(here, asked.source)}; it is kept in {asked.folder}"
    )


def _why(answer: SupervisorAnswer, host: str) -> str:
    return f"{host}: {'; '.join(map(str, answer.get('reasons', ()))) or 'no reason given'}"


def _gone_or(
    answer: SupervisorAnswer, otherwise: MigrationRefused
) -> MigrationRefused | MigrationLost:
    """Return what it means that the source did not answer: its program died with its keeper."""
    return MigrationLost(otherwise.reason) if answer["said"] == "gone" else otherwise
