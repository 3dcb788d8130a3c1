"""The steps of a migration: a generator that yields requests to supervisors and receives their answers.

The order is that of van Albada et al. 1999 ("Migration of communicating tasks"): the target is prepared first,
then the program is signalled, checkpointed, and restarted from the checkpoint. A failure before the checkpoint is
complete leaves the program running on the source. If the restart on the target fails, the program is restarted on
the source.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any

SupervisorAnswer = Mapping[str, Any]
LOOK_SECONDS = 60.0
"""Time limit for a host to check its resources: it may check two CRIU programs, each for at most twenty
seconds."""
LONG_SECONDS = 660.0
READY_SECONDS = 10.0
"""Time limit for every rank to enter an MPI call; after it the move is refused, before any rank is stopped."""
STOPPED_SECONDS, CONNECTED_SECONDS = 60.0, 75.0


@dataclass(frozen=True, slots=True)
class SupervisorRequest:
    """An order to the supervisor on `host`, with a time limit for its answer."""

    host: str
    command: Mapping[str, Any]
    seconds: float


@dataclass(frozen=True, slots=True)
class RanksRequest:
    """A request to all ranks of an MPI program; the answer is ``failed`` if it cannot be sent.

    Attributes
    ----------
    word
        ``ready``: be in an MPI call; ``withdraw``: cancel that; ``stop``: close all sockets; ``go`` or ``moved``:
        reconnect, with all ranks on their old hosts or with the moved rank on its target; ``release``: as ``go``,
        but without a wait, because a rank has not stopped yet.
    """

    word: str
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class MigrationRequest:
    """A requested migration of a program from a source host to a target host, through a folder.

    Attributes
    ----------
    folder
        Folder for the checkpoint, which does not exist yet, on a file system that both hosts share.
    token
        A file in the job's folder, by which the target verifies that the folder is shared.
    place
        Host -> its CPUs and cgroup.
    rank
        The rank of an MPI program that moves; None: a sequential program.
    signal, signal_seconds
        Signal to processes that catch it, before the checkpoint, and the seconds that they get to stop themselves.
    ready_seconds, stopped_seconds
        Time limits for all ranks to be in an MPI call, and to close their sockets.
    """

    source: str
    target: str
    folder: str
    token: str
    place: Mapping[str, Mapping[str, Any]]
    signal: int = 0
    signal_seconds: float = 0.0
    rank: int | None = None
    ready_seconds: float = READY_SECONDS
    stopped_seconds: float = STOPPED_SECONDS


@dataclass(frozen=True, slots=True)
class MigrationDone:
    """The program runs on the target."""

    phases: Mapping[str, float]
    bytes: int


@dataclass(frozen=True, slots=True)
class MigrationRefused:
    """The program runs on the source, as before; the code names the condition."""

    reason: str
    code: str = "migration-failed"


@dataclass(frozen=True, slots=True)
class MigrationLost:
    """The program does not run on any host. A complete checkpoint stays in its folder."""

    reason: str
    code: str = "program-lost"


MigrationSteps = Generator[
    SupervisorRequest | RanksRequest,
    SupervisorAnswer,
    MigrationDone | MigrationRefused | MigrationLost,
]


def gone(why: str) -> SupervisorAnswer:
    """Return the substitute answer for a supervisor that is gone."""
    return {"report": "gone", "reasons": [why]}


def migration(asked: MigrationRequest) -> MigrationSteps:
    """Yield the requests of a migration in turn; return its outcome.

    Examples
    --------
    >>> steps = migration(MigrationRequest("ada", "bob", "/job/1", "/job/token", {}))
    >>> steps.send(None).host, steps.send({"report": "seen", "pids": [7], "files": [], "kernel": ""}).host
    ('ada', 'bob')
    """
    refused = yield from _prepared(asked)
    if refused is not None:
        return refused
    if asked.rank is None:
        return (yield from _moved(asked))
    return (yield from _moved_between_stops(asked))


def _moved_between_stops(asked: MigrationRequest) -> MigrationSteps:
    """Move a rank of an MPI program while all ranks have closed their sockets; all continue in any case.

    A rank that cannot move is detected before any rank is stopped.
    """
    ready = yield RanksRequest("ready", asked.ready_seconds)
    if ready["report"] != "ready":
        yield RanksRequest("withdraw")
        return MigrationRefused(_why(ready, asked.source), code="rank-not-ready")
    closing = ready["sockets"][asked.rank]
    fit = yield SupervisorRequest(
        asked.source, {"order": "inspect", "closing": closing}, LOOK_SECONDS
    )
    if fit["report"] != "seen":
        yield RanksRequest("withdraw")
        return _gone_or(fit, MigrationRefused(_why(fit, asked.source), code="program-not-movable"))
    stopped = yield RanksRequest("stop", asked.stopped_seconds)
    if stopped["report"] != "stop":
        unheard = stopped["report"] == "failed"
        released = yield RanksRequest("withdraw" if unheard else "release")
        if released["report"] == "failed" and not unheard:
            return MigrationLost(_why(released, asked.source))
        return MigrationRefused(_why(stopped, asked.source), code="rank-not-stopped")
    outcome = yield from _moved(asked)
    if isinstance(outcome, MigrationLost):
        return outcome
    waits = {name: one["seconds"] for name, one in (("ready", ready), ("stop", stopped))}
    return (yield from _connected(asked, outcome, waits))


def _connected(
    asked: MigrationRequest, outcome: MigrationDone | MigrationRefused, waits: Mapping[str, float]
) -> MigrationSteps:
    """Reconnect all ranks, with the moving rank on its present host."""
    there = isinstance(outcome, MigrationDone)
    connected = yield RanksRequest("moved" if there else "go", CONNECTED_SECONDS)
    if connected["report"] != "go":
        return MigrationLost(_why(connected, asked.target if there else asked.source))
    if isinstance(outcome, MigrationRefused):
        return outcome
    phases = {**waits, **outcome.phases, "connect": connected["seconds"]}
    return MigrationDone(phases, outcome.bytes)


def _prepared(
    asked: MigrationRequest,
) -> Generator[
    SupervisorRequest | RanksRequest, SupervisorAnswer, MigrationRefused | MigrationLost | None
]:
    """Check that the target has the files and process ids that the program needs; return None if it does."""
    seen = yield SupervisorRequest(asked.source, {"order": "inspect"}, LOOK_SECONDS)
    if seen["report"] != "seen":
        return _gone_or(
            seen, MigrationRefused(_why(seen, asked.source), code="program-not-movable")
        )
    look = {
        "order": "look",
        "pids": seen["pids"],
        "files": seen["files"],
        "token": asked.token,
        "kernel": seen["kernel"],
    }
    fit = yield SupervisorRequest(asked.target, look, LOOK_SECONDS)
    if fit["report"] == "fit":
        return None
    return MigrationRefused(_why(fit, asked.target), code="host-unfit")


def _moved(asked: MigrationRequest) -> MigrationSteps:
    """Checkpoint the program on the source and restart it on the target."""
    checkpoint = {
        "order": "checkpoint",
        "folder": asked.folder,
        "signal": asked.signal,
        "signal_seconds": asked.signal_seconds,
    }
    written = yield SupervisorRequest(asked.source, checkpoint, LONG_SECONDS)
    if written["report"] == "refused":
        code = str(written.get("code") or "checkpoint-failed")
        return MigrationRefused(_why(written, asked.source), code=code)
    if written["report"] != "written":
        return MigrationLost(_why(written, asked.source))
    return (yield from _restart(asked, written))


def _restart(asked: MigrationRequest, written: SupervisorAnswer) -> MigrationSteps:
    """Restart the program from its checkpoint: on the target, or else on the source."""
    restart = {"order": "restart", "folder": asked.folder}
    restart |= {name: written[name] for name in ("pid", "stopped")}
    there = yield SupervisorRequest(
        asked.target, {**restart, **asked.place[asked.target]}, LONG_SECONDS
    )
    if there["report"] == "restarted":
        return MigrationDone({**written["phases"], "restart": there["seconds"]}, written["bytes"])
    here = yield SupervisorRequest(
        asked.source, {**restart, **asked.place[asked.source]}, LONG_SECONDS
    )
    failed = f"{_why(there, asked.target)}; the checkpoint was restarted on {asked.source}"
    if here["report"] == "restarted":
        return MigrationRefused(failed, code="restart-failed")
    return MigrationLost(
        f"{_why(there, asked.target)}; {_why(here, asked.source)}; it is kept in {asked.folder}"
    )


def _why(answer: SupervisorAnswer, host: str) -> str:
    return f"{host}: {'; '.join(map(str, answer.get('reasons', ()))) or 'no reason given'}"


def _gone_or(
    answer: SupervisorAnswer, otherwise: MigrationRefused
) -> MigrationRefused | MigrationLost:
    """Return `otherwise`, or `MigrationLost` if the source is gone: the program died with its supervisor."""
    return MigrationLost(otherwise.reason) if answer["report"] == "gone" else otherwise
