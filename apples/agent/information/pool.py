"""`InformationPool`: all data of one decision, frozen at one moment."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from apples.agent.models import Learned, LearnedKey, StripModel
from apples.agent.models.model import ModelTemplate, SpeedFunction
from apples.agent.models.rectangle import RectangleModel
from apples.errors import ModelError, UsageError
from apples.resources import Host, HostList
from apples.resources.schedule import Estimate, Schedule
from apples.ui.units import in_one_line, listed, some
from apples.weather.conditions import STATIC, Conditions
from hat import (
    ActiveSet,
    Application,
    ApplicationTemplate,
    Implementation,
    UserSpecifications,
    active_set,
)
from nws import Weather

if TYPE_CHECKING:
    from apples.agent.documents import SpeedSource
    from apples.launch.remote.fitness import Fitness, Needs
    from apples.malleable.balancers.block_table import Decomposition


def available_here(host: str, implementation: Implementation) -> bool:
    """Return whether this machine has the modules and commands that an implementation requires."""
    del host  # each host of a local run is a part of this machine
    requires = implementation.requires
    return all(map(_importable, requires.modules)) and all(map(shutil.which, requires.commands))


@lru_cache(maxsize=256)
def _importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


UNMEASURED_SECONDS_PER_POINT = 1e-8
"""Speed of a plain NumPy kernel, assumed if no host was measured: then only ratios matter."""


@dataclass(frozen=True)
class InformationPool:
    """Template, specifications, hosts, conditions and model of one decision.

    Attributes
    ----------
    template, application
        The description of the application, and its numbers at this run's parameters.
    specifications
        The user's constraints, objective and preferences.
    conditions
        The host list under a weather.
    learned
        Calibrations, and corrections from past runs; empty for a static decision.
    folder
        Folder of the template's program.
    make_model
        Builds the model from the pool: an entry of the Model pool, or the user's own function.
    available
        Returns whether an implementation can run on a host.
    conditions_over
        Returns the conditions over a horizon in seconds; None if the weather is static or recorded.
    slowdown
        Factor on a host's modelled computing, by host; 1 for others. For what-if questions and for a running
        application.
    findings
        Results of the checks on a host, by host.
    launcher
        Name of the actuator that would start the run; learned start times are stored by launcher.
    metric
        The user's own objective, to be minimised; None for a built-in objective.
    looked
        Measurements over ssh for this pool, and links that were left out; empty without measurements.
    threads
        True: implementations by threads, each host being a set of its own. False: implementations by ranks.
    """

    template: ApplicationTemplate
    application: Application
    specifications: UserSpecifications
    conditions: Conditions
    learned: Learned = field(default_factory=Learned)
    folder: Path = Path()
    make_model: Callable[[InformationPool], ModelTemplate] | None = None
    available: Callable[[str, Implementation], bool] = available_here
    conditions_over: Callable[[float], Conditions] | None = None
    slowdown: Mapping[str, float] = field(default_factory=dict)
    findings: Mapping[str, Fitness] = field(default_factory=dict)
    launcher: str = ""
    metric: Callable[[Estimate], float] | None = None
    looked: Mapping[str, Any] = field(default_factory=dict)
    threads: bool = False

    def __repr__(self) -> str:
        """Return the application, the hosts and the source of the weather."""
        hosts = some([host.name for host in self.hosts])
        weather = f"weather {self.conditions.source}"
        return in_one_line(self, f"{self.template.name} on {hosts}; {weather}")

    def __post_init__(self) -> None:
        if self.metric is None and self.specifications.objective.is_own:
            from apples.agent.objective import users_metric  # noqa: PLC0415 - for a user's own metric only

            object.__setattr__(self, "metric", users_metric(self.specifications.objective))

    # The following properties are computed on first use: a decision passes through several pools and plans
    # under the last.
    @cached_property
    def active_set(self) -> ActiveSet:
        """The implementation of each host."""
        platforms = {host.name: host.platform for host in self.hosts}
        available = partial(offers, self)
        return active_set(
            self.template, platforms, available, self._measured_cost, threads=self.threads
        )

    @property
    def speeds(self) -> Mapping[str, SpeedFunction]:
        """The speed function of each host's implementation, by host."""
        return self._known_and_assumed[0]

    @property
    def assumed_speeds(self) -> tuple[str, ...]:
        """One line about the hosts with unknown speed; empty if all are known."""
        return self._known_and_assumed[1]

    @property
    def unmeasured(self) -> frozenset[str]:
        """The hosts with neither a given nor a measured speed."""
        return frozenset(host.name for host in self.hosts if _speed(self, host)[0] is None)

    @cached_property
    def _known_and_assumed(self) -> tuple[dict[str, SpeedFunction], tuple[str, ...]]:
        """The speeds, and the line about unknown speeds; these are assumed to be the slowest known speed."""
        found = {host.name: _speed(self, host)[0] for host in self.hosts}
        known = {name: speed for name, speed in found.items() if speed is not None}
        unknown = [name for name, speed in found.items() if speed is None]
        line: tuple[str, ...] = ()
        if unknown:
            worst = max(
                (speed.seconds_per_point[-1] for speed in known.values()),
                default=UNMEASURED_SECONDS_PER_POINT,
            )
            known.update(dict.fromkeys(unknown, SpeedFunction.constant(worst)))
            what = f"seconds_per_point of {listed(unknown)}: not given, assumed {worst:.3g}"
            line = (f"{what} (apples calibrate or a run measures it)",)
        for name, factor in self.slowdown.items():
            known[name] = known[name].scaled(factor)
        return known, line

    @cached_property
    def model(self) -> ModelTemplate:
        """The model of an iteration.

        Raises
        ------
        ModelError
            The user's function did not return a `ModelTemplate`. Permanent.
        """
        make = self.make_model or MODELS[self.application.model]
        model = make(self)
        if not isinstance(model, ModelTemplate):
            raise ModelError(
                f"the model must be a ModelTemplate (got {type(model).__name__})",
                code="value-type",
                field="model",
                value=type(model).__name__,
            )
        return model

    def _measured_cost(self, host: str, implementation: Implementation) -> float | None:
        one = self.hosts[host]
        speed = self.learned.speed(one.identity, implementation.name, threads=self.threads)
        return speed.seconds_per_point[-1] if speed else None

    @property
    def learned_key(self) -> LearnedKey:
        """The application that the learned state belongs to: its name, version and folder."""
        return LearnedKey.of(self.template.name, self.template.version, self.folder)

    @cached_property
    def scale_of_listed_speeds(self) -> float:
        """Measured over listed seconds per point: the median of the hosts with both values; else 1.

        The list gives relative speeds of hosts; a measurement is for this application. Without this factor, the
        measured speed of one host would be compared with another program's speed on other hosts.
        """
        ratios = [
            speed.seconds_per_point[-1] / host.seconds_per_point
            for host in self.hosts
            if host.seconds_per_point is not None
            and (speed := self.learned.speed(host.identity, self.implementation(host)))
        ]
        return sorted(ratios)[len(ratios) // 2] if ratios else 1.0

    @property
    def hosts(self) -> HostList:
        """The host list."""
        return self.conditions.hosts

    def memory_offered(self, host: Host) -> float:
        """Return the bytes a part of the grid may take: forecast less the user's risk, at most the user's limit.

        For a GPU's memory: at most the bytes that were free during calibration. Infinite if unknown.
        """
        wishes, own = self.specifications, self.speeds[host.name].memory
        risk, limit = wishes.preferences.risk, wishes.constraints.memory
        return self.conditions.memory_for_strip(host, risk, limit, own)

    def implementation(self, host: Host) -> str:
        """Return the implementation of the active set for `host`; empty if it has none."""
        chosen = self.active_set.implementations.get(host.name)
        return chosen.name if chosen else ""

    def model_of(self, schedule: Schedule) -> ModelTemplate:
        """Return the model of a schedule: for strips, rectangles or whole partitions."""
        model, asked = self._planned_model(schedule), self.decomposition
        if asked is None:
            return model
        from apples.agent.models.partitioned import (  # noqa: PLC0415 - few users prefer one
            PartitionedModel,
            host_loads,
        )

        loads = host_loads(asked, schedule)
        if all(load == 1.0 for load in loads):
            return model
        working = tuple(a for a, load in zip(schedule.allocations, loads, strict=True) if load > 0)
        planned = self._planned_model(replace(schedule, allocations=working))
        return PartitionedModel(model, planned, loads)

    def _planned_model(self, schedule: Schedule) -> ModelTemplate:
        """Return the model of a schedule with one partition per rank."""
        pool, rectangles = self.pool_of(schedule), schedule.rectangles
        return replace(pool.rectangle_model, rectangles=rectangles) if rectangles else pool.model

    @cached_property
    def decomposition(self) -> Decomposition | None:
        """The user's decomposition of the data; None leaves it to the program.

        Raises
        ------
        UsageError
            The program does not support this preference, or it is too large. Permanent.
        """
        asked = self.specifications.preferences.partitions
        if asked is None:
            return None
        if not self.template.partitions:
            raise UsageError(
                f'partitions = "{asked}": {self.template.name} divides its data itself; if its program '
                "declares its blocks by a decomposition, set partitions = true in the template",
                code="partitions-unsupported",
                field="partitions",
                value=str(asked),
                template=self.template.name,
            )
        from apples.malleable.balancers.block_table import (  # noqa: PLC0415 - few users prefer one
            Decomposition,
        )

        return Decomposition.read(asked)

    def pool_of(self, schedule: Schedule) -> InformationPool:
        """Return the pool of the kind of implementations in a schedule."""
        if schedule.rectangles:
            return self.for_rectangles
        return self.for_threads if schedule.threads else self

    @cached_property
    def rectangle_model(self) -> RectangleModel:
        """The model of rectangles, still without rectangles.

        Raises
        ------
        ModelError
            The pool's own model is not the strip model. Permanent.
        """
        return RectangleModel.like(self.model)

    @cached_property
    def for_threads(self) -> InformationPool:
        """The pool with the implementations by threads, for sets of a single host."""
        return self if self.threads else replace(self, threads=True)

    def by_threads_on(self, host: Host) -> InformationPool | None:
        """Return `for_threads` if it has an implementation with a measured speed on this host, else None."""
        if not self._measured_by_threads:
            return None
        pool = self.for_threads
        chosen = pool.active_set.implementations.get(host.name)
        known = chosen and (pool._measured_cost(host.name, chosen) or chosen.cost(host.platform))
        return pool if known else None

    @cached_property
    def _measured_by_threads(self) -> bool:
        """Whether the speed of any implementation by threads was measured anywhere."""
        return any(
            one.threads
            and (
                one.measured
                or one.seconds_per_point is not None
                or any(one.name in speeds for speeds in self.learned.speeds.values())
            )
            for one in self.template.implementations
        )

    @property
    def takes_rectangles(self) -> bool:
        """Whether the template has an implementation that takes rectangles."""
        return any(one.rectangles for one in self.template.implementations)

    @cached_property
    def for_rectangles(self) -> InformationPool:
        """The pool with only those implementations that take rectangles.

        Raises
        ------
        UsageError
            The template has no such implementation. Permanent.
        """
        template = self.template
        taking = {one.name: one for one in template.implementations if one.rectangles}
        if not self.takes_rectangles:
            raise UsageError(
                f"{template.name} accepts strips only; if an [[implementation]] accepts rectangles, "
                "set rectangles = true in it",
                code="rectangles-unsupported",
                template=template.name,
            )
        if len(taking) == len(template.implementations):
            return self
        settled = {host: one for host, one in template.active_set.items() if one in taking}
        fitting = {"implementations": tuple(taking.values()), "active_set": settled}
        return replace(self, template=template.model_copy(update=fitting))

    def with_weather(self, weather: Weather | None, source: str = STATIC) -> InformationPool:
        """Return the pool under another weather.

        Parameters
        ----------
        weather
            None: only the host list, the paper's compile-time view. Then the learned state is not used, but the
            active set stays, so that the same program runs.
        source
            Source of the weather.
        """
        if weather is None:
            conditions = replace(
                self.conditions,
                weather=Weather(),
                source=STATIC,
                notes=(),
                over=None,
                here=Weather(),
            )
            settled = {name: one.name for name, one in self.active_set.implementations.items()}
            return replace(
                self,
                template=self.template.model_copy(update={"active_set": settled}),
                conditions=conditions,
                learned=Learned(),
                conditions_over=None,
            )
        conditions = Conditions(
            self.hosts,
            weather,
            source,
            widths=self.conditions.widths,
            machines=self.conditions.machines,
        )
        return replace(self, conditions=conditions, conditions_over=None)

    def with_horizon(self, seconds: float) -> InformationPool:
        """Return the pool under the forecasts over a horizon in seconds.

        It is the same pool if these forecasts have the same horizon, or if the weather is static or recorded.
        """
        if self.conditions_over is None:
            return self
        present = self.conditions
        conditions = replace(
            self.conditions_over(seconds), widths=present.widths, hosts=present.hosts
        )
        if conditions.horizons == self.conditions.horizons:
            return self
        return replace(self, conditions=conditions)

    def with_hosts(self, hosts: HostList) -> InformationPool:
        """Return the pool for other hosts, from their list alone."""
        return replace(
            self,
            conditions=Conditions(hosts, Weather()),
            learned=Learned(),
            conditions_over=None,
            slowdown={},
            findings={},
        )

    def with_application(self, application: Application) -> InformationPool:
        """Return the pool for the application at other parameters."""
        return replace(self, application=application)

    def with_findings(self, found: Mapping[str, Fitness]) -> InformationPool:
        """Return the pool with further findings on hosts."""
        findings = {**self.findings, **found}
        widths = {name: one.cpus for name, one in findings.items() if one.cpus}
        conditions = replace(self.conditions, widths=widths)
        return replace(self, findings=findings, conditions=conditions)

    def with_what_if(
        self,
        slowdown: Mapping[str, float] | None = None,
        latency: Mapping[str, float] | None = None,
        memory: Mapping[str, float] | None = None,
    ) -> InformationPool:
        """Return the pool with factors on the computing, latency and memory of some hosts."""
        conditions = replace(
            self.conditions, latency_factor=latency or {}, memory_factor=memory or {}
        )
        return replace(self, conditions=conditions, slowdown=slowdown or {})


def offers(information: InformationPool, host: str, implementation: Implementation) -> bool:
    """Return whether a host has the modules and commands that an implementation requires.

    For a host that was not checked, or did not answer, the pool's `available` decides.
    """
    seen = information.findings.get(host)
    if seen is None or seen.refusal:
        return information.available(host, implementation)
    requires = implementation.requires
    return seen.missing.isdisjoint((*requires.modules, *requires.commands))


def refusal(information: InformationPool, host: Host, implementation: str = "") -> str:
    """Return why `host` cannot be used, or cannot run `implementation`; empty if it can."""
    if implementation and not offers(
        information, host.name, information.template.implementation(implementation)
    ):
        return f"{implementation} is not available there"
    seen = information.findings.get(host.name)
    return seen.refusal if seen else ""


def start_seconds(information: InformationPool, resources: Iterable[Host]) -> float:
    """Return the seconds from a launch until the slowest host is ready: learned, else from the list."""
    known = information.learned.starts(information.launcher)
    elsewhere = float(np.median([*known.values()])) if known else 0.0
    return max(
        (
            known.get(
                (host.identity, host.start_seconds or 0.0),
                elsewhere if host.start_seconds is None else host.start_seconds,
            )
            for host in resources
        ),
        default=0.0,
    )


def queue_seconds(resources: Iterable[Host]) -> float:
    """Return the seconds until the queue grants all of these hosts, by the host list."""
    return max((host.queue_seconds or 0.0 for host in resources), default=0.0)


def program_of(
    information: InformationPool, implementation: str, python: str = sys.executable
) -> tuple[str, ...]:
    """Return the argument list that starts an implementation."""
    return information.template.command(
        implementation,
        information.folder,
        python=python,
        parameters=information.application.parameters,
    )


def strip(information: InformationPool) -> StripModel:
    """Return the strip model of a pool."""
    return StripModel(
        information.application,
        information.conditions,
        information.speeds,
        links=information.learned.links,
        border_waits=information.learned.border_waits_of(information.hosts),
        straggler_factor_of=partial(
            information.learned.straggler_factor_of, threads=information.threads
        ),
        co_run_slowdown=information.learned.co_run_slowdown_of(information.hosts),
        share_bias=information.learned.share_bias_of(
            information.conditions, threads=information.threads
        ),
        risk=information.specifications.preferences.risk,
        memory_limit=information.specifications.constraints.memory,
        sweeps=information.active_set.sweeps,
    )


MODELS: Mapping[str, Callable[[InformationPool], ModelTemplate]] = {"strip": strip}
"""The Model pool; a user's own model has the same signature."""


MEASURED: Final = "measured"
TEMPLATE: Final = "template"
ASSUMED: Final = "assumed"
"""Sources of a speed, besides the host list (`STATIC`)."""
SIMILAR_SIZE = 4.0
"""Largest ratio of grid points between similar problem sizes. Beyond it, strips exceed the measured sizes by
more than the caches of most hosts differ."""


def speed_source(information: InformationPool, host: Host) -> SpeedSource:
    """Return the source of the speed of a host's implementation."""
    return _speed(information, host)[1]


def is_measured(information: InformationPool, host: Host) -> bool:
    """Return whether the speed of a host was measured for this application at a similar problem size."""
    speed = speed_source(information, host)
    return speed["source"] == MEASURED and 1 / SIMILAR_SIZE <= speed["factor"] <= SIMILAR_SIZE


def assumes_speed(information: InformationPool, host: Host) -> bool:
    """Return whether a host's speed is assumed, neither listed nor measured."""
    return speed_source(information, host)["source"] == ASSUMED


def _speed(pool: InformationPool, host: Host) -> tuple[SpeedFunction | None, SpeedSource]:
    """Return the speed of a host and its source; None if the speed is unknown."""
    chosen, application = pool.implementation(host), pool.application
    measured = pool.learned.speed(host.identity, chosen, threads=pool.threads)
    if measured is not None:
        factor = measured.size_factor(application.rows * application.columns)
        return measured.on(application.columns), {
            "source": MEASURED, "points": measured.points or None, "factor": factor,
        }  # fmt: skip
    seconds = host.seconds_per_point
    source: SpeedSource = {"source": STATIC, "points": None, "factor": 1.0}
    if seconds is None and chosen:
        seconds = pool.template.implementation(chosen).cost(host.platform)
        source["source"] = TEMPLATE
    if seconds is None:
        source["source"] = ASSUMED
        return None, source
    return SpeedFunction.constant(seconds * pool.scale_of_listed_speeds), source


PROBE = "apples.topology.sources.probe"
"""Module that is copied to another machine to describe its CPUs."""


def needs_of(information: InformationPool) -> Needs:
    """Return the modules, commands and files that a host needs to run the application's program."""
    from apples.launch.remote.fitness import Needs  # noqa: PLC0415 - a static plan asks no host

    modules: dict[str, None] = {}
    commands: dict[str, None] = {}
    programs: dict[str, None] = {}
    for one in information.template.implementations:
        modules.update(dict.fromkeys(one.requires.modules))
        commands.update(dict.fromkeys(one.requires.commands))
        programs.update(dict.fromkeys(own_files(information, program_of(information, one.name))))
    malleable = information.template.malleable
    return Needs(tuple(modules), tuple(commands), tuple(programs), PROBE, ipv6=malleable)


def own_files(information: InformationPool, program: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words of a program that are files of the template's folder."""
    folder = information.folder.absolute()
    return tuple(w for w in program if Path(w).is_absolute() and Path(w).is_relative_to(folder))
