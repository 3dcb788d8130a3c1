"""From words to policies and settings: what `--policy` and `--option k=v` mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from math import isfinite

import numpy as np

from apples.errors import UsageError
from apples.plugins import did_you_mean, resolve, where_in_users_code
from apples.scheduling.policies import POLICIES
from apples.scheduling.policy import SchedulingPolicy
from apples.simulation.run import EngineName
from apples.simulation.setting import COSTS, Failure, ReconfigurationCost, Setting
from apples.simulation.speedup import parse_speedup
from apples.simulation.tables import MOST, demands_of, rows_of

#: Options of the simulation; all others are the policy's.
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
    "data_bytes": "data of a job that moves when it is resized",
    "bandwidth": "bytes a second at which it moves",
    "idle_watts": "of a node",
    "busy_watts": "of a node",
    "failures": "CSV file: time,node,repaired",
    "mtbf": "mean seconds between failures of a node (with mttr)",
    "mttr": "mean seconds to repair",
    "cancellations": "CSV file: job,time",
    "demands": "CSV file: job,part,processors (evolving jobs)",
    "engine": "auto, events",
    "topology": "hwloc XML, synthetic string or origin:CPUS: places matter",
    "placement": "best, first, spread, random",
    "requirement": "CPUSET[...] of every job",
    "sensitivity": "how much longer a job takes at the mean distance of all CPUs, part of its time",
}
MOST_FAILURES = 1e6
NUMBERS = (
    "minimum", "maximum", "shrink_seconds", "expand_seconds", "data_bytes", "bandwidth",
    "idle_watts", "busy_watts", "mtbf", "mttr", "sensitivity",
)  # fmt: skip


@dataclass(frozen=True)
class Options:
    """The words of `--option`, sorted by whom they are for."""

    simulation: Mapping[str, str]
    policy: Mapping[str, str]

    def number(self, name: str, default: float) -> float:
        """Return a number among the simulation's options."""
        if name not in self.simulation:
            return default
        try:
            number = float(self.simulation[name])
        except ValueError as error:
            raise UsageError(f"option {name}={self.simulation[name]}: not a number") from error
        if not isfinite(number) or abs(number) > MOST:
            raise UsageError(f"option {name}={self.simulation[name]}: not a number up to {MOST:g}")
        return number

    @property
    def clean(self) -> str:
        """The cleaning rule."""
        return self.simulation.get("clean", "default")

    @property
    def engine(self) -> EngineName:
        """The engine asked for."""
        name = self.simulation.get("engine", "auto")
        if name == "auto":
            return "auto"
        if name == "events":
            return "events"
        raise UsageError(f"option engine={name}: auto or events")


def parse_options(words: Sequence[str]) -> Options:
    """Sort `k=v` words."""
    pairs = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise UsageError(f"option {word!r}: not of the form name=value")
        pairs[key] = value
    return Options(
        {key: value for key, value in pairs.items() if key in SIMULATION_OPTIONS},
        {key: value for key, value in pairs.items() if key not in SIMULATION_OPTIONS},
    )


def load_policy(name: str, options: Mapping[str, str]) -> SchedulingPolicy:
    """Return the policy of a name, or a user's own: `FILE.py:NAME` or `module:NAME`.

    Raises
    ------
    UsageError
        No such policy, file or name; an option it does not have. Permanent.
    """
    made = resolve(name, POLICIES, "policy")
    known = _fields_of(made)
    for key, text in options.items():
        if known is not None and key not in known:
            hint = did_you_mean(key, [*known, *SIMULATION_OPTIONS])
            raise UsageError(
                f"option {key}: {hint}policy {name} has {', '.join(known) or 'none'}; "
                f"a simulation has {', '.join(SIMULATION_OPTIONS)}"
            )
        if known is not None and not _is_a(known[key], _value(text)):
            raise UsageError(f"option {key}={text}: not {MEANT[known[key]]}")
    values = {key: _value(text) for key, text in options.items()}
    try:
        policy = made(**values)
    except UsageError:
        raise
    except Exception as error:
        failed = where_in_users_code(error) or f"policy {name}"
        raise UsageError(f"{failed}: {type(error).__name__}: {error}") from error
    if not callable(getattr(policy, "decide", None)):
        raise UsageError(f"policy {name}: has no method decide(cluster)")
    return policy


def _fields_of(made: object) -> dict[str, str] | None:
    """Return the fields of a dataclass and their annotations as text, None for anything else."""
    if not (isinstance(made, type) and is_dataclass(made)):
        return None
    return {one.name: str(getattr(one.type, "__name__", one.type)) for one in fields(made)}


#: What an option of a policy may be, by the annotation of its field.
MEANT: Mapping[str, str] = {"bool": "on or off", "int": "a whole number", "float": "a number"}


def _is_a(kind: str, value: bool | int | float | str) -> bool:
    """Return whether a value is what a field's annotation says, where that is plain."""
    allowed = {"bool": (bool,), "int": (int,), "float": (int, float)}
    return kind not in allowed or type(value) in allowed[kind]


def _value(text: str) -> bool | int | float | str:
    words = {"true": True, "on": True, "false": False, "off": False}
    if text.lower() in words:
        return words[text.lower()]
    try:
        number = float(text)
    except ValueError:
        return text
    return int(number) if text.lstrip("+-").isdigit() else number


def make_setting(
    options: Options,
    processors: int,
    nodes: int | None,
    cores: int | None,
    *,
    seed: int,
    begin: float,
    end: float,
) -> Setting:
    """Return the setting the options describe.

    Parameters
    ----------
    processors, nodes, cores
        Nodes and cores together make whole nodes; without them processors are given out singly.
    seed, begin, end
        Of random failures, and between which seconds they happen.
    """
    if (nodes is None) != (cores is None):
        raise UsageError("--nodes and --cores-per-node go together")
    if nodes is None or cores is None:
        nodes, cores = processors, 1
    elif nodes * cores != processors:
        raise UsageError(f"{nodes} nodes x {cores} cores are not {processors} processors")
    words = options.simulation
    for name in NUMBERS:
        options.number(name, 0.0)
    if words.get("cost", "none") not in COSTS:
        raise UsageError(f"option cost={words['cost']}: not one of {', '.join(COSTS)}")
    preset = COSTS[words.get("cost", "none")]
    cost = ReconfigurationCost(
        shrink=options.number("shrink_seconds", preset.shrink),
        expand=options.number("expand_seconds", preset.expand),
        data_bytes=options.number("data_bytes", preset.data_bytes),
        bandwidth=options.number("bandwidth", preset.bandwidth),
    )
    if min(cost.shrink, cost.expand, cost.data_bytes) < 0 or not cost.bandwidth > 0:
        raise UsageError(f"a resize cannot cost less than nothing: {cost}")
    if cost.move_seconds > MOST:
        raise UsageError(f"{cost.data_bytes:g} bytes at {cost.bandwidth:g} a second never arrive")
    if ("idle_watts" in words) != ("busy_watts" in words):
        raise UsageError("options idle_watts and busy_watts go together")
    setting = Setting(
        nodes=nodes,
        cores_per_node=cores,
        ties=words.get("ties", "predictsim" if options.clean == "predictsim" else "instant"),
        speedup=parse_speedup(words.get("speedup", "linear")),
        cost=cost,
        runtime_model=words.get("model", "ideal"),
        cancellations={int(j): t for j, t in rows_of(words, "cancellations", 2)},
        demands=demands_of(words),
    )
    if "idle_watts" in words:
        setting = replace(
            setting,
            idle_watts=options.number("idle_watts", 0),
            busy_watts=options.number("busy_watts", 0),
        )
    return replace(setting, failures=_failures(options, nodes, seed, begin, end))


def _failures(
    options: Options, nodes: int, seed: int, begin: float, end: float
) -> tuple[Failure, ...]:
    failures = [
        Failure(t, int(node), back) for t, node, back in rows_of(options.simulation, "failures", 3)
    ]
    for failure in failures:
        if not 0 <= failure.node < nodes or not failure.repaired > failure.time:
            raise UsageError(f"option failures: {failure} on {nodes} nodes")
    if ("mtbf" in options.simulation) != ("mttr" in options.simulation):
        raise UsageError("options mtbf and mttr go together")
    if "mtbf" in options.simulation:
        between, repair = options.number("mtbf", 0), options.number("mttr", 0)
        if not (between > 0 and repair > 0):
            raise UsageError("options mtbf and mttr must be positive")
        expected = nodes * (end - begin) / (between + repair)
        if expected > MOST_FAILURES:
            raise UsageError(f"options mtbf and mttr: {expected:.3g} failures to be expected")
        rng = np.random.default_rng((seed, 1))
        for node in range(nodes):
            time = begin + float(rng.exponential(between))
            while time < end:
                back = time + float(rng.exponential(repair))
                failures.append(Failure(time, node, back))
                time = back + float(rng.exponential(between))
    return tuple(sorted(failures, key=lambda f: (f.time, f.node)))
