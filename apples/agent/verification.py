"""Verification: the parallel result against the same program run as one process."""

from __future__ import annotations

from dataclasses import dataclass

from apples.agent.information import InformationPool
from apples.agent.launching import launch_plan
from apples.errors import VerificationError
from apples.launch.actuators.local import LocalActuator
from apples.launch.events import Talk, unheard
from apples.resources import Host, HostList, Network
from apples.schedule import Allocation, Schedule
from apples.units import duration


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


ANNOUNCED_SECONDS = 5.0
"""A sequential run that may take longer is announced."""


def sequential(information: InformationPool, talk: Talk = unheard) -> Reference:
    """Run the application as one process on this machine and return what it gave.

    Parameters
    ----------
    talk
        Is told beforehand how long that may take, where it is long.

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
    plan = launch_plan(Schedule((strip,)), alone)
    if plan.predicted_seconds > ANNOUNCED_SECONDS:
        most = duration(plan.predicted_seconds)
        talk(
            f"note: verifying by a run of one process here, {most} at most as the hosts' speeds say"
        )
    with LocalActuator().actuate(plan) as execution:
        outcome = execution.outcome()
    if outcome is None:
        raise VerificationError("the sequential run measured nothing")
    return Reference(outcome.iterations, outcome.sha256)
