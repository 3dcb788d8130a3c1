"""Files and options in, `InformationPool` out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import hat
from apples.agent.information.measuring import BRIEFLY, IN_FULL, Measuring
from apples.agent.information.pool import MODELS, InformationPool
from apples.agent.models import Learned, recall
from apples.agent.models.model import check_model
from apples.agent.weather.conditions import Conditions
from apples.errors import UsageError
from apples.launch.events import Talk, unheard
from apples.launch.remote.addresses import remote_hosts
from apples.launch.remote.fitness import Fitness
from apples.plugins import resolve
from apples.resources import Host, HostList, read_host_list
from nws import Weather

Settings = Mapping[str, str | float]
Others = Callable[[HostList], Sequence[Host]]


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
        from apples.agent.information.live import under_live_weather  # noqa: PLC0415

        return under_live_weather(information, others, talk, measuring)
    if not Path(weather).exists():
        raise UsageError(
            f"--weather '{weather}': must be static, live or a file",
            code="file-missing",
            option="--weather",
            file=weather,
        )
    from apples.agent.weather.source import read_weather  # noqa: PLC0415

    return information.with_weather(read_weather(weather), source=weather)


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
