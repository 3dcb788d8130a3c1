"""Redistribution under a load that arrives while Jacobi2D runs: staying, `redistribute`, and an oracle.

    python benchmarks/redistribute.py [balance|migrate|promised] [constant --runs N] [--seconds S]

*balance*: two hosts (a CPU each), two busy processes arrive on one of them a quarter into the run; rows
move. *migrate*: one host at a time, and the load arrives on it. *promised*: the same, but it is there from the
beginning and no sensor looks: the host just is slower than promised, and only the application's own kernel tells
that the other is not. The oracle knows when the load arrives and where `redistribute` ended, and goes there at
once. *constant*: a load that is there all the time, and no other: how often does `redistribute` move? Exit code
1 where a bar is missed.
"""

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

from apples import Coordinator, MalleableActuator, load_information
from apples.agent import (
    AdaptiveExecution,
    PreparedRun,
    balanced,
    measure_briefly,
    program_of,
)
from apples.agent.calibration import probe_hosts
from apples.jobs.demo.contention import contention
from apples.launch.calibrate import calibrate
from apples.weather.local import LocalSensing
from blueprints import minimum_execution_time, redistribute

BAR = 1.15
EXAMPLE = Path(__file__).parents[1] / "examples" / "jacobi2d"
GRID = 4000
LOAD = 2


def world(folder, most, seconds_per_point):
    """Write a host list of two hosts, a CPU each, and a user who wants at most so many."""
    first, second = sorted(os.sched_getaffinity(0))[:2]
    hosts = "".join(
        f'[[host]]\nname = "{name}"\ncpus = [{cpu}]\nseconds_per_point = {seconds_per_point!r}\n'
        for name, cpu in (("ada", first), ("bob", second))
    )
    (folder / "hosts.toml").write_text(hosts + "[default_link]\nlatency = 2e-5\nbandwidth = 1e9\n")
    (folder / "user.toml").write_text(f"[constraints]\nmaximum_hosts = {most}\n")
    return first, second


def information(folder, iterations):
    settings = {"grid": GRID, "iterations": iterations, "residual_every": 0}
    return load_information(
        folder / "hosts.toml", EXAMPLE / "template.toml", folder / "user.toml",
        settings=settings, weather="static",
    )  # fmt: skip


def speed(folder):
    """Return dedicated seconds per point of the kernel that is going to run."""
    world(folder, 1, 1e-9)
    pool = information(folder, 1)
    host = pool.hosts["ada"]
    kind = pool.implementation(host)
    found = calibrate(host, program_of(pool, kind), kind, pool.application.parameters, [GRID // 2])
    return found[0].seconds_per_point


@contextmanager
def arriving(cpu, after):
    """Have the load arrive on a CPU so many seconds after what this gives is called."""
    begun, over = threading.Event(), threading.Event()

    def load():  # in one thread from start to end: the processes die with the thread that made them
        if begun.wait() and not over.wait(after):
            with contention([cpu] * LOAD):
                over.wait()

    thread = threading.Thread(target=load)
    thread.start()
    try:
        yield begun.set
    finally:
        over.set()
        begun.set()
        thread.join()


class Oracle:
    """Moves to given rows as soon as the load is there."""

    def __init__(self, rows, after):
        self.rows, self.after, self.done, self.begun = rows, after, False, None

    def __call__(self, coordinator, execution, estimate):
        """Look after an execution."""
        self.pool = coordinator.information
        run = AdaptiveExecution.of(execution, coordinator, estimate)
        run.decider = self.decide
        return run

    def decide(self, run):
        """Go when the time has come."""
        self.begun = self.begun or time.monotonic()
        if self.done or time.monotonic() - self.begun < self.after:
            return
        self.done = True
        pool = self.pool
        schedule = balanced(tuple(pool.hosts[name] for name in self.rows), pool)
        schedule = replace(schedule, allocations=tuple(
            replace(a, rows=self.rows[a.host.name]) for a in schedule.allocations
        ))  # fmt: skip
        run.resize(schedule)


def run(folder, iterations, blueprint, cpu, after, policy=None):
    """Return the run document of one run with the load arriving on `cpu`; at once it is there unseen."""
    coordinator = Coordinator(
        information(folder, iterations),
        MalleableActuator(talk=lambda _: None),
        refresh=measure_briefly if after else lambda unseen: unseen,
        probe=probe_hosts,
    )

    def moved_by_policy(coordinator):
        return coordinator.actuate(fastest(coordinator), policy)

    with arriving(cpu, after) as begin:

        def follow(*_):
            begin()
            return nullcontext(lambda _: None)

        return (
            prepared(moved_by_policy if policy else blueprint, coordinator)
            .execute(follow=follow)
            .document()
        )


def fastest(coordinator):
    """Return the best estimate."""
    candidates = []
    for resources in coordinator.select_resources():
        schedule = coordinator.plan(resources)
        if coordinator.is_feasible(schedule):
            candidates.append(coordinator.estimate(schedule))
    return coordinator.best(candidates)


def prepared(blueprint, coordinator):
    """Return the run of a blueprint."""
    return PreparedRun(blueprint, coordinator, verify=False, learn=False)


def shown(name, document):
    execution = document["execution"]
    moves = [one for one in execution["redistributions"] if one["moved"]]
    print(f"  {name:13} {execution['measured_seconds']:7.2f} s  {len(moves)} moves", flush=True)
    for one in moves:
        print(f"    at iteration {one['iteration']}: {one['explanation']}")
    return execution["measured_seconds"]


def arrives(folder, kind, seconds):
    """Run one scenario three times; return whether the bars hold."""
    first, second = world(folder, 2 if kind == "balance" else 1, speed(folder))
    pool = information(folder, 1)
    trial = Coordinator(pool)
    trial.execute(minimum_execution_time)
    chosen = trial.decision_log.chosen
    cpu = dict(zip(("ada", "bob"), (first, second), strict=True))[chosen.names[0]]
    iterations = int(seconds / chosen.iteration_seconds)
    after = 0.0 if kind == "promised" else seconds / 4
    print(f"{kind}: {iterations} iterations of {GRID} x {GRID}, {LOAD} busy processes on "
          f"{chosen.names[0]} after {after:.0f} s")  # fmt: skip
    stay = shown("stay", run(folder, iterations, minimum_execution_time, cpu, after))
    document = run(folder, iterations, redistribute, cpu, after)
    moved = shown("redistribute", document)
    last = [one for one in document["execution"]["redistributions"] if one["moved"]]
    rows = dict(zip(last[-1]["hosts"], last[-1]["rows"], strict=True)) if last else {}
    if not rows:
        print("  it did not move")
        return False
    best = shown(
        "oracle", run(folder, iterations, minimum_execution_time, cpu, after, Oracle(rows, after))
    )
    print(f"  {moved / best:.3f} x the oracle (bar {BAR}), {moved / stay:.3f} x staying (bar 1)")
    return moved <= BAR * best and moved < stay


def constant(folder, runs, seconds):
    """Run under a load that does not change; return whether nothing moved."""
    first, _ = world(folder, 2, speed(folder))
    moves = 0
    with contention([first] * LOAD):
        for number in range(runs):
            pool = information(folder, 1)
            pool = pool.with_weather(LocalSensing(pool.hosts).weather())
            trial = Coordinator(pool)
            trial.execute(redistribute)
            chosen = trial.decision_log.chosen
            iterations = int(seconds / chosen.iteration_seconds)
            pool = replace(information(folder, iterations), conditions=pool.conditions)
            coordinator = Coordinator(
                pool,
                MalleableActuator(talk=lambda _: None),
                refresh=measure_briefly,
                probe=probe_hosts,
            )
            document = prepared(redistribute, coordinator).execute().document()
            taken = document["execution"]["redistributions"]
            moves += sum(one["moved"] for one in taken)
            took = document["execution"]["measured_seconds"]
            print(f"constant load, run {number}: {took:.1f} s, looked {len(taken)} times, "
                  f"{moves} moves so far", flush=True)  # fmt: skip
            for one in taken:
                if one["moved"]:
                    print(f"    {one['explanation']}")
    return moves == 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", nargs="*", default=["balance", "migrate", "promised", "constant"])
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--runs", type=int, default=1)
    asked = parser.parse_args()
    good = True
    with tempfile.TemporaryDirectory() as name:
        os.environ["XDG_STATE_HOME"] = name
        folder = Path(name)
        for what in asked.what:
            if what == "constant":
                good &= constant(folder, asked.runs, asked.seconds)
            else:
                good &= arrives(folder, what, asked.seconds)
    print(json.dumps({"bars_hold": good}))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
