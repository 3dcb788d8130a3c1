"""Plans of moves, made by a job's supervisor, which has loaded the planner and works in the job's directory.

A verb sends one JSON line to the socket `plan` in the job's folder, and receives one line. The verb does not plan
itself: it would need half a second of CPU to load the planner, and planning changes the working directory.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingUnixStreamServer
from threading import Thread
from typing import Any, ClassVar, cast

from apples.errors import Failure, LaunchError, failure_of
from apples.io.credentials import peer_credentials
from apples.io.json_lines import LineError, decode, encode
from apples.io.sockets import socket_name
from apples.jobs.records import ResizeEstimate
from apples.jobs.store import StoredJob
from apples.launch.host_spec import HostSpec, place_of

LINE_BYTES = 1 << 24
"""Largest size of a request, which holds the status of the job, and of an answer."""
PLAN_SECONDS = 300.0
"""Time limit of a plan, which may measure hosts and links."""
MAX_SESSIONS = 16

Move = tuple[Mapping[str, int], ResizeEstimate | None, list[HostSpec]]
"""The new rows by host, the expected cost, and the host list entries of new hosts."""


# -------------------------------------------------------------------------- in a verb
def plan_move(job: StoredJob, position: Mapping[str, Any], **wanted: Any) -> Move:
    """Request the plan of a move from the job's supervisor; it returns as `apples.jobs.resizing.plan` does.

    Raises
    ------
    LaunchError
        The supervisor does not answer. Transient, unless the job is over.
    ApplesError
        The move cannot be planned.
    """
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(PLAN_SECONDS)
            with socket_name(_path(job)) as name:
                connection.connect(name)
            connection.sendall(encode({"position": position, **wanted}))
            with connection.makefile("rb") as lines:
                answer = decode(lines.readline(LINE_BYTES), LINE_BYTES)
    except (OSError, LineError) as error:
        raise LaunchError(
            f"the supervisor of job {job.id} made no plan: {error}; see: apples jobs {job.id}",
            code="job-unanswered",
            job=job.id,
            reason=str(error),
        ) from None
    if "failure" in answer:
        raise Failure.of_document(answer["failure"]).error()
    estimate = answer["estimate"] and ResizeEstimate(**answer["estimate"])
    return answer["rows"], estimate, [place_of(place) for place in answer["places"]]


def _path(job: StoredJob) -> Path:
    return job.folder / "plan"


# ------------------------------------------------------------------- in the supervisor
@contextmanager
def serving_plans(job: StoredJob) -> Iterator[None]:
    """Answer requests for plans of moves during the block, each in a thread of its own.

    Raises
    ------
    OSError
        The socket cannot be created.
    """
    path = _path(job)
    path.unlink(missing_ok=True)
    with _Server(job) as server:
        Thread(target=server.serve_forever, name="plans", daemon=True).start()
        try:
            yield
        finally:
            server.shutdown()
            path.unlink(missing_ok=True)


class _Server(ThreadingUnixStreamServer):
    """Listens on the socket of a job; serves its own user and root only."""

    daemon_threads = True
    block_on_close = False  # a user's model may never return
    request_queue_size = MAX_SESSIONS

    def __init__(self, job: StoredJob) -> None:
        self.job = job
        with socket_name(_path(job)) as name:
            super().__init__(name, _Session)
        _path(job).chmod(0o600)

    def verify_request(self, request: Any, client_address: Any) -> bool:  # noqa: ARG002 - the base class's
        return peer_credentials(request)[1] in {0, os.geteuid()}

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore the error of a peer that is gone."""


class _Session(StreamRequestHandler):
    """One request and its answer."""

    timeout: ClassVar[float | None] = PLAN_SECONDS

    def handle(self) -> None:
        from apples.jobs.resizing import plan  # noqa: PLC0415 - most jobs are never moved

        try:
            request = decode(self.rfile.readline(LINE_BYTES), LINE_BYTES)
            rows, estimate, places = plan(cast("_Server", self.server).job, **request)
            answer: dict[str, Any] = {
                "rows": rows, "estimate": estimate and asdict(estimate),
                "places": [asdict(place) for place in places],
            }  # fmt: skip
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it is, the verb reports it
            answer = {"failure": failure_of(error).document()}
        self.wfile.write(encode(answer))
