"""`UserSpecifications`: what the user wants (Berman et al. 1996, section 4.3.3).

Execution constraints, the performance objective and preferences. An empty file is legal: any host,
no limit, the shortest execution time, no risk.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from hat.document import Fault, refuse
from hat.fields import AtLeastZero, Bytes, Choice, Count, Name, Positive, StrictTable

Measure = Literal["execution_time", "cost", "speedup"]


class Constraints(StrictTable):
    """What a schedule must keep to.

    Examples
    --------
    >>> Constraints(sites=("lab",)).refusal("ada", "attic")
    "site attic is not among the user's sites"
    """

    hosts: tuple[Name, ...] = Field((), description="Hosts that may be used; empty: all.")
    sites: tuple[Name, ...] = Field((), description="Sites that may be used; empty: all.")
    exclude: tuple[Name, ...] = Field((), description="Hosts or sites never to be used.")
    no_access: tuple[Name, ...] = Field(
        (), description="Hosts or sites the user may not log into."
    )
    memory: Bytes | None = Field(
        None, description='Most bytes the application may take on one host, such as "2 GiB".'
    )
    minimum_hosts: Count = Field(1, description="Fewest hosts of a schedule.")
    maximum_hosts: Count | None = Field(None, description="Most hosts of a schedule.")
    maximum_sites: Count | None = Field(None, description="Most sites of a schedule.")
    maximum_distance: AtLeastZero | None = Field(
        None, description="Largest logical distance from the locus, in the distance's own unit."
    )
    deadline: Positive | None = Field(None, description="Longest execution time, in seconds.")
    maximum_cost: AtLeastZero | None = Field(
        None, description="Highest cost of an execution, in the currency of cost_per_second."
    )

    def refusal(self, host: str, site: str) -> str | None:
        """Return why a host may not be used, None if it may."""
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
            refuse([Fault(("maximum_hosts",), message)])
        if self.hosts and not set(self.hosts) - {*self.exclude, *self.no_access}:
            refuse([Fault(("hosts",), "every one of them is excluded too")])
        return self


class Objective(StrictTable):
    """What makes one schedule better than another."""

    measure: Measure = Field(
        "execution_time",
        description="Performance measure: the least execution_time or cost, or the most speedup.",
    )
    reference: Name | None = Field(
        None,
        description="Host that speedup is measured against; the best single one if not given.",
    )

    @model_validator(mode="after")
    def _reference_has_a_use(self) -> Objective:
        if self.reference is not None and self.measure != "speedup":
            refuse([Fault(("reference",), 'only measure = "speedup" has a reference')])
        return self


class Preferences(StrictTable):
    """What to attempt, where the objective leaves a choice."""

    prefer: tuple[Name, ...] = Field((), description="Hosts or sites the user likes better.")
    avoid: tuple[Name, ...] = Field((), description="Hosts or sites the user likes less.")
    prefer_within: AtLeastZero = Field(
        0.05,
        description="A preferred set is taken if its measure is within this fraction of the best.",
    )
    blueprint: Choice | None = Field(None, description="Blueprint: a name, or file.py:function.")
    planner: Choice | None = Field(None, description="Planner: a name, or module:name.")
    distance: Choice | None = Field(
        None, description="Notion of distance: a name, or module:name."
    )
    model: Choice | None = Field(None, description="Model, in place of the template's.")
    risk: AtLeastZero = Field(
        0.0, description="Forecast errors that are added to each forecast; 0: plan on forecasts."
    )
    frame: Positive | None = Field(
        None,
        description="Seconds ahead that forecasts are for; the execution time when not given.",
    )

    @model_validator(mode="after")
    def _of_one_mind(self) -> Preferences:
        both = [(i, name) for i, name in enumerate(self.avoid) if name in self.prefer]
        refuse(Fault(("avoid", i), f"'{name}' is preferred too") for i, name in both)
        return self


class UserSpecifications(StrictTable):
    """What one user wants of an agent.

    Examples
    --------
    >>> from hat import parse
    >>> parse("", UserSpecifications).objective.measure
    'execution_time'
    """

    constraints: Constraints = Field(
        Constraints.model_construct(), description="What a schedule must keep to."
    )
    objective: Objective = Field(
        Objective.model_construct(), description="What makes a schedule better."
    )
    preferences: Preferences = Field(Preferences.model_construct(), description="What to attempt.")
