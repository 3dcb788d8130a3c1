"""`run_parameter_sweep`: runs a sweep from its file and a host list to its results, resumable at any time.

The folder of results has a journal, in which each result is stored before any other step, and at the end
`results.jsonl` with a line for each task. After any interruption, the same command resumes the sweep; tasks in
the journal are not run again.
"""

from __future__ import annotations

import hashlib
import json
import socket
from collections.abc import Callable, Container, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any

import hat
from apples.applications.dask_hosts import DaskHosts, dask_hosts
from apples.applications.documents import ParameterSweepDocument
from apples.applications.host_inputs import check_hosts, did_you_mean, recorded_weather
from apples.applications.parameter_sweep.costs import SweepCosts, sweep_costs
from apples.applications.parameter_sweep.document import (
    ParameterSweepFile,
    TaskSetting,
    digest,
    program_files,
    settings_text,
    task_settings,
)
from apples.applications.parameter_sweep.driver import SweepDriver, SweepOutcome
from apples.applications.parameter_sweep.executor import TaskEnded
from apples.applications.parameter_sweep.heuristics import HEURISTICS, Heuristic
from apples.applications.parameter_sweep.on_hosts import HostsExecutor, SweepCommand
from apples.applications.parameter_sweep.planning import SweepDecision, plan_sweep
from apples.applications.parameter_sweep.tasks import (
    InputFile,
    ParameterSweep,
    SiteCache,
    SweepTask,
    one_cache_a_site,
)
from apples.applications.workers import HostWorkers, host_workers
from apples.errors import ApplicationError, LaunchError, UsageError, system_code, within
from apples.io import documents
from apples.io.folder import Folder
from apples.io.journal import Journal
from apples.launch.events import Talk, unheard
from apples.launch.remote.addresses import remote_hosts
from apples.resources import Host, HostList, read_host_list
from apples.ui.units import counted
from apples.weather.conditions import Conditions

JOURNAL_SCHEMA = "apples.parameter-sweep-journal/1"
CACHES = "~/.cache/apples/sweeps"
WORK_QUEUE = "queue"
"""Name in place of a heuristic: no plan is made, each free lane takes the next task."""
MAX_AT_ONCE = 16
MAX_NAME_CHARS = 50
"""Last characters of a file's name that are kept in its name in a cache."""


@dataclass(frozen=True)
class SweepSpec:
    """The files and options of a sweep.

    Attributes
    ----------
    sweep, hosts
        The files.
    weather
        ``static``, or a recorded weather file.
    out
        Folder of results; None: the sweep's name and ``-results``, in the folder of its file.
    heuristic
        The only heuristic to use, or ``queue``; empty: the best of all.
    dask
        Address of the scheduler of a Dask cluster, whose workers run the tasks; empty: the hosts of the list do.
    """

    sweep: Path = Path("sweep.toml")
    hosts: Path = Path("hosts.toml")
    weather: str = "static"
    out: Path | None = None
    heuristic: str = ""
    dask: str = ""


@dataclass(frozen=True)
class SweepResult:
    """The plan and the outcome of a sweep; `outcome` is None if no task was started."""

    name: str
    out: Path
    costs: SweepCosts
    settings: Mapping[str, TaskSetting]
    decision: SweepDecision | None
    resumed: int
    outcome: SweepOutcome | None = None
    hosts: Mapping[str, int] = field(default_factory=dict)

    def document(self) -> ParameterSweepDocument:
        """Return the JSON document."""
        plan = self.decision.plan if self.decision else None
        outcome = self.outcome
        return {
            "schema": "apples.parameter-sweep/1",
            "name": self.name,
            "tasks": len(self.settings),
            "resumed": self.resumed,
            "heuristic": plan.heuristic if plan else None,
            "predicted_seconds": plan.makespan if plan else 0.0,
            "makespans": dict(self.decision.makespans) if self.decision else {},
            "assumed": list(self.costs.assumed),
            "planned": [] if plan is None or outcome else [
                {"task": b.task, "host": b.host, "start": b.start, "end": b.end} for b in plan.tasks
            ],
            "moves": [] if plan is None or outcome else [
                {"file": b.file, "cache": b.cache, "start": b.start, "end": b.end}
                for b in plan.transfers
            ],
            "execution": None if outcome is None else {
                "measured_seconds": outcome.seconds,
                "done": len(outcome.done),
                "hosts": dict(self.hosts),
                "failed": [
                    {"task": t, "parameters": dict(self.settings[t].parameters), "reason": why}
                    for t, why in outcome.failed.items()
                ],
                "plans": outcome.plans,
                "replicas": outcome.replicas,
                "moved_files": outcome.moves,
                "lost": dict(outcome.lost),
                "failing": dict(outcome.failing),
            },
            "results": str(self.out / "results.jsonl") if outcome else None,
        }  # fmt: skip

    def check(self) -> None:
        """Raise an error about the tasks without a result, if any.

        Raises
        ------
        ApplicationError
            Tasks failed in all their attempts.
        """
        failed = self.outcome.failed if self.outcome else {}
        if failed:
            task, why = next(iter(failed.items()))
            at = settings_text(self.settings[task].parameters)
            more = f" ({counted(len(failed) - 1, 'more task')} failed)" if len(failed) > 1 else ""
            raise ApplicationError(
                f"task {task} ({at}) has failed on {why}{more}",
                code="task-failed",
                task=task,
                parameters=dict(self.settings[task].parameters),
                reason=why,
                reason_code=self.outcome.failure_codes.get(task) if self.outcome else None,
                failed=len(failed),
            )


@dataclass(frozen=True)
class _Prepared:
    spec: SweepSpec
    document: ParameterSweepFile
    out: Path
    settings: Mapping[str, TaskSetting]
    command: SweepCommand
    costs: SweepCosts
    folders: Mapping[str, str]
    heuristics: Mapping[str, Heuristic] | None
    digest: str


def plan_parameter_sweep(spec: SweepSpec) -> SweepResult:
    """Return the plan. It starts only the worker programs that examine the input files.

    Raises
    ------
    hat.DocumentError, UsageError
        The files are invalid, or an input file is missing.
    NoFeasiblePlanError
        No cache has room for the files of a task.
    LaunchError
        A storage host cannot be reached.
    """
    with dask_hosts(spec.dask) as cluster, host_workers(cluster) as workers:
        ready = _prepare(spec, workers, cluster)
    decision = plan_sweep(
        ready.costs, heuristics=ready.heuristics or {"work-queue": HEURISTICS["work-queue"]}
    )
    return SweepResult(ready.document.name, ready.out, ready.costs, ready.settings, decision, 0)


def run_parameter_sweep(
    spec: SweepSpec, talk: Talk = unheard, began: Callable[[SweepResult], None] | None = None
) -> SweepResult:
    """Return the results after every task has one or failed in all attempts (see `SweepResult.check`).

    Parameters
    ----------
    began
        Called before any task is started, and again with the first plan.

    Raises
    ------
    hat.DocumentError, UsageError
        The files are invalid, or the folder has results of another sweep or of a running sweep.
    NoFeasiblePlanError
        No cache has room for the files of a task.
    LaunchError
        A storage host, or every host, cannot be reached; or a result cannot be written.
    """
    with ExitStack() as stack:
        cluster = stack.enter_context(dask_hosts(spec.dask))
        workers = stack.enter_context(host_workers(cluster))
        ready = _prepare(spec, workers, cluster)
        journal, done = stack.enter_context(_journal(ready))

        def planned(decision: SweepDecision | None) -> None:
            if began:
                name, settings = ready.document.name, ready.settings
                began(SweepResult(name, ready.out, ready.costs, settings, decision, len(done)))

        planned(None)
        lost = workers.start(list(ready.costs.hosts), talk)
        executor = HostsExecutor(
            ready.costs, ready.command, workers.by_name, ready.folders, ready.out / "files"
        )
        stack.callback(executor.close)
        present = executor.prepare()
        driver = SweepDriver(
            ready.costs, executor, acknowledge=lambda end: journal.append(_record(end, ready)), done=done,
            present=present, lost=lost, every=ready.document.every, attempts=ready.document.attempts,
            heuristics=ready.heuristics, planned=planned, talk=talk,
        )  # fmt: skip
        outcome = driver.run()
        _write_results(ready, outcome)
        if not outcome.failed:
            executor.clear()
    hosts = dict.fromkeys(ready.costs.hosts, 0)
    for end in outcome.done.values():
        if end.lane >= 0:
            hosts[ready.costs.hosts[end.lane]] += 1
    return SweepResult(
        ready.document.name, ready.out, ready.costs, ready.settings, outcome.decision, len(done), outcome, hosts
    )  # fmt: skip


def _prepare(spec: SweepSpec, workers: HostWorkers, cluster: DaskHosts | None) -> _Prepared:
    document = hat.read(spec.sweep, ParameterSweepFile)
    hosts = read_host_list(spec.hosts)
    workers.hosts = hosts = cluster.hosts(hosts) if cluster else hosts
    folder = spec.sweep.absolute().parent
    with within(spec.sweep):
        program = program_files(document, folder)
        settings = task_settings(document)
        files, places, cached = _files(document, settings, hosts, folder, workers, cluster or ())
    tasks = tuple(
        SweepTask(t.name, t.work, tuple(dict.fromkeys(t.inputs.values()))) for t in settings
    )
    out = spec.out or folder / f"{document.name}-results"
    with within(spec.sweep):
        caches, folders = _caches(document, hosts, cluster or hosts, out)
    weather = recorded_weather(spec.weather, hosts)
    costs = sweep_costs(ParameterSweep(tasks, files), caches, Conditions(hosts, weather))
    command = SweepCommand(
        document.command,
        {t.name: {k: str(v) for k, v in t.parameters.items()} for t in settings},
        {t.name: t.inputs for t in settings},
        program, places, cached, document.outputs, document.timeout,
    )  # fmt: skip
    by_name = {t.name: t for t in settings}
    # Inputs are compared by size and time of writing, because reading them would take as long as
    # sending them.
    mark = digest(document, program, {file.name: (file.size, cached[file.name]) for file in files})
    return _Prepared(
        spec, document, out, by_name, command, costs, folders, _heuristics(spec.heuristic), mark
    )


def _heuristics(name: str) -> Mapping[str, Heuristic] | None:
    if not name:
        return HEURISTICS
    if name == WORK_QUEUE:
        return None
    if name not in HEURISTICS:
        known = [*HEURISTICS, WORK_QUEUE]
        hint = did_you_mean(name, known) or f"; known: {', '.join(known)}"
        raise UsageError(
            f"--heuristic '{name}': unknown heuristic{hint}",
            code="heuristic-unknown",
            option="--heuristic",
            value=name,
            known=known,
        )
    return {name: HEURISTICS[name]}


def _caches(
    document: ParameterSweepFile, hosts: HostList, able: Container[str], out: Path
) -> tuple[tuple[SiteCache, ...], dict[str, str]]:
    """Return the caches of the sites, and their folders, which no other sweep uses."""
    own = hashlib.sha256(f"{socket.gethostname()}:{out.absolute()}".encode()).hexdigest()[:12]
    entries = {entry.site: entry for entry in document.cache}
    sites = {host.site for host in hosts}
    for site in entries:
        if site not in sites:
            raise UsageError(
                f"cache: '{site}' is not a site of {hosts.source}{did_you_mean(site, sorted(sites))}",
                code="site-unknown",
                field="cache",
                site=site,
                host_list=hosts.source,
            )
    found, folders = [], {}
    known = [host.name for host in hosts if host.name in able]
    check_hosts(hosts, document.hosts, "hosts")
    for name in document.hosts:
        if name not in known:
            raise UsageError(
                f"hosts: '{name}' is not a worker of the Dask cluster{did_you_mean(name, known)}",
                code="host-unknown",
                field="hosts",
                host=name,
                host_list=hosts.source,
            )
    used = tuple(hosts[name] for name in known if not document.hosts or name in document.hosts)
    for cache in one_cache_a_site(replace(hosts, hosts=used)):
        entry = entries.get(cache.name)
        capacity = inf if entry is None or entry.capacity is None else float(entry.capacity)
        found.append(SiteCache(cache.name, cache.hosts, capacity))
        base = entry.directory if entry and entry.directory else CACHES
        folders[cache.name] = f"{base}/{document.name}-{own}/{cache.name}"
    return tuple(found), folders


def _files(
    document: ParameterSweepFile,
    settings: tuple[TaskSetting, ...],
    hosts: HostList,
    folder: Path,
    workers: HostWorkers,
    cluster: Container[str],
) -> tuple[tuple[InputFile, ...], dict[str, str], dict[str, str]]:
    """Return the input files with their sizes, their paths on the storage hosts and their names in caches.

    Raises
    ------
    UsageError
        A storage host lacks a file, or a storage is not a host. Permanent.
    """
    wanted: dict[str, tuple[str, str, TaskSetting]] = {}
    for key, entry in document.input.items():
        check_hosts(hosts, [entry.storage], f"input.{key}")
        for setting in settings:
            name = setting.inputs[key]
            known = wanted.setdefault(name, (entry.storage, key, setting))
            if known[0] != entry.storage:
                raise UsageError(
                    f"input {key}: {name} is on {entry.storage} and, as input {known[1]}, on {known[0]}",
                    code="storage-conflict",
                    field=f"input.{key}",
                    file=name,
                    hosts=[known[0], entry.storage],
                )
    workers.start([storage for storage, _, _ in wanted.values()])
    far = {host.name for host in remote_hosts(hosts)} | {
        h.name for h in hosts if h.name in cluster
    }

    def look(name: str) -> tuple[InputFile, str, str]:
        storage, key, setting = wanted[name]
        place = _place(name, hosts[storage], folder, storage in far)
        worker = workers.by_name[storage]
        try:
            found = worker.stat(place)
        except LaunchError as error:
            if worker.reason:
                raise
            at = settings_text(setting.parameters)
            raise UsageError(
                f"input {key} of task {setting.name} ({at}): {error}",
                code="input-unreadable",
                field=f"input.{key}",
                task=setting.name,
                parameters=dict(setting.parameters),
                host=storage,
                file=place,
                reason=str(error),
            ) from None
        # A digest, because with "_" for "/" the files `x/y_z` and `x_y/z` would be the same file of the cache.
        mark = hashlib.sha256(name.encode()).hexdigest()[:12]
        cached = f"{found.written:x}-{mark}-{Path(name).name[-MAX_NAME_CHARS:]}"
        return InputFile(name, found.size, storage), found.path, cached

    with ThreadPoolExecutor(MAX_AT_ONCE) as pool:
        looked = list(pool.map(look, wanted))
    return (
        tuple(file for file, _, _ in looked),
        {file.name: place for file, place, _ in looked},
        {file.name: cached for file, _, cached in looked},
    )


def _place(name: str, host: Host, folder: Path, far: bool) -> str:
    if far:
        return f"{host.directory}/{name}" if host.directory and not name.startswith("/") else name
    return str(folder / name)


# ------------------------------------------------------------------------ results
@contextmanager
def _journal(ready: _Prepared) -> Iterator[tuple[Journal, dict[str, TaskEnded]]]:
    """Lock and open the journal of the folder of results; yield it with the ended tasks of this sweep."""
    out = ready.out
    try:
        out.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            try:
                stack.enter_context(documents.locked(out / "lock", 0.0))
            except BlockingIOError:
                raise LaunchError(
                    f"{out}: another process runs this sweep", code="sweep-running", file=out
                ) from None
            folder = stack.enter_context(Folder.open(out, links=True))
            journal = Journal(folder, JOURNAL_SCHEMA)
            stack.callback(journal.close)
            records = journal.recover().records
            head = next((r for r in records if r.get("do") == "sweep"), None)
            other = head is not None and head.get("digest") != ready.digest
            if other and any(r.get("do") == "done" for r in records):
                raise UsageError(
                    f"{out}: has results of another sweep, or the command, a parameter, an input or a program of "
                    "this one has changed; --output names another folder",
                    code="sweep-changed",
                    file=out,
                    option="--output",
                )
            kept = {
                str(r["task"]): r
                for r in records
                if r.get("do") == "done" and r.get("task") in ready.settings
            }
            if head is None or other or not journal.whole:
                journal.rewrite([{"do": "sweep", "digest": ready.digest}, *kept.values()])
            yield journal, {name: _ended(record, ready) for name, record in kept.items()}
    except OSError as error:
        raise LaunchError(
            f"{error.filename or out}: {error.strerror or error}",
            code=system_code(error),
            file=error.filename or out,
        ) from None


def _record(end: TaskEnded, ready: _Prepared) -> dict[str, Any]:
    host = ready.costs.hosts[end.lane]
    return {
        "do": "done",
        "task": end.task,
        "host": host,
        "seconds": end.seconds,
        "result": end.result,
    }


def _ended(record: Mapping[str, Any], ready: _Prepared) -> TaskEnded:
    host = record.get("host")
    lane = ready.costs.hosts.index(host) if host in ready.costs.hosts else -1
    return TaskEnded(
        str(record["task"]), lane, float(record.get("seconds", 0.0)), record.get("result", {})
    )


def _write_results(ready: _Prepared, outcome: SweepOutcome) -> None:
    """Write a line for each task with a result, in the order of the tasks."""
    lines = []
    for name, setting in ready.settings.items():
        if end := outcome.done.get(name):
            host = ready.costs.hosts[end.lane] if end.lane >= 0 else None
            line = {
                "task": name, "parameters": dict(setting.parameters), "host": host,
                "seconds": end.seconds, "result": end.result,
            }  # fmt: skip
            lines.append(json.dumps(line))
    documents.replace(ready.out / "results.jsonl", "".join(f"{line}\n" for line in lines))
