"""Read files and options into an `InformationPool`, with a weather.

Only a live weather loads sensors, ssh and an HTTP client: the functions that measure import them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import hat
from apples.agent.documents import LEARNED_WEATHERS
from apples.agent.information.pool import MODELS, InformationPool, needs_of
from apples.agent.models import Learned, LearnedKey, recall
from apples.agent.models.model import check_model
from apples.errors import UsageError
from apples.io.log import Log
from apples.io.plugins import resolve
from apples.launch.remote.addresses import remote_hosts
from apples.resources import Host, HostList, read_host_list
from apples.resources.schedule import Schedule
from apples.weather.conditions import Conditions
from apples.weather.sensing import Others, SensingContext
from nws import Weather

if TYPE_CHECKING:
    from apples.agent.models.model import ModelTemplate
    from apples.launch.remote.connection import HostConnections
    from apples.launch.remote.fitness import Fitness
    from apples.weather.link_choice import ProposedPlan

Settings = Mapping[str, str | float]
Propose = Callable[[InformationPool], Schedule | None]
"""Returns the schedule that a decision under a pool chooses; None if no host set is feasible."""


def load_information(
    hosts: str | Path,
    template: str | Path,
    user: str | Path | None,
    *,
    contents: Mapping[str, str] = MappingProxyType({}),
    settings: Settings | None = None,
    weather: str = "live",
    learned: bool = False,
    model: str | Callable[[InformationPool], ModelTemplate] | None = None,
    launcher: str = "",
    findings: Mapping[str, Fitness] = MappingProxyType({}),
    sensing: SensingContext = SensingContext(),  # noqa: B008 - frozen
    propose: Propose | None = None,
) -> InformationPool:
    """Return the pool for a host list, a template and user specifications.

    Parameters
    ----------
    user
        Path of the user specifications. None: no constraints or preferences.
    contents
        Texts that replace the files ``template`` and ``user``, by these names.
    settings
        Parameters of the template to set, such as ``{"grid": 2000}``.
    weather
        As for ``apples plan``. ``live``: the configured weather service, else sensors, here and over ssh; with
        the learned state. ``remembered``: data of the service and of earlier plans, without a measurement; with
        the learned state. ``static``: only the host list's values. Otherwise the path of a recorded weather.
    learned
        Whether a static or recorded weather also uses the learned state (measured speeds and corrections).
        Without it, the same files give the same plan on every machine and after any run.
    model
        Replaces the model of the specifications and the template: a name, or a function of the pool.
    launcher
        Name of the actuator that would start the run; default: ssh if hosts are other machines, else local.
    findings
        Findings by host from an earlier check: these hosts are not checked again; unfit hosts are not measured.
    sensing
        Settings for measuring a live weather; its `hosts`, `service`, `look` and `propose` are set here.
    propose
        Returns the schedule under a pool. With it, only links that can change the schedule are measured.

    Raises
    ------
    hat.DocumentError
        The files have problems, each reported with file, line and field.
    UsageError
        Unknown model or weather.
    """
    document = hat.Document.of(template, contents.get("template"))
    described = document.validate(hat.ApplicationTemplate)
    wishes = hat.Document.parse("", source="")
    if user is not None:
        wishes = hat.Document.of(user, contents.get("user"))
    specifications = wishes.validate(hat.UserSpecifications)
    host_list = read_host_list(hosts)
    _check_names(specifications, host_list, wishes)
    application = described.bind(settings or {}, document=document)
    chosen_model = model or specifications.preferences.model or application.model
    make_model = (
        chosen_model
        if callable(chosen_model)
        else resolve(chosen_model, MODELS, "model", ("information",))
    )
    folder = Path(template).resolve().parent
    _check_expected_result(described, Path(template), folder)
    information = InformationPool(
        described,
        application,
        specifications,
        Conditions(host_list, Weather()),
        recall(LearnedKey.of(described.name, described.version, folder), hosts=host_list)
        if learned or weather in LEARNED_WEATHERS
        else Learned(),
        folder,
        make_model,
        launcher=launcher or ("ssh" if remote_hosts(host_list) else "local"),
    )
    information = information.with_findings(findings) if findings else information
    information = under(weather, information, sensing, propose)
    if callable(chosen_model) or chosen_model not in MODELS:
        check_model(information.model, host_list.hosts, application.rows)
    return information


def under(
    weather: str,
    information: InformationPool,
    sensing: SensingContext,
    propose: Propose | None = None,
) -> InformationPool:
    """Return the pool under a weather: ``static``, ``live``, ``remembered``, or the path of a file."""
    # A static decision measures nothing: it loads no sensors, no ssh and no HTTP client.
    if weather == "static":
        return information
    if weather == "live":
        return _under_live_weather(information, sensing, propose)
    if weather == "remembered":
        from apples.weather.history import remembered_weather  # noqa: PLC0415 - see above
        from apples.weather.service import service_settings  # noqa: PLC0415

        known = remembered_weather(information.hosts, service_settings())
        return replace(information, conditions=known)
    if not Path(weather).exists():
        raise UsageError(
            f"--weather '{weather}': must be static, live, remembered or a file",
            code="file-missing",
            option="--weather",
            file=weather,
        )
    from apples.weather.source import read_weather  # noqa: PLC0415

    return information.with_weather(read_weather(weather, information.hosts), source=weather)


def measure_briefly(
    information: InformationPool, others: Others = remote_hosts
) -> InformationPool:
    """Return the pool with the present weather and the present learned state.

    Parameters
    ----------
    others
        Returns the hosts of the list that are other machines; they are measured over ssh.
    """
    learned = recall(information.learned_key, hosts=information.hosts)
    information = replace(information, learned=learned)
    return under("live", information, SensingContext(others=others))


def _under_live_weather(
    information: InformationPool, sensing: SensingContext, propose: Propose | None
) -> InformationPool:
    from apples.weather.service import service_settings  # noqa: PLC0415 - see `under`
    from apples.weather.source import WeatherSource  # noqa: PLC0415

    source = WeatherSource(
        replace(
            sensing,
            hosts=information.hosts,
            service=service_settings(),
            others=partial(_reachable, information, sensing.others),
            look=partial(_looked_at, information, sensing.log),
            propose=partial(_proposed, information, propose) if propose else None,
        )
    )
    conditions = source.conditions()
    return replace(
        information, conditions=conditions, conditions_over=source.conditions, looked=source.looked
    ).with_findings(source.seen)


def _reachable(information: InformationPool, others: Others, hosts: HostList) -> list[Host]:
    """Return the other machines that the user may use, without those known not to answer.

    Queued nodes are not contacted before the queue allocates them.
    """
    from apples.launch.slurm.nodes import behind_a_queue  # noqa: PLC0415 - see `under`

    refused = information.specifications.constraints.refusal
    unfit = {name for name, seen in information.findings.items() if seen.refusal}
    queued = behind_a_queue(hosts)
    return [
        host
        for host in others(hosts)
        if host not in queued and host.name not in unfit and refused(host.name, host.site) is None
    ]


def _looked_at(
    information: InformationPool, log: Log, far: Sequence[Host], connections: HostConnections
) -> Mapping[str, Fitness]:
    """Return the findings on other machines; log unfit machines."""
    from apples.launch.remote.preflight import preflight  # noqa: PLC0415 - see `under`

    seen = preflight(far, information.hosts, needs_of(information), connections=connections)
    for name, fitness in seen.items():
        if fitness.refusal:
            log(f"warning: {name} cannot be used: {fitness.refusal}")
    return seen


def _proposed(
    information: InformationPool,
    propose: Propose,
    conditions: Conditions,
    seen: Mapping[str, Fitness],
) -> ProposedPlan | None:
    """Return the plan under conditions and findings; None if no host set is feasible."""
    from apples.weather.link_choice import ProposedPlan  # noqa: PLC0415 - see `under`

    schedule = propose(replace(information, conditions=conditions).with_findings(seen))
    if schedule is None:
        return None

    def seconds(weather: Weather) -> float:
        under = replace(conditions, weather=weather.merge(conditions.weather))
        pool = replace(information, conditions=under).with_findings(seen)
        return pool.model_of(schedule).iteration_seconds(schedule)

    return ProposedPlan(
        [host.name for host in schedule.resources], seconds, information.application.iterations
    )


def _check_expected_result(
    described: hat.ApplicationTemplate, template: Path, folder: Path
) -> None:
    """Raise before any run if the file of the expected result's function does not exist."""
    file, _, _ = (
        described.expected_result.function.rpartition(":")
        if described.expected_result
        else ("", "", "")
    )
    if file.endswith(".py") and not (folder / file).is_file():
        raise UsageError(
            f"{template}: expected_result.function: no file {folder / file}",
            code="file-missing",
            file=str(template),
            field="expected_result.function",
            value=file,
        )


def _check_names(
    specifications: hat.UserSpecifications, hosts: HostList, document: hat.Document
) -> None:
    """Raise if the specifications name a host or site that is not in the list."""
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
