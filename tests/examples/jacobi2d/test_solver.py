"""The solver as the agent starts it: real processes, real messages."""

import hashlib
import itertools
import json
import random
import shutil
import struct
import subprocess
import sys
import zlib
from importlib.util import find_spec

import numpy as np
import pytest
from jacobi2d_support import (
    PROGRAM,
    SOLVER,
    environment,
    rectangles_task,
    reference,
    run_task,
    validator,
)
from kernels import pitch_of

pytestmark = pytest.mark.mpi

KERNELS = ["numpy"]
KERNELS += ["numba"] if find_spec("numba") else []
KERNELS += ["compiled", "wavefront"] if shutil.which("cc") else []


def sha256(grid):
    return hashlib.sha256(grid.astype("<f8").tobytes()).hexdigest()


def random_pieces(rng, grid, ranks):
    """Cut the grid at random, one-row strips included, and give some hosts several ranks."""
    cuts = sorted(rng.sample(range(1, grid), ranks - 1))
    rows = [b - a for a, b in zip([0, *cuts], [*cuts, grid], strict=True)]
    pieces = [(height, 1) for height in rows]
    if ranks > 2:
        joined = (pieces[0][0] + pieces[1][0], 2)
        pieces = [joined, *pieces[2:]]
    return pieces


@pytest.mark.more
@pytest.mark.parametrize("seed", range(5))
def test_any_partition_and_any_mixture_of_kernels_gives_the_sequential_bits(solve, seed):
    rng = random.Random(seed)
    grid = rng.randint(8, 60)
    pieces = random_pieces(rng, grid, rng.randint(1, 4))
    every = rng.choice([1, 3, 7])
    sides = [rng.uniform(-2, 2) for _ in range(4)]
    source = rng.choice([0.0, rng.uniform(-50, 50)])
    tolerance = rng.choice([0.0, 2e-2])
    parameters = {"grid": grid, "iterations": 90, "tolerance": tolerance, "residual_every": every}
    parameters |= dict(zip(("top", "bottom", "left", "right"), sides, strict=True))
    if source:
        parameters["source"] = source

    run = solve(run_task(parameters, pieces, [rng.choice(KERNELS) for _ in pieces]))

    expected, iterations, residual = reference(
        grid, 90, tolerance, every, sides=sides, source=source
    )
    result = run.only("result")
    assert result["sha256"] == sha256(expected)
    assert result["iterations"] == iterations
    assert result["residual"] == residual
    assert (iterations < 90) == (tolerance > 0)
    assert run.kinds()[0] == "ready"
    assert run.kinds()[-2:] == ["result", "done"]
    assert run.only("ready")["ranks"] == sum(ranks for _, ranks in pieces)
    said = [event for event in run.events if event["event"] == "rows"]
    assert "".join(one["digests"] for one in said) == "".join(
        f"{zlib.crc32(row.astype('<f8').tobytes()):08x}" for row in expected
    )
    assert [one["rank"] for one in said] == list(range(run.only("ready")["ranks"]))


def random_tiles(rng, grid):
    """Cut the grid in columns, and these in rows, at random; a single one may have several ranks."""

    def parts(count):
        cuts = sorted(rng.sample(range(1, grid), count - 1))
        return [(a, b - a) for a, b in zip([0, *cuts], [*cuts, grid], strict=True)]

    columns = parts(rng.choice([1, 2, 2, 3]))
    tiles = [(*rows, *each, 1) for each in columns for rows in parts(rng.randint(1, 2))]
    return [(*tiles[0][:4], min(2, tiles[0][1])), *tiles[1:]]


@pytest.mark.more
@pytest.mark.parametrize("seed", range(5))
def test_rectangles_give_the_sequential_bits_with_any_kernels(solve, seed, tmp_path):
    rng = random.Random(seed)
    grid = rng.randint(6, 40)
    tiles = random_tiles(rng, grid)
    parameters = {"grid": grid, "iterations": 60, "residual_every": 3, "tolerance": 3e-2}
    field = np.random.default_rng(seed).uniform(-50, 50, (grid, grid))
    np.save(tmp_path / "field.npy", field)
    np.save(tmp_path / "side.npy", field[0])
    parameters |= {"initial": str(tmp_path / "field.npy"), "left": str(tmp_path / "side.npy")}
    parameters |= {"source": str(tmp_path / "field.npy")} if seed % 2 else {}
    output = {"save": True, "output": str(tmp_path / "out")}

    run = solve(rectangles_task(parameters, tiles, [rng.choice(KERNELS) for _ in tiles], **output))

    expected, iterations, residual = reference(
        grid, 60, 3e-2, 3, sides=(1, 0, field[0], 0), initial=field, source=field * (seed % 2)
    )
    result = run.only("result")
    assert result["sha256"] == sha256(expected)
    assert (result["iterations"], result["residual"]) == (iterations, residual)
    assert np.array_equal(np.load(tmp_path / "out" / "result.npy"), expected)
    assert (tmp_path / "out" / "result.png").exists()
    assert "rows" not in run.kinds()  # a row has several owners
    validator("event").validate(result)


def test_rectangles_report_each_border_between_two_hosts(solve):
    tiles = [(0, 30, 0, 10, 1), (0, 10, 10, 20, 1), (10, 20, 10, 20, 2)]
    run = solve(rectangles_task({"grid": 30, "iterations": 400}, tiles))
    borders = {tuple(one["hosts"]): one for one in run.only("result")["borders"]}
    assert {hosts: one["bytes"] for hosts, one in borders.items()} == {
        ("h0", "h1"): 80,
        ("h0", "h2"): 80,  # each of its two ranks has ten of the twenty rows
        ("h1", "h2"): 160,
    }
    assert all(one["seconds"] > 0 and one["latency_seconds"] >= 0 for one in borders.values())


@pytest.mark.skipif("wavefront" not in KERNELS, reason="no C compiler")
@pytest.mark.parametrize(
    ("pieces", "rows"),
    [
        ([(23, 1), (8, 1), (29, 1)], 8),
        ([(9, 1), (51, 3)], 8),
        pytest.param([(60, 1)], None, marks=pytest.mark.more),
        pytest.param([(55, 1), (5, 1)], 5, marks=pytest.mark.more),
        pytest.param([(59, 1), (1, 1)], 1, marks=pytest.mark.more),
    ],
    ids=lambda one: "".join(str(one).split()),
)
def test_several_sweeps_an_exchange_give_the_sequential_bits(solve, pieces, rows):
    stop = reference(60, 38, every=19, sides=(1, -2, 3, -4), source=50)[2]
    tolerances = [0.0, stop] if len(pieces) == 2 else [stop]
    for tolerance in tolerances:
        parameters = {"grid": 60, "iterations": 100, "tolerance": tolerance, "residual_every": 19}
        parameters |= {"top": 1, "bottom": -2, "left": 3, "right": -4, "source": 50}

        run = solve(run_task(parameters, pieces, "wavefront", progress_seconds=1e-9))

        expected, iterations, residual = reference(
            60, 100, tolerance, 19, sides=(1, -2, 3, -4), source=50
        )
        result = run.only("result")
        assert result["sha256"] == sha256(expected)
        assert (result["iterations"], result["residual"]) == (iterations, residual)
        assert iterations == (38 if tolerance else 100)
        row_bytes = 8 * (60 if rows == 1 else pitch_of(60))  # several rows go whole, in one piece
        assert {border["bytes"] for border in result["borders"]} == (
            {row_bytes * rows} if rows else set()
        )
        reported = [event["iteration"] for event in run.events if event["event"] == "progress"]
        # The steps up to a residual are as equal as can be: 19 sweeps are 7 and 6 and 6.
        if rows in {8, None}:
            assert reported[:5] == [7, 13, 19, 26, 32]


@pytest.mark.parametrize(("below", "stop"), [(False, 21), (True, 24)])
def test_a_change_equal_to_the_tolerance_stops_and_one_above_does_not(solve, below, stop):
    _, _, change = reference(40, 21)
    tolerance = float(np.nextafter(change, 0) if below else change)
    parameters = {"grid": 40, "iterations": 99, "tolerance": tolerance, "residual_every": 3}
    run = solve(run_task(parameters, [(25, 1), (15, 1)]))
    assert run.only("result")["iterations"] == stop


def test_files_of_sides_source_and_start_are_read_and_the_result_is_saved_and_drawn(
    solve, tmp_path
):
    grid, rng = 30, np.random.default_rng(3)
    sides = [rng.normal(size=grid) for _ in range(4)]
    source, initial = rng.normal(size=(grid, grid)), rng.normal(size=(grid, grid))
    parameters = {"grid": grid, "iterations": 5}
    names = ("top", "bottom", "left", "right", "source", "initial")
    for name, values in zip(names, (*sides, source, initial), strict=True):
        np.save(tmp_path / f"{name}.npy", values)
        parameters[name] = str(tmp_path / f"{name}.npy")
    output = tmp_path / "out"

    run = solve(run_task(parameters, [(17, 2), (13, 1)], output=str(output), save=True))

    expected, _, _ = reference(grid, 5, sides=sides, source=source, initial=initial)
    result = run.only("result")
    assert sorted(result["files"]) == [str(output / "result.npy"), str(output / "result.png")]
    assert np.array_equal(np.load(output / "result.npy"), expected)
    assert result["sha256"] == sha256(expected)
    shades = pixels(output / "result.png")
    low, high = expected.min(), expected.max()
    assert np.array_equal(shades, np.floor((expected - low) * (255 / (high - low))))


def pixels(path):
    """Return the palette indices of a PNG as this program writes it."""
    body, place, data = path.read_bytes(), 8, b""
    width = height = 0
    while place < len(body):
        (length,) = struct.unpack(">I", body[place : place + 4])
        kind, chunk = body[place + 4 : place + 8], body[place + 8 : place + 8 + length]
        (check,) = struct.unpack(">I", body[place + 8 + length : place + 12 + length])
        assert check == zlib.crc32(kind + chunk)
        if kind == b"IHDR":
            width, height, depth, colour = struct.unpack(">IIBB", chunk[:10])
            assert (depth, colour) == (8, 3)
        data += chunk if kind == b"IDAT" else b""
        place += 12 + length
    lines = np.frombuffer(zlib.decompress(data), np.uint8).reshape(height, width + 1)
    assert not lines[:, 0].any()
    return lines[:, 1:]


TRACED = f"""
import os, sys, tracemalloc
sys.path.insert(0, {str(PROGRAM)!r})
import solver
from mpi4py import MPI
tracemalloc.start()
solver.main()
with open(os.path.join(os.environ["PEAKS"], "peak%d" % MPI.COMM_WORLD.Get_rank()), "w") as file:
    file.write(str(tracemalloc.get_traced_memory()[1]))
"""


@pytest.mark.more
@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("tolerance", [0.0, 2e-2])
def test_one_process_by_threads_gives_the_sequential_bits(solve, threads, tolerance):
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    grid, every, source = 150 if threads > 2 else 37, 3, 12.5
    parameters = {"grid": grid, "iterations": 90, "tolerance": tolerance, "residual_every": every}
    task = run_task({**parameters, "source": source}, [(grid, 1)], "threads")
    task["partition"][0]["threads"] = threads
    assert list(validator("task").iter_errors(task)) == []
    result = solve(task).only("result")
    expected, iterations, residual = reference(grid, 90, tolerance, every, source=source)
    assert result["sha256"] == sha256(expected)
    assert (result["iterations"], result["residual"]) == (iterations, residual)
    assert (iterations < 90) == (tolerance > 0)


def test_no_rank_ever_holds_the_whole_grid(solve, tmp_path):
    grid, ranks = 1800, 3
    parameters = {"grid": grid, "iterations": 2}
    task = run_task(parameters, [(grid, ranks)], output=str(tmp_path), save=True)

    solve(task, program=("-c", TRACED), PEAKS=str(tmp_path))

    peaks = [int(file.read_text()) for file in tmp_path.glob("peak*")]
    own_arrays = 2 * (grid // ranks + 2) * (grid + 24) * 8
    one_block, picture_and_program = 4 << 20, 5 << 20
    assert len(peaks) == ranks
    assert own_arrays < max(peaks) < own_arrays + one_block + picture_and_program
    assert max(peaks) < own_arrays + grid * grid * 8 // 2
    assert pixels(tmp_path / "result.png").shape == (800, 800)


def test_progress_goes_forward_and_a_hosts_times_fit_into_the_time_that_passed(solve):
    parameters = {"grid": 300, "iterations": 400, "residual_every": 10}
    run = solve(run_task(parameters, [(200, 2), (100, 1)], progress_seconds=0.01))

    reports = [event for event in run.events if event["event"] == "progress"]
    assert len(reports) >= 3
    reports.append(run.only("result") | {"iteration": 400})
    for earlier, later in itertools.pairwise(reports):
        assert earlier["iteration"] <= later["iteration"]
        assert earlier["seconds"] <= later["seconds"]
        for before, after in zip(earlier["hosts"], later["hosts"], strict=True):
            assert before["compute_seconds"] <= after["compute_seconds"]
            assert before["communicate_seconds"] <= after["communicate_seconds"]
    for report in reports:
        assert [host["host"] for host in report["hosts"]] == ["h0", "h1"]
        for host in report["hosts"]:
            total = host["compute_seconds"] + host["communicate_seconds"]
            assert total <= report["seconds"] + 3e-6  # each is rounded to 1e-6


@pytest.mark.more
@pytest.mark.parametrize(
    ("parameters", "code", "named"),
    [
        ({"grid": 9, "iterations": 0}, "parameter-range", "'iterations'"),
        ({"grid": 9, "top": "no/such.npy"}, "array-unreadable", "top: no/such.npy"),
    ],
)
def test_bad_values_end_in_one_error_line_and_a_code_that_is_not_zero(
    solve, parameters, code, named
):
    run = solve(run_task(parameters, [(9, 1)]))
    assert run.kinds() == ["error"]
    assert run.only("error")["code"] == code
    assert named in run.only("error")["message"]
    assert run.code != 0


def test_a_failure_of_one_rank_ends_all_and_names_the_rank(solve, tmp_path):
    source = np.zeros((9, 9))
    source[8, 0] = np.nan
    np.save(tmp_path / "source.npy", source)
    parameters = {"grid": 9, "iterations": 10**9, "source": str(tmp_path / "source.npy")}
    run = solve(run_task(parameters, [(9, 3)]))
    assert run.kinds() == ["error"]
    assert run.only("error")["rank"] == 2
    assert run.only("error")["code"] == "array-not-finite"


@pytest.mark.more
def test_a_host_that_lacks_the_implementation_ends_the_run_with_the_reason(solve):
    run = solve(run_task({"grid": 9}, [(6, 1), (3, 1)], ["numpy", "compiled"]), CC="no-such-cc")
    assert run.kinds() == ["error"]
    assert run.only("error")["rank"] == 1
    assert run.only("error")["code"] == "compiler-missing"
    assert "no-such-cc" in run.only("error")["message"]


@pytest.mark.more
def test_a_number_of_processes_that_is_not_the_partitions_is_refused(solve):
    run = solve(run_task({"grid": 9}, [(9, 2)]), ranks=1)
    assert run.only("error")["code"] == "program-ranks-differ"


@pytest.mark.more
def test_an_output_that_cannot_be_made_is_refused_before_the_work_is_done(solve, tmp_path):
    (tmp_path / "file").write_text("in the way")
    task = run_task({"grid": 9}, [(9, 1)], output=str(tmp_path / "file"), save=True)
    run = solve(task)
    assert run.kinds() == ["error"]
    assert run.only("error")["code"] == "output-unwritable"
    assert str(tmp_path / "file") in run.only("error")["message"]


@pytest.mark.more
@pytest.mark.parametrize("kernel", KERNELS)
def test_calibrate_gives_a_speed_for_every_size_without_mpiexec(tmp_path, kernel):
    task = {
        "schema": "apples.task/1",
        "mode": "calibrate",
        "parameters": {"grid": 200, "source": 1.0},
        "implementation": kernel,
        "sizes": [1, 50],
    }
    done = subprocess.run(
        [sys.executable, str(SOLVER)],
        env=environment(tmp_path, task),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    events = [json.loads(line) for line in done.stdout.splitlines() if line]
    for event in events:
        validator("event").validate(event)
    kinds = [event["event"] for event in events]
    assert kinds == ["ready", "calibration", "calibration", "done"]
    assert [event["rows"] for event in events[1:3]] == [1, 50]
    assert all(1e-12 < event["seconds_per_point"] < 1e-6 for event in events[1:3])
