"""``apples scheduler``: the live scheduler of this user's hosts."""

from __future__ import annotations

import os
import secrets
import signal
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

import nws
from apples.agent.weather.conditions import listed
from apples.cli import options
from apples.cli.program import say
from apples.cli.tokens import issue
from apples.cli.tokens import revoke as revoke_tokens
from apples.errors import UsageError
from apples.jobs.allocations import AllocationFollower, AllocationWatch
from apples.jobs.executor import JobServiceExecutor
from apples.jobs.host_looks import HostLooks
from apples.launch.remote.addresses import is_here, remote_hosts
from apples.launch.remote.load_slaves import load_slaves
from apples.launch.remote.ssh import reach
from apples.monitoring.master import LoadMonitor
from apples.monitoring.node_load import NodeSnapshot
from apples.monitoring.slave import EVERY_SECONDS
from apples.resources import Host, HostList, read_host_list
from apples.scheduling.node_loads import known_nodes
from apples.scheduling.policies import POLICIES
from apples.scheduling.policy import SchedulingPolicy
from apples.scheduling.server.access import GIVEN, Scope
from apples.scheduling.server.client import home
from apples.scheduling.server.host_claims import HostClaims
from apples.scheduling.server.host_preference import HostPreference
from apples.scheduling.server.listener import SOCKET, serve
from apples.scheduling.server.log import SchedulerLog
from apples.scheduling.server.orders import HostLoad, HostTerm
from apples.scheduling.server.planner import PlannerClient, planner_command
from apples.scheduling.server.scheduler import LiveScheduler
from apples.scheduling.server.service import NAME, SchedulerService
from apples.scheduling.server.shepherds import ShepherdExecutor
from apples.simulation.prepare import load_policy
from apples.wire.tls import tls_of

ACTUATORS = ("local", "ssh")
SHARES = "sd"
"""The policy that puts two jobs on one host, which needs a topology daemon on each."""


def scheduler(
    hosts: options.Hosts = None,
    name: Annotated[str, typer.Option("--name", help="First part of its jobs' ids.")] = "local",
    policy: Annotated[
        str, typer.Option("--policy", help=f"{', '.join(POLICIES)}, or FILE.py:NAME.")
    ] = "easy",
    option: Annotated[
        list[str] | None, typer.Option("--option", help="Of the policy: NAME=VALUE.")
    ] = None,
    actuator: Annotated[
        str | None,
        typer.Option("--actuator", help="local, or ssh for hosts that are other machines."),
    ] = None,
    slurm: Annotated[
        list[str] | None,
        typer.Option(
            "--slurm",
            metavar="JOB",
            help="The nodes of a Slurm allocation: its number or name, or own; may be repeated.",
        ),
    ] = None,
    directory: Annotated[
        Path | None, typer.Option("--directory", help="Where its log and its socket are.")
    ] = None,
    shared: Annotated[
        bool, typer.Option("--shared", help="For all users of this machine, by their shepherds.")
    ] = False,
    listen: Annotated[str, typer.Option("--listen", help="HOST:PORT for TLS as well.")] = "",
    certificate: Annotated[Path | None, typer.Option("--certificate", help="For TLS.")] = None,
    key: Annotated[Path | None, typer.Option("--key", help="Of the certificate.")] = None,
    tokens: Annotated[
        Path | None, typer.Option("--tokens", help="Their file; tokens.json of its directory.")
    ] = None,
    new_token: Annotated[
        str, typer.Option("--new-token", help="Make a token of this name, print it, end.")
    ] = "",
    scope: Annotated[
        list[str] | None, typer.Option("--scope", help=f"{', '.join(GIVEN)}; default read.")
    ] = None,
    expires: Annotated[
        float | None, typer.Option("--expires", min=1, help="Seconds the new token is good for.")
    ] = None,
    revoke: Annotated[
        str, typer.Option("--revoke", help="Make all tokens of this name worthless, end.")
    ] = "",
) -> int:
    """Schedule this user's jobs on hosts until stopped; a new start takes up what runs.

    Example: apples scheduler --hosts hosts.toml --policy equipartition
    """
    if not NAME.fullmatch(name):
        raise UsageError(f"--name {name}: letters, digits, dots, - and _")
    where = (directory or home() / name).absolute()
    known = nws.TokenFile(tokens or where / "tokens.json", scopes=GIVEN)
    if new_token:
        return issue(known, new_token, scope or [Scope.READ], expires)
    if revoke:
        return revoke_tokens(known, revoke)
    tls = tls_of(listen, certificate, key, known.path)
    place = (hosts or Path("hosts.toml")).absolute()
    words = options.settings_of(option, "--option")
    decides = _policy(policy, words)
    watch, terms = None, list[HostTerm]()
    if slurm:
        _check_slurm(actuator, shared, decides)
        actuator = "ssh"
        watch, terms = _allocations(slurm, place if hosts or place.exists() else None, where)
        place = watch.place
    found = read_host_list(place) if watch is None else watch.hosts
    far = _far_hosts(actuator, place, found)
    names = [one.host for one in terms] or [host.name for host in found]
    if shared:
        _share(where, far, decides)
    log = SchedulerLog.open(where)
    claims = HostClaims(home(), where, names)
    began = time.monotonic()
    machine = LiveScheduler(
        log,
        decides,
        names,
        began,
        time.time(),
        lambda: secrets.token_hex(4),
        lost={host.name: "it has not answered yet" for host in far if host.name in names},
        prefer=HostPreference.of(found),
        nodes=known_nodes(found),
        shared=shared,
        name=name,
    )
    for problem in machine.problems[:20]:
        say(f"apples scheduler: {problem}")
    planner = PlannerClient(planner_command(policy, words))
    shepherds = ShepherdExecutor(time.monotonic) if shared else None
    service = SchedulerService(machine, time.monotonic, planner, shepherds)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: service.stop())
    listed = (lambda: found) if watch is None else (lambda: watch.hosts)
    looks = partial(HostLooks.over_ssh, far, listed, time.monotonic) if far or watch else None
    executor = shepherds or JobServiceExecutor(
        name, place, time.monotonic, service.wake, actuator or ACTUATORS[0], looks
    )
    if watch is not None and isinstance(executor, JobServiceExecutor):
        follower = _follower(watch, machine, executor, claims)
        over = [host for host in machine.state.hosts if host not in names]
        terms += [HostTerm(host, 0.0, "its allocation") for host in over]
        follower.take_in(terms, lambda one: machine.report(time.monotonic(), one))
        follower.start(service.hear)
    slaves = load_slaves(found, far, EVERY_SECONDS) if "loads" in decides.looks_at else {}
    with LoadMonitor(slaves, lambda one: service.hear(_load(one)), problem=_say_unmonitored):
        serve(service, executor, where, lambda url: _ready(where, url), tls)
    claims.close()
    os._exit(0)  # orders that are being carried out belong to the jobs: nobody waits for them


def _allocations(
    asked: Sequence[str], own: Path | None, where: Path
) -> tuple[AllocationWatch, list[HostTerm]]:
    """Return what follows allocations, and until when their nodes can be used."""
    where.mkdir(mode=0o700, parents=True, exist_ok=True)
    watch = AllocationWatch(asked, own, where / "hosts.toml")
    terms = watch.look()
    if not terms:
        none = "no allocation of yours that runs is called so"
        raise UsageError(f"--slurm {', '.join(asked)}: {watch.problem or none}")
    return watch, terms


def _check_slurm(actuator: str | None, shared: bool, policy: SchedulingPolicy) -> None:
    """Refuse what nodes of an allocation are not used with."""
    if actuator not in {None, "ssh"}:
        raise UsageError(f"--slurm: its nodes are reached over ssh, not by --actuator {actuator}")
    if shared:
        raise UsageError("--slurm: an allocation is of one user, and --shared of several")
    if "loads" in policy.looks_at:
        raise UsageError("--slurm: a policy that looks at the load of hosts is not built yet here")


def _follower(
    watch: AllocationWatch,
    machine: LiveScheduler,
    executor: JobServiceExecutor,
    claims: HostClaims,
) -> AllocationFollower:
    """Return what has a scheduler know its hosts; of the list those that are in no allocation are over."""

    def joins(host: Host) -> None:
        machine.prefer = HostPreference.of(watch.hosts)
        executor.join(host)

    for host in watch.hosts:
        executor.end(host.name)
    return AllocationFollower(
        watch, joins, executor.end, claims.claim, lambda text: say(f"apples scheduler: {text}")
    )


def _say_unmonitored(machine: str, problem: str) -> None:
    if problem:
        say(f"apples scheduler: {machine}: its load is not known: {problem}")


def _load(one: NodeSnapshot) -> HostLoad:
    return HostLoad(one.host, one.cpus, one.wanting, tuple(one.parts.items()), one.errors)


def _far_hosts(actuator: str | None, place: Path, found: HostList) -> tuple[Host, ...]:
    """Return the hosts of the list that are other machines under an actuator."""
    if actuator not in {None, *ACTUATORS}:
        raise UsageError(f"--actuator {actuator}: the scheduler knows {' and '.join(ACTUATORS)}")
    if actuator is None and (others := remote_hosts(found)):
        raise UsageError(
            f"{place}: {listed(host.name for host in others)}: other machines: say --actuator ssh "
            "(or --actuator local to play them on this one)"
        )
    far = tuple(host for host in found if not is_here(host)) if actuator == "ssh" else ()
    for host in far:
        reach(host, found)  # one that must not reach ssh is refused now
    return far


def _share(where: Path, far: Sequence[Host], policy: SchedulingPolicy) -> None:
    """Let others reach the socket in a scheduler's directory, and nothing else there."""
    if far:
        raise UsageError("--shared: hosts that are other machines are not built yet here")
    if (
        "loads" in policy.looks_at
    ):  # whose a process is, says its environment, which is its user's alone
        raise UsageError(
            "--shared: a policy that looks at the load of hosts is not built yet here"
        )
    where.mkdir(mode=0o711, parents=True, exist_ok=True)
    where.chmod(0o711)
    for above in where.parents:
        if not above.stat().st_mode & 0o001:
            raise UsageError(f"--shared: others cannot reach {where}: {above} is closed to them")


def _ready(where: Path, url: str) -> None:
    say(f"apples scheduler: ready at {where / SOCKET}{' and ' + url if url else ''}")


def _policy(name: str, values: Mapping[str, str]) -> SchedulingPolicy:
    if name == SHARES:
        raise UsageError(
            f"--policy {SHARES}: puts two jobs on one host, which is not built yet here"
        )
    return load_policy(name, values, others=())


__all__: Sequence[str] = ["scheduler"]
