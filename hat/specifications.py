"""`UserSpecifications`: the user's requirements (Berman et al. 1996, section 4.3.3).

Execution constraints, the performance objective and preferences. An empty file is legal: any host,
no limit, the shortest execution time, no risk.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from hat.document import Fault, refuse
from hat.fields import (
    AtLeastZero,
    Bytes,
    Choice,
    Count,
    Name,
    Partitions,
    Positive,
    StrictTable,
)
from hat.problem import nearest

MEASURES = ("execution_time", "cost", "speedup")
"""The built-in objectives; any other name is the user's own metric."""


class Constraints(StrictTable):
    """Limits that a schedule must respect.

    Examples
    --------
    >>> Constraints(sites=("lab",)).refusal("ada", "attic")
    "site attic is not among the user's sites"
    """

    hosts: tuple[Name, ...] = Field(
        (), description="Hosts that may be used; empty: all.", examples=[["ada", "bob"]]
    )
    sites: tuple[Name, ...] = Field(
        (), description="Sites that may be used; empty: all.", examples=[["lab"]]
    )
    exclude: tuple[Name, ...] = Field(
        (), description="Hosts or sites never to be used.", examples=[["eve"]]
    )
    no_access: tuple[Name, ...] = Field(
        (), description="Hosts or sites the user may not log into.", examples=[["attic"]]
    )
    memory: Bytes | None = Field(
        None,
        description="Maximum memory of the application on one host.",
        examples=["2 GiB"],
        json_schema_extra={"unit": "bytes"},
    )
    minimum_hosts: Count = Field(1, description="Fewest hosts of a schedule.")
    maximum_hosts: Count | None = Field(
        None, description="Most hosts of a schedule.", examples=[8]
    )
    maximum_sites: Count | None = Field(
        None, description="Most sites of a schedule.", examples=[2]
    )
    maximum_distance: AtLeastZero | None = Field(
        None,
        description="Largest logical distance of the locus, one of the hosts, from the others, in the "
        "distance's own unit.",
    )
    deadline: Positive | None = Field(
        None,
        description="Maximum execution time; waiting and starting are not counted.",
        examples=[600],
        json_schema_extra={"unit": "s"},
    )
    maximum_cost: AtLeastZero | None = Field(
        None,
        description="Highest cost of an execution, in the currency of cost_per_second.",
        examples=[2.5],
        json_schema_extra={"unit": "currency"},
    )

    def refusal(self, host: str, site: str) -> str | None:
        """Return why a host may not be used; None if it may."""
        if self.hosts and host not in self.hosts:
            return f"host {host} is not among the user's hosts"
        if self.sites and site not in self.sites:
            return f"site {site} is not among the user's sites"
        for name in (host, site):
            if name in self.exclude:
                return f"{name} is excluded by the user"
            if name in self.no_access:
                return f"the user has no access to {name}"
        return None

    @model_validator(mode="after")
    def _satisfiable(self) -> Constraints:
        fewest, most = self.minimum_hosts, self.maximum_hosts
        if most is not None and most < fewest:
            message = f"must be at least minimum_hosts, {fewest} (is {most})"
            refuse([Fault(("maximum_hosts",), message, code="value-range")])
        if self.hosts and not set(self.hosts) - {*self.exclude, *self.no_access}:
            why = "all hosts of this list are also in exclude or no_access"
            refuse([Fault(("hosts",), why, code="field-conflict")])
        return self


class Objective(StrictTable):
    """The measure by which schedules are compared."""

    measure: Choice = Field(
        "execution_time",
        description="Performance measure: the least execution_time or cost, the most speedup, or the user's "
        "own metric of an estimate as module:name or file.py:name.",
    )
    better: Literal["lower", "higher"] | None = Field(
        None, description="Whether a lower or a higher value of the user's own metric is better."
    )
    reference: Name | None = Field(
        None,
        description="Host that speedup is measured against; the best single one if not given.",
        examples=["ada"],
    )

    @property
    def is_own(self) -> bool:
        """Whether it is the user's own metric."""
        return self.measure not in MEASURES

    @model_validator(mode="after")
    def _check_objective(self) -> Objective:
        place, _, name = self.measure.rpartition(":")
        if self.is_own and not (place and name.isidentifier()):
            known = ", ".join(f"'{each}'" for each in MEASURES)
            message = f"must be {known}, or your own metric as module:name or file.py:name (is '{self.measure}')"
            near = nearest(self.measure, MEASURES)
            refuse([Fault(("measure",), message, near, code="measure-unknown")])
        if self.is_own and self.better is None:
            message = f"must be 'lower' or 'higher': which is better of {self.measure}"
            refuse([Fault(("better",), message, code="field-missing")])
        if not self.is_own and self.better is not None:
            why = f"is for a metric of your own; {self.measure} has a direction already"
            refuse([Fault(("better",), why, code="field-conflict")])
        return self

    @model_validator(mode="after")
    def _reference_has_a_use(self) -> Objective:
        if self.reference is not None and self.measure != "speedup":
            why = 'only measure = "speedup" has a reference'
            refuse([Fault(("reference",), why, code="field-conflict")])
        return self


class Preferences(StrictTable):
    """Wishes that decide between schedules, and settings of a run."""

    prefer: tuple[Name, ...] = Field(
        (), description="Hosts or sites the user likes better.", examples=[["lab"]]
    )
    avoid: tuple[Name, ...] = Field(
        (), description="Hosts or sites the user likes less.", examples=[["attic"]]
    )
    prefer_within: AtLeastZero = Field(
        0.05,
        description="A preferred set is taken if its measure is within this fraction of the best.",
        json_schema_extra={"unit": "fraction"},
    )
    blueprint: Choice | None = Field(
        None,
        description="Blueprint: a name, or file.py:function.",
        examples=["minimum_execution_time"],
    )
    planner: Choice | None = Field(
        None, description="Planner: a name, or module:name.", examples=["time_balancing"]
    )
    distance: Choice | None = Field(
        None, description="Notion of distance: a name, or module:name.", examples=["communication"]
    )
    model: Choice | None = Field(
        None, description="Model, in place of the template's.", examples=["strip"]
    )
    risk: AtLeastZero = Field(
        0.0,
        description="Forecast errors that are added to each forecast; 0: plan on forecasts.",
        json_schema_extra={"unit": "forecast errors"},
    )
    frame: Positive | None = Field(
        None,
        description="Seconds ahead that forecasts are for; the execution time when not given.",
        examples=[60],
        json_schema_extra={"unit": "s"},
    )

    partitions: Partitions | None = Field(
        None,
        description="How the data is cut: tight, redundant[:FACTOR] or sparse[:SPARE]; else as the program does.",
        examples=["tight"],
    )

    @model_validator(mode="after")
    def _prefer_avoid_disjoint(self) -> Preferences:
        both = [(i, name) for i, name in enumerate(self.avoid) if name in self.prefer]
        refuse(
            Fault(("avoid", i), f"'{name}' is in prefer too", code="field-conflict")
            for i, name in both
        )
        return self


class UserSpecifications(StrictTable):
    """Constraints, objective and preferences of one user.

    Examples
    --------
    >>> from hat import parse
    >>> parse("", UserSpecifications).objective.measure
    'execution_time'
    """

    constraints: Constraints = Field(
        Constraints.model_construct(), description="Limits of a schedule."
    )
    objective: Objective = Field(
        Objective.model_construct(), description="Measure by which schedules are compared."
    )
    preferences: Preferences = Field(
        Preferences.model_construct(), description="Wishes of the user, within the limits."
    )
