"""Choosing for a run: the blueprint decides under the eyes of the actuator that is going to start it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from apples.agent.coordinator import Blueprint, Coordinator
from apples.agent.information import InformationPool
from apples.agent.launching import host_survey
from apples.cli import deciding
from apples.cli.plan import decide
from apples.launch.actuator import Actuator
from apples.launch.actuators.malleable import MalleableActuator
from apples.launch.actuators.recording import RecordingActuator


@dataclass(frozen=True, slots=True)
class Choice:
    """What was decided: the plan document, the coordinator that decided, and what is to start it."""

    plan: deciding.Document
    coordinator: Coordinator
    starter: Actuator


def choose(
    name: str,
    method: Blueprint,
    information: InformationPool,
    starter: Actuator,
    moving: Callable[[], Actuator],
    *,
    planner: str | None,
    distance: str | None,
    looks: bool = True,
) -> Choice:
    """Decide, starting nothing.

    Parameters
    ----------
    moving
        Makes the actuator that takes the place of `starter` where the blueprint moves what it started;
        a host that is unfit for that one only is left out of the choice too.
    looks
        Whether the actuator looks at the hosts.

    Raises
    ------
    NoFeasiblePlanError
        There is no plan.
    """
    options = {"planner": planner, "distance": distance}
    rehearsal = RecordingActuator(starter if looks else None)
    coordinator = deciding.coordinator_of(information, rehearsal, planner, distance)
    plan, refusal = decide(name, method, coordinator)
    if refusal is not None:
        raise refusal
    if coordinator.deliberation.policy is not None and not isinstance(starter, MalleableActuator):
        starter = moving()
        found = starter.look(host_survey(coordinator.present)) if looks else {}
        if found:
            seen = coordinator.present.knowing(found)
            return choose(name, method, seen, starter, moving, **options, looks=looks)
    return Choice(plan, coordinator, starter)
