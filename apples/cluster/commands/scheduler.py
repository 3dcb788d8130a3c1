"""``apples scheduler``: the live scheduler of this user's hosts."""

from __future__ import annotations

import os
import secrets
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

import nws
from apples.cluster.access import GIVEN, Scope
from apples.cluster.allocations import MOST_HOSTS, AllocationFollower, AllocationWatch
from apples.cluster.executor import JobServiceExecutor
from apples.cluster.host_checks import HostLooks
from apples.cluster.host_claims import HostClaims
from apples.cluster.host_preference import HostPreference
from apples.cluster.listener import SOCKET, serve
from apples.cluster.log import SchedulerLog
from apples.cluster.orders import HostLoad, HostTerm, Report
from apples.cluster.planner import PlannerClient, planner_command
from apples.cluster.scheduler import LiveScheduler
from apples.cluster.service import NAME, SchedulerService
from apples.cluster.topology_daemons import TopologyDaemons
from apples.cluster.user_runners import ShepherdExecutor
from apples.errors import UsageError
from apples.io.tls import tls_of
from apples.jobs.scheduler_client import home
from apples.launch.remote import ssh
from apples.launch.remote.addresses import is_here, remote_hosts
from apples.resources import Host, HostList, read_host_list
from apples.scheduling.loading import load_policy
from apples.scheduling.policies import POLICIES, SlowdownDriven
from apples.scheduling.policy import SchedulingPolicy
from apples.ui import options
from apples.ui.command_line import say
from apples.ui.tokens import issue
from apples.ui.tokens import revoke as revoke_tokens
from apples.ui.units import listed
from apples.weather.load.monitor import LoadMonitor
from apples.weather.load.nodes import known_nodes
from apples.weather.load.remote import load_slave, load_slaves
from apples.weather.load.reporter import EVERY_SECONDS
from apples.weather.load.snapshot import NodeSnapshot

ACTUATORS = ("local", "ssh")
REACHES = ("ssh", "srun")


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
    reach: Annotated[
        str, typer.Option("--reach", help="How nodes of --slurm are reached: ssh or srun.")
    ] = REACHES[0],
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
        raise UsageError(
            f"--name {name}: must be letters, digits, dots, - and _",
            code="name-invalid",
            option="--name",
            value=name,
        )
    where = (directory or home() / name).absolute()
    known = nws.TokenFile(tokens or where / "tokens.json", scopes=GIVEN)
    if new_token:
        return issue(known, new_token, scope or [Scope.READ], expires)
    if revoke:
        return revoke_tokens(known, revoke)
    tls = tls_of(listen, certificate, key, known.path)
    place = (hosts or Path("hosts.toml")).absolute()
    words = options.settings_of(option, "--option")
    decides = load_policy(policy, words)
    log, watch, terms = None, None, list[HostTerm]()
    _check_slurm(slurm, reach, actuator, shared)
    if slurm:
        # Its lock comes before the host list of the nodes is written: another scheduler may run on that.
        log = SchedulerLog.open(where)
        actuator = "ssh"
        own = place if hosts or place.exists() else None
        watch, terms = _allocations(slurm, own, where, steps=reach == "srun")
        place = watch.place
    found = read_host_list(place) if watch is None else watch.hosts
    far = _far_hosts(actuator, place, found)
    names = [one.host for one in terms] if watch else [host.name for host in found]
    daemons = _daemons(decides, found, bool(far or slurm), shared)
    if shared:
        _share(where, far, decides)
    log = log or SchedulerLog.open(where)
    sockets = [] if daemons is None else daemons.sockets.values()
    claims = HostClaims(home(), where, [*names, *(str(Path(one).resolve()) for one in sockets)])
    began = time.monotonic()
    machine = LiveScheduler(
        log,
        decides,
        names,
        began,
        time.time(),
        lambda: secrets.token_hex(4),
        lost=_lost(far, names, daemons),
        prefer=HostPreference.of(found),
        nodes=known_nodes(found),
        shared=shared,
        name=name,
        most_hosts=None if watch is None else MOST_HOSTS,
        cpus=0 if daemons is None else daemons.cpus,
    )
    for problem in machine.problems[:20]:
        say(f"apples scheduler: {problem}")
    planner = PlannerClient(planner_command(policy, words)) if daemons is None else None
    shepherds = ShepherdExecutor(time.monotonic) if shared else None
    service = SchedulerService(machine, time.monotonic, planner, shepherds)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: service.stop())
    looks = _looks(found, far, watch, daemons)
    executor = shepherds or JobServiceExecutor(
        name, place, time.monotonic, service.wake, actuator or ACTUATORS[0], looks, daemons
    )
    monitored = "loads" in decides.looks_at
    slaves = load_slaves(found, far, EVERY_SECONDS) if monitored and watch is None else {}
    with LoadMonitor(
        slaves, lambda one: service.hear(_load(one)), problem=_say_unmonitored
    ) as monitor:
        if watch is not None and isinstance(executor, JobServiceExecutor):
            follower = _follower(watch, machine, executor, claims, monitor if monitored else None)
            _follow(follower, machine, terms, service)
        serve(service, executor, where, lambda url: _ready(where, url), tls)
    claims.close()
    os._exit(0)  # orders that are being carried out belong to the jobs: nobody waits for them


def _lost(
    far: Sequence[Host], names: Sequence[str], daemons: TopologyDaemons | None
) -> Mapping[str, str]:
    """Return the hosts that get no job at first, and why."""
    if daemons is not None:
        return daemons.silent
    return {host.name: "it has not answered yet" for host in far if host.name in names}


def _looks(
    found: HostList,
    far: Sequence[Host],
    watch: AllocationWatch | None,
    daemons: TopologyDaemons | None,
) -> Callable[[Callable[[Report], None]], HostLooks] | None:
    """Return what makes what looks at the hosts; None: none is looked at."""
    if daemons is not None:  # its hosts are parts of this machine
        return partial(HostLooks.by_daemons, tuple(found), daemons, time.monotonic)
    listed = (lambda: found) if watch is None else (lambda: watch.hosts)
    return partial(HostLooks.over_ssh, far, listed, time.monotonic) if far or watch else None


def _allocations(
    asked: Sequence[str], own: Path | None, where: Path, *, steps: bool
) -> tuple[AllocationWatch, list[HostTerm]]:
    """Return what follows allocations, and until when their nodes can be used."""
    watch = AllocationWatch(asked, own, where / "hosts.toml", steps=steps)
    terms = watch.look()
    if not terms:
        none = "no allocation of yours that runs is called so"
        say(
            f"apples scheduler: --slurm {', '.join(asked)}: {watch.problem or none}: there are no hosts until "
            "nodes join"
        )
    return watch, terms


def _check_slurm(
    slurm: Sequence[str] | None, reach: str, actuator: str | None, shared: bool
) -> None:
    """Refuse what nodes of an allocation are not used with, and what is for these alone."""
    if reach not in REACHES or (reach != REACHES[0] and not slurm):
        raise UsageError(
            f"--reach {reach}: ssh, or srun for the nodes of --slurm",
            code="option-not-applicable",
            option="--reach",
            value=reach,
        )
    if not slurm:
        return
    if actuator not in {None, "ssh"}:
        raise UsageError(
            f"--slurm: its nodes are reached over ssh or by --reach srun, not by --actuator {actuator}",
            code="option-conflict",
            options=["--slurm", "--actuator"],
            value=actuator,
        )
    if shared:
        raise UsageError(
            "--slurm and --shared: an allocation belongs to one user; use one of them",
            code="option-conflict",
            options=["--slurm", "--shared"],
        )


def _follower(
    watch: AllocationWatch,
    machine: LiveScheduler,
    executor: JobServiceExecutor,
    claims: HostClaims,
    monitor: LoadMonitor | None,
) -> AllocationFollower:
    """Return what has a scheduler know its hosts; of the list those that are in no allocation are over.

    Hosts are monitored from when they join until they are over, where the policy looks at their load.
    """

    def command(name: str) -> list[str]:
        hosts = watch.hosts  # how it is reached may be new
        return load_slave(hosts, hosts[name], EVERY_SECONDS)

    def listed(hosts: HostList) -> None:
        machine.prefer, machine.nodes = HostPreference.of(hosts), known_nodes(hosts)

    def joins(host: Host) -> None:
        executor.join(host)
        if monitor is not None:
            monitor.join(host.name, lambda: command(host.name))

    def ends(host: str) -> None:
        executor.end(host)
        if monitor is not None:
            monitor.leave(host)

    for host in watch.hosts:
        executor.end(host.name)
    return AllocationFollower(
        watch, joins, ends, claims.claim, lambda text: say(f"apples scheduler: {text}"), listed
    )


def _follow(
    follower: AllocationFollower,
    machine: LiveScheduler,
    terms: Sequence[HostTerm],
    service: SchedulerService,
) -> None:
    """Have a scheduler take in the hosts that there are, and be told of others from now on."""
    there = {one.host for one in terms}
    over = [host for host in machine.state.hosts if host not in there]
    begun = [*terms, *(HostTerm(host, 0.0, "its allocation") for host in over)]
    follower.take_in(begun, lambda one: machine.report(time.monotonic(), one))
    follower.start(service.hear)


def _say_unmonitored(machine: str, problem: str) -> None:
    if problem:
        say(f"apples scheduler: {machine}: its load is not known: {problem}")


def _load(one: NodeSnapshot) -> HostLoad:
    return HostLoad(one.host, one.cpus, one.wanting, tuple(one.parts.items()), one.errors)


def _far_hosts(actuator: str | None, place: Path, found: HostList) -> tuple[Host, ...]:
    """Return the hosts of the list that are other machines under an actuator."""
    if actuator not in {None, *ACTUATORS}:
        raise UsageError(
            f"--actuator {actuator}: the scheduler knows {' and '.join(ACTUATORS)}",
            code="launcher-unknown",
            option="--actuator",
            value=actuator,
            known=list(ACTUATORS),
        )
    if actuator is None and (others := remote_hosts(found)):
        raise UsageError(
            f"{place}: {listed(host.name for host in others)}: other machines: use --actuator ssh "
            "(or --actuator local to play them on this one)",
            code="option-missing",
            option="--actuator",
            file=place,
            hosts=[host.name for host in others],
        )
    far = tuple(host for host in found if not is_here(host)) if actuator == "ssh" else ()
    for host in far:
        ssh.reach(host, found)  # one that must not reach ssh is refused now
    return far


def _share(where: Path, far: Sequence[Host], policy: SchedulingPolicy) -> None:
    """Let others reach the socket in a scheduler's directory, and nothing else there."""
    if far:
        raise UsageError(
            "--shared: hosts on other machines are not supported",
            code="option-not-applicable",
            option="--shared",
            hosts=[host.name for host in far],
        )
    if (
        "loads" in policy.looks_at
    ):  # whose a process is, says its environment, which is its user's alone
        raise UsageError(
            "--shared: a policy that uses the load of hosts is not supported",
            code="option-not-applicable",
            option="--shared",
        )
    where.mkdir(mode=0o711, parents=True, exist_ok=True)
    where.chmod(0o711)
    for above in where.parents:
        if not above.stat().st_mode & 0o001:
            raise UsageError(
                f"--shared: others cannot reach {where}: {above} is closed to them",
                code="permission-denied",
                option="--shared",
                file=above,
            )


def _ready(where: Path, url: str) -> None:
    say(f"apples scheduler: ready at {where / SOCKET}{' and ' + url if url else ''}")


def _daemons(
    policy: SchedulingPolicy, hosts: HostList, elsewhere: bool, shared: bool
) -> TopologyDaemons | None:
    """Return the topology daemons of hosts that two jobs may share under a policy; None: none may."""
    if not isinstance(policy, SlowdownDriven):
        return None
    if elsewhere or shared:
        what = "--shared" if shared else "hosts that are other machines"
        raise UsageError(
            f"--policy sd: {what}: its jobs share hosts that are parts of this machine, each with a topology "
            "daemon; others are not asked for CPUs yet",
            code="option-not-applicable",
            option="--policy",
            value="sd",
        )
    found = TopologyDaemons.of(hosts, policy.sharing_factor)
    policy.share(found.cpus)  # refuses hosts of which no guest could have a CPU
    return found


__all__: Sequence[str] = ["scheduler"]
