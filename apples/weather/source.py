"""`WeatherSource`: the live weather of a host list, from a weather service, sensors here, and sensors over ssh."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import hat
from apples.errors import UsageError, coded
from apples.launch.remote.addresses import is_here
from apples.launch.remote.connection import HostConnections
from apples.launch.remote.fitness import Fitness
from apples.resources import Host, HostList
from apples.ui.units import duration, listed
from apples.weather import history
from apples.weather.conditions import HERE, Conditions
from apples.weather.link_choice import TOLERANCE, WORTH_SECONDS, ProposedPlan
from apples.weather.local import LocalSensing, quick_sample
from apples.weather.remote import RemoteSensing
from apples.weather.sensing import SensingContext
from apples.weather.service import ask, by_names_of
from nws import ProbeCorrection, Weather


def read_weather(path: str | Path, hosts: HostList) -> Weather:
    """Return a recorded weather of hosts of a list; the list may have more.

    Raises
    ------
    UsageError
        The file cannot be read, is not a weather, or has an entry of a host that is not in the list; names
        the field. Permanent.
    """
    try:
        weather = Weather.from_json(hat.read_bytes(path).decode())
    except (hat.HatError, ValueError) as error:
        raise UsageError(
            f"{path}: {error}",
            **{"file": str(path), **coded(error, code="file-invalid")},
        ) from None
    _check_hosts(weather, path, hosts)
    return weather


def _check_hosts(weather: Weather, path: str | Path, hosts: HostList) -> None:
    """Reject an entry of a host that is not in the list, because no plan would read it."""
    known = sorted(host.name for host in hosts)
    tables = {each.name: getattr(weather, each.name) for each in fields(weather)}
    unknown = [
        (f"{table}.{key if isinstance(key, str) else '/'.join(key)}", name)
        for table, entries in tables.items()
        if isinstance(entries, Mapping)
        for key in entries
        for name in ([key] if isinstance(key, str) else key)
        if name not in known
    ]
    if not unknown:
        return
    field, name = unknown[0]
    near = hat.nearest(name, known)
    others = dict.fromkeys(other for _, other in unknown if other != name)
    hint = f"; did you mean '{near}'?" if near else ";"
    also = f" (nor {listed(others)})" if others else ""
    raise UsageError(
        f"{path}: {field}: '{name}' is not a host of {hosts.source}{also}{hint} "
        "Correct the name, or remove its entries",
        code="host-unknown",
        file=str(path),
        field=field,
        host=name,
        host_list=hosts.source,
    )


class WeatherSource:
    """The live weather of a host list: from the configured service, else measured now.

    A host without current series at the service is measured: in this process if it is this machine, over ssh if it
    is another reachable machine. All others have the values of the host list, and a note gives the reason. If the
    service does not answer, this applies to all hosts.

    Parameters
    ----------
    context
        The host list, the service, and how hosts are measured.

    Attributes
    ----------
    seen
        Host -> the findings of its check, for the checked hosts.
    looked
        The hosts and links measured over ssh, and those left out, for the record of a plan; empty without ssh.

    Raises
    ------
    UsageError
        The service rejects the request. Permanent.
    LaunchError
        This machine cannot be measured.
    """

    def __init__(self, context: SensingContext) -> None:
        self.context = context
        self._others = context.others(context.hosts)
        self.seen: Mapping[str, Fitness] = {}
        self._own: LocalSensing | None = None
        self._remote: RemoteSensing | None = None
        self._sample: Weather | None = None
        self._down = ""

    def conditions(self, over: float | None = None) -> Conditions:
        """Return the conditions over `over` seconds; None: up to the next measurement."""
        told, service, hosts = self._told(over), self.context.service, self.context.hosts
        source = service.url if service and told.cpu else "this process"
        unknown = [host for host in hosts if host.name not in told.cpu]
        far = [host for host in self._others if host in unknown]
        here = [host for host in unknown if host not in far and is_here(host)]
        notes = list(self._notes(unknown, far, here))
        if here:
            told = told.merge(self._measured(over))
            if self._own is not None:
                notes += self._own.remarks
                notes += probe_notes(self._own.remembered)
        elsewhere = {host.name for host in (*far, *here)}
        emulated = [
            host.name
            for host in unknown
            if host.name not in elsewhere and host.queue_seconds is None
        ]
        if emulated and self._sample is None:
            self._sample = quick_sample()

        def conditions(known: Weather) -> Conditions:
            return Conditions(
                hosts,
                known,
                source,
                tuple(dict.fromkeys(notes)),
                over,
                machines=self._machines(here),
                here=self._sample.renamed(dict.fromkeys(emulated, HERE))
                if self._sample
                else Weather(),
            )

        if far:
            if self._remote is None:
                self._remote = self._look_at(far, lambda one: conditions(told.merge(one)))
            told = told.merge(self._remote.weather(over))
            notes += self._remote.remarks
            notes += probe_notes(self._remote.remembered)
            notes += link_notes(self._remote)
        return conditions(told)

    def _machines(self, here: Sequence[Host]) -> dict[str, str]:
        """Return the machine of each host: this machine, the machine that its check found, else its address."""
        own = {host.name for host in here}
        found = {name: one.machine for name, one in self.seen.items() if one.machine}
        return {
            host.name: HERE
            if host.cpus or host.name in own
            else found.get(host.name, host.reached_at)
            for host in self.context.hosts
        }

    def _told(self, over: float | None) -> Weather:
        """Return the weather of the service; an empty one without a service that answers."""
        service = self.context.service
        if service is None or self._down:
            return Weather()
        from nws import ServiceError  # noqa: PLC0415 - an HTTP client, where there is a service

        try:
            return by_names_of(self.context.hosts.hosts, ask(service, over))
        except ServiceError as error:
            self._down = str(error)
            return Weather()

    def _notes(
        self, unknown: Sequence[Host], far: Sequence[Host], here: Sequence[Host]
    ) -> Iterator[str]:
        """Yield the notes on hosts without series at the service."""
        behind = [host for host in unknown if host.queue_seconds is not None and host not in far]
        if behind:
            names = listed(host.name for host in behind)
            yield f"weather of {names}: the host list's, as nodes of a batch queue are not shared"
        service = self.context.service
        if service is None:
            return
        if self._down:
            yield f"weather service: {self._down}; not used"
            return
        away = [host for host in unknown if host not in far and host not in here]
        for hosts, instead in (
            (here, ", measured here"),
            (far, ", measured over ssh"),
            (away, ""),
        ):
            if hosts:
                names = listed(host.name for host in hosts)
                yield f"weather of {names}: not at {service.url}{instead}"

    def _measured(self, over: float | None) -> Weather:
        if self._own is None:
            context = self.context
            context.phase("here")
            known = {} if context.fresh else history.recall_probes()
            self._own = LocalSensing(context.hosts, corrections=known)
            weather, found = self._own.weather(over), self._own.corrections
            if found != {name: known[name] for name in found.keys() & known.keys()}:
                self._remember(found)
            return weather
        return self._own.weather(over)

    def _remember(self, probes: Mapping[str, ProbeCorrection]) -> None:
        try:
            history.remember_probes(probes)
        except OSError as error:
            self.context.log(
                f"warning: {error.filename}: {error.strerror}; no probe is remembered"
            )

    def _look_at(
        self, far: Sequence[Host], conditions: Callable[[Weather], Conditions]
    ) -> RemoteSensing:
        """Check and measure other machines; return the object that forecasts their weather from then on."""
        context = self.context
        with ExitStack() as stack:
            connections = context.connections or stack.enter_context(HostConnections())
            context.phase("look")
            self.seen = context.look(far, connections)
            propose = context.propose

            def proposed(weather: Weather) -> ProposedPlan | None:
                return propose(conditions(weather), self.seen) if propose else None

            remote = RemoteSensing(
                replace(context, connections=connections),
                self.seen,
                proposed if propose else None,
            )
            remote.weather()
        return remote

    @property
    def looked(self) -> dict[str, Any]:
        """The hosts and links measured over ssh, and those left out; empty without ssh."""
        if self._remote is None:
            return {}
        links = self._remote.links
        return {
            "hosts": len(self._remote.measured_hosts),
            "links": sorted(map(list, links.probed)) if links else [],
            "remembered": [
                {"between": list(pair), "age_seconds": age}
                for pair, age in sorted(links.reused.items() if links else ())
            ],
            "left_out": sorted(map(list, links.left_out)) if links else [],
        }


def probe_notes(remembered: Mapping[str, float]) -> Iterator[str]:
    """Yield the note on hosts with a stored CPU probe of an earlier decision."""
    if remembered:
        oldest = duration(max(remembered.values()))
        yield f"CPU probe of {listed(remembered)}: remembered, made up to {oldest} ago (--fresh probes)"


def link_notes(remote: RemoteSensing) -> Iterator[str]:
    """Yield the notes on links of a plan that were not measured for it."""
    links = remote.links
    if links is None:
        return
    if links.reused:
        oldest = duration(max(links.reused.values()))
        yield f"{_counted(links.reused)}: remembered, measured up to {oldest} ago (--fresh measures)"
    if links.left_out:
        yield (
            f"{_counted(links.left_out)}: not measured: any value changes the plan's time "
            f"by at most {TOLERANCE:.0%} or {WORTH_SECONDS:g} s (--fresh measures)"
        )


def _counted(pairs: Collection[tuple[str, str]]) -> str:
    """Return the links of these ordered pairs, each once."""
    links = sorted({" and ".join(sorted(pair)) for pair in pairs})
    return f"link{'s' if len(links) > 1 else ''} between {listed(links)}"
