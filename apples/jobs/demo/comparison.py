"""The paper's comparison on this machine: several methods run back to back on four unequal hosts.

All hosts are this machine, in a host list as a user would write it. They are unequal in three ways, without root:
two hosts share each CPU if the machine has few, a competing load runs on some CPUs, and two hosts have only the
plain numpy implementation. The demo uses public verbs only (calibrate, plan, run), on files like a user's own.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path

import psutil

import hat
from apples.agent.calibration import calibrate_hosts
from apples.agent.documents import AgentRunDocument
from apples.agent.information import InformationPool, load_information, measure_briefly
from apples.agent.models.model import SpeedFunction
from apples.agent.session.results import PlanResult
from apples.agent.session.running import PreparedRun, prepare, unwatched
from apples.agent.session.spec import RunSpec
from apples.agent.verification import Reference, sequential
from apples.jobs import store
from apples.jobs.demo.contention import contention
from apples.jobs.recorder import RunRecorder, recorded
from apples.launch.actuators.local import LocalActuator
from apples.launch.plan import LaunchPlan
from apples.launch.sample import example_folder
from apples.resources.schedule import NoFeasiblePlanError
from apples.ui.units import duration

Talk = Callable[[str], None]

LOOP_SECONDS = 1.6
"""Approximate shortest duration of a measured loop."""
CALIBRATED = (0.1, 0.25, 0.5)
"""Shares of the grid that are calibrated: about the strips that hosts get."""
LESSON_ITERATIONS = 30
QUICKEST = 0.65
"""Time of the fastest method over the time of all hosts together, on two CPUs; smaller on more CPUs."""
HOSTS = ("ada", "bob", "eve", "fay")
PLAIN = {"bob": "numpy", "fay": "numpy"}
LARGEST_GRID, SMALLEST_GRID = 5000, 1000
MEMORY_SHARE = 0.25
"""Largest share of the free memory for the grid's two arrays."""


def compare(
    methods: Sequence[str], repeat: int, grid: int, talk: Talk, own_sessions: bool = False
) -> list[AgentRunDocument]:
    """Run each method `repeat` times, interleaved, so that all methods run under the same conditions on average.

    Each run is recorded among the user's own runs, but the models learned from it are discarded.

    Parameters
    ----------
    own_sessions
        Whether each competing process is in a session of its own (`contention`).

    Returns
    -------
    The ``apples.run/1`` documents of the runs; for a method that found no plan, the document has the rejection.
    """
    try:
        records: Path | None = store.folder()
    except OSError:
        records = None  # the recorder of the first run prints the warning
    with tempfile.TemporaryDirectory(prefix="apples-demo-") as folder, own_state(folder):
        world = DemoWorld.on_this_machine(Path(folder), grid)
        talk(f"four hosts on this machine: {world.summary()}")
        talk("calibrating the kernels")
        sizes = [round(share * world.grid) for share in CALIBRATED]
        found = calibrate_hosts(world.load(1), sizes, talk, at_once=True)
        world = world.calibrated(found)
        with contention(world.loads, own_sessions):
            return _runs(world, methods, repeat, talk, records)


def _runs(
    world: DemoWorld, methods: Sequence[str], repeat: int, talk: Talk, records: Path | None
) -> list[AgentRunDocument]:
    talk("one run to learn from, not counted")
    lesson = _prepared(world.load(LESSON_ITERATIONS), "all_resources", None)
    seconds = LOOP_SECONDS / 10
    with suppress(NoFeasiblePlanError):
        seconds = lesson.execute().outcome.iteration_seconds
    iterations = max(10, ceil(LOOP_SECONDS / (QUICKEST * seconds)))
    talk(f"jacobi2d: {world.grid} x {world.grid}, {iterations} iterations a run")
    information = world.load(iterations)
    reference = sequential(information, talk)
    runs = []
    for k in range(repeat):
        for method in methods:
            order = {"demo": world.grid, "blueprint": method, "iterations": iterations}
            with recorded(order, talk, where=records) as record:
                document = _run(information, method, reference, record)
            runs.append(document)
            talk(f"  {k + 1}/{repeat} {method:24} {_line(document)}")
    return runs


def _prepared(
    information: InformationPool, method: str, reference: Reference | None
) -> PreparedRun:
    """Return a method's run under the current weather."""
    spec = RunSpec(blueprint=method, verify=reference is not None)
    return prepare(spec, measure_briefly(information), actuator=LocalActuator(), look=False)


def _run(
    information: InformationPool, method: str, reference: Reference, record: RunRecorder
) -> AgentRunDocument:
    """Run a method and record it; return the document."""
    plans: list[PlanResult] = []

    def decided(plan: PlanResult, launch: LaunchPlan | None) -> None:
        plans.append(plan)
        record.planned(plan, launch)

    try:
        document = (
            _prepared(information, method, reference)
            .execute(decided=decided, follow=record.followed(unwatched), reference=reference)
            .document()
        )
    except NoFeasiblePlanError:
        document = plans[-1].refused_document()
    document["record"] = record.id
    record.finished(document)
    return document


def _line(document: AgentRunDocument) -> str:
    execution = document["execution"]
    if execution is None:
        return f"no plan: {document['rejection']}"
    predicted = duration(execution["predicted_iteration_seconds"])
    measured = duration(execution["iteration_seconds"])
    return f"{measured} an iteration, predicted {predicted} ({execution['off']:+.0%})"


@dataclass(frozen=True)
class DemoWorld:
    """A folder with ``hosts.toml``, ``template.toml`` and ``user.toml``, and the CPUs of the competing load.

    Attributes
    ----------
    cpus
        The CPU of each host, in the order of `HOSTS`.
    loads
        CPUs to keep busy; a CPU that is listed twice gets two competing processes.
    """

    folder: Path
    grid: int
    cpus: tuple[int, ...]
    loads: tuple[int, ...]

    @classmethod
    def on_this_machine(cls, folder: Path, grid: int = 0) -> DemoWorld:
        """Write the files for this machine's CPUs and memory; `grid` 0: chosen by memory."""
        own = sorted(os.sched_getaffinity(0))
        cpus = tuple(own[k * len(own) // len(HOSTS)] for k in range(len(HOSTS)))
        busy = sorted(set(cpus[len(HOSTS) // 2 :]))
        loads = tuple(cpu for times, cpu in enumerate(busy, 1) for _ in range(times))
        world = cls(folder, grid or _grid(), cpus, loads)
        world._write({})
        return world

    def calibrated(self, found: Mapping[str, Mapping[str, SpeedFunction]]) -> DemoWorld:
        """Write the measured dedicated speeds into the host list, as in a good static list."""
        chosen = self.load(1).active_set.implementations
        rows = self.grid / len(HOSTS)
        self._write({host: found[host][chosen[host].name].at(rows) for host in HOSTS})
        return replace(self)

    def load(self, iterations: int) -> InformationPool:
        """Return the static information pool of the files."""
        files = (self.folder / name for name in ("hosts.toml", "template.toml", "user.toml"))
        return load_information(
            *files, settings={"grid": self.grid, "iterations": iterations}, weather="static"
        )

    def summary(self) -> str:
        """Return the hosts in one line."""
        parts = []
        for name, cpu in zip(HOSTS, self.cpus, strict=True):
            load = self.loads.count(cpu)
            parts.append(f"{name} on CPU {cpu}" + (f" beside {load} competing" if load else ""))
        return ", ".join(parts)

    def _write(self, speeds: Mapping[str, float]) -> None:
        lines = []
        for name, cpu in zip(HOSTS, self.cpus, strict=True):
            lines += ["[[host]]", f'name = "{name}"', f"cpus = [{cpu}]"]
            lines.append(
                f"cpu = {1 / self.cpus.count(cpu)} # shared by hosts, no load: a static view"
            )
            if name in speeds:
                lines.append(f"seconds_per_point = {speeds[name]!r}")
            lines.append("")
        lines += ["[default_link]", "latency = 2e-5", "bandwidth = 4e9", ""]
        (self.folder / "hosts.toml").write_text("\n".join(lines), encoding="utf-8")
        (self.folder / "user.toml").write_text("", encoding="utf-8")
        example = example_folder()
        template = hat.read(example / "template.toml", hat.ApplicationTemplate)
        program = ("{python}", str(example / "solver.py"))
        own = template.model_copy(update={"program": program, "active_set": PLAIN})
        (self.folder / "template.toml").write_text(hat.dump(own), encoding="utf-8")


@contextmanager
def own_state(folder: str) -> Iterator[None]:
    """Store the models that the demo learns in its own folder, not among the user's applications."""
    before = os.environ.get("XDG_STATE_HOME")
    os.environ["XDG_STATE_HOME"] = str(Path(folder) / "state")
    try:
        yield
    finally:
        if before is None:
            del os.environ["XDG_STATE_HOME"]
        else:
            os.environ["XDG_STATE_HOME"] = before


def _grid() -> int:
    free = psutil.virtual_memory().available * MEMORY_SHARE
    return int(max(SMALLEST_GRID, min(LARGEST_GRID, (free / 16) ** 0.5))) // 100 * 100
