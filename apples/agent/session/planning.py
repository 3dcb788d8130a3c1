"""`plan`: decide by a `PlanSpec` or a loaded pool, without starting anything.

The module is light on purpose: a plan from static values loads no sensors and no launcher.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from apples.agent.coordinator import PASSES, Blueprint, Coordinator, StartHooks
from apples.agent.documents import LEARNED_WEATHERS
from apples.agent.estimator import with_queue
from apples.agent.explanation import (
    advice,
    bindings,
    first_questions,
    questions,
    thresholds,
)
from apples.agent.information import InformationPool, load_information
from apples.agent.planners import PLANNERS, equal_strips
from apples.agent.selector import DISTANCES, ResourceSelector
from apples.agent.selector.filters import FILTERS, HOST_FILTERS, chosen_already
from apples.agent.session.results import Explanation, PlanResult
from apples.agent.session.spec import PlanSpec
from apples.errors import UsageError
from apples.io.log import Log, discard
from apples.io.plugins import resolve
from apples.launch.actuators.recording import RecordingActuator
from apples.resources.schedule import Estimate, NoFeasiblePlanError, Schedule
from apples.weather.sensing import SensingContext

if TYPE_CHECKING:
    from apples.agent.documents import Binding
    from apples.launch.actuator import Actuator
    from apples.launch.remote.fitness import Fitness

DEFAULT_BLUEPRINT = "minimum_execution_time"


def plan(
    spec: PlanSpec,
    information: InformationPool | None = None,
    *,
    explain: bool = False,
    talk: Log = discard,
) -> PlanResult:
    """Return the blueprint's decision without starting anything.

    Parameters
    ----------
    information
        A loaded pool that replaces the specification's files, settings, weather and model.
    explain
        Whether the result contains the full explanation: values at which the answer changes, the user's limits
        that prevent a better plan, and the time of equal strips.
    talk
        Receives a line for each host or link that could not be measured.

    Raises
    ------
    hat.DocumentError
        The files have problems, each reported with file, line and field.
    UsageError
        Unknown name. If no plan is feasible, nothing is raised: the result's `refusal` has the reason.
    """
    information = information or load(spec, SensingContext(log=talk), links_as_needed=True)
    actuator = _actuator_for(spec, information, talk)
    information = with_queue(information, actuator)
    name, blueprint = blueprint_of(spec, information)
    coordinator = coordinator_of(spec, information, actuator)
    return replace(decide(name, blueprint, coordinator, explain=explain), spec=spec)


def _actuator_for(spec: PlanSpec, information: InformationPool, log: Log) -> Actuator:
    """Return an actuator that starts nothing; under a live weather it queries the waits of queued hosts."""
    if spec.weather != "live" or all(h.queue_seconds is None for h in information.hosts):
        return RecordingActuator()
    from apples.launch.actuators.ssh import SshActuator  # noqa: PLC0415 - only with a queue

    return RecordingActuator(SshActuator(talk=log))


def load(
    spec: PlanSpec,
    sensing: SensingContext = SensingContext(),  # noqa: B008 - frozen
    *,
    weather: str = "",
    launcher: str = "",
    links_as_needed: bool = False,
) -> InformationPool:
    """Return the information pool of a specification's files, under its weather or another.

    Parameters
    ----------
    sensing
        Settings for measuring a live weather.
    weather
        Replaces the specification's weather.
    launcher
        Name of the actuator that would start the run; default: the one for the host list.
    links_as_needed
        Whether to measure only links that can change the specification's own decision.

    Raises
    ------
    UsageError
        The specification requests a measurement under a weather that measures nothing, or the learned state
        under a weather that always uses it. Permanent.
    """
    if spec.learned and spec.weather in LEARNED_WEATHERS:
        raise UsageError(
            f"--learned does not apply: --weather {spec.weather} always uses the learned state",
            code="option-not-applicable",
            option="--learned",
            value=spec.weather,
        )
    if spec.fresh and spec.weather != "live":
        raise UsageError(
            f"--fresh does not apply: --weather {spec.weather} measures nothing",
            code="option-not-applicable",
            option="--fresh",
            value=spec.weather,
        )
    return load_information(
        spec.hosts,
        spec.template,
        spec.user,
        contents=spec.contents,
        settings=spec.settings,
        weather=weather or spec.weather,
        learned=spec.uses_learned,
        model=spec.model,
        launcher=launcher,
        # Silent hosts stay in the list as unfit: the network of the ranks depends on whether two listed hosts
        # are parts of one machine, which only the whole list shows.
        findings={name: _silent(name) for name in spec.silent},
        sensing=replace(sensing, fresh=spec.fresh),
        propose=partial(schedule_under, spec) if links_as_needed else None,
    )


def _silent(host: str) -> Fitness:
    """Return the finding on a host that is known not to answer."""
    from apples.launch.remote.fitness import Finding, Fitness  # noqa: PLC0415 - for such hosts only

    return Fitness(host, (Finding("ssh", "fail", "it did not answer the last request"),))


def schedule_under(spec: PlanSpec, information: InformationPool) -> Schedule | None:
    """Return the schedule that the specification's blueprint chooses under a pool; None if none is feasible."""
    coordinator = coordinator_of(spec, information, None)
    try:
        coordinator.execute(blueprint_of(spec, information)[1], StartHooks(decides_only=True))
    except NoFeasiblePlanError:
        return None
    chosen = coordinator.decision_log.chosen
    return chosen.schedule if chosen else None


def blueprint_of(spec: PlanSpec, information: InformationPool) -> tuple[str, Blueprint]:
    """Return name and function of the blueprint: the requested, else the user's preferred, else the default."""
    if callable(spec.blueprint):
        return getattr(spec.blueprint, "__name__", "blueprint"), spec.blueprint
    chosen = spec.blueprint or information.specifications.preferences.blueprint
    chosen = chosen or DEFAULT_BLUEPRINT
    package = importlib.import_module("blueprints")
    known: Mapping[str, Blueprint] = {each: getattr(package, each) for each in package.__all__}
    return chosen, resolve(chosen, known, "blueprint", ("coordinator",))


def coordinator_of(
    spec: PlanSpec,
    information: InformationPool,
    actuator: Actuator | None,
) -> Coordinator:
    """Return a coordinator with the requested filters, planner and distance, or else the user's preferences."""
    preferences = information.specifications.preferences
    messages = None
    if spec.messages:
        from apples.topology.message_matrix import MessageMatrix  # noqa: PLC0415 - only with known messages

        messages = MessageMatrix.of_run(spec.messages)
    planner = spec.planner or preferences.planner or "time_balancing"
    distance = spec.distance or preferences.distance or "communication"
    on = (partial(chosen_already, spec.on),) if spec.on else ()
    return Coordinator(
        information,
        actuator,
        selector=ResourceSelector(
            distance
            if callable(distance)
            else resolve(distance, DISTANCES, "distance", ("host", "others", "information")),
            host_filters=(*HOST_FILTERS, *on, *spec.host_filters),
            filters=(*FILTERS, *spec.filters),
        ),
        planner=planner
        if callable(planner)
        else resolve(planner, PLANNERS, "planner", ("resources", "information")),
        messages=messages,
    )


def decide(
    name: str,
    blueprint: Blueprint,
    coordinator: Coordinator,
    *,
    explain: bool = False,
    start: StartHooks | None = None,
) -> PlanResult:
    """Execute a blueprint up to its `actuate`, and return its decision.

    Parameters
    ----------
    start
        Hooks of the execution; default: only decide, over the horizon of the blueprint's own run.
    """
    refusal, explanation = None, None
    binding: tuple[Binding, ...] = ()
    try:
        coordinator.execute(blueprint, start or StartHooks(passes=PASSES, decides_only=True))
    except NoFeasiblePlanError as error:
        refusal = NoFeasiblePlanError(error.rejections, advice(coordinator, blueprint))
    else:
        if coordinator.decision_log.chosen is None:
            raise UsageError(
                f"blueprint '{name}' ended without asking for the best candidate",
                code="blueprint-no-choice",
                value=name,
            )
        if explain:
            possible = questions(coordinator.decision_log)
            asked = first_questions(possible, coordinator)
            explanation = Explanation(
                tuple(thresholds(coordinator, blueprint, asked)),
                equal_strips_of(coordinator),
                len(asked),
                len(possible),
            )
            binding = tuple(bindings(coordinator, blueprint))
    record = coordinator.decision_log
    return PlanResult(name, record, coordinator.information, refusal, explanation, binding)


def equal_strips_of(coordinator: Coordinator) -> Estimate | None:
    """Return the estimate of equal strips on the chosen hosts; None with more hosts than rows."""
    record = coordinator.decision_log
    if record.chosen is None or record.information is None:
        return None
    resources = record.chosen.schedule.resources
    if len(resources) > record.information.application.rows:
        return None
    schedule = equal_strips(resources, record.information)
    return coordinator.estimator.estimate(schedule, record.information)
