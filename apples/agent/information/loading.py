"""Read files and options into an `InformationPool`, and put it under a weather.

Only a live weather loads sensors, ssh and an HTTP client: the functions that measure import them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

import hat
from apples.agent.information.pool import MODELS, InformationPool, needs_of
from apples.agent.models import Learned, recall
from apples.agent.models.model import check_model
from apples.errors import UsageError
from apples.io.plugins import resolve
from apples.launch.events import Talk, unheard
from apples.launch.remote.addresses import remote_hosts
from apples.launch.remote.connection import HostConnections
from apples.launch.remote.fitness import Fitness
from apples.resources import Host, HostList, read_host_list
from apples.resources.schedule import Schedule
from apples.weather.conditions import Conditions
from apples.weather.link_choice import ProposedPlan
from nws import Weather

Settings = Mapping[str, str | float]
Others = Callable[[HostList], Sequence[Host]]


@dataclass(frozen=True, slots=True)
class Measuring:
    """How a live weather is measured.

    Attributes
    ----------
    connections
        Through which other machines are looked at and measured, and which stay open; None: some for that alone.
    propose
        Returns what would be planned under a pool, None where nothing would: then only those links are
        measured that the plan can depend on.
    fresh
        Whether all links are measured, whatever is remembered.
    phase
        Is told what is being done now.
    rounds
        How often each part of this machine is measured.
    """

    connections: HostConnections | None = None
    propose: Callable[[InformationPool], Schedule | None] | None = None
    fresh: bool = False
    phase: Talk = unheard
    rounds: int = 5


IN_FULL = Measuring()
"""Measurements enough for an error before the first forecast, and short enough to wait for."""
BRIEFLY = Measuring(rounds=3)
"""Where an application runs on what is measured: every probe takes CPU time from it."""


def load_information(
    hosts: str | Path,
    template: str | Path,
    user: str | Path | None,
    *,
    settings: Settings | None = None,
    weather: str = "static",
    model: str | None = None,
    others: Others = remote_hosts,
    talk: Talk = unheard,
    launcher: str = "",
    measuring: Measuring = IN_FULL,
    findings: Mapping[str, Fitness] = MappingProxyType({}),
) -> InformationPool:
    """Return the pool for a host list, a template and user specifications.

    Parameters
    ----------
    user
        None: the user has no wishes.
    settings
        Parameters of the template to set, such as ``{"grid": 2000}``.
    weather
        ``static`` (the host list's values alone: no calibration, nothing learned, no state directory),
        ``live`` (the weather service that is configured, else sensors, here and over ssh; and what is
        remembered), or a recorded weather file.
    model
        In place of the specification's and the template's.
    others
        Which hosts of the list are other machines, measured over ssh; default: those that the list
        says are.
    talk
        Is told, a line each, what could not be measured.
    launcher
        Name of the actuator that would start the run; default: ssh where hosts are other machines, else local.
    measuring
        How a live weather is measured.
    findings
        What is known of hosts already, by name: those are not looked at, nor measured where they cannot be used.

    Raises
    ------
    hat.DocumentError
        What is wrong in the files, with file, line and field.
    UsageError
        An unknown model, or a weather that is neither a word nor a file.
    """
    described = hat.read(template, hat.ApplicationTemplate)
    wishes = hat.Document.read(user) if user is not None else hat.Document.parse("", source="")
    specifications = wishes.validate(hat.UserSpecifications)
    host_list = read_host_list(hosts)
    _check_names(specifications, host_list, wishes)
    application = described.bind(settings or {})
    chosen_model = model or specifications.preferences.model or application.model
    make_model = resolve(chosen_model, MODELS, "model", ("information",))
    information = InformationPool(
        described,
        application,
        specifications,
        Conditions(host_list, Weather()),
        Learned() if weather == "static" else recall(described.name, described.version),
        Path(template).resolve().parent,
        make_model,
        launcher=launcher or ("ssh" if remote_hosts(host_list) else "local"),
    )
    information = information.with_findings(findings)
    information = under(weather, information, others, talk, measuring)
    if chosen_model not in MODELS:
        check_model(information.model, host_list.hosts, application.rows)
    return information


def under(
    weather: str,
    information: InformationPool,
    others: Others,
    talk: Talk,
    measuring: Measuring = IN_FULL,
) -> InformationPool:
    """Return the pool under the weather a user asks for by a word or a file."""
    # A static decision measures nothing: it loads no sensors, no ssh and no HTTP client.
    if weather == "static":
        return information
    if weather == "live":
        return under_live_weather(information, others, talk, measuring)
    if not Path(weather).exists():
        raise UsageError(
            f"--weather '{weather}': must be static, live or a file",
            code="file-missing",
            option="--weather",
            file=weather,
        )
    from apples.weather.source import read_weather  # noqa: PLC0415

    return information.with_weather(read_weather(weather, information.hosts), source=weather)


def under_live_weather(
    information: InformationPool,
    others: Others,
    talk: Talk,
    measuring: Measuring,
) -> InformationPool:
    """Return the pool under this moment's weather, and with what past runs taught by now.

    Parameters
    ----------
    others
        Which hosts of the list are other machines, measured over ssh.
    """
    from apples.weather.service import service_settings  # noqa: PLC0415 - see `under`
    from apples.weather.source import WeatherSource  # noqa: PLC0415

    template = information.template
    taught = replace(information, learned=recall(template.name, template.version))
    propose = measuring.propose
    source = WeatherSource(
        information.hosts,
        service_settings(),
        _logged_into(information, others),
        partial(_looked_at, information, talk),
        talk,
        measuring.rounds,
        connections=measuring.connections,
        propose=partial(_proposed, taught, propose) if propose else None,
        fresh=measuring.fresh,
        phase=measuring.phase,
    )
    conditions = source.conditions()
    return replace(
        taught, conditions=conditions, conditions_over=source.conditions, looked=source.looked
    ).with_findings(source.seen)


def _logged_into(information: InformationPool, others: Others) -> list[Host]:
    """Return the other machines that the user may use and that answer, as far as is known.

    Nobody logs in on a node before a queue gives it.
    """
    from apples.launch.slurm.nodes import behind_a_queue  # noqa: PLC0415 - see `under`

    refused = information.specifications.constraints.refusal
    unfit = {name for name, one in information.findings.items() if one.refusal}
    queued = behind_a_queue(information.hosts)
    return [
        host
        for host in others(information.hosts)
        if host not in queued and host.name not in unfit and refused(host.name, host.site) is None
    ]


def _looked_at(
    information: InformationPool, talk: Talk, far: Sequence[Host], connections: HostConnections
) -> Mapping[str, Fitness]:
    """Return what was found on other machines, and say which of them cannot be used."""
    from apples.launch.remote.preflight import preflight  # noqa: PLC0415 - see `under`

    seen = preflight(far, information.hosts, needs_of(information), connections=connections)
    for name, one in seen.items():
        if one.refusal:
            talk(f"warning: {name} cannot be used: {one.refusal}")
    return seen


def _proposed(
    information: InformationPool,
    propose: Callable[[InformationPool], Schedule | None],
    conditions: Conditions,
    seen: Mapping[str, Fitness],
) -> ProposedPlan | None:
    """Return what would be planned under conditions on hosts of which this was found; None: nothing."""
    schedule = propose(replace(information, conditions=conditions).with_findings(seen))
    if schedule is None:
        return None

    def seconds(weather: Weather) -> float:
        under = replace(conditions, weather=weather.merge(conditions.weather))
        pool = replace(information, conditions=under).with_findings(seen)
        return pool.model_of(schedule).iteration_seconds(schedule)

    return ProposedPlan([host.name for host in schedule.resources], seconds)


def _check_names(
    specifications: hat.UserSpecifications, hosts: HostList, document: hat.Document
) -> None:
    """Refuse a specification that names a host or site the list does not have."""
    machines, sites = {host.name for host in hosts}, {host.site for host in hosts}
    limits, preferences = specifications.constraints, specifications.preferences
    reference = specifications.objective.reference
    asked: Sequence[tuple[tuple[str, str], Sequence[str], str, set[str]]] = (
        (("constraints", "hosts"), limits.hosts, "host", machines),
        (("constraints", "sites"), limits.sites, "site", sites),
        (("constraints", "exclude"), limits.exclude, "host or site", machines | sites),
        (("constraints", "no_access"), limits.no_access, "host or site", machines | sites),
        (("preferences", "prefer"), preferences.prefer, "host or site", machines | sites),
        (("preferences", "avoid"), preferences.avoid, "host or site", machines | sites),
        (("objective", "reference"), [reference] if reference else [], "host", machines),
    )
    problems = [
        document.problem(
            field if field[1] == "reference" else (*field, k),
            f"'{name}' is no {kind} of {hosts.source}",
            hat.nearest(name, sorted(known)),
            code="site-unknown" if kind == "site" else "host-unknown",
        )
        for field, names, kind, known in asked
        for k, name in enumerate(names)
        if name not in known
    ]
    if problems:
        raise hat.DocumentError(problems)


def at_a_glance(information: InformationPool, others: Others = remote_hosts) -> InformationPool:
    """Return the pool under this moment's weather, measured briefly: an application runs beside the sensors."""
    return under("live", information, others, unheard, BRIEFLY)
