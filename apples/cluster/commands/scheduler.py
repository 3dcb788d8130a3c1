"""``apples scheduler``: the live scheduler of this user's hosts."""

from __future__ import annotations

import secrets
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import click

import nws
from apples.cluster.access import GIVEN, Scope
from apples.cluster.allocations import MAX_HOSTS, AllocationFollower, AllocationWatch
from apples.cluster.commands import user_runner
from apples.cluster.executor import JobServiceExecutor, has_shared
from apples.cluster.host_checks import HostLooks
from apples.cluster.host_claims import HostClaims
from apples.cluster.host_preference import HostPreference
from apples.cluster.listener import SOCKET, serve
from apples.cluster.log import SchedulerLog
from apples.cluster.orders import HostLease, HostLoad, Report
from apples.cluster.planner import PlannerClient, planner_command
from apples.cluster.replay_verb import replay_settings
from apples.cluster.scheduler import LiveScheduler
from apples.cluster.service import NAME, SchedulerService
from apples.cluster.topology_daemons import NOBODY, TopologyDaemons
from apples.cluster.user_runners import JobRunnerExecutor
from apples.errors import ApplesError, LaunchError, UsageError
from apples.io.tls import tls_of
from apples.jobs import children
from apples.jobs.scheduler_client import home
from apples.jobs.store import StoredJob, folder
from apples.launch.remote import ssh
from apples.launch.remote.addresses import is_here, remote_hosts
from apples.resources import Host, HostList, read_host_list
from apples.scheduling.guard import GuardedPolicy
from apples.scheduling.loading import is_of_user, load_policy
from apples.scheduling.loops import can_compile
from apples.scheduling.policies import POLICIES, SlowdownDriven
from apples.scheduling.policies.conservative import Conservative
from apples.scheduling.policy import SchedulingPolicy
from apples.scheduling.profile import compile_plan
from apples.ui import options
from apples.ui.command_line import command, say
from apples.ui.parameters import FILE, Excludes, Only, Requires, number, option
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


ISSUING = ("--name", "--directory", "--tokens")
RULES = (
    Excludes("--run-my-jobs", "--new-token", "--revoke"),
    Only("--run-my-jobs", "--hosts", "--scheduler"),
    Only("--new-token", *ISSUING, "--scope", "--expires"),
    Only("--revoke", *ISSUING),
    Requires("--scheduler", "--run-my-jobs"),
    Requires("--scope", "--new-token"),
    Requires("--expires", "--new-token"),
    Requires("--tokens", "--listen", "--new-token", "--revoke"),
    Requires("--certificate", "--listen"),
    Requires("--key", "--listen"),
    Requires("--reach", "--slurm"),
    Excludes("--slurm", "--shared"),  # an allocation belongs to one user
)
"""A call either serves, or runs this user's jobs, or changes tokens."""


@command(rules=RULES)
@options.hosts_option
@option(
    "--name",
    metavar="NAME",
    default="local",
    help="Name of the scheduler: the first part of its jobs' ids.",
)
@option(
    "--policy", metavar="NAME", default="easy", help=f"{', '.join(POLICIES)}, or FILE.py:NAME."
)
@option("--option", metavar="NAME=VALUE", multiple=True, help="An option of the policy.")
@option("--actuator", metavar="NAME", help="local, or ssh for hosts that are other machines.")
@option(
    "--slurm",
    multiple=True,
    metavar="JOB",
    help="Use the nodes of a Slurm allocation: its number, its name, or 'own'; may be repeated.",
)
@option(
    "--reach",
    metavar="NAME",
    default=REACHES[0],
    help="How nodes of --slurm are reached: ssh or srun.",
)
@option("--directory", metavar="FOLDER", type=FILE, help="Directory of its log and its socket.")
@option(
    "--shared",
    is_flag=True,
    help="Serve all users of this machine; each starts a per-user job runner.",
)
@option("--listen", metavar="HOST:PORT", default="", help="Also listen on HOST:PORT, with TLS.")
@option("--certificate", type=FILE, help="File of the TLS certificate.")
@option("--key", type=FILE, help="File of the certificate's private key.")
@option("--tokens", type=FILE, help="File of the tokens; default: tokens.json in the directory.")
@option(
    "--new-token", metavar="NAME", default="", help="Make a token of this name, print it and exit."
)
@option("--scope", metavar="SCOPE", multiple=True, help=f"{', '.join(GIVEN)}; default read.")
@option(
    "--expires",
    metavar="SECONDS",
    type=number(1),
    help="Seconds for which the new token is valid.",
)
@option("--revoke", metavar="NAME", default="", help="Revoke all tokens of this name and exit.")
@option(
    "--run-my-jobs",
    is_flag=True,
    help="Run this user's jobs for a scheduler with --shared: the per-user job runner.",
)
@option(
    "--scheduler",
    "runs_for",
    metavar="FOLDER",
    help="With --run-my-jobs: the scheduler's directory; $APPLES_SCHEDULER, or the only one.",
)
def scheduler(
    hosts: Path | None,
    name: str,
    policy: str,
    option: tuple[str, ...],
    actuator: str | None,
    slurm: tuple[str, ...],
    reach: str,
    directory: Path | None,
    shared: bool,
    listen: str,
    certificate: Path | None,
    key: Path | None,
    tokens: Path | None,
    new_token: str,
    scope: tuple[str, ...],
    expires: float | None,
    revoke: str,
    run_my_jobs: bool,
    runs_for: str | None,
) -> int:
    """Schedule this user's jobs on hosts until stopped; a restart continues the running jobs.

    Example: apples scheduler --hosts hosts.toml --policy equipartition;
    apples scheduler --run-my-jobs --scheduler /var/lib/apples/lab
    """
    if run_my_jobs:
        return user_runner.run_my_jobs(hosts, runs_for)
    if not NAME.fullmatch(name):
        raise UsageError(
            f"--name {name}: must be letters, digits, dots, - and _",
            code="name-invalid",
            option="--name",
            value=name,
        )
    where = (directory or home() / name).absolute()
    known = nws.TokenFile(tokens or where / "tokens.json", scopes=GIVEN)
    if new_token or revoke:
        context = click.get_current_context()
        Excludes("--tokens", "--directory", "--name").check(context.command, context)
        if new_token:
            return issue(known, new_token, scope or [Scope.READ], expires)
        return revoke_tokens(known, revoke)
    tls = tls_of(listen, certificate, key, known.path)
    place = (hosts or Path("hosts.toml")).absolute()
    words = options.settings_of(option, "--option")
    decides = _policy_of(policy, words)
    log, watch, terms = None, None, list[HostLease]()
    _check_slurm(slurm, reach, actuator)
    if slurm:
        # Lock the directory before writing the host list of the nodes: another scheduler may use that file.
        log = SchedulerLog.open(where)
        actuator = "ssh"
        own = place if hosts or place.exists() else None
        watch, terms = _allocations(slurm, own, where, steps=reach == "srun")
        place = watch.place
    found = read_host_list(place) if watch is None else watch.hosts
    far = _far_hosts(actuator, place, found)
    names = [one.host for one in terms] if watch else [host.name for host in found]
    daemons = _daemons(
        decides, names, far, shared, (lambda: found) if watch is None else lambda: watch.hosts
    )
    if shared:
        _share(where, far, decides)
    log = log or SchedulerLog.open(where)
    places = [] if daemons is None else daemons.places()
    claims = HostClaims(home(), where, [*names, *places])
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
        most_hosts=None if watch is None else MAX_HOSTS,
        cpus=0 if daemons is None else daemons.cpus,
        started_with={} if slurm else replay_settings(policy, words, place),
    )
    for problem in machine.problems[:20]:
        say(f"apples scheduler: {problem}")
    planner = None if machine.cpus else PlannerClient(planner_command(policy, words))
    job_runners = JobRunnerExecutor(time.monotonic) if shared else None
    service = SchedulerService(
        machine, time.monotonic, planner, job_runners, partial(_without_daemon, names, daemons)
    )
    _prepare_policy(decides, service)
    for stop_signal in (signal.SIGTERM, signal.SIGINT):
        signal.signal(stop_signal, lambda *_: service.stop())
    looks = _looks(found, far, watch, daemons)
    executor = job_runners or _prepared(
        JobServiceExecutor(
            name, place, time.monotonic, service.wake, actuator or ACTUATORS[0], looks, daemons
        )
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
    return children.end_process()


def _policy_of(name: str, options: Mapping[str, str]) -> SchedulingPolicy:
    """Return the policy of a name; a user's own policy runs in a child process."""
    return GuardedPolicy(name, options) if is_of_user(name) else load_policy(name, options)


def _prepare_policy(policy: SchedulingPolicy, service: SchedulerService) -> None:
    """Make a policy ready for the deciding thread, which must not wait for it.

    An answer of a guarded policy wakes the thread. The loops of conservative backfilling are compiled here.
    """
    if isinstance(policy, GuardedPolicy):
        policy.on_answer = service.wake
    if isinstance(policy, Conservative) and can_compile():
        say("apples scheduler: loads compiled backfilling; the first time takes about 15 s")
        compile_plan()


def _prepared(executor: JobServiceExecutor) -> JobServiceExecutor:
    """Return an executor after the start of its fork server, which loads its modules."""
    children.start()
    return executor


def _lost(
    far: Sequence[Host], names: Sequence[str], daemons: TopologyDaemons | None
) -> Mapping[str, str]:
    """Return the hosts that get no job at first, with the reason."""
    if daemons is not None and daemons.cpus:
        return daemons.silent
    return {host.name: "it has not answered yet" for host in far if host.name in names}


def _looks(
    found: HostList,
    far: Sequence[Host],
    watch: AllocationWatch | None,
    daemons: TopologyDaemons | None,
) -> Callable[[Callable[[Report], None]], HostLooks] | None:
    """Return the factory of the probes of hosts; None: no host needs a probe."""
    if daemons is not None:
        return partial(HostLooks.by_daemons, tuple(found), daemons, time.monotonic)
    listed = (lambda: found) if watch is None else (lambda: watch.hosts)
    return partial(HostLooks.over_ssh, far, listed, time.monotonic) if far or watch else None


def _allocations(
    asked: Sequence[str], own: Path | None, where: Path, *, steps: bool
) -> tuple[AllocationWatch, list[HostLease]]:
    """Return the watch of the allocations, and the leases of their nodes."""
    watch = AllocationWatch(asked, own, where / "hosts.toml", steps=steps)
    terms = watch.look()
    if not terms:
        none = "no allocation of yours that runs is called so"
        say(
            f"apples scheduler: --slurm {', '.join(asked)}: {watch.problem or none}: no hosts until nodes "
            "join"
        )
    return watch, terms


def _check_slurm(slurm: Sequence[str], reach: str, actuator: str | None) -> None:
    """Raise `UsageError` for an unknown ``--reach``, and for an actuator that cannot use an allocation."""
    if reach not in REACHES:
        raise UsageError(
            f"--reach {reach}: unknown; known: {' and '.join(REACHES)}",
            code="value-unknown",
            option="--reach",
            value=reach,
            known=list(REACHES),
        )
    if slurm and actuator not in {None, "ssh"}:
        raise UsageError(
            f"--slurm: its nodes are reached over ssh or by --reach srun, not by --actuator {actuator}",
            code="option-conflict",
            options=["--slurm", "--actuator"],
            value=actuator,
        )


def _follower(
    watch: AllocationWatch,
    machine: LiveScheduler,
    executor: JobServiceExecutor,
    claims: HostClaims,
    monitor: LoadMonitor | None,
) -> AllocationFollower:
    """Return the follower that passes allocated hosts to a scheduler; hosts outside of allocations are over.

    If the policy reads loads, a host is monitored from when it joins until it is over.
    """

    def command(name: str) -> list[str]:
        hosts = watch.hosts  # the way to reach the host may have changed
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
    terms: Sequence[HostLease],
    service: SchedulerService,
) -> None:
    """Pass the present leases to a scheduler, and from now on every change."""
    there = {one.host for one in terms}
    over = [host for host in machine.state.hosts if host not in there]
    begun = [*terms, *(HostLease(host, 0.0, "its allocation") for host in over)]
    follower.take_in(begun, lambda one: machine.report(time.monotonic(), one))
    follower.start(service.hear)


def _say_unmonitored(machine: str, problem: str) -> None:
    if problem:
        say(f"apples scheduler: {machine}: its load is not known: {problem}")


def _load(one: NodeSnapshot) -> HostLoad:
    return HostLoad(one.host, one.cpus, one.wanting, tuple(one.parts.items()), one.errors)


def _far_hosts(actuator: str | None, place: Path, found: HostList) -> tuple[Host, ...]:
    """Return the hosts of the list that are other machines for this actuator."""
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
            "(or --actuator local to emulate them on this machine)",
            code="option-missing",
            option="--actuator",
            file=place,
            hosts=[host.name for host in others],
        )
    far = tuple(host for host in found if not is_here(host)) if actuator == "ssh" else ()
    for host in far:
        ssh.reach(host, found)  # rejects a host that must not be reached over ssh
    return far


def _share(where: Path, far: Sequence[Host], policy: SchedulingPolicy) -> None:
    """Let other users reach the socket in a scheduler's directory, and no other file there."""
    if far:
        raise UsageError(
            "--shared: hosts on other machines are not supported",
            code="option-not-applicable",
            option="--shared",
            hosts=[host.name for host in far],
        )
    if (
        "loads" in policy.looks_at
    ):  # the load monitor reads the environment of processes, which only their own user can read
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
    policy: SchedulingPolicy,
    names: Sequence[str],
    far: Sequence[Host],
    shared: bool,
    listed: Callable[[], HostList],
) -> TopologyDaemons | None:
    """Return the topology daemons of the hosts; None: no host has a daemon, and no policy shares hosts."""
    hosts = listed()
    names_far = [host.name for host in far]
    if not isinstance(policy, SlowdownDriven):
        sockets = {host.name: host.topologyd for host in hosts}
        if shared or not any(sockets.values()):
            return None
        return TopologyDaemons(sockets, 0, 0.0, NOBODY, listed, names_far, _may_have_cpus)
    if shared:
        raise UsageError(
            "--policy sd: --shared: the daemon of a host gives its CPUs to jobs of one user; start the scheduler "
            "without --shared, or with --policy easy",
            code="option-not-applicable",
            option="--policy",
            value="sd",
        )
    used = replace(hosts, hosts=tuple(host for host in hosts if host.name in names))
    if not used.hosts:
        raise LaunchError(
            "--policy sd: no host has joined, so the CPUs per host are unknown; start the scheduler after the "
            "allocation has begun",
            code="no-hosts",
        )
    found = TopologyDaemons.of(used, policy.sharing_factor, names_far, listed, _may_have_cpus)
    policy.share(found.cpus)  # rejects hosts with too few CPUs for a guest
    return found


def _without_daemon(names: Sequence[str], daemons: TopologyDaemons | None) -> Sequence[str]:
    """Return the hosts that cannot meet a requirement; daemons that start later are not used."""
    if daemons is not None:
        return daemons.without()
    return names or ["hosts that have not joined yet"]


def _may_have_cpus(job: str) -> bool:
    """Whether an attempt may have CPUs of a topology daemon."""
    with suppress(ApplesError, OSError):  # its folder may be gone
        return has_shared(StoredJob(folder() / job))
    return True


__all__: Sequence[str] = ["scheduler"]
