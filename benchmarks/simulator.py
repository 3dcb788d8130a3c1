"""How fast the simulator is, side by side in one run: jobs a second, and ratios between engines.

The reference is an EASY scheduler written as most peers have it: lists, and a scan of the queue
and of the running jobs at every event. The archive's logs are read from the folder named on the
command line (default ../shared/data/swf); without them only generated logs are measured.

    python benchmarks/simulator.py [FOLDER]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np

from apples.scheduling import (
    ENGINE,
    Easy,
    Equipartition,
    FirstFit,
    Job,
    JobKind,
    SchedulingPolicy,
    SlowdownDriven,
    Start,
)
from apples.scheduling.guard import GuardedPolicy
from apples.scheduling.ledger import ClusterLedger
from apples.scheduling.policies import Conservative
from apples.simulation import (
    Log,
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
    write_swf,
)

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
        shadow, spare, blocked = float("inf"), processors, False
        for j in list(queue):
            fits = width[j] <= free and (
                not blocked or width[j] <= spare or now + request[j] <= shadow
            )
            if fits:
                queue.remove(j)
                start[j] = now
                free -= width[j]
                running.append((now + run[j], now + request[j], width[j]))
                if blocked and now + request[j] > shadow:
                    spare -= width[j]
            elif not blocked:
                blocked, total = True, free
                for limit in sorted({limit for _, limit, _ in running}):
                    total += sum(w for _, at, w in running if at == limit)
                    if total >= width[j]:
                        shadow, spare = limit, total - width[j]
                        break
    return start


def timed(call: object) -> tuple[object, float, float]:
    """Return a call's result, its wall and its CPU seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = call()  # type: ignore[operator]
    return result, time.perf_counter() - wall, time.process_time() - cpu


def row(name: str, jobs: int, wall: float, cpu: float, bar: str = "") -> None:
    """Print one measurement."""
    print(
        f"{name:52} {jobs:8} jobs {wall:8.3f} s wall {cpu:8.3f} s CPU {jobs / cpu:12,.0f}/s  {bar}"
    )


def peers(name: str, workload: Workload, processors: int) -> None:
    """Compare the compiled kernel with the event engine and with the plain reference."""
    config = SimulationConfig(processors)
    simulate(workload, Easy(), config)
    fast, wall, cpu = timed(partial(simulate, workload, Easy(), config))
    row(f"EASY, {name}, compiled kernel ({ENGINE})", len(workload), wall, cpu)
    slow, _, events = timed(partial(simulate, workload, Easy(), config, engine="events"))
    reference, _, plain = timed(partial(plain_easy, workload, processors))
    same = fast.start.tolist() == slow.start.tolist() == reference
    print(
        f"  compiled kernel {events / cpu:,.0f} x the event engine, {plain / cpu:,.0f} x plain lists; "
        f"schedules {'equal' if same else 'DIFFER'}"
    )
    if not same:
        sys.exit(1)


def without_numba(path: Path, processors: int) -> None:
    """Measure the compiled kernel as plain Python."""
    answer = command(path, processors, NUMBA_DISABLE_JIT="1")
    seconds = answer["simulation_seconds"]
    row(f"EASY, {path.name}, {answer['engine']}", answer["jobs"], seconds, seconds, "bar 20,000/s")


def command(path: Path, processors: int, **environment: str) -> dict[str, object]:
    """Run the command in a process of its own; add its own times."""
    began = time.perf_counter()
    program = "import sys; from apples.__main__ import main; main()"
    words = ["simulate", str(path), "--policy", "easy", "--processors", str(processors), "--json"]
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    return {**json.loads(done.stdout), "process_seconds": time.perf_counter() - began}


def whole_process(path: Path, processors: int, tiny: Path) -> None:
    """Compare what the command reports with what its process takes."""
    start_up = min(command(tiny, 256)["process_seconds"] for _ in range(3))
    answer = command(path, processors)
    own = answer["read_seconds"] + answer["simulation_seconds"]
    part = own / (answer["process_seconds"] - start_up)
    print(
        f"process, {path.name}: {answer['process_seconds']:.2f} s, start-up {start_up:.2f} s, "
        f"read {answer['read_seconds']:.2f} s (bar 1.5), simulated "
        f"{answer['simulation_seconds']:.2f} s (bar 3): {part:.0%} of the rest (bar 80 %)"
    )


def kale_sweep() -> None:
    """Ten loads, ten seeds, two policies, 10,000 jobs each."""
    speedup = partial(amdahl, serial=0.02)
    config = SimulationConfig(64, speedup=speedup)
    warm = kale_workload(10, 0.5, 0, adaptive=True)
    simulate(warm, Equipartition(), config)

    def sweep() -> None:
        for load in np.linspace(0.1, 1.0, 10):
            for seed in range(10):
                for policy in (Equipartition(), FirstFit()):
                    adaptive = isinstance(policy, Equipartition)
                    jobs = kale_workload(10_000, load, seed, adaptive=adaptive, speedup=speedup)
                    simulate(jobs, policy, config)

    _, wall, cpu = timed(sweep)
    row("Kale: 10 loads x 10 seeds x 2 policies", 2_000_000, wall, cpu, "bar 5 s")


def slowdown_driven(folder: Path) -> None:
    """SD-Policy on the logs its authors used."""
    curie, _ = clean(read_swf(folder / "CEA-Curie-2011-sample.swf.gz"), 80640)
    ricc, _ = clean(read_swf(folder / "RICC-2010-2.swf.gz"), 576)
    ricc = slice_jobs(ricc, SEPTEMBER_2010).take(slice(0, 10_000))
    for name, workload, nodes, cores, bar in (
        ("Curie excerpt", curie, 5040, 16, "bar 20,000/s"),
        ("RICC, 10,000 of September", ricc, 1024, 8, "bar 5,000/s"),
    ):
        config = SimulationConfig(nodes, cores)
        for cut in (10.0, float("inf"), "dynamic"):
            policy = SlowdownDriven(max_slowdown=cut)
            jobs = mark_malleable(workload, 1.0, 0)
            simulate(jobs.take(slice(0, 50)), policy, config)
            _, wall, cpu = timed(partial(simulate, jobs, policy, config))
            row(f"SD, MAX_SLOWDOWN {cut}, {name}", len(jobs), wall, cpu, bar)


def passes() -> None:
    """Measure one pass with nothing to start: some 500 jobs run, so many wait, no two of them alike.

    And one of conservative backfilling after a job of one node has left early: most promises move up.
    """
    for waiting in (1000, 10_000):
        for name, policy in (
            ("EASY", Easy()),
            ("equipartition", Equipartition()),
            ("conservative", Conservative()),
            ("SD, depth 1000", SlowdownDriven()),
            ("SD, depth 1000, without the guard", SlowdownDriven(guard=False)),
        ):
            ledger = settled(policy, waiting)
            state = ledger.state
            best = min(timed(lambda p=policy, s=state: list(p.decide(s)))[2] for _ in range(5))
            print(f"one pass, {waiting:6} waiting: {name:34} {1000 * best:8.1f} ms CPU")
            if isinstance(policy, Conservative):
                ledger.end(
                    next(number for number, one in ledger.running.items() if one.nodes == 1)
                )
                state = ledger.state
                moved = len(list(policy.decide(state)))
                best = min(timed(lambda p=policy, s=state: list(p.decide(s)))[2] for _ in range(5))
                print(f"{'':26} after an early end, {moved:6} decisions {1000 * best:8.1f} ms CPU")


def settled(policy: SchedulingPolicy, waiting: int) -> ClusterLedger:
    """Return a cluster of 1024 nodes that has gone through passes until nothing was left to decide."""
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
    time, decisions = 12_000.0, [None]
    while decisions:
        decisions = list(policy.decide(ledger.snapshot(time)))
        for decision in decisions:
            ledger.apply(decision)
        ledger.settle()
    return ledger


def main() -> None:
    """Measure everything."""
    passes()
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "../shared/data/swf")
    generated = lublin_workload(10_000, 256, 1)
    simulate(generated.take(slice(0, 50)), Easy(), SimulationConfig(256))
    peers("Lublin-Feitelson", generated, 256)
    events = simulate(generated, Easy(), SimulationConfig(256), engine="events")
    print(
        f"a Python policy (EASY): {2 * len(generated) / events.seconds:,.0f} events/s, bar 10,000"
    )
    few = generated.take(slice(0, 3000))
    here = simulate(few, Easy(), SimulationConfig(256), engine="events")
    guard = GuardedPolicy(type("Mine", (Easy,), {}), "Mine")
    there = simulate(few, guard, SimulationConfig(256))
    guard.close()
    same = here.start.tolist() == there.start.tolist()
    print(
        f"a user's policy under guard (EASY): {2 * len(few) / there.seconds:,.0f} events/s, bar 10,000; "
        f"{here.seconds / there.seconds:.2f} of the same in this process; "
        f"schedules {'equal' if same else 'DIFFER'}"
    )
    kale_sweep()
    tiny = Path(tempfile.mkdtemp()) / "tiny.swf"
    few = generated.take(slice(0, 20))
    write_swf(tiny, Log({"job": few.job * 1.0, "submit": few.submit, "run": few.run,
                         "requested_processors": few.processors * 1.0}, few.job))  # fmt: skip
    if not folder.is_dir():
        print(f"the archive's logs are not at {folder}: the rest is not measured")
    else:
        peers("KTH", clean(read_swf(folder / "KTH-SP2-1996-2.swf.gz"), 100)[0], 100)
        without_numba(folder / "KTH-SP2-1996-2.swf.gz", 100)
        slowdown_driven(folder)
        whole_process(folder / "RICC-2010-2.swf.gz", 8192, tiny)
    tiny.unlink()


if __name__ == "__main__":
    main()
