"""A job's own side of a resize: notice it at a safe point, set the numbers of threads, acknowledge.

    threads = Threads()              # once
    ...
    while working:
        threads.adapt()              # at every safe point; costs microseconds while nothing happens
        step()

Under `apples exec` it receives a resize before its mask changes, and acknowledges when it has adapted, as at
DROM's malleability points. Elsewhere it detects that its mask changed.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from apples.errors import LaunchError, coded
from apples.io.connection import LineConnection
from apples.io.sockets import socket_name
from apples.topology.cpus import CpuSet
from apples.topology.daemon.client import JOB_VARIABLE, SOCKET_VARIABLE, error_of

OPENING_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class ThreadChange:
    """The resize that a safe point detected.

    Attributes
    ----------
    before, after
        The CPUs.
    threads
        Number of threads from now on.
    pools
        Library -> threads it was set to; only loaded libraries.
    """

    before: CpuSet
    after: CpuSet
    threads: int
    pools: Mapping[str, int] = field(default_factory=dict)


def set_threads(count: int) -> dict[str, int]:
    """Set the threads of every pool this process has loaded: OpenMP, BLAS, numba; return them by library.

    Numba cannot exceed the number it started with (NUMBA_NUM_THREADS). Later child processes get the number in
    their environment.
    """
    os.environ["OMP_NUM_THREADS"] = str(count)
    found: dict[str, int] = {}
    numba = sys.modules.get("numba")
    if numba is not None:  # first, because numba may load a pool of OpenMP
        possible = min(count, int(numba.config.NUMBA_NUM_THREADS))
        numba.set_num_threads(possible)
        found["numba"] = possible
    try:
        import threadpoolctl  # noqa: PLC0415 - a job without it has no pools that it could set
    except ImportError:
        return found
    controller = threadpoolctl.ThreadpoolController()
    controller.limit(limits=count)
    for pool in controller.info():
        found[str(pool["internal_api"])] = count
    return found


class JobLink:
    """A job's connection to the daemon; it receives resizes and sends acknowledgements.

    Parameters
    ----------
    place, job
        The daemon's socket, and the job that this process belongs to.

    Raises
    ------
    LaunchError
        The daemon is not running or does not know the job.
    """

    def __init__(self, place: str, job: str) -> None:
        connecting = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connecting.settimeout(OPENING_SECONDS)
        self._connection = LineConnection(connecting)
        try:
            with socket_name(place) as name:
                connecting.connect(name)
            self._connection.send({"verb": "follow", "job": job})
            answer = self._connection.receive(OPENING_SECONDS)
        except (OSError, ValueError) as error:
            self.close()
            raise LaunchError(
                f"{place}: {error}", code="daemon-unreachable", address=place
            ) from None
        if answer is None:
            self.close()
            raise LaunchError(f"{place}: no answer", code="daemon-silent", address=place)
        if not answer.get("ok"):
            self.close()
            refusal = error_of(answer)
            raise LaunchError(f"{place}: {refusal}", **{**coded(refusal), "address": place})

    @staticmethod
    def from_environment() -> JobLink | None:
        """Return the connection that `apples exec` names; None outside of it or if the connection fails."""
        place, job = os.environ.get(SOCKET_VARIABLE), os.environ.get(JOB_VARIABLE)
        if not place or not job:
            return None
        try:
            return JobLink(place, job)
        except LaunchError:
            return None  # the mask is still watched

    @property
    def open(self) -> bool:
        """Whether the daemon is still connected."""
        return self._connection.fileno() >= 0

    def events(self) -> list[dict[str, Any]]:
        """Return the events received since the last call; never waits."""
        try:
            return self._connection.arrived() if self.open else []
        except (OSError, ValueError):
            self.close()
            return []

    def acknowledge(self, serial: int) -> None:
        """Send the daemon an acknowledgement: this process has adapted to a resize."""
        try:
            self._connection.send({"verb": "acknowledge", "serial": serial})
        except OSError:
            self.close()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def fileno(self) -> int:
        """Return the file descriptor, for a caller that waits on several."""
        return self._connection.fileno()


class Threads:
    """Keeps this process's number of threads equal to its number of CPUs.

    Parameters
    ----------
    ranks
        Processes of the job on this host; each has an equal part of the CPUs.
    link
        The connection to the daemon; None: the connection that the environment names.
    setting
        Function that sets the threads: count -> (pool -> threads).
    affinity
        Function that returns the CPUs this process may run on now.
    """

    def __init__(
        self,
        ranks: int = 1,
        *,
        link: JobLink | None = None,
        setting: Callable[[int], Mapping[str, int]] = set_threads,
        affinity: Callable[[], Iterable[int]] = lambda: os.sched_getaffinity(0),
    ) -> None:
        self._affinity = affinity
        self._ranks = max(1, ranks)
        self._link = JobLink.from_environment() if link is None else link
        self._setting = setting
        self._mask = CpuSet.of(self._affinity())
        self._cpus = self._mask
        self.pools = dict(setting(self.threads))

    @property
    def threads(self) -> int:
        """Number of threads that this process should have."""
        return max(1, len(self._cpus) // self._ranks)

    def adapt(self) -> ThreadChange | None:
        """Apply the last of the resizes since the last call. Return None if there was none."""
        wanted = self._cpus
        serials = []
        for event in self._link.events() if self._link is not None else ():
            if event.get("event") in {"resize", "resized"}:
                wanted = CpuSet.parse(event["cpus"])
                serials.append(int(event["serial"]))
        mask = CpuSet.of(self._affinity())
        if mask != self._mask:
            self._mask = mask
            if not serials:
                wanted = mask
        change = self._changed(wanted)
        for serial in filter(None, serials):
            assert self._link is not None  # noqa: S101 - for the type checker
            self._link.acknowledge(serial)
        return change

    def _changed(self, wanted: CpuSet) -> ThreadChange | None:
        if wanted == self._cpus:
            return None
        before, self._cpus = self._cpus, wanted
        self.pools = dict(self._setting(self.threads))
        return ThreadChange(before, wanted, self.threads, self.pools)
