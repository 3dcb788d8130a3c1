"""Files and options in, `InformationPool` out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import hat
from apples.agent.information.pool import MODELS, InformationPool, needs_of
from apples.agent.models import Learned, recall
from apples.agent.models.model import check_model
from apples.agent.weather.conditions import Conditions
from apples.errors import UsageError
from apples.launch.events import Talk, unheard
from apples.launch.remote.addresses import remote_hosts
from apples.launch.remote.connection import HostConnections
from apples.launch.remote.fitness import Fitness
from apples.plugins import resolve
from apples.resources import Host, HostList, read_host_list
from apples.schedule import Schedule
from nws import Weather

ROUNDS = 5
"""Measurements before the first forecast: enough for an error, short enough to wait for."""
BRIEF_ROUNDS = 3
"""The same where an application runs on what is measured: every probe takes CPU time from it."""

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
    """

    connections: HostConnections | None = None
    propose: Callable[[InformationPool], Schedule | None] | None = None
    fresh: bool = False
    phase: Talk = unheard


def load_information(
    hosts: str | Path,
    template: str | Path,
    user: str | Path,
    *,
    settings: Settings | None = None,
    weather: str = "static",
    model: str | None = None,
    others: Others = remote_hosts,
    talk: Talk = unheard,
    launcher: str = "",
    measuring: Measuring = Measuring(),
) -> InformationPool:
    """Return the pool for a host list, a template and user specifications.

    Parameters
    ----------
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

    Raises
    ------
    hat.DocumentError
        What is wrong in the files, with file, line and field.
    UsageError
        An unknown model, or a weather that is neither a word nor a file.
    """
    application_template = hat.read(template, hat.ApplicationTemplate)
    specifications = hat.read(user, hat.UserSpecifications)
    host_list = read_host_list(hosts)
    _check_names(specifications, host_list, user)
    application = application_template.bind(settings or {})
    chosen_model = model or specifications.preferences.model or application.model
    make_model = resolve(chosen_model, MODELS, "model", ("information",))
    learned = Learned()
    if weather != "static":
        learned = recall(application_template.name, application_template.version)
    information = InformationPool(
        application_template,
        application,
        specifications,
        Conditions(host_list, Weather()),
        learned,
        Path(template).resolve().parent,
        make_model,
        launcher=launcher or ("ssh" if remote_hosts(host_list) else "local"),
    )
    information = under(weather, information, others, talk, measuring)
    if chosen_model not in MODELS:
        check_model(information.model, host_list.hosts, application.rows)
    return information


def under(
    weather: str,
    information: InformationPool,
    others: Others,
    talk: Talk,
    measuring: Measuring = Measuring(),
) -> InformationPool:
    """Return the pool under the weather a user asks for by a word or a file."""
    if weather == "static":
        return information
    if weather == "live":
        return under_live_weather(information, others, talk, measuring=measuring)
    if not Path(weather).exists():
        raise UsageError(
            f"--weather '{weather}': neither static nor live, and no file of that name"
        )
    from apples.agent.weather.source import read_weather  # noqa: PLC0415 - loads the sensors

    return information.with_weather(read_weather(weather), source=weather)


def _check_names(
    specifications: hat.UserSpecifications, hosts: HostList, source: str | Path
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
    document = hat.Document.read(source)
    problems = [
        document.problem(
            field if field[1] == "reference" else (*field, k),
            f"'{name}' is no {kind} of {hosts.source}",
            hat.nearest(name, sorted(known)),
        )
        for field, names, kind, known in asked
        for k, name in enumerate(names)
        if name not in known
    ]
    if problems:
        raise hat.DocumentError(problems)


def at_a_glance(information: InformationPool, others: Others = remote_hosts) -> InformationPool:
    """Return the pool under this moment's weather, measured briefly: an application runs beside the sensors."""
    return under_live_weather(information, others, rounds=BRIEF_ROUNDS)


def under_live_weather(
    information: InformationPool,
    others: Others = remote_hosts,
    talk: Talk = unheard,
    rounds: int = ROUNDS,
    measuring: Measuring = Measuring(),
) -> InformationPool:
    """Return the pool under this moment's weather, and with what past runs taught by now.

    Parameters
    ----------
    others
        Which hosts of the list are other machines, measured over ssh.
    rounds
        How often each part of this machine is measured.
    measuring
        How else it is measured.
    """
    # A static decision measures nothing: it loads no sensors, no ssh and no HTTP client.
    from apples.agent.weather.link_choice import ProposedPlan  # noqa: PLC0415
    from apples.agent.weather.service import joined, service_settings  # noqa: PLC0415
    from apples.agent.weather.source import WeatherSource  # noqa: PLC0415
    from apples.launch.remote.preflight import preflight  # noqa: PLC0415
    from apples.launch.slurm.nodes import behind_a_queue  # noqa: PLC0415

    template, hosts = information.template, information.hosts
    refused = information.specifications.constraints.refusal
    queued = behind_a_queue(hosts)  # what a job is given is not shared, and nobody logs in before
    remote = [
        host
        for host in others(hosts)
        if host not in queued and refused(host.name, host.site) is None
    ]

    def look(far: Sequence[Host], connections: HostConnections) -> Mapping[str, Fitness]:
        seen = preflight(far, hosts, needs_of(information), connections=connections)
        for name, one in seen.items():
            if one.refusal:
                talk(f"warning: {name} cannot be used: {one.refusal}")
        return seen

    taught = replace(information, learned=recall(template.name, template.version))
    proposes = measuring.propose

    def propose(sky: Conditions, seen: Mapping[str, Fitness]) -> ProposedPlan | None:
        schedule = (
            proposes(replace(taught, conditions=sky).with_findings(seen)) if proposes else None
        )
        if schedule is None:
            return None

        def seconds(weather: Weather) -> float:
            other = replace(taught, conditions=replace(sky, weather=joined(weather, sky.weather)))
            return other.with_findings(seen).model.iteration_seconds(schedule)

        return ProposedPlan([host.name for host in schedule.resources], seconds)

    source = WeatherSource(
        hosts,
        service_settings(),
        remote,
        look,
        talk,
        rounds,
        connections=measuring.connections,
        propose=propose if proposes else None,
        fresh=measuring.fresh,
        phase=measuring.phase,
    )
    conditions = source.conditions()
    return replace(
        taught, conditions=conditions, conditions_over=source.conditions, looked=source.looked
    ).with_findings(source.seen)
