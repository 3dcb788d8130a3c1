"""`plan_master_worker`: chooses a master and its workers from a file and a host list; starts nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from apples.applications.documents import MasterWorkerDocument
from apples.applications.host_inputs import check_hosts, recorded_weather
from apples.applications.master_worker.document import MasterWorkerFile, MasterWorkerProgram
from apples.applications.master_worker.rates import MasterChoice, WorkerRates, choose
from apples.applications.parameter_sweep.document import Value
from apples.errors import ApplicationError, InfeasibleError, UsageError, within
from apples.launch.remote.addresses import is_here
from apples.resources import Host, HostList, read_host_list
from apples.ui.units import counted
from apples.weather.conditions import Conditions


@dataclass(frozen=True)
class MasterWorkerSpec:
    """The files and options of a run.

    Attributes
    ----------
    file, hosts
        The files.
    settings
        Parameters that differ from the file, as text.
    weather
        ``static``, or a recorded weather file.
    verify
        ``sample``, ``full`` or ``none``.
    workers, master
        Hosts to use as workers and master, without adaptation; empty: the best.
    on
        The hosts that a scheduler has given to the run; it uses no others unless it gets more. Empty: any.
    actuator
        ``local``: all hosts are parts of this machine. ``ssh``: hosts other than this machine are reached by ssh.
        Empty: as in the host list.
    content
        Text to use instead of the file; None: the file. The program is still in the file's folder.
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
    content: str | None = None


@dataclass
class MasterWorkerOutcome:
    """The outcome of a run.

    Attributes
    ----------
    seconds, service_seconds
        From the first worker's hello to the last result; processor seconds of the master for a unit.
    total
        Result of `combine`.
    hosts
        By host: number of units it did.
    joined, left, lost
        Hosts that joined after the start, left before the end, or were lost (with the reason).
    verified
        Number of units that were repeated here with the same result; all with ``full``.
    failed
        Units that were given up, with the reason; `total` excludes them.
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
    """A plan and its outcome; `outcome` is None if no process was started."""

    name: str
    units: int
    choice: MasterChoice
    choices: tuple[MasterChoice, ...]
    assumed: tuple[str, ...]
    outcome: MasterWorkerOutcome | None = None

    def document(self) -> MasterWorkerDocument:
        """Return the JSON document."""
        done = self.outcome
        return {
            "schema": "apples.master-worker/1",
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
        """Raise an error about the first failed unit, if any.

        Raises
        ------
        ApplicationError
            Units failed or ended their workers in all their attempts.
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
class MasterWorkerPlan:
    """A run with its plan, before any process is started.

    Attributes
    ----------
    usable
        The hosts that the run has.
    working
        The hosts that may be workers if the run gets them.
    """

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
        """The host list."""
        return self.rates.conditions.hosts

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all hosts of the list."""
        return tuple(host.name for host in self.hosts)

    def result(self, outcome: MasterWorkerOutcome | None = None) -> MasterWorkerResult:
        """Return the result of the run; without an outcome, the result of the plan."""
        return MasterWorkerResult(
            self.document.name, self.count, self.choice, self.choices, self.rates.assumed, outcome
        )


def plan_master_worker(spec: MasterWorkerSpec) -> MasterWorkerResult:
    """Return the master and the workers with the highest rate; starts nothing.

    Raises
    ------
    hat.DocumentError, UsageError
        The files are invalid.
    """
    return prepare(spec).result()


def prepare(spec: MasterWorkerSpec) -> MasterWorkerPlan:
    """Return a run with its plan. Raises as `plan_master_worker`."""
    if spec.verify not in ("sample", "full", "none"):
        raise UsageError(
            f"--verify '{spec.verify}': unknown; known: sample, full, none",
            code="value-unknown",
            option="--verify",
            value=spec.verify,
            known=["sample", "full", "none"],
        )
    program = MasterWorkerProgram.read(spec.file, spec.settings, spec.content)
    document, hosts = program.document, _reached(read_host_list(spec.hosts), spec.actuator)
    with within(spec.file):
        usable = _named(hosts, document.hosts, "hosts") or tuple(hosts)
        masters = _named(hosts, document.masters, "masters") or usable
        working = usable
        usable, masters = _given(usable, spec.on, "hosts"), _given(masters, spec.on, "masters")
    rates = WorkerRates(program.costs, Conditions(hosts, recorded_weather(spec.weather, hosts)))
    choices = choose(rates, usable, masters)
    if spec.master:
        (only,) = _named(hosts, [spec.master], "--master")
        choices = choose(rates, usable, (only,))
    if spec.workers:
        some = _named(hosts, spec.workers, "--workers")
        asked = [rates.together(hosts[each.master], some) for each in choices]
        choices = tuple(sorted(asked, key=lambda each: -each.rate))
    return MasterWorkerPlan(
        spec, document, program.parameters, program.count, rates, usable, working, choices[0], choices,
        program.files,
    )  # fmt: skip


def _reached(hosts: HostList, actuator: str) -> HostList:
    """Return the host list with addresses only for the hosts that the actuator reaches over ssh."""
    if not actuator:
        return hosts
    if actuator == "local":
        own = [replace(host, address=None, user="") for host in hosts]
        return replace(hosts, hosts=tuple(own), ssh_config="")
    far = [host if is_here(host) else replace(host, address=host.reached_at) for host in hosts]
    return replace(hosts, hosts=tuple(far))


def _given(hosts: tuple[Host, ...], on: tuple[str, ...], field_: str) -> tuple[Host, ...]:
    """Return the hosts that the run has; an error if it has none."""
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
    check_hosts(hosts, names, field_)
    return tuple(hosts[name] for name in dict.fromkeys(names))
