"""From a command's words to what is simulated: one way for simulate, report and sweep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from apples.errors import UsageError
from apples.scheduling.policy import SchedulingPolicy
from apples.simulation.options import Options, load_policy, make_setting, parse_options
from apples.simulation.placing import DistanceSlowdown, placed
from apples.simulation.run import simulate
from apples.simulation.setting import Schedule, Setting
from apples.simulation.sources import Source, load_workload
from apples.simulation.workload import Workload, mark_malleable

MOST_PROCESSORS = 1 << 40


@dataclass(frozen=True)
class Prepared:
    """A simulation that is ready to run.

    Attributes
    ----------
    source
        What was read, and what cleaning did to it.
    workload
        The jobs, marked and sliced.
    malleable
        Fraction of the jobs that can be resized.
    """

    source: Source
    options: Options
    policy: SchedulingPolicy
    workload: Workload
    setting: Setting
    malleable: float

    def run(self, record: bool = False) -> Schedule:
        """Return what becomes of the jobs."""
        return simulate(
            self.workload, self.policy, self.setting, engine=self.options.engine, record=record
        )


def size_of(processors: int | None, nodes: int | None, cores: int | None) -> int | None:
    """Return the processors of the machine the options describe, None if they say nothing."""
    if processors is None and nodes is not None and cores is not None:
        processors = nodes * cores
    if processors is None:
        return None
    if not 1 <= processors <= MOST_PROCESSORS:
        raise UsageError(
            f"--processors {processors}: a machine has at least one, at most {MOST_PROCESSORS}"
        )
    return processors


def named(policy: str, words: Sequence[str]) -> list[str]:
    """Return the options that are for a policy: `name=value`, or `POLICY:name=value` of its own."""
    return [
        word.removeprefix(f"{policy}:")
        for word in words
        if ":" not in word.split("=")[0] or word.startswith(f"{policy}:")
    ]


def prepare(
    log: str, policy: str, words: Sequence[str], *, processors: int | None, nodes: int | None,
    cores: int | None, malleable: float | None, seed: int, strict: bool = False,
    part: int = 0, parts: int = 1,
) -> Prepared:  # fmt: skip
    """Return a simulation of a log, or of the `part`-th of `parts` slices of it equal in jobs.

    Parameters
    ----------
    processors, nodes, cores
        The machine; without them the log's header says how large it is.
    malleable
        Fraction of the jobs; None: all if the policy resizes jobs, else none.

    Raises
    ------
    UsageError
        Whatever is wrong with the words or the log. Permanent.
    """
    options = parse_options(words)
    chosen = load_policy(policy, options.policy)
    if seed < 0:
        raise UsageError(f"--seed {seed}: a seed is 0 or more")
    source = load_workload(
        log, size_of(processors, nodes, cores), options.clean, strict=strict, seed=seed
    )
    workload = source.workload
    if not 0 <= part < parts <= len(workload):
        raise UsageError(f"{log}: {len(workload)} jobs do not make {parts} slices")
    bounds = np.linspace(0, len(workload), parts + 1).astype(int)
    workload = workload.take(slice(int(bounds[part]), int(bounds[part + 1])))
    if malleable is None:
        malleable = 1.0 if getattr(chosen, "uses_malleable", False) else 0.0
    if malleable and not workload.malleable.any():  # a model's jobs may be malleable already
        workload = mark_malleable(
            workload, malleable, seed,
            minimum=options.number("minimum", 0.5),
            maximum=options.number("maximum", 1.0), most=source.processors,
        )  # fmt: skip
    begin = float(workload.submit[0])
    end = float(workload.submit[-1] + workload.run.sum() / max(1, source.processors // 64))
    setting = make_setting(
        options, source.processors, nodes, cores, seed=seed, begin=begin, end=end
    )
    chosen, setting = placed(
        options.simulation, chosen, setting, seed, options.number("sensitivity", 0.0)
    )
    if isinstance(setting.slowdown, DistanceSlowdown):  # no job outlives its estimate
        workload = replace(workload, requested=workload.requested * setting.slowdown.most)
    return Prepared(source, options, chosen, workload, setting, malleable)
