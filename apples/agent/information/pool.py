"""`InformationPool`: everything one decision rests on, frozen at one moment."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from apples.agent.conditions import STATIC, Conditions, listed
from apples.agent.information.active import available_here
from apples.agent.model import ModelTemplate, SpeedFunction
from apples.agent.models import Learned, StripModel
from apples.errors import ModelError
from apples.launch.remote.fitness import Fitness
from apples.resources import Host, HostList
from apples.schedule import Schedule
from hat import (
    ActiveSet,
    Application,
    ApplicationTemplate,
    Implementation,
    UserSpecifications,
    active_set,
)
from nws import Weather

UNMEASURED_SECONDS_PER_POINT = 1e-8
"""Where nobody measured any host: what a plain numpy kernel takes; only ratios matter then."""


@dataclass(frozen=True)
class InformationPool:
    """Template, specifications, hosts, conditions and model of one decision.

    Attributes
    ----------
    template, application
        What the application is, and the same at this run's parameters.
    specifications
        What the user wants.
    conditions
        The host list under a weather.
    learned
        Calibrations and what past runs taught; empty for a static decision.
    folder
        Where the template's program is.
    make_model
        Builds the model from the pool: an entry of the Model pool, or the user's own.
    available
        Whether an implementation can run on a host.
    outlook
        Asks for the conditions over a frame of so many seconds; None where the weather is what it is:
        static, or recorded.
    pace
        By host: how many times longer its computing would take, for the question when the answer
        changes; 1 where not named.
    looked_at
        By host: what was found on those that were looked at from inside.
    """

    template: ApplicationTemplate
    application: Application
    specifications: UserSpecifications
    conditions: Conditions
    learned: Learned = field(default_factory=Learned)
    folder: Path = Path()
    make_model: Callable[[InformationPool], ModelTemplate] | None = None
    available: Callable[[str, Implementation], bool] = available_here
    outlook: Callable[[float], Conditions] | None = None
    pace: Mapping[str, float] = field(default_factory=dict)
    looked_at: Mapping[str, Fitness] = field(default_factory=dict)

    def __post_init__(self) -> None:
        platforms = {host.name: host.platform for host in self.hosts}
        active = active_set(self.template, platforms, self.offers, self._measured_cost)
        object.__setattr__(self, "active_set", active)
        speeds, assumed = _speeds(self)
        object.__setattr__(self, "speeds", speeds)
        object.__setattr__(self, "_assumed_speeds", assumed)
        make = self.make_model or MODELS[self.application.model]
        model = make(self)
        if not isinstance(model, ModelTemplate):
            raise ModelError(f"the model is no ModelTemplate but {type(model).__name__}")
        object.__setattr__(self, "model", model)

    active_set: ActiveSet = field(init=False, repr=False)
    speeds: Mapping[str, SpeedFunction] = field(init=False, repr=False, default_factory=dict)
    model: ModelTemplate = field(init=False, repr=False)
    _assumed_speeds: tuple[str, ...] = field(init=False, repr=False, default=())

    @property
    def hosts(self) -> HostList:
        """The host list."""
        return self.conditions.hosts

    def implementation(self, host: Host) -> str:
        """Return the implementation of the active set for `host`, empty when it has none."""
        chosen = self.active_set.implementations.get(host.name)
        return chosen.name if chosen else ""

    def offers(self, host: str, implementation: Implementation) -> bool:
        """Whether `host` has what an implementation requires, as far as anybody looked."""
        seen = self.looked_at.get(host)
        if seen is None or seen.refusal:
            return self.available(host, implementation)
        requires = implementation.requires
        return seen.missing.isdisjoint((*requires.modules, *requires.commands))

    def unfit(self, host: Host) -> str:
        """Return why no run may go to `host`, as it was found; empty where one may."""
        seen = self.looked_at.get(host.name)
        return seen.refusal if seen else ""

    def refusal(self, host: Host, implementation: str) -> str:
        """Return why `implementation` cannot run on `host`, as it was found; empty where it can."""
        if implementation and not self.offers(
            host.name, self.template.implementation(implementation)
        ):
            return f"{implementation} is not available there"
        return self.unfit(host)

    def knowing(self, found: Mapping[str, Fitness]) -> InformationPool:
        """Return the same pool, with more hosts looked at."""
        seen = {**self.looked_at, **found}
        widths = {name: one.cpus for name, one in seen.items() if one.cpus}
        return replace(self, looked_at=seen, conditions=replace(self.conditions, widths=widths))

    def unavailable(self, host: Host) -> str:
        """Return why `host` has no implementation."""
        return self.active_set.left_out.get(host.name, "")

    def _measured_cost(self, host: str, implementation: Implementation) -> float | None:
        speed = self.learned.speed(self.hosts[host].identity, implementation.name)
        return speed.seconds_per_point[-1] if speed else None

    def memory_for_strip(self, host: Host) -> float:
        """Return the bytes a strip on `host` may take: forecast less the risk, and the user's limit."""
        limits, preferences = self.specifications.constraints, self.specifications.preferences
        return self.conditions.memory_for_strip(host, preferences.risk, limits.memory)

    def program(self, implementation: str, python: str = sys.executable) -> tuple[str, ...]:
        """Return the argument list that starts an implementation."""
        return self.template.command(
            implementation, self.folder, python=python, parameters=self.application.parameters
        )

    def iteration_seconds(self, schedule: Schedule) -> float:
        """Return the largest T_i of a schedule."""
        model, rows = self.model, np.array(schedule.rows, dtype=float)
        seconds = model.computation(schedule.resources, rows)
        return float((seconds + model.communication(schedule.resources)).max())

    def under(self, weather: Weather, source: str = STATIC) -> InformationPool:
        """Return the same pool under another weather, and say where that is from."""
        conditions = Conditions(self.hosts, weather, source, widths=self.conditions.widths)
        return replace(self, conditions=conditions, outlook=None)

    def over(self, seconds: float) -> InformationPool | None:
        """Return the same pool under the weather of the next so many seconds; None if that is this one."""
        if self.outlook is None:
            return None
        conditions = replace(self.outlook(seconds), widths=self.conditions.widths)
        if conditions.horizons == self.conditions.horizons:
            return None
        return replace(self, conditions=conditions)

    def framed(self, outlook: Callable[[float], Conditions]) -> InformationPool:
        """Return the same pool, able to ask for the weather over a frame."""
        return replace(self, outlook=outlook)

    def at(self, application: Application) -> InformationPool:
        """Return the same pool for the application at other parameters."""
        return replace(self, application=application)

    def among(self, hosts: HostList) -> InformationPool:
        """Return the pool for other hosts, from their list alone."""
        conditions = Conditions(hosts, Weather())
        return replace(
            self, conditions=conditions, learned=Learned(), outlook=None, pace={}, looked_at={}
        )

    def static(self) -> InformationPool:
        """Return the same pool from the host list alone: no forecast, nothing learned."""
        conditions = replace(
            self.conditions, weather=Weather(), source=STATIC, notes=(), over=None
        )
        return replace(self, conditions=conditions, learned=Learned(), outlook=None)

    def without_risk(self) -> InformationPool:
        """Return the same pool planning for the mean: what was predicted, without the user's caution."""
        preferences = self.specifications.preferences.model_copy(update={"risk": 0.0})
        update = {"preferences": preferences}
        return replace(self, specifications=self.specifications.model_copy(update=update))

    def varied(
        self,
        pace: Mapping[str, float] | None = None,
        latency: Mapping[str, float] | None = None,
        memory: Mapping[str, float] | None = None,
    ) -> InformationPool:
        """Return the pool as it would be with some hosts slower, farther away or fuller by a factor."""
        conditions = replace(
            self.conditions, latency_factor=latency or {}, memory_factor=memory or {}
        )
        return replace(self, conditions=conditions, pace=pace or {})

    def assumptions(self, hosts: Sequence[Host]) -> tuple[str, ...]:
        """Return one line for each thing about `hosts` that was taken without being said or measured."""
        return (*self._assumed_speeds, *self.conditions.assumptions(hosts))


def strip(information: InformationPool) -> StripModel:
    """Return the strip model of a pool."""
    return StripModel(
        information.application,
        information.conditions,
        information.speeds,
        overlap=information.learned.overlap,
        overlap_error=information.learned.overlap_spread,
        drag=information.learned.drag,
        company=information.learned.company_of(information.hosts),
        risk=information.specifications.preferences.risk,
        memory_limit=information.specifications.constraints.memory,
    )


MODELS: Mapping[str, Callable[[InformationPool], ModelTemplate]] = {"strip": strip}
"""The Model pool; a user's own model is such a callable too."""


def _speeds(pool: InformationPool) -> tuple[dict[str, SpeedFunction], tuple[str, ...]]:
    """Return the speed function of every host: measured, from the list, the template, or assumed."""
    known, unknown = _known_speeds(pool)
    line: tuple[str, ...] = ()
    if unknown:
        worst = max(
            (f.seconds_per_point[-1] for f in known.values()), default=UNMEASURED_SECONDS_PER_POINT
        )
        known.update(dict.fromkeys(unknown, SpeedFunction.constant(worst)))
        what = f"seconds_per_point of {listed(unknown)}"
        line = (f"{what}: not given, assumed {worst:.3g} (apples calibrate measures it)",)
    for name, factor in pool.pace.items():
        known[name] = known[name].scaled(factor)
    return known, line


def _known_speeds(pool: InformationPool) -> tuple[dict[str, SpeedFunction], list[str]]:
    known: dict[str, SpeedFunction] = {}
    unknown: list[str] = []
    for host in pool.hosts:
        found = _speed(pool, host)
        if found is None:
            unknown.append(host.name)
        else:
            known[host.name] = found
    return known, unknown


def _speed(pool: InformationPool, host: Host) -> SpeedFunction | None:
    chosen = pool.implementation(host)
    measured = pool.learned.speed(host.identity, chosen)
    if measured is not None:
        return measured.on(pool.application.columns)
    seconds = host.seconds_per_point
    if seconds is None and chosen:
        seconds = pool.template.implementation(chosen).cost(host.platform)
    if seconds is None:
        return None
    pace = pool.learned.pace.get(host.identity, 1.0)
    return SpeedFunction.constant(seconds * pace, pool.learned.spread.get(host.identity, 0.0))
