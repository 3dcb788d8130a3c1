"""``apples demo``: the four methods of the paper back to back on unequal hosts made of this machine.

Only the public verbs are used: calibrate, plan, run; on files like a user's own.
"""

from __future__ import annotations

import shlex
import sys
import tempfile
from math import ceil
from pathlib import Path
from typing import Annotated

import typer

from apples.agent.coordinator import Coordinator
from apples.agent.information import InformationPool, under_live_weather
from apples.agent.verification import Reference, sequential
from apples.cli.calibrate import calibrate_hosts, calibration_rows
from apples.cli.deciding import Document, Json, blueprint_of, coordinator_of
from apples.cli.demo_world import DemoWorld, own_state
from apples.cli.plan import decide
from apples.cli.program import say, show, show_json
from apples.cli.run import carry_out, make_folder, write_page
from apples.errors import VerificationError
from apples.launch.actuator import Execution, Outcome
from apples.launch.actuators.local import LocalActuator
from apples.testing.contention import contention
from apples.units import duration
from apples.views.demo_document import METHODS, demo_document
from apples.views.demo_page import demo_page
from apples.views.demo_text import demo_text
from apples.views.run_document import refused_document

LOOP_SECONDS = 1.1
"""Every measured loop lasts at least about so long."""
LESSON_ITERATIONS = 30
QUICKEST = 0.65
"""What the quickest method takes of the time of all hosts together, on two CPUs; less on more."""


def demo(
    report: Annotated[Path, typer.Option("--report", help="Page to write.")] = Path(
        "runs/demo.html"
    ),
    repeat: Annotated[int, typer.Option("--repeat", min=1, max=100)] = 3,
    grid: Annotated[int, typer.Option("--grid", help="Side of the grid; else by memory.")] = 0,
    json: Json = False,
) -> int:
    """Run the four methods of the paper on unequal hosts made of this machine, without root.

    Example: apples demo
    """
    make_folder(report)
    with tempfile.TemporaryDirectory(prefix="apples-demo-") as folder, own_state(folder):
        world = DemoWorld.on_this_machine(Path(folder), grid)
        say(f"four hosts on this machine: {world.said()}")
        say("calibrating the kernels")
        information = world.load(1)
        found = calibrate_hosts(information, calibration_rows(information))
        world = world.calibrated(found)
        with contention(world.loads):
            runs = _runs(world, repeat)
    document = demo_document(runs, shlex.join(["apples", *sys.argv[1:]]))
    write_page(report, demo_page(document))
    if json:
        show_json(document)
    else:
        show(demo_text(document))
    if any(run["verified"] is False for run in runs):
        raise VerificationError("a result differs from the sequential run's")
    return 0


def _runs(world: DemoWorld, repeat: int) -> list[Document]:
    """Run every method `repeat` times, interleaved, so that all see the same conditions on average."""
    say("one run to learn from, not counted")
    lesson = _run(under_live_weather(world.load(LESSON_ITERATIONS)), "all_resources", None)
    seconds = (
        lesson["execution"]["iteration_seconds"] if lesson["execution"] else LOOP_SECONDS / 10
    )
    iterations = max(10, ceil(LOOP_SECONDS / (QUICKEST * seconds)))
    say(f"jacobi2d: {world.grid} x {world.grid}, {iterations} iterations a run")
    information = world.load(iterations)
    reference = sequential(information)
    runs = []
    for k in range(repeat):
        for method in METHODS:
            run = _run(under_live_weather(information), method, reference)
            runs.append(run)
            say(f"  {k + 1}/{repeat} {method:24} {_said(run)}")
    return runs


def _run(information: InformationPool, method: str, reference: Reference | None) -> Document:
    coordinator, plan = _planned(information, method)
    if coordinator.deliberation.chosen is None:
        return refused_document(plan, plan["rejected"][0]["reason"] if plan["rejected"] else "")
    return carry_out(
        plan,
        coordinator,
        verify=reference is not None,
        learn=True,
        reference=reference,
        watch=_quietly,
    )


def _quietly(coordinator: Coordinator, execution: Execution, name: str) -> Outcome | None:
    """Wait for an execution without a word; an interrupt ends it too."""
    del coordinator, name
    try:
        return execution.outcome()
    except BaseException:
        execution.cancel()
        raise


def _planned(information: InformationPool, method: str) -> tuple[Coordinator, Document]:
    _, blueprint = blueprint_of(method, information)
    coordinator = coordinator_of(information, None)
    plan, _ = decide(method, blueprint, coordinator)
    started = Coordinator(coordinator.information, LocalActuator())
    started.deliberation = coordinator.deliberation
    return started, plan


def _said(run: Document) -> str:
    execution = run["execution"]
    if execution is None:
        return f"no plan: {run['rejection']}"
    predicted = duration(execution["predicted_iteration_seconds"])
    return (
        f"{duration(execution['iteration_seconds'])} an iteration, predicted {predicted} "
        f"({execution['off']:+.0%})"
    )
