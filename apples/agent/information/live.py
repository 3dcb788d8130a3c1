"""`under_live_weather`: the pool under what is measured now. It loads sensors, ssh and what they need."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from apples.agent.information.measuring import Measuring
from apples.agent.information.pool import InformationPool, needs_of
from apples.agent.models import recall
from apples.agent.weather.conditions import Conditions
from apples.agent.weather.link_choice import ProposedPlan
from apples.agent.weather.service import joined, service_settings
from apples.agent.weather.source import WeatherSource
from apples.launch.events import Talk
from apples.launch.remote.connection import HostConnections
from apples.launch.remote.fitness import Fitness
from apples.launch.remote.preflight import preflight
from apples.launch.slurm.nodes import behind_a_queue
from apples.resources import Host, HostList
from apples.schedule import Schedule
from nws import Weather

Found = Mapping[str, Fitness]


def under_live_weather(
    information: InformationPool,
    others: Callable[[HostList], Sequence[Host]],
    talk: Talk,
    measuring: Measuring,
) -> InformationPool:
    """Return the pool under this moment's weather, and with what past runs taught by now.

    Parameters
    ----------
    others
        Which hosts of the list are other machines, measured over ssh.
    """
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


def _logged_into(
    information: InformationPool, others: Callable[[HostList], Sequence[Host]]
) -> list[Host]:
    """Return the other machines that the user may use and that answer, as far as is known.

    Nobody logs in on a node before a queue gives it.
    """
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
) -> Found:
    """Return what was found on other machines, and say which of them cannot be used."""
    seen = preflight(far, information.hosts, needs_of(information), connections=connections)
    for name, one in seen.items():
        if one.refusal:
            talk(f"warning: {name} cannot be used: {one.refusal}")
    return seen


def _proposed(
    information: InformationPool,
    propose: Callable[[InformationPool], Schedule | None],
    conditions: Conditions,
    seen: Found,
) -> ProposedPlan | None:
    """Return what would be planned under conditions on hosts of which this was found; None: nothing."""
    schedule = propose(replace(information, conditions=conditions).with_findings(seen))
    if schedule is None:
        return None

    def seconds(weather: Weather) -> float:
        under = replace(conditions, weather=joined(weather, conditions.weather))
        pool = replace(information, conditions=under).with_findings(seen)
        return pool.model_of(schedule).iteration_seconds(schedule)

    return ProposedPlan([host.name for host in schedule.resources], seconds)
