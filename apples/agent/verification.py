"""Verification: the parallel result against the same program run as one process."""

from __future__ import annotations

from dataclasses import dataclass

from apples.agent.information import InformationPool
from apples.agent.launching import launch_plan
from apples.errors import VerificationError
from apples.launch.actuators.local import LocalActuator
from apples.resources import Host, HostList, Network
from apples.schedule import Allocation, Schedule


@dataclass(frozen=True, slots=True)
class Reference:
    """What the sequential run gave: iterations done and the digest of its result, empty if it gives none."""

    iterations: int
    sha256: str

    def check(self, iterations: int, sha256: str) -> bool | None:
        """Whether a parallel run ended at the same iteration with the same bytes; None without digests."""
        if not self.sha256 or not sha256:
            return None
        return (iterations, sha256) == (self.iterations, self.sha256)


def sequential(information: InformationPool) -> Reference:
    """Run the application as one process on this machine and return what it gave.

    Raises
    ------
    VerificationError
        The sequential run measured nothing.
    """
    slowest = max(speed.seconds_per_point[-1] for speed in information.speeds.values())
    able = next((h for h in information.hosts if information.implementation(h)), None)
    platform = able.platform if able else ""
    host = Host("sequential", seconds_per_point=slowest, platform=platform)
    alone = information.with_hosts(HostList((host,), Network()))
    strip = Allocation(host, information.application.rows, alone.implementation(host))
    with LocalActuator().actuate(launch_plan(Schedule((strip,)), alone)) as execution:
        outcome = execution.outcome()
    if outcome is None:
        raise VerificationError("the sequential run measured nothing")
    return Reference(outcome.iterations, outcome.sha256)
