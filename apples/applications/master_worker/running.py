"""`run_master_worker`: from a file and a host list to a master, its workers and the verified total.

The agent starts the master and the workers over the connections that parameter sweeps use, reads how far the
master is, and has workers join or leave where what they were seen to do calls for it. What it starts ends with it.
"""

from __future__ import annotations

import hashlib
import itertools
import queue
import random
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

import hat
from apples.applications.master_worker.chunks import MOST_UNITS
from apples.applications.master_worker.document import MasterWorkerFile, MasterWorkerProgram
from apples.applications.master_worker.given_hosts import HostGiver, RunStanding
from apples.applications.master_worker.node import LEAVE, MASTERLESS, PORT, PROGRESS, host_of
from apples.applications.master_worker.rates import MasterChoice, WorkerRates, choose
from apples.applications.parameter_sweep.document import Value
from apples.applications.parameter_sweep.running import recorded_weather
from apples.applications.workers import (
    HostWorkers,
    WorkerConnection,
    ending,
    host_workers,
    last_line,
    result_of,
)
from apples.errors import (
    ApplicationError,
    InfeasibleError,
    LaunchError,
    UsageError,
    VerificationError,
    within,
)
from apples.launch.events import Talk, unheard
from apples.launch.remote import bootstrap, ssh
from apples.launch.remote.addresses import numbers, remote_hosts
from apples.launch.remote.preflight import address_towards
from apples.resources import Host, HostList, read_host_list
from apples.ui.units import counted
from apples.weather.conditions import Conditions

SCHEMA = "apples.master-worker/1"
NODE = "apples.applications.master_worker.node:main"
FOLDERS = "~/.cache/apples/master-worker"
MASTER = "master"
START_SECONDS = 30.0
"""For the master to say where it listens."""
LOOK_SECONDS = 0.25
END_SECONDS = 2.0
"""For the master to end, after all workers have."""
# Two sets can have the same rate. If all workers outside the newest best set left, all would leave
# in turn.
GAIN, LITTLE = 0.1, 0.02
"""Workers join where the rate rises by so much; one leaves whose leaving costs no more than so little."""
ASK_SECONDS, LONGEST_ASK_SECONDS = 60.0, 3600.0
"""After a host was given back no more are asked for so long; then twice as long each time."""
STANDING_SECONDS = 1.0
"""How often who gives the hosts is told how far the run is."""
SAMPLED, OF_THE_RUN = 8, 0.1
"""Units of a sample, and the part of the run's time that doing them again may take."""
MOST_CHUNK = 1 << 22
"""Bytes of units that are handed out at a time."""
LONGEST_FILE = 1 << 20


@dataclass(frozen=True)
class MasterWorkerSpec:
    """What to run, and where.

    Attributes
    ----------
    file, hosts
        The files.
    settings
        Parameters that are other than in the file, as text.
    weather
        ``static``, or a recorded weather file.
    verify
        ``sample``, ``full`` or ``none``.
    workers, master
        Hosts that are the workers, and the master, whatever would be chosen; empty: the best. They stay.
    on
        Hosts that somebody has chosen already: the run uses no others, unless it is given more. Empty: any.
    actuator
        ``local``: all hosts are parts of this machine; ``ssh``: those that are not this machine are others; empty:
        as the host list says.
    """

    file: Path = Path("master-worker.toml")
    hosts: Path = Path("hosts.toml")
    settings: Mapping[str, str] = field(default_factory=dict)
    weather: str = "static"
    verify: str = "sample"
    workers: tuple[str, ...] = ()
    master: str = ""
    on: tuple[str, ...] = ()
    actuator: str = ""


@dataclass
class MasterWorkerOutcome:
    """What came of it.

    Attributes
    ----------
    seconds, service_seconds
        From the first worker's hello to the last result; processor seconds of the master for a unit.
    total
        What `combine` made of the results.
    hosts
        By host: how many units it did.
    joined, left, lost
        Hosts that joined after the beginning, that were let go, and that were lost, with the reason.
    verified
        How many units were done again here and came to the same; all with ``full``.
    failed
        Units that were given up, with the reason; `total` is without them.
    """

    seconds: float = 0.0
    service_seconds: float = 0.0
    total: Any = None
    hosts: dict[str, int] = field(default_factory=dict)
    joined: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    lost: dict[str, str] = field(default_factory=dict)
    verified: int = 0
    failed: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class MasterWorkerResult:
    """What was planned, and what came of it; `outcome` is None where nothing was started."""

    name: str
    units: int
    choice: MasterChoice
    choices: tuple[MasterChoice, ...]
    assumed: tuple[str, ...]
    outcome: MasterWorkerOutcome | None = None

    def document(self) -> dict[str, Any]:
        """Return the JSON document."""
        done = self.outcome
        return {
            "schema": SCHEMA,
            "name": self.name,
            "units": self.units,
            "master": self.choice.master,
            "workers": dict(self.choice.workers),
            "predicted_rate": self.choice.rate,
            "predicted_seconds": self.units / self.choice.rate,
            "bound": self.choice.bound,
            "masters": [
                {"host": each.master, "rate": each.rate, "bound": each.bound, "workers": sorted(each.workers)}
                for each in self.choices
            ],
            "assumed": list(self.assumed),
            "execution": None if done is None else {
                "measured_seconds": done.seconds,
                "measured_rate": self.units / done.seconds if done.seconds else 0.0,
                "service_seconds": done.service_seconds,
                "hosts": done.hosts,
                "joined": done.joined,
                "left": done.left,
                "lost": done.lost,
                "verified": done.verified,
                "failed": [{"unit": unit, "reason": why} for unit, why in done.failed.items()],
                "result": done.total,
            },
        }  # fmt: skip

    def check(self) -> None:
        """Raise what a user must hear of units that were given up.

        Raises
        ------
        ApplicationError
            Units have failed, or ended their workers, as often as they may.
        """
        if failed := self.outcome.failed if self.outcome else {}:
            unit, why = next(iter(failed.items()))
            more = f" ({counted(len(failed) - 1, 'more unit')} failed)" if len(failed) > 1 else ""
            raise ApplicationError(
                f"unit {unit} {why}{more}",
                code="unit-failed",
                unit=unit,
                reason=why,
                failed=len(failed),
            )


@dataclass(frozen=True)
class _Job:
    """What is to be run: `usable` are the hosts that it has, `working` those that might work if it had them."""

    spec: MasterWorkerSpec
    document: MasterWorkerFile
    parameters: Mapping[str, Value]
    count: int
    rates: WorkerRates
    usable: tuple[Host, ...]
    working: tuple[Host, ...]
    choice: MasterChoice
    choices: tuple[MasterChoice, ...]
    program: Mapping[str, Path]

    @property
    def hosts(self) -> HostList:
        return self.rates.conditions.hosts

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(host.name for host in self.hosts)

    def result(self, outcome: MasterWorkerOutcome | None = None) -> MasterWorkerResult:
        return MasterWorkerResult(
            self.document.name, self.count, self.choice, self.choices, self.rates.assumed, outcome
        )


def plan_master_worker(spec: MasterWorkerSpec) -> MasterWorkerResult:
    """Return the master and the workers that would do most; nothing is started.

    Raises
    ------
    hat.DocumentError, UsageError
        What is wrong in the files.
    """
    return _prepare(spec).result()


def run_master_worker(
    spec: MasterWorkerSpec,
    talk: Talk = unheard,
    began: Callable[[MasterWorkerResult], None] | None = None,
    giver: HostGiver | None = None,
) -> MasterWorkerResult:
    """Return what all units come to, verified; without those that were given up (see `MasterWorkerResult.check`).

    Parameters
    ----------
    began
        Is told the plan when nothing has been started yet.
    giver
        Gives the run its hosts, and is told where it is.

    Raises
    ------
    hat.DocumentError, UsageError
        What is wrong in the files.
    InfeasibleError
        None of the hosts that it is given may be the master, or work.
    LaunchError
        The master, or the last worker, cannot be reached or is lost.
    ApplicationError
        The program fails: ten units as often as they may, or what it makes of them.
    VerificationError
        A unit came to something else when it was done again.
    """
    job = _prepare(spec)
    if began:
        began(job.result())
    with ExitStack() as stack:
        workers = stack.enter_context(host_workers())
        workers.hosts = job.hosts
        outcome = _Run(job, workers, stack, talk, giver).run()
    return job.result(outcome)


def _prepare(spec: MasterWorkerSpec) -> _Job:
    if spec.verify not in ("sample", "full", "none"):
        raise UsageError(
            f"--verify '{spec.verify}': known are sample, full, none",
            code="value-unknown",
            option="--verify",
            value=spec.verify,
            known=["sample", "full", "none"],
        )
    program = MasterWorkerProgram.read(spec.file, spec.settings)
    document, hosts = program.document, _reached(read_host_list(spec.hosts), spec.actuator)
    with within(spec.file):
        usable = _named(hosts, document.hosts, "hosts") or tuple(hosts)
        masters = _named(hosts, document.masters, "masters") or usable
        working = usable
        usable, masters = _of(usable, spec.on, "hosts"), _of(masters, spec.on, "masters")
    rates = WorkerRates(program.costs, Conditions(hosts, recorded_weather(spec.weather, hosts)))
    choices = choose(rates, usable, masters)
    if spec.master:
        (only,) = _named(hosts, [spec.master], "--master")
        choices = choose(rates, usable, (only,))
    if spec.workers:
        some = _named(hosts, spec.workers, "--workers")
        asked = [rates.together(hosts[each.master], some) for each in choices]
        choices = tuple(sorted(asked, key=lambda each: -each.rate))
    return _Job(
        spec, document, program.parameters, program.count, rates, usable, working, choices[0], choices,
        program.files,
    )  # fmt: skip


def _reached(hosts: HostList, actuator: str) -> HostList:
    """Return a host list that says itself which of its hosts are other machines under an actuator."""
    if not actuator:
        return hosts
    if actuator == "local":
        own = [replace(host, address=None, user="") for host in hosts]
        return replace(hosts, hosts=tuple(own), ssh_config="")
    far = [replace(host, address=host.reached_at) for host in hosts]
    return replace(hosts, hosts=tuple(far))


def _of(hosts: tuple[Host, ...], on: tuple[str, ...], field_: str) -> tuple[Host, ...]:
    """Return those hosts that a run is given."""
    found = tuple(host for host in hosts if not on or host.name in on)
    if not found:
        raise InfeasibleError(
            f"{field_}: the run has only {', '.join(on)}; list one of these",
            code="hosts-not-given",
            field=field_,
            hosts=[host.name for host in hosts],
            given=list(on),
        )
    return found


def _named(hosts: HostList, names: list[str] | tuple[str, ...], field_: str) -> tuple[Host, ...]:
    known = [host.name for host in hosts]
    for name in names:
        if name not in known:
            near = hat.nearest(name, known)
            hint = f"; did you mean '{near}'?" if near else ""
            raise UsageError(
                f"{field_}: '{name}' is no host of {hosts.source}{hint}",
                code="host-unknown",
                field=field_,
                host=name,
                host_list=hosts.source,
            )
    return tuple(hosts[name] for name in dict.fromkeys(names))


class _Run:
    """One run, in the agent."""

    def __init__(
        self,
        job: _Job,
        workers: HostWorkers,
        stack: ExitStack,
        talk: Talk,
        giver: HostGiver | None,
    ) -> None:
        self._job, self._workers, self._talk, self._giver = job, workers, talk, giver
        self._master = job.hosts[job.choice.master]
        own = f"{socket.gethostname()}:{time.time_ns()}:{secrets.token_hex(8)}"
        mark = hashlib.sha256(own.encode()).hexdigest()[:12]
        self._root = f"{FOLDERS}/{job.document.name}-{mark}"
        self._folders: dict[str, str] = {}
        # Whoever joins later gets what the first ones got, whatever has become of the files.
        self._program = {name: path.read_bytes() for name, path in job.program.items()}
        self._secret = secrets.token_hex(32)
        might = job.usable if giver is None else job.working
        lanes = sum(host.slots for host in might)
        self._pool = stack.enter_context(ThreadPoolExecutor(lanes + 1 + len(might)))
        stack.callback(self._close)
        self._ends: queue.SimpleQueue[tuple[str, dict[str, Any], bytes, str]] = queue.SimpleQueue()
        self._lanes: dict[str, str] = {}
        """Lanes that run -> their folders."""
        self._leaving: set[str] = set()
        self._started: dict[str, str] = {}
        """Folders of what was started -> its host."""
        self._port = 0
        self._numbers = itertools.count(1)
        self._outcome = MasterWorkerOutcome()
        self._samples = self._sampled()
        self._crashed: list[str] = []
        """Hosts on which a worker's process has ended, the last one last."""
        self._settled, self._again = 0, 0
        self._told, self._told_at = frozenset[str](), 0.0
        self._order: tuple[str, ...] = ()
        """What is being carried out."""
        self._spare: set[str] = set()
        """Hosts that were given and where nothing is, until the next look."""
        self._asks: tuple[int, int] | None = None
        self._asks_after, self._patience = 0.0, ASK_SECONDS

    def run(self) -> MasterWorkerOutcome:
        """Return what came of it."""
        self._begin_master()
        list(self._pool.map(self._join, *zip(*self._job.choice.workers.items(), strict=True)))
        looked = time.monotonic()
        told: set[str] = set()
        while True:
            self._heed_giver()
            with suppress(queue.Empty):
                # Without any worker only the master's own end is waited for: it may be why they ended.
                within = LOOK_SECONDS if self._lanes else END_SECONDS
                name, header, said, error = self._ends.get(timeout=within)
                if name == MASTER:
                    return self._finish(header, said, error)
                self._lane_ended(name, header, said, error)
                continue
            # Whoever ends with the master is not lost, so a loss is told when nothing else has ended.
            for host in self._outcome.lost.keys() - told:
                self._talk(f"warning: worker {host} is lost: {self._outcome.lost[host]}")
            told |= self._outcome.lost.keys()
            if not self._lanes and not self._begin_again():
                reason = next(reversed(self._outcome.lost.values()), "none could be started")
                raise LaunchError(
                    f"no worker is left: {reason}",
                    code="hosts-lost",
                    reason=reason,
                    lost=dict(self._outcome.lost),
                )
            if (
                time.monotonic() - looked >= self._job.document.every
                and not self._job.spec.workers
            ):
                looked = time.monotonic()
                self._adapt()

    # ------------------------------------------------------------------------ starting
    def _begin_master(self) -> None:
        host = self._master
        self._bind, self._address = _meeting(host, self._job)
        worker = self._connect(host)
        self._send(host.name, {"role": MASTER, "bind": self._bind, "count": self._job.count,
                               "samples": self._samples, "attempts": self._job.document.attempts,
                               "most": self._most, "rate": self._job.choice.rate,
                "workers": sorted(self._job.choice.workers)})  # fmt: skip
        self._master_folder = folder = self._start(MASTER, host.name, f"{MASTER}.py")
        deadline = time.monotonic() + START_SECONDS
        while not self._port:
            with suppress(queue.Empty):
                _, header, said, error = self._ends.get(timeout=0.05)
                self._finish(header, said, error)
            if found := _read(worker, f"{folder}/{PORT}"):
                self._port = int(found["port"])
            elif time.monotonic() > deadline:
                raise LaunchError(
                    f"master {host.name}: does not listen within {START_SECONDS:g} s",
                    code="master-silent",
                    host=host.name,
                    seconds=START_SECONDS,
                )

    @property
    def _most(self) -> int:
        size = max(1.0, self._job.rates.costs.size)
        return max(1, min(MOST_UNITS, int(MOST_CHUNK / size)))

    def _connect(self, host: Host) -> WorkerConnection:
        """Return the connection to a host, whose folder is there with the program's files in it."""
        self._workers.start([host.name])
        worker = self._workers.by_name[host.name]
        if host.name not in self._folders:
            header, _ = worker.ask("list", path=f"{self._root}/{host.name}", temporary=True)
            folder = str(header["folder"])
            for name, data in self._program.items():
                worker.ask("write", data, path=f"{folder}/{name}", offset=0, last=True)
            self._folders[host.name] = folder
        return worker

    def _send(self, host: str, told: Mapping[str, Any]) -> None:
        """Write the program of a role to a host's folder."""
        folder = self._folders[host]
        text = _script({**told, "program": f"{folder}/{self._job.document.program}",
                        "parameters": dict(self._job.parameters), "secret": self._secret})  # fmt: skip
        path = f"{folder}/{told.get('lane', told['role'])}.py"
        self._workers.by_name[host].ask("write", text, path=path, offset=0, last=True)

    def _start(self, name: str, host: str, script: str) -> str:
        """Start a role on a host; return its working folder."""
        worker, folder = self._workers.by_name[host], self._folders[host]
        own = f"{folder}/task-{next(self._numbers)}"
        self._started[own] = host
        argv = [worker.python, f"{folder}/{script}"]

        def run() -> None:
            try:
                header, said = worker.ask("run", within=None, argv=argv, path=own, timeout=None)
                self._ends.put((name, header, said, ""))
            except Exception as error:  # noqa: BLE001 - a thread whose error nobody hears
                self._ends.put((name, {}, b"", str(error)))

        self._pool.submit(run)
        return own

    def _join(self, name: str, share: float) -> None:
        """Start a worker for each slot of a host, which is to do its share of so many units a second."""
        host = self._job.hosts[name]
        try:
            self._connect(host)
            rate = max(1e-9, share / host.slots)
            for slot in range(host.slots):
                lane = f"{name}#{slot}-{next(self._numbers)}"
                self._send(name, {"role": "worker", "lane": lane, "rate": rate, "port": self._port,
                                  "address": self._address})  # fmt: skip
                self._lanes[lane] = self._start(lane, name, f"{lane}.py")
        except LaunchError as error:
            self._outcome.lost[name] = str(error).removeprefix(f"{name}: ")

    def _begin_again(self) -> bool:
        """Start a worker where the last one ended, for a unit may have ended them all; whether there is hope.

        There is as long as units are done or given up meanwhile.
        """
        settled = int(self._progress().get("done", 0))
        self._again = 1 if settled > self._settled else self._again + 1
        self._settled = settled
        living = self._restartable()
        if not living or self._again > self._job.document.attempts + 1:
            return False
        name = living[-1]
        self._talk(f"no worker is left; {name} begins again")
        self._outcome.lost.pop(name, None)
        self._join(name, self._job.rates.together(self._master, [self._job.hosts[name]]).rate)
        return bool(self._lanes)

    # ------------------------------------------------------------------------ while it runs
    def _lane_ended(self, lane: str, header: Mapping[str, Any], said: bytes, error: str) -> None:
        self._lanes.pop(lane, None)
        code = header.get("code")
        if lane in self._leaving or code == 0:
            return
        words = error or ending(header, said).text
        if code == MASTERLESS:
            words = "its connection to the master ended"
        elif not error:
            self._crashed.append(host_of(lane))
        self._outcome.lost[host_of(lane)] = words

    def _heed_giver(self) -> None:
        """Do what who gives the hosts orders, say where the run is, and let go of hosts that it is on no more."""
        if self._giver is None:
            return
        if not self._order and (order := self._giver.order()) and not self._begin_order(order):
            self._order = order
        hosts, now = self._stands(), time.monotonic()
        for name in self._workers.by_name.keys() - hosts:
            self._let_go(name)
        if self._order and hosts <= set(self._order):
            self._spare = set(self._order) - self._occupied()
            self._order = ()
            self._giver.answer(self._standing())
        elif hosts != self._told or now >= self._told_at + STANDING_SECONDS:
            self._giver.hear(self._standing())

    def _begin_order(self, order: tuple[str, ...]) -> str:
        """Have workers join and leave as an order says; return why it is refused, which was said."""
        assert self._giver is not None  # noqa: S101 - for the type checker: who orders is there
        able = {host.name for host in self._job.working}
        new = [name for name in order if name in able and name not in self._occupied()]
        refusal = ""
        if self._master.name not in order:
            refusal = f"{self._master.name} is the master's host, and the results are there"
        elif not [name for name in order if name in able]:
            refusal = "none of these hosts may work"
        else:
            rates = [self._share_of(name) for name in new]
            list(self._pool.map(self._join, new, rates))
            if lost := [name for name in new if name not in self._occupied()]:
                refusal = f"{lost[0]}: {self._outcome.lost.get(lost[0], 'no worker began there')}"
            for name in new if refusal else ():
                self._leave(name)
        if refusal:
            self._giver.answer(self._standing(), refusal)
            return refusal
        self._outcome.joined += new
        for name in self._occupied() - set(order):
            self._talk(f"{name} leaves: its scheduler gives it to others")
            self._outcome.left.append(name)
            self._leave(name)
        for name in new:
            self._talk(f"{name} joins: its scheduler gives it")
            self._outcome.lost.pop(name, None)
        return ""

    def _share_of(self, name: str) -> float:
        """Return the units a second that a worker is expected to do beside those that work."""
        hosts = [self._job.hosts[each] for each in {*map(host_of, self._lanes), name}]
        return self._job.rates.together(self._master, hosts).workers[name]

    def _standing(self) -> RunStanding:
        """Return where the run is, and how far."""
        hosts = self._stands()
        self._told, self._told_at = hosts, time.monotonic()
        progress: dict[str, Any] = {}
        with suppress(LaunchError):  # the master's own end says it
            progress = self._progress()
        rates: dict[str, float] = {}
        for lane, each in progress.get("lanes", {}).items():
            if lane in self._lanes:
                rates[host_of(lane)] = rates.get(host_of(lane), 0.0) + float(each["rate"])
        where = tuple(host for host in self._job.names if host in hosts)
        done = int(progress.get("done", 0))
        return RunStanding(
            self._master.name, where, done, self._job.count, rates, self._asks
        )  # fmt: skip

    def _progress(self) -> dict[str, Any]:
        """Return what the master said last of how far it is; empty at first."""
        worker = self._workers.by_name[self._master.name]
        return _read(worker, f"{self._master_folder}/{PROGRESS}")

    def _stands(self) -> frozenset[str]:
        """Return the hosts that it has: where something of it is, or is to begin again, and those just given."""
        last = () if self._lanes else self._restartable()[-1:]
        return frozenset((*self._occupied(), *last, *self._spare))

    def _restartable(self) -> list[str]:
        """Return the hosts on which a worker's process has ended, that are there and are to stay."""
        by_name = self._workers.by_name
        return [
            name
            for name in self._crashed
            if name in by_name
            and not by_name[name].reason
            and (not self._order or name in self._order)
        ]

    def _occupied(self) -> set[str]:
        """Return the hosts where something of the run is."""
        return {self._master.name, *map(host_of, self._lanes)}

    def _let_go(self, name: str) -> None:
        """End the connection to a host, and with it whatever of the run is there."""
        self._folders.pop(name, None)
        self._started = {task: host for task, host in self._started.items() if host != name}
        self._workers.by_name.pop(name).close()

    def _adapt(self) -> None:
        """Have workers join or leave by what those that work were seen to do."""
        if not (progress := self._progress()):
            return
        rates = self._learned(progress)
        working = {host_of(lane) for lane in self._lanes if lane not in self._leaving}
        hosts = self._job.usable if self._giver is None else self._job.working
        free = [h for h in hosts if h.name in working or h.name not in self._outcome.lost]
        now = rates.together(self._master, [self._job.hosts[name] for name in working])
        best = rates.best_workers(self._master, free, LITTLE)
        self._spare = set()
        self._ask_for(rates, working, free, best)
        if self._giver is None and best.rate > (1 + GAIN) * now.rate:
            for name in best.workers.keys() - working:
                self._talk(
                    f"{name} joins: {best.rate:.3g} units a second in place of {now.rate:.3g}"
                )
                self._outcome.joined.append(name)
                self._join(name, best.workers[name])
            return
        slowest = sorted(working, key=lambda name: now.workers[name])
        for name in slowest:
            others = [self._job.hosts[other] for other in working if other != name]
            if rates.together(self._master, others).rate >= (1 - LITTLE) * now.rate:
                working.discard(name)
                self._talk(
                    f"{name} leaves: the others do {now.rate:.3g} units a second without it"
                )
                self._outcome.left.append(name)
                self._leave(name)
                self._asks_after = time.monotonic() + self._patience
                self._patience = min(2 * self._patience, LONGEST_ASK_SECONDS)

    def _ask_for(
        self, rates: WorkerRates, working: set[str], free: list[Host], best: MasterChoice
    ) -> None:
        """Ask who gives the hosts for as many as raise the rate by a tenth, or for no more than there are."""
        held = {self._master.name, *working}
        workers = [host for host in free if host.name in working]
        others = [host for host in free if host.name not in held]
        more = rates.fewest_more(self._master, workers, others, GAIN)
        if time.monotonic() < self._asks_after:
            more = 0
        most = max(len(held) + more, len(held | best.workers.keys()) if more else 0)
        self._asks = (len(held) + more if more else 1), most

    def _learned(self, progress: Mapping[str, Any]) -> WorkerRates:
        """Return the rates with what was measured; who has not worked is like the median of who has."""
        rates, seen = self._job.rates, {}
        by_host: dict[str, list[float]] = {}
        for lane, each in progress["lanes"].items():
            if float(each["rate"]) > 0:
                by_host.setdefault(host_of(lane), []).append(float(each["rate"]))
        for name, found in by_host.items():
            forecast = 1.0 / rates.unit_seconds(self._job.hosts[name])
            seen[name] = forecast / (sum(found) / len(found))
        usual = median(seen.values()) if seen else 1.0
        slowdown = {host.name: seen.get(host.name, usual) for host in self._job.hosts}
        service = float(progress["service_seconds"]) if progress["done"] else None
        return replace(rates, slowdown=slowdown, service_seconds=service)

    def _leave(self, name: str) -> None:
        """Have a host's workers leave when the units that they are at have ended."""
        for lane, folder in self._lanes.items():
            if host_of(lane) == name:
                self._leaving.add(lane)
                with suppress(LaunchError):
                    path = f"{folder}/{LEAVE}"
                    self._workers.by_name[name].ask("write", b"", path=path, offset=0, last=True)

    # ------------------------------------------------------------------------ the end
    def _finish(self, header: Mapping[str, Any], said: bytes, error: str) -> MasterWorkerOutcome:
        name = self._master.name
        if error:
            raise LaunchError(
                f"master {name} is lost, and with it all results: {error}",
                code="master-lost",
                host=name,
                reason=error,
            )
        code = header.get("code")
        if code != 0:
            if isinstance(code, int) and code < 0:
                fault = ending(header, said)
                raise LaunchError(
                    f"master {name} is lost, and with it all results: {fault.text}",
                    code="master-lost",
                    host=name,
                    reason=fault.text,
                )
            reason = last_line(said)
            raise ApplicationError(
                f"master {name}: {reason}", code="program-failed", host=name, reason=reason
            )
        found, wrong = result_of(said)
        if wrong:
            raise ApplicationError(
                f"master {name}: {wrong.text}", code="result-invalid", host=name, reason=wrong.text
            )
        outcome = self._outcome
        outcome.seconds, outcome.total = float(found["seconds"]), found["total"]
        outcome.service_seconds = float(found["service_seconds"])
        outcome.failed = {int(unit): str(why) for unit, why in found["failed"].items()}
        for lane, count in found["lanes"].items():
            host = host_of(lane)
            outcome.hosts[host] = outcome.hosts.get(host, 0) + count
        for lane, words in found["lost"].items():
            if lane in self._lanes:
                outcome.lost.setdefault(host_of(lane), words)
        self._verify(found["samples"], outcome)
        return outcome

    def _sampled(self) -> list[int]:
        job = self._job
        if job.spec.verify != "sample":
            return []
        unit = job.rates.unit_seconds(min(job.usable, key=job.rates.unit_seconds))
        most = int(OF_THE_RUN * job.count / job.choice.rate / unit)
        return sorted(random.sample(range(job.count), min(job.count, max(1, min(SAMPLED, most)))))

    def _verify(self, digests: Mapping[str, str], outcome: MasterWorkerOutcome) -> None:
        """Do a sample of the units, or all, here once more, one after the other, and compare."""
        job = self._job
        if job.spec.verify == "none":
            return
        whole = job.spec.verify == "full"
        told = {
            "role": "check", "samples": self._samples, "failed": list(outcome.failed), "all": whole,
            "parameters": dict(job.parameters), "program": str(next(iter(job.program.values()))),
        }  # fmt: skip
        with tempfile.NamedTemporaryFile(suffix=".py") as script:
            script.write(_script(told))
            script.flush()
            done = subprocess.run(
                [sys.executable, script.name], cwd=job.spec.file.absolute().parent,
                capture_output=True, check=False, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        again, wrong = result_of(done.stdout)
        if done.returncode or wrong:
            reason = last_line(done.stderr) if done.returncode or wrong is None else wrong.text
            raise ApplicationError(
                f"verifying here: {reason}", code="program-failed", reason=reason
            )
        for unit, digest in again["samples"].items():
            if digests.get(unit) != digest:
                raise VerificationError(
                    f"unit {unit}: its result differs from that of a second run on this machine",
                    code="result-differs",
                    unit=int(unit),
                )
        if whole and again["total"] != outcome.total:
            raise VerificationError(
                "the total differs from that of a sequential run on this machine",
                code="result-differs",
                field="total",
                value=outcome.total,
                bound=again["total"],
            )
        left_out = len(
            outcome.failed.keys() if whole else outcome.failed.keys() & set(self._samples)
        )
        outcome.verified = (job.count if whole else len(self._samples)) - left_out

    def _close(self) -> None:
        """End the connections, and with them what runs and the folders."""
        for task, host in list(self._started.items()):
            with suppress(LaunchError):
                self._workers.by_name[host].ask("stop", path=task, within=END_SECONDS)
        for worker in list(self._workers.by_name.values()):  # others may be joining in threads yet
            worker.close()


def _meeting(master: Host, job: _Job) -> tuple[str, str]:
    """Return where the master listens, and where the workers reach it."""
    far = {host.name: host for host in remote_hosts(job.hosts)}
    some = [host for host in (master, *job.usable) if host.name in far]
    if not some:
        return "127.0.0.1", "127.0.0.1"
    known = numbers({host.name: ssh.reach(host, job.hosts) for host in some})
    if master.name in far:
        address = known.get(master.name, master.reached_at)
    else:
        address = address_towards(known.values())
        if not address:
            raise LaunchError(
                f"master {master.name}: its workers cannot reach it",
                code="host-unreachable",
                host=master.name,
            )
    return "::" if ":" in address else "0.0.0.0", address  # noqa: S104 - a secret is asked for


def _script(told: Mapping[str, Any]) -> bytes:
    """Return a role as one file of Python."""
    return bootstrap.parcel(NODE, told)[10:]


def _read(worker: WorkerConnection, path: str) -> dict[str, Any]:
    """Return a document of a host; empty as long as it is not there.

    Raises
    ------
    LaunchError
        The host is lost, or says what is none.
    """
    try:
        _, data = worker.ask("read", path=path, offset=0, count=LONGEST_FILE)
    except LaunchError:
        if worker.reason:
            raise
        return {}
    found, wrong = result_of(data)
    if wrong:
        raise LaunchError(
            f"{worker.name}: {wrong.text}",
            code="worker-answer-invalid",
            host=worker.name,
            file=path,
            reason=wrong.text,
        )
    return found
