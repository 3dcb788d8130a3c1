"""Prepare a simulation from command-line arguments, for simulate, report and sweep alike.

`--policy` and `--option k=v` become a policy and a `SimulationConfig`. This module also reads the CSV files of
failures, cancellations and demands, slices the workload and marks malleable jobs.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from importlib import import_module
from math import inf, isfinite
from pathlib import Path
from typing import Any

import numpy as np

from apples.errors import UsageError
from apples.scheduling.loading import is_of_user, load_policy, option_value
from apples.scheduling.passes import name_of
from apples.scheduling.policies import POLICIES
from apples.scheduling.policies.migration import LoadMigration
from apples.scheduling.policies.slowdown_driven import SlowdownDriven
from apples.scheduling.policies.slurm import factors_of
from apples.scheduling.policy import AdvanceReservation, SchedulingPolicy
from apples.simulation.config import (
    COSTS,
    Checkpointing,
    NodeFailure,
    OwnerLoad,
    Partition,
    ReconfigurationCost,
    SimulationConfig,
    SimulationResult,
)
from apples.simulation.log_validation import WaitExplanation, explain, waits_of_log
from apples.simulation.run import ENGINES, KERNELS, EngineName, simulate
from apples.simulation.sources import Source, is_generated, load_workload
from apples.simulation.speedup import parse_speedup
from apples.simulation.workload import NAMED, Workload, mark_malleable

MOST = 1e15
"""Largest number that an option or a file may contain."""


@dataclass(frozen=True)
class TableRow:
    """One row of an option's CSV file."""

    file: str
    line: int
    option: str
    numbers: tuple[float, ...]
    words: tuple[str, ...] = ()

    @property
    def where(self) -> str:
        """File and line, for messages."""
        return f"{self.file}:{self.line}"

    @property
    def place(self) -> dict[str, Any]:
        """File, line and option, as fields of an error."""
        return {"file": self.file, "line": self.line, "option": self.option}


def rows_of(words: Mapping[str, str], name: str, columns: int) -> list[tuple[float, ...]]:
    """Return the rows of the CSV file of option `name`, none without the option."""
    return [row.numbers for row in table_rows(words, name, columns)]


def table_rows(
    words: Mapping[str, str], name: str, columns: int, names: int = 0
) -> Iterator[TableRow]:
    """Yield the rows of the CSV file of option `name`, none without the option.

    Parameters
    ----------
    columns, names
        Count of numbers in a row, and maximum count of words after them.
    """
    if name not in words:
        return
    path = Path(words[name])
    try:
        with path.open(encoding="utf-8", newline="") as file:
            lines = list(csv.reader(file))
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        raise UsageError(
            f"{path}: {error.strerror or error}",
            code="file-missing" if missing else "file-unreadable",
            file=path,
            option=name,
        ) from error
    except (csv.Error, UnicodeDecodeError) as error:
        raise UsageError(
            f"{path}: {error}", code="file-invalid", file=path, option=name
        ) from error
    for number, line in enumerate(lines, 1):
        place = TableRow(str(path), number, name, ())
        where = place.where
        many = columns if len(line) > columns and names else len(line)
        try:
            row = [float(word) for word in line[:many]]
        except ValueError:
            if number == 1:
                continue
            raise UsageError(
                f"{where}: {','.join(line[:many])!r} are not numbers",
                code="value-type",
                **place.place,
                value=line[:many],
            ) from None
        if not all(abs(value) <= MOST for value in row):
            raise UsageError(
                f"{where}: a number beyond {MOST:g}", code="value-range", **place.place, bound=MOST
            )
        if not len(row) == columns <= len(line) <= columns + names:
            most = f" to {columns + names}" if names else ""
            raise UsageError(
                f"{where}: {len(line)} columns where {name} have {columns}{most}",
                code="columns-differ",
                **place.place,
                value=len(line),
                bound=columns,
            )
        yield replace(place, numbers=tuple(row), words=tuple(line[many:]))


def reservations_of(words: Mapping[str, str], nodes: int) -> tuple[AdvanceReservation, ...]:
    """Return the advance reservations of the file of option `reservations`."""
    found = []
    for row in table_rows(words, "reservations", 3, 1):
        begin, seconds, count = row.numbers
        if not seconds > 0:
            raise UsageError(
                f"{row.where}: a reservation of {seconds:g} s: its duration is more than 0",
                code="value-range",
                **row.place,
                field="seconds",
                value=seconds,
                bound=0,
            )
        if not (1 <= count <= nodes and count == int(count)):
            raise UsageError(
                f"{row.where}: {count:g} nodes reserved, of a machine of {nodes}",
                code="value-range",
                **row.place,
                field="nodes",
                value=count,
                bound=nodes,
            )
        name = (row.words or ("",))[0].strip() or f"of line {row.line}"
        found.append(AdvanceReservation(begin, begin + seconds, int(count), name))
    return tuple(sorted(found))


def demands_of(words: Mapping[str, str]) -> dict[int, tuple[tuple[float, int], ...]]:
    """Return the requests of each evolving job: (fraction of its work done, processors), in order."""
    demands: dict[int, tuple[tuple[float, int], ...]] = {}
    for row in sorted(table_rows(words, "demands", 3), key=lambda row: row.numbers):
        job, part, processors = row.numbers
        if not 0 <= part < 1 or processors < 1:
            raise UsageError(
                f"{row.where}: job {job:g}: part {part:g} must be in 0..1, {processors:g} processors at least 1",
                code="value-range",
                **row.place,
                job=int(job),
                field="processors" if processors < 1 else "part",
                value=processors if processors < 1 else part,
            )
        demands[int(job)] = (*demands.get(int(job), ()), (part, int(processors)))
    return demands


#: Options of the simulation; all others belong to the policy.
SIMULATION_OPTIONS: Mapping[str, str] = {
    "clean": "default, predictsim (also sets ties=predictsim)",
    "ties": "instant, event, predictsim",
    "speedup": "linear, amdahl:F, downey:A,SIGMA, table:N=S,..",
    "model": "ideal, worst: run time of jobs that share nodes",
    "minimum": "least processors of a malleable job, part of those asked for",
    "maximum": "most processors of a malleable job, multiple of those asked for",
    "cost": "none, kale, stall",
    "shrink_seconds": "stall of a shrink",
    "expand_seconds": "stall of an expansion",
    "resize_wait": "seconds that a resize waits for the job's next safe point",
    "resize": "CSV file of measured resizes: before,after,wait,stall (nodes, nodes, s, s)",
    "release": "confirmed, at_once: when the nodes of a shrunk job are free",
    "data_bytes": "data of a job that moves when it is resized",
    "bandwidth": "bytes a second at which it moves",
    "overrun_seconds": "guess for a job that runs beyond its request, doubled each time",
    "limits": "overrun, kill: a job that reaches its requested time continues, or ends",
    "grace": "seconds after its limit at which a job is killed",
    "checkpoint": "SECONDS[,cost=SECONDS]: a lost run goes on from its last checkpoint",
    "idle_watts": "of a node",
    "busy_watts": "of a node",
    "failures": "CSV file: time,node,repaired",
    "owners": "CSV file: time,node,load: other users' processes on a node from then on",
    "owner_first": "on, off: whether these processes come before jobs",
    "mtbf": "mean seconds between failures of a node (with mttr)",
    "mttr": "mean seconds to repair",
    "cancellations": "CSV file: job,time",
    "dependencies": "on, off: whether a job waits for the end of the job that its log names",
    "reservations": "CSV file: start,duration,nodes[,name]: nodes kept from jobs for a time",
    "demands": "CSV file: job,part,processors (evolving jobs)",
    "priorities": "NAME:NUMBER,..: of qualities of service or queues, for order=priority",
    "engine": "auto, events, kernel",
    "machine": "TOML file: partitions, with memory, GPUs and speed of their nodes",
    "topology": "hwloc XML, synthetic string or origin:CPUS: places matter",
    "placement": "best, first, spread, random",
    "requirement": "CPUSET[...] of every job",
    "sensitivity": "how much longer a job takes at the mean distance of all CPUs, part of its time",
}
PLACES = frozenset({"topology", "placement", "requirement", "sensitivity"})
"""Options for the placement of jobs."""
BOUNDS = ("minimum", "maximum")
RESIZE_COSTS = (
    "cost",
    "shrink_seconds",
    "expand_seconds",
    "resize_wait",
    "data_bytes",
    "bandwidth",
)
MAX_FAILURES = 1e6
NUMBERS = (
    "minimum", "maximum", "shrink_seconds", "expand_seconds", "resize_wait", "data_bytes", "bandwidth",
    "idle_watts", "busy_watts", "mtbf", "mttr", "sensitivity", "overrun_seconds",
    "grace",
)  # fmt: skip


@dataclass(frozen=True)
class SimulationOptions:
    """The options of `--option`, for the simulation and for the policy."""

    simulation: Mapping[str, str]
    policy: Mapping[str, str]

    def number(self, name: str, default: float) -> float:
        """Return the number of a simulation option."""
        if name not in self.simulation:
            return default
        try:
            number = float(self.simulation[name])
        except ValueError as error:
            raise UsageError(
                f"option {name}={self.simulation[name]}: not a number",
                code="value-type",
                option=name,
                value=self.simulation[name],
            ) from error
        if not isfinite(number) or abs(number) > MOST:
            raise UsageError(
                f"option {name}={self.simulation[name]}: not a number up to {MOST:g}",
                code="value-range",
                option=name,
                value=self.simulation[name],
                bound=MOST,
            )
        return number

    def switch(self, name: str) -> bool:
        """Return a simulation option that is on or off; default: off."""
        value = option_value(self.simulation.get(name, "off"))
        if not isinstance(value, bool):
            raise UsageError(
                f"option {name}={self.simulation[name]}: not on or off",
                code="value-type",
                option=name,
                value=self.simulation[name],
            )
        return value

    @property
    def checkpoint(self) -> Checkpointing | None:
        """Interval and cost of checkpoints, None without the option."""
        if "checkpoint" not in self.simulation:
            return None
        word = self.simulation["checkpoint"]
        interval, comma, cost = word.partition(",cost=")
        try:
            numbers = float(interval), float(cost) if comma else 0.0
        except ValueError:
            numbers = inf, inf
        if not all(0 <= number <= MOST for number in numbers):
            raise UsageError(
                f"option checkpoint={word}: SECONDS or SECONDS,cost=SECONDS, as in 3600,cost=60",
                code="value-invalid",
                option="checkpoint",
                value=word,
            )
        return Checkpointing(*numbers)

    @property
    def clean(self) -> str:
        """The cleaning rule."""
        return self.simulation.get("clean", "default")

    @property
    def engine(self) -> EngineName:
        """The engine asked for."""
        name = self.simulation.get("engine", "auto")
        for engine in ENGINES:
            if engine == name:
                return engine
        raise UsageError(
            f"option engine={name}: not one of {', '.join(ENGINES)}",
            code="value-unknown",
            option="engine",
            value=name,
            known=list(ENGINES),
        )


def parse_options(words: Sequence[str]) -> SimulationOptions:
    """Parse `k=v` words and separate simulation options from policy options."""
    pairs = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise UsageError(
                f"option {word!r}: not of the form name=value",
                code="value-invalid",
                option="--option",
                value=word,
            )
        pairs[key] = value
    return SimulationOptions(
        {key: value for key, value in pairs.items() if key in SIMULATION_OPTIONS},
        {key: value for key, value in pairs.items() if key not in SIMULATION_OPTIONS},
    )


def config_of(
    options: SimulationOptions,
    processors: int,
    nodes: int | None,
    cores: int | None,
    *,
    seed: int,
    begin: float,
    end: float,
) -> SimulationConfig:
    """Return the configuration that the options describe.

    Parameters
    ----------
    processors, nodes, cores
        If nodes and cores are given, jobs get whole nodes; otherwise the machine allocates single processors.
    seed, begin, end
        Seed of random failures, and the interval of seconds in which they occur.
    """
    if (nodes is None) != (cores is None):
        raise UsageError(
            "--nodes and --cores-per-node go together",
            code="option-missing",
            option="--nodes" if nodes is None else "--cores-per-node",
        )
    if nodes is None or cores is None:
        nodes, cores = processors, 1
    elif nodes * cores != processors:
        raise UsageError(
            f"{nodes} nodes x {cores} cores are not {processors} processors",
            code="option-conflict",
            options=["--nodes", "--cores-per-node", "--processors"],
            value=processors,
            bound=nodes * cores,
        )
    words = options.simulation
    for name in NUMBERS:
        options.number(name, 0.0)
    cost = _cost_of(options)
    if ("idle_watts" in words) != ("busy_watts" in words):
        raise UsageError(
            "options idle_watts and busy_watts go together",
            code="option-missing",
            option="busy_watts" if "idle_watts" in words else "idle_watts",
        )
    config = SimulationConfig(
        nodes=nodes,
        cores_per_node=cores,
        ties=words.get("ties", "predictsim" if options.clean == "predictsim" else "instant"),
        speedup=parse_speedup(words.get("speedup", "linear")),
        cost=cost,
        release=words.get("release", "confirmed"),
        runtime_model=words.get("model", "ideal"),
        overrun_seconds=options.number("overrun_seconds", 60.0),
        limits=words.get("limits", "overrun"),
        grace=options.number("grace", 0.0),
        checkpoint=options.checkpoint,
        cancellations={int(j): t for j, t in rows_of(words, "cancellations", 2)},
        demands=demands_of(words),
        advance=reservations_of(words, nodes),
    )
    if "idle_watts" in words:
        config = replace(
            config,
            idle_watts=options.number("idle_watts", 0),
            busy_watts=options.number("busy_watts", 0),
        )
    return replace(
        config, failures=_failures(options, nodes, seed, begin, end),
        owners=_owners(words, nodes), owner_first=options.switch("owner_first"),
    )  # fmt: skip


def _owners(words: Mapping[str, str], nodes: int) -> tuple[OwnerLoad, ...]:
    """Return the loads of nodes by other users from the file of option `owners`, in the order of times."""
    found = []
    for row in table_rows(words, "owners", 3):
        time, node, others = row.numbers
        if not (0 <= node < nodes and node == int(node)):
            raise UsageError(
                f"{row.where}: node {node:g} of a machine of {nodes}: they are 0 to {nodes - 1}",
                code="value-range",
                **row.place,
                field="node",
                value=node,
                bound=nodes - 1,
            )
        if others < 0:
            raise UsageError(
                f"{row.where}: a load of {others:g}: it is 0 or more",
                code="value-range",
                **row.place,
                field="load",
                value=others,
                bound=0,
            )
        found.append(OwnerLoad(time, int(node), others))
    return tuple(sorted(found, key=lambda one: (one.time, one.node)))


def _cost_of(options: SimulationOptions) -> ReconfigurationCost:
    """Return the cost of a resize: one of `COSTS`, with replacements from other options."""
    words = options.simulation
    if words.get("cost", "none") not in COSTS:
        raise UsageError(
            f"option cost={words['cost']}: not one of {', '.join(COSTS)}",
            code="value-unknown",
            option="cost",
            value=words["cost"],
            known=[*COSTS],
        )
    preset = COSTS[words.get("cost", "none")]
    cost = ReconfigurationCost(
        shrink=options.number("shrink_seconds", preset.shrink),
        expand=options.number("expand_seconds", preset.expand),
        data_bytes=options.number("data_bytes", preset.data_bytes),
        bandwidth=options.number("bandwidth", preset.bandwidth),
        wait=options.number("resize_wait", preset.wait),
        curve=_curve_of(words),
    )
    if min(cost.shrink, cost.expand, cost.wait, cost.data_bytes) < 0 or not cost.bandwidth > 0:
        raise UsageError(
            f"the costs of a resize must be 0 or more, its bandwidth above 0: {cost}",
            code="value-range",
            option="cost",
            shrink=cost.shrink,
            expand=cost.expand,
            wait=cost.wait,
            data_bytes=cost.data_bytes,
            bandwidth=cost.bandwidth,
        )
    if cost.move_seconds > MOST:
        raise UsageError(
            f"{cost.data_bytes:g} bytes at {cost.bandwidth:g} a second never arrive",
            code="value-range",
            option="bandwidth",
            value=cost.bandwidth,
        )
    return cost


def _curve_of(words: Mapping[str, str]) -> tuple[tuple[float, float, float, float], ...]:
    """Return the measured resizes of the file of option `resize`."""
    rows = []
    for row in table_rows(words, "resize", 4):
        before, after, wait, stall = row.numbers
        if min(before, after) < 1 or before == after or min(wait, stall) < 0:
            raise UsageError(
                f"{row.where}: from {before:g} to {after:g} nodes in {wait:g} + {stall:g} s: nodes must differ "
                "and be at least 1, seconds at least 0",
                code="value-range",
                **row.place,
                value=[before, after, wait, stall],
            )
        rows.append((before, after, wait, stall))
    if rows and not ({b < a for a, b, *_ in rows} == {True, False}):
        raise UsageError(
            "option resize: needs at least one shrink and one expansion",
            code="value-missing",
            option="resize",
            value=words["resize"],
        )
    return tuple(rows)


def _failures(
    options: SimulationOptions, nodes: int, seed: int, begin: float, end: float
) -> tuple[NodeFailure, ...]:
    failures = []
    for row in table_rows(options.simulation, "failures", 3):
        time, node, repaired = row.numbers
        if not 0 <= node < nodes or not repaired > time:
            raise UsageError(
                f"{row.where}: node {node:g} fails at {time:g} s, is repaired at {repaired:g} s: nodes are 0 to "
                f"{nodes - 1}, and a repair comes after its failure",
                code="value-range",
                **row.place,
                field="repaired" if 0 <= node < nodes else "node",
                value=repaired if 0 <= node < nodes else node,
                bound=time if 0 <= node < nodes else nodes - 1,
            )
        failures.append(NodeFailure(time, int(node), repaired))
    if ("mtbf" in options.simulation) != ("mttr" in options.simulation):
        raise UsageError(
            "options mtbf and mttr go together",
            code="option-missing",
            option="mttr" if "mtbf" in options.simulation else "mtbf",
        )
    if "mtbf" in options.simulation:
        between, repair = options.number("mtbf", 0), options.number("mttr", 0)
        if not (between > 0 and repair > 0):
            raise UsageError(
                "options mtbf and mttr must be positive",
                code="value-range",
                option="mttr" if between > 0 else "mtbf",
                value=repair if between > 0 else between,
                bound=0,
            )
        expected = nodes * (end - begin) / (between + repair)
        if expected > MAX_FAILURES:
            raise UsageError(
                f"options mtbf and mttr: about {expected:.3g} failures; at most {MAX_FAILURES} are simulated",
                code="value-range",
                option="mtbf",
                value=between,
                failures=expected,
                bound=MAX_FAILURES,
            )
        rng = np.random.default_rng((seed, 1))
        for node in range(nodes):
            time = begin + float(rng.exponential(between))
            while time < end:
                back = time + float(rng.exponential(repair))
                failures.append(NodeFailure(time, node, back))
                time = back + float(rng.exponential(between))
    return tuple(sorted(failures, key=lambda f: (f.time, f.node)))


MAX_PROCESSORS = 1 << 40


@dataclass(frozen=True)
class PreparedSimulation:
    """A simulation that is ready to run.

    Attributes
    ----------
    source
        The log as read, and the changes by cleaning.
    workload
        The jobs after marking and slicing.
    malleable
        Fraction of malleable jobs.
    """

    source: Source
    options: SimulationOptions
    policy: SchedulingPolicy
    workload: Workload
    config: SimulationConfig
    malleable: float

    def run(self, record: bool = False) -> SimulationResult:
        """Return the result; text that a user's policy prints goes to stderr."""
        with redirect_stdout(sys.stderr):
            return simulate(
                self.workload, self.policy, self.config, engine=self.options.engine, record=record
            )


def size_of(processors: int | None, nodes: int | None, cores: int | None) -> int | None:
    """Return the processors of the machine in the options, None without such options."""
    if processors is None and nodes is not None and cores is not None:
        processors = nodes * cores
    if processors is None:
        return None
    if not 1 <= processors <= MAX_PROCESSORS:
        raise UsageError(
            f"--processors {processors}: a machine has at least one, at most {MAX_PROCESSORS}",
            code="value-range",
            option="--processors",
            value=processors,
            bound=[1, MAX_PROCESSORS],
        )
    return processors


def options_of_policy(policy: str, words: Sequence[str]) -> list[str]:
    """Return the options for a policy: `name=value`, or `POLICY:name=value` for this policy only."""
    return [
        word.removeprefix(f"{policy}:")
        for word in words
        if ":" not in word.split("=")[0] or word.startswith(f"{policy}:")
    ]


def _check_resize_options(chosen: SchedulingPolicy, name: str, words: Mapping[str, str]) -> None:
    """Reject options of resizes for SD-Policy, which shares nodes and resizes no malleable job.

    SD-Policy still resizes an evolving job (`demands`) and a job that leaves an owner's node (`owners`).
    """
    if not isinstance(chosen, SlowdownDriven):
        return
    unused = [*BOUNDS, *(() if {"demands", "owners"} & words.keys() else RESIZE_COSTS)]
    for option in unused:
        if option in words:
            raise UsageError(
                f"option {option}={words[option]}: does not apply to --policy {name}: its malleable jobs share "
                f"nodes and are not resized; for another policy, write POLICY:{option}={words[option]}",
                code="option-not-applicable",
                option=option,
                value=words[option],
                policy=name,
            )


def prepare(
    log: str, policy: str, words: Sequence[str], *, processors: int | None, nodes: int | None,
    cores: int | None, malleable: float | None, seed: int, strict: bool = False,
    attributes: Sequence[str] = (),
) -> PreparedSimulation:  # fmt: skip
    """Return a simulation of a log.

    Parameters
    ----------
    processors, nodes, cores
        Size of the machine; default: the size in the log's header.
    malleable
        Fraction of malleable jobs; None: all jobs if the policy resizes jobs, otherwise none.
    attributes
        Attributes of jobs for other policies that will run on the same workload.

    Raises
    ------
    UsageError
        An option or the log is invalid. Permanent.
    """
    options = parse_options(words)
    with redirect_stdout(sys.stderr):
        chosen = load_policy(policy, options.policy, SIMULATION_OPTIONS)
    _check_resize_options(chosen, policy, options.simulation)
    if seed < 0:
        raise UsageError(
            f"--seed {seed}: a seed is 0 or more",
            code="value-range",
            option="--seed",
            value=seed,
            bound=0,
        )
    machine = _machine_of(options, any(one is not None for one in (processors, nodes, cores)))
    looked_at = {*_attributes_of(chosen), *attributes}
    factors = factors_of(options.simulation.get("priorities", ""), "priorities")
    source = load_workload(
        log, size_of(processors, nodes, cores), options.clean, strict=strict, seed=seed,
        attributes=sorted(looked_at - {"priority"}),
        dependencies=options.switch("dependencies"), machine=machine,
        limits_kill=options.simulation.get("limits") == "kill",
        priorities=factors if "priority" in looked_at else None,
    )  # fmt: skip
    if factors and "priority" not in looked_at:
        note = f"priorities that {policy} does not look at"
        source = replace(
            source, cleaning=replace(source.cleaning, notes=(*source.cleaning.notes, note))
        )
    workload = source.workload
    if malleable is None:
        malleable = 1.0 if getattr(chosen, "uses_malleable", False) else 0.0
    if malleable and not workload.malleable.any():  # jobs of a model may be malleable already
        workload = mark_malleable(
            workload, malleable, seed,
            minimum=options.number("minimum", 0.5),
            maximum=options.number("maximum", 1.0), most=source.processors,
        )  # fmt: skip
    begin = float(workload.submit[0])
    end = float(workload.submit[-1] + workload.run.sum() / max(1, source.processors // 64))
    size = source.processors
    if machine:
        alike = {part.cores for part in machine}
        nodes, cores = sum(part.nodes for part in machine), max(alike) if len(alike) == 1 else 1
        size = nodes * cores
    config = config_of(options, size, nodes, cores, seed=seed, begin=begin, end=end)
    fallback = is_of_user(policy) and not strict
    config = replace(
        config, partitions=machine, fallback=fallback, dependencies=source.dependencies
    )
    if not PLACES.isdisjoint(options.simulation):
        if machine:
            raise UsageError(
                "option topology: is of one machine; not with option machine",
                code="option-conflict",
                options=["topology", "machine"],
            )
        placement = import_module("apples.simulation.placement")  # loads topology
        chosen, config = placement.with_placement(
            options.simulation, chosen, config, seed, options.number("sensitivity", 0.0)
        )
        if config.slowdown is not None and not config.kills:  # keeps every job within its estimate
            workload = replace(workload, requested=workload.requested * config.slowdown.most)
    return PreparedSimulation(source, options, chosen, workload, config, malleable)


def _machine_of(options: SimulationOptions, is_sized: bool) -> tuple[Partition, ...]:
    """Return the partitions of the machine file in the options, none without a file."""
    if "machine" not in options.simulation:
        return ()
    if is_sized:
        raise UsageError(
            "option machine: the file gives the machine's size; leave out --processors, --nodes and "
            "--cores-per-node",
            code="option-conflict",
            options=["machine", "--processors", "--nodes", "--cores-per-node"],
        )
    file = import_module("apples.simulation.machine_file")  # with pydantic
    machine: tuple[Partition, ...] = file.read_machine(options.simulation["machine"])
    size_of(sum(part.processors for part in machine), None, None)
    return machine


MAX_BY_EVENTS = 50_000
"""Maximum number of jobs for unnamed policies without a kernel: some tens of seconds."""


def _attributes_of(policy: SchedulingPolicy) -> tuple[str, ...]:
    """Return the attributes that a policy reads beside nodes and times; raise for an unknown attribute."""
    wanted = tuple(getattr(policy, "looks_at", ()))
    known = ("reservations", "loads", "priority", *NAMED)
    unknown = [name for name in wanted if name not in known]
    if unknown:
        name = name_of(policy)
        raise UsageError(
            f"policy {name}: looks at {unknown[0]!r}: not one of {', '.join(known)}",
            code="field-unknown",
            policy=name,
            field=unknown[0],
            known=[*known],
        )
    return tuple(name for name in wanted if name not in {"reservations", "loads"})


def base_policies() -> tuple[str, ...]:
    """Return the names of the built-in policies that resize and move no job, as a site may have used."""
    return tuple(
        name
        for name, policy in POLICIES.items()
        if not (policy.uses_malleable or issubclass(policy, LoadMigration))
    )


def explain_waits(
    log: str, policy: str | None, words: Sequence[str], *, processors: int | None, nodes: int | None,
    cores: int | None, seed: int, strict: bool = False, most_by_events: int = MAX_BY_EVENTS,
) -> WaitExplanation:  # fmt: skip
    """Return the base policy that explains the waits in a log best, or the fit of the named policy.

    Parameters
    ----------
    most_by_events
        Maximum number of jobs for unnamed policies without a kernel.

    Raises
    ------
    UsageError
        The source is a model or a log without waits, or an option is invalid. Permanent.
    """
    if is_generated(log):
        raise UsageError(
            f"{log}: a model workload has no waits; --explain-waits needs a log",
            code="option-not-applicable",
            option="--explain-waits",
            log=log,
        )
    names = [*base_policies(), *([policy] if policy and policy not in POLICIES else [])]
    if policy is not None and policy in POLICIES and policy not in names:
        does = "resizes" if POLICIES[policy].uses_malleable else "moves"
        raise UsageError(
            f"--explain-waits: {policy} {does} jobs; a log has rigid jobs only",
            code="policy-unsuitable",
            option="--explain-waits",
            policy=policy,
        )
    read, waits = waits_of_log(Path(log))
    policies = {
        name: load_policy(
            name, parse_options(options_of_policy(name, words)).policy, SIMULATION_OPTIONS
        )
        for name in names
    }
    attributes = [name for one in policies.values() for name in _attributes_of(one)]
    made = prepare(
        log, names[0], options_of_policy(names[0], words), processors=processors, nodes=nodes,
        cores=cores, malleable=0.0, seed=seed, strict=strict, attributes=attributes,
    )  # fmt: skip
    slow = [
        name
        for name in names
        if len(made.workload) > most_by_events and name != policy and POLICIES[name] not in KERNELS
    ]
    policies = {name: one for name, one in policies.items() if name not in slow}
    config = replace(made.config, fallback=not strict)
    with redirect_stdout(sys.stderr):
        explained = explain(policies, made.workload, config, read, waits)
    return replace(explained, not_tried=tuple(slow))
