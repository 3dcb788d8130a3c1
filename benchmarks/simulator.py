"""The speed of the simulator: jobs a second of CPU time, and ratios between its engines.

The reference is an EASY scheduler of the usual kind: lists, and a scan of the queue and of the running jobs at
every event.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from apples.scheduling import (
    Easy,
    Equipartition,
    FirstFit,
    Job,
    JobKind,
    SchedulingPolicy,
    SlowdownDriven,
    Start,
)
from apples.scheduling.ledger import ClusterLedger
from apples.scheduling.policies import Conservative
from apples.simulation import (
    SimulationConfig,
    Workload,
    amdahl,
    clean,
    kale_workload,
    lublin_workload,
    mark_malleable,
    read_swf,
    simulate,
    slice_jobs,
)
from benchmarks.common import Row, Settings

SEPTEMBER_2010 = 1283266800 - 1272639895  # seconds of the RICC log, midnight in Tokyo


def plain_easy(workload: Workload, processors: int) -> list[float]:
    """Return the starts by a scan of lists at every event."""
    submit, run, width, request = (
        column.tolist()
        for column in (workload.submit, workload.run, workload.processors, workload.requested)
    )
    start, queue, running, free, arrived = [0.0] * len(submit), [], [], processors, 0
    while arrived < len(submit) or running:
        now = min([submit[arrived]] if arrived < len(submit) else [], default=float("inf"))
        now = min([now, *(end for end, _, _ in running)])
        for entry in [entry for entry in running if entry[0] <= now]:
            running.remove(entry)
            free += entry[2]
        while arrived < len(submit) and submit[arrived] <= now:
            queue.append(arrived)
            arrived += 1
        shadow, extra, blocked = float("inf"), processors, False
        for j in list(queue):
            fits = width[j] <= free and (
                not blocked or width[j] <= extra or now + request[j] <= shadow
            )
            if fits:
                queue.remove(j)
                start[j] = now
                free -= width[j]
                running.append((now + run[j], now + request[j], width[j]))
                if blocked and now + request[j] > shadow:
                    extra -= width[j]
            elif not blocked:
                blocked, total = True, free
                for limit in sorted({limit for _, limit, _ in running}):
                    total += sum(w for _, at, w in running if at == limit)
                    if total >= width[j]:
                        shadow, extra = limit, total - width[j]
                        break
    return start


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """Return a call's result and its CPU seconds."""
    begin = time.process_time()
    result = call()
    return result, time.process_time() - begin


def rate(name: str, measures: str, jobs: int, seconds: float, bar: float | None = None) -> Row:
    """Return the row of a speed."""
    return Row(name, measures, jobs / seconds, "jobs/s", at_least=bar)


def engines(name: str, workload: Workload, processors: int) -> Iterator[Row]:
    """Compare the compiled kernel, the event engine and the plain reference, which must agree."""
    config = SimulationConfig(processors)
    kernel = partial(simulate, workload, Easy(), config, engine="kernel")
    kernel()  # compiles
    fast, seconds = timed(kernel)
    slow, events = timed(partial(simulate, workload, Easy(), config, engine="events"))
    reference, plain = timed(partial(plain_easy, workload, processors))
    if not fast.start.tolist() == slow.start.tolist() == reference:
        raise RuntimeError(f"{name}: the schedules of the engines differ")
    yield rate(f"EASY, {name}", f"EASY, {name}: compiled kernel", len(workload), seconds)
    yield Row(f"events, {name}", f"EASY, {name}: kernel over event engine", events / seconds, "x")
    yield Row(f"lists, {name}", f"EASY, {name}: kernel over plain lists", plain / seconds, "x")


def generated(settings: Settings) -> Iterator[Row]:
    """Measure a generated log: the engines, and a user's policy in a process of its own."""
    workload = lublin_workload(settings.pick(10_000, 500), 256, 1)
    yield from engines("Lublin-Feitelson", workload, 256)
    few = workload.take(slice(0, 3000))
    built_in = simulate(few, Easy(), SimulationConfig(256), engine="events")
    own = type("Own", (Easy,), {})()
    user = simulate(few, own, SimulationConfig(256, fallback=True))
    if built_in.start.tolist() != user.start.tolist():
        raise RuntimeError("the schedules of the built-in policy and of the user's differ")
    for name, result, bar in (
        ("built-in Python policy", built_in, 10_000),
        ("user's policy", user, 15_000),
    ):
        yield Row(
            name, f"EASY as a {name}", 2 * len(few) / result.seconds, "events/s", at_least=bar
        )


def kale(settings: Settings) -> Iterator[Row]:
    """Measure ten loads, ten seeds and two policies with 10,000 jobs each."""
    speedup, jobs = partial(amdahl, serial=0.02), settings.pick(10_000, 100)
    config = SimulationConfig(64, speedup=speedup)
    simulate(kale_workload(10, 0.5, 0, adaptive=True), Equipartition(), config)

    def sweep() -> None:
        for load in np.linspace(0.1, 1.0, 10):
            for seed in range(10):
                for policy in (Equipartition(), FirstFit()):
                    adaptive = isinstance(policy, Equipartition)
                    workload = kale_workload(jobs, load, seed, adaptive=adaptive, speedup=speedup)
                    simulate(workload, policy, config)

    _, seconds = timed(sweep)
    yield Row(
        "kale",
        f"Kale: 100 experiments of {jobs:,} jobs, two policies",
        seconds,
        "s CPU",
        at_most=5,
    )


def passes(settings: Settings) -> Iterator[Row]:
    """Measure one scheduling pass that starts no job, with 500 running jobs and a long queue."""
    policies = {
        "EASY": Easy(),
        "equipartition": Equipartition(),
        "conservative": Conservative(),
        "SD, depth 1000": SlowdownDriven(),
        "SD, depth 1000, without the guard": SlowdownDriven(guard=False),
    }
    for waiting in settings.pick((1000, 10_000), (100,)):
        for name, policy in policies.items():
            ledger = settled_ledger(policy, waiting)
            yield Row(
                f"{name}, {waiting}",
                f"one pass, {waiting:,} waiting: {name}",
                decide_ms(policy, ledger),
                "ms CPU",
            )
            if name == "conservative":
                ledger.end(
                    next(number for number, job in ledger.running.items() if job.nodes == 1)
                )
                yield Row(
                    f"{name}, early end, {waiting}", f"one pass, {waiting:,} waiting: {name}, after an early end",
                    decide_ms(policy, ledger), "ms CPU",
                )  # fmt: skip


def decide_ms(policy: SchedulingPolicy, ledger: ClusterLedger) -> float:
    """Return the shortest of five passes, in milliseconds of CPU time."""
    state = ledger.state
    return 1e3 * min(timed(lambda: list(policy.decide(state)))[1] for _ in range(5))


def settled_ledger(policy: SchedulingPolicy, waiting: int) -> ClusterLedger:
    """Return a cluster of 1024 nodes after passes until the policy has no decision left."""
    random = np.random.default_rng(0)
    ledger = ClusterLedger(1024, 8)
    for number in range(500 + waiting):
        width = int(random.integers(1, 4 if number < 500 else 73))
        seconds = float(random.integers(3600, 260_000))
        ledger.submit(
            Job(number, float(number), 8 * width, seconds, 8, 8 * width, JobKind.MALLEABLE)
        )
        if number < 500:
            ledger.apply(Start(number, width))
    now, decisions = 12_000.0, [None]
    while decisions:
        decisions = list(policy.decide(ledger.snapshot(now)))
        for decision in decisions:
            ledger.apply(decision)
        ledger.clear_events()
    return ledger


def kth(settings: Settings) -> Iterator[Row]:
    """Measure the KTH log: the engines, and the event engine without numba."""
    path = settings.file("swf/KTH-SP2-1996-2.swf.gz")
    workload = clean(read_swf(path), 100)[0]
    yield from engines("KTH", workload.take(slice(0, settings.pick(len(workload), 500))), 100)
    answer = command(path, 100, NUMBA_DISABLE_JIT="1")
    seconds = answer["simulation_seconds"]
    yield rate("without numba", "EASY, KTH, without numba", answer["jobs"], seconds, 20_000)


def sd(settings: Settings) -> Iterator[Row]:
    """Measure SD-Policy on the logs of its authors."""
    curie, _ = clean(read_swf(settings.file("swf/CEA-Curie-2011-sample.swf.gz")), 80640)
    ricc, _ = clean(read_swf(settings.file("swf/RICC-2010-2.swf.gz")), 576)
    ricc = slice_jobs(ricc, SEPTEMBER_2010).take(slice(0, 10_000))
    for name, log, nodes, cores, bar in (
        ("CEA-Curie excerpt", curie, 5040, 16, 20_000),
        ("RICC, 10,000 jobs of September", ricc, 1024, 8, 5_000),
    ):
        config = SimulationConfig(nodes, cores)
        jobs = mark_malleable(log.take(slice(0, settings.pick(len(log), 300))), 1.0, 0)
        for cut in (10.0, float("inf"), "dynamic"):
            policy = SlowdownDriven(max_slowdown=cut)
            simulate(jobs.take(slice(0, 50)), policy, config)  # compiles
            _, seconds = timed(partial(simulate, jobs, policy, config))
            yield rate(
                f"{name}, {cut}", f"SD, MAX_SLOWDOWN {cut}, {name}", len(jobs), seconds, bar
            )


def process(settings: Settings) -> Iterator[Row]:
    """Measure the command on RICC: reading, simulation, and the share of both in its time after the start-up."""
    path = settings.file("swf/RICC-2010-2.swf.gz")
    with tempfile.TemporaryDirectory() as folder:
        tiny = Path(folder) / "tiny.swf"
        tiny.write_text(
            "".join(f"{n} {n} 0 10 1 -1 -1 1 20 -1 1 1 1 1 1 1 -1 -1\n" for n in range(1, 21))
        )
        start_up = min(command(tiny, 256)["process_seconds"] for _ in range(3))
    answer = command(path, 8192)
    reading, simulation = answer["read_seconds"], answer["simulation_seconds"]
    part = 100 * (reading + simulation) / (answer["process_seconds"] - start_up)
    yield Row("read", "RICC: reading", reading, "s", at_most=1.5)
    yield Row("simulation", "RICC: simulation under EASY", simulation, "s", at_most=3)
    yield Row("share", "RICC: both, of the process after its start-up", part, "%", at_least=80)


def command(path: Path, processors: int, **environment: str) -> dict[str, Any]:
    """Run `apples simulate` in a process and return its JSON with the process's wall time."""
    began = time.perf_counter()
    words = ["simulate", str(path), "--policy", "easy", "--processors", str(processors), "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "apples", *words],
        env={**os.environ, **environment}, capture_output=True, check=True,
    )  # fmt: skip
    return {**json.loads(done.stdout), "process_seconds": time.perf_counter() - began}


PARTS = {
    "generated": generated,
    "kale": kale,
    "passes": passes,
    "kth": kth,
    "sd": sd,
    "process": process,
}
