"""Particles: energy and particles are conserved, and no bit depends on where cells are or move to."""

import itertools
import json
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from strikes import Killer

from apples.launch import hydra
from apples.malleable import HostShare, ResizeDone, RolledBack, rehearse

EXAMPLE = Path(__file__).parents[3] / "examples" / "particles"
SOLVER = (sys.executable, str(EXAMPLE / "solver.py"))
SLOTS = {"ada": 1, "bob": 1, "eve": 1}
SMALL = {"cells": 3, "cell_side": 6.0, "drift": 1.5, "drop_radius": 0.4}
ENERGY = 1e-3
"""Relative error of the energy that velocity Verlet is allowed at this step."""


@pytest.fixture(scope="module")
def physics():
    sys.path.insert(0, str(EXAMPLE))
    names = ("box", "cell", "parameters", "population")
    others = {
        name: sys.modules.pop(name) for name in names if name in sys.modules
    }  # of other examples
    try:
        yield {name: __import__(name) for name in names}
    finally:
        sys.path.remove(str(EXAMPLE))
        for name in names:
            sys.modules.pop(name, None)
        sys.modules.update(others)


def alone(tmp_path, ranks=1, **parameters):
    """Return the result that a rigid run of a task reports; one rank needs no launcher."""
    path = tmp_path / "task.json"
    path.write_text(json.dumps(task(ranks, **parameters)))
    launcher = [hydra.mpiexec(), *hydra.OPTIONS, "-n", str(ranks)] if ranks > 1 else []
    done = subprocess.run(
        [*launcher, *SOLVER],
        env=hydra.environment({**hydra.LOOPBACK, **hydra.ONE_THREAD, "APPLES_TASK": str(path)}),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert (done.returncode, [event["event"] for event in events[-2:]]) == (
        0,
        ["result", "done"],
    ), done.stdout + done.stderr
    return events[-2]


def task(ranks=1, **more):
    strip = {"host": "ada", "address": "127.0.0.1", "ranks": ranks, "first_row": 0, "rows": 3}
    return {
        "schema": "apples.task/1", "mode": "run", "parameters": {**SMALL, **more},
        "implementations": {}, "partition": [strip], "output": None, "save": False,
    }  # fmt: skip


@pytest.mark.mpi
def test_a_run_is_the_same_bit_for_bit_on_one_and_on_two_ranks_and_conserves_energy(tmp_path):
    one, two = (alone(tmp_path, ranks, steps=40, balance_every=7) for ranks in (1, 2))
    assert (one["event"], one["iterations"]) == ("result", 40)
    assert one["sha256"] == two["sha256"]
    assert 0 < one["residual"] == two["residual"] < ENERGY


@pytest.mark.more
@pytest.mark.mpi
@pytest.mark.slow
def test_energy_and_every_bit_survive_random_resizes(tmp_path):
    """Up to six resizes of a job, four at least; the run is made longer where they did not fit."""
    draw = random.Random(3)

    def maps():
        for _ in range(6):
            hosts = draw.sample(list(SLOTS), draw.randint(1, 3))
            yield [HostShare(host, draw.choice([0.5, 1.0, 3.0])) for host in hosts]

    for steps in (300, 1500, 6000):
        run = rehearse(
            SOLVER, SLOTS, [HostShare("ada"), HostShare("bob")], maps(),
            task=task(steps=steps, balance_every=9, strategy="greedy"), warm=list(SLOTS),
        )  # fmt: skip
        assert run.ended.state == "finished", run.ended
        done = [notice for notice in run.notices if isinstance(notice, ResizeDone)]
        if len(done) >= 4:
            break
    assert len(done) >= 4
    assert sum(notice.moved_bytes for notice in done) > 0
    (result,) = run.events("result")
    assert 0 < result["residual"] < ENERGY
    rigid = alone(tmp_path, steps=steps, balance_every=9, strategy="greedy")
    assert result["sha256"] == rigid["sha256"]


SEES = """
from pathlib import Path

def sees(now):
    far = [sorted(one.distances.items()) for one in now.processors]
    with open(FILE, "a") as file:
        print([one.host for one in now.processors], far, file=file)
    return now.owners if all(one.enabled for one in now.processors) else [now.enabled[0]] * len(now.owners)
"""


@pytest.mark.more
@pytest.mark.mpi
@pytest.mark.slow
def test_the_balancer_of_a_job_knows_how_far_its_hosts_are_those_too_that_come_later(tmp_path):
    seen, strategy = tmp_path / "seen", tmp_path / "sees.py"
    strategy.write_text(SEES.replace("FILE", repr(str(seen))))
    far = {"ada": {"bob": 3.0, "eve": 9.0}, "bob": {"ada": 3.0}, "eve": {"ada": 9.0}}
    asked = task(steps=1000, balance_every=9, strategy=f"{strategy}:sees")
    run = rehearse(
        SOLVER, SLOTS, [HostShare("ada"), HostShare("bob")],
        [[HostShare("eve"), HostShare("ada")]], task={**asked, "distances": far},
    )  # fmt: skip
    assert run.ended.state == "finished", run.ended
    lines = seen.read_text().splitlines()
    all_of = {host: sorted(row.items()) for host, row in far.items()}
    assert f"['ada', 'bob'] {[all_of['ada'], all_of['bob']]}" in lines
    orders = [["ada", "eve"], ["eve", "ada"]]  # whichever moves less
    assert any(f"{order} {[all_of[host] for host in order]}" in lines for order in orders)


@pytest.mark.more
@pytest.mark.mpi
@pytest.mark.slow
@pytest.mark.parametrize("on_disk", [True, False], ids=["disk and memory", "memory alone"])
def test_after_the_loss_of_a_host_it_goes_on_from_its_commit_and_no_bit_is_another(
    tmp_path, on_disk
):
    """Commits and computes again what came after the last; longer where it ended before the kill."""
    for steps in (200, 1000, 5000):
        commits = tmp_path / str(steps)
        commits.mkdir()
        run = rehearse(
            SOLVER, SLOTS, [HostShare("ada"), HostShare("bob")], task=task(steps=steps, balance_every=9),
            commits=commits if on_disk else None, commit_seconds=0.05,
            watch=lambda manager: Killer(manager, "bob", SOLVER[1]),
        )  # fmt: skip
        assert run.ended.state == "finished", run.ended
        if any(isinstance(notice, RolledBack) for notice in run.notices):
            break
    (lost,) = [notice for notice in run.notices if isinstance(notice, RolledBack)]
    assert lost.lost == ("bob",)
    assert lost.iteration > 0
    result = run.events("result")[-1]
    assert 0 < result["residual"] < ENERGY
    assert result["sha256"] == alone(tmp_path, steps=steps, balance_every=9)["sha256"]


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("setting", "error", "named"),
    [
        ("time_step=0", "parameter-range", "time_step"),
        ("colour=red", "program-parameter-unknown", "'colour'"),
        ("strategy=gready", "UsageError", "'greedy'"),
        ("time_step=1", "time-step-too-long", "time_step"),
    ],
)
def test_error_by_hand_is_one_line(setting, error, named):
    values = {**SMALL, "steps": 50, "cells": 5}
    words = [f"--set={name}={value}" for name, value in values.items()]
    argv = [*SOLVER, *words, f"--set={setting}"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode != 0
    last = done.stderr.splitlines()[-1]
    assert error in last
    assert named in last


def whole(physics, **more):
    """Return a box and all its first cells, with their forces."""
    parameters = physics["parameters"].Parameters(**{**SMALL, **more})
    box = physics["box"].Box(parameters.cells, parameters.cell_side)
    make = physics["population"].first_cell
    cells = [make(parameters, box, number) for number in range(box.cells**2)]
    step(cells, box, 0.0)
    return parameters, box, cells


def step(cells, box, length):
    for cell in cells:
        cell.drift(length, box)
    mail = {cell.number: cell.mail(box) for cell in cells}
    for cell in cells:
        cell.receive([sent[cell.number] for sent in mail.values() if cell.number in sent], box)
        cell.kick(length)


def test_forces_and_potential_are_those_of_all_pairs(physics):
    _, box, cells = whole(physics)
    rows = np.concatenate([cell.rows for cell in cells])
    points, potential = rows[:, 1:3], 0.0
    force = np.zeros_like(points)
    for a, b in itertools.combinations(range(len(points)), 2):
        way = points[a] - points[b]
        way -= box.length * np.round(way / box.length)
        r = np.hypot(*way)
        if r < 2.5:
            slope = -24 * (2 * r**-13 - r**-7) + 24 * (2 * 2.5**-13 - 2.5**-7)
            v = 4 * (r**-12 - r**-6) - 4 * (2.5**-12 - 2.5**-6)
            potential += v + (r - 2.5) * 24 * (2 * 2.5**-13 - 2.5**-7)
            force[a] -= slope * way / r
            force[b] += slope * way / r
    assert np.allclose(rows[:, 5:7], force, rtol=1e-9, atol=1e-9)
    assert sum(cell.potential for cell in cells) == pytest.approx(potential, rel=1e-9)


def test_the_error_of_the_energy_falls_with_the_square_of_the_step(physics):
    errors = []
    for length in (0.008, 0.004):
        _, box, cells = whole(physics, drift=0.0)
        first = sum(cell.kinetic + cell.potential for cell in cells)
        worst = 0.0
        for _ in range(round(0.4 / length)):
            step(cells, box, length)
            energy = sum(cell.kinetic + cell.potential for cell in cells)
            worst = max(worst, abs(energy - first))
        errors.append(worst)
    assert 2.5 < errors[0] / errors[1] < 6.5


def test_no_particle_is_lost_and_momentum_is_conserved_when_the_drop_moves(physics):
    parameters, box, cells = whole(physics, drift=4.0)
    before = np.concatenate([cell.rows for cell in cells])
    for _ in range(100):
        step(cells, box, parameters.time_step)
    after = np.concatenate([cell.rows for cell in cells])
    assert sorted(before[:, 0]) == sorted(after[:, 0])
    assert np.allclose(before[:, 3:5].sum(axis=0), after[:, 3:5].sum(axis=0), atol=1e-6)
    assert [cell.number for cell in cells for _ in cell.rows] == list(box.home(after[:, 1:3]))


def test_cells_differ_in_particles_by_almost_an_order_of_magnitude(physics):
    sizes = [len(cell.rows) for cell in whole(physics)[2]]
    assert max(sizes) > 8 * min(sizes)
