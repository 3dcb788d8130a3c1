"""The kernel for a GPU, on one where there is one, else on one that numba plays."""

import os
import subprocess
import sys

import numpy as np
import pytest
from jacobi2d_support import PROGRAM, SOLVER, reference, run_task
from kernels import LEFT, allocate, load_kernel
from strikes import Killer
from test_kernels import formula, strip
from test_solver import sha256

from apples.malleable import HostShare, ResizeDone, RolledBack, rehearse

numba = pytest.importorskip("numba", reason="numba is in the gpu extra")


def test_a_strip_stays_on_the_gpu_and_only_its_edges_cross_at_a_sweep():
    kernel, inside = load_kernel("cuda", 20), slice(LEFT, LEFT + 20)
    now, new, forcing = strip(9, 20, 3)
    kernel.take(now, new, forcing)
    first = new.copy()
    expected = formula(now, forcing, 20)
    kernel.sweep(now, new, forcing, 1, 10)
    assert np.array_equal(new[[1, -2], inside], expected[[0, -1]])
    assert np.array_equal(new[2:-2], first[2:-2])

    new[[0, -1], inside] = 7.0  # the halo arrives
    taken = new.copy()
    taken[1:-1, inside] = expected
    new[2:-2] = np.nan  # what nobody sent is not looked at
    kernel.sweep(new, now, forcing, 1, 10)
    kernel.settle()
    assert np.array_equal(now[1:-1, inside], formula(taken, forcing, 20))
    assert np.array_equal(new[1:-1, inside], expected)


def test_arrays_that_are_taken_again_are_swept_as_they_are_then():
    kernel, inside = load_kernel("cuda", 6), slice(LEFT, LEFT + 6)
    now, new, _ = strip(4, 6, 5)
    kernel.take(now, new)
    kernel.sweep(now, new, None, 1, 5)
    now[...], new[...] = strip(4, 6, 6)[:2]
    kernel.take(now, new)
    kernel.sweep(now, new, None, 1, 5)
    kernel.settle()
    assert np.array_equal(new[1:-1, inside], formula(now, None, 6))


def test_a_strip_that_the_gpu_has_no_room_for_is_refused_with_both_figures(monkeypatch):
    import kernel_cuda

    kernel = load_kernel("cuda", 1000)
    monkeypatch.setattr(kernel, "free_memory", lambda: 3e6)

    def full(*_):
        raise RuntimeError("\nCUDA_ERROR_OUT_OF_MEMORY")

    monkeypatch.setattr(kernel_cuda.cuda, "to_device", full)
    with pytest.raises(MemoryError, match=r"0.0163 GB .* 0.003 GB"):
        kernel.take(allocate(998, 1000), allocate(1000, 1000))


def test_a_host_without_a_gpu_says_so_in_one_line():
    if "NUMBA_ENABLE_CUDASIM" not in os.environ:
        pytest.skip("there is a GPU here")
    script = (
        "import kernels, sys\n"
        "try: kernels.load_kernel('cuda', 8)\n"
        "except kernels.KernelUnavailableError as error:\n"
        "    print(error.code, str(error).isprintable(), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "NUMBA_ENABLE_CUDASIM": "0", "PYTHONPATH": str(PROGRAM)},
        capture_output=True,
        text=True,
        check=False,
    )
    last = done.stderr.strip().splitlines()[-1]
    assert last == "gpu-missing True"


@pytest.mark.more
def test_the_other_kernels_load_nothing_of_cuda():
    script = (
        "import sys, kernels\n"
        "for name in ('numpy', 'numba'): kernels.load_kernel(name, 8)\n"
        "print([name for name in sys.modules if 'cuda' in name.split('.')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(PROGRAM)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"


@pytest.mark.more
@pytest.mark.parametrize("forced", [False, True])
@pytest.mark.parametrize("checked", [False, True])
def test_no_multiplication_is_fused_with_an_addition(forced, checked):
    """The bits on a GPU rest on it; what is compiled for it is looked at where its compiler is."""
    script = (
        "import sys\n"
        "from numba import cuda, types\n"
        "try: cuda.compile_ptx(lambda x: max(x, 2), (types.int64,), device=True, cc=(9, 0))\n"
        "except Exception: sys.exit(77)\n"
        "import kernel_cuda\n"
        "plane, line = (types.Array(types.float64, n, 'C') for n in (2, 1))\n"
        f"function = kernel_cuda.variant({forced}, {checked})\n"
        "arguments = (plane, plane, plane, line, *[types.int64] * 3)\n"
        "print(cuda.compile_ptx(function, arguments, cc=(9, 0))[0])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "NUMBA_ENABLE_CUDASIM": "0", "PYTHONPATH": str(PROGRAM)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 77:
        pytest.skip("no compiler for GPUs: it is in the gpu extra")
    assert done.returncode == 0, done.stderr
    assert "mul.rn.f64" in done.stdout
    assert "mul.f64" not in done.stdout
    assert "fma" not in done.stdout


@pytest.mark.more
@pytest.mark.mpi
def test_a_run_whose_strip_the_gpu_has_no_room_for_any_more_fails_for_want_of_resources(solve):
    script = (
        "import kernel_cuda, relaxation, solver\n"
        "def full(*_): raise RuntimeError('out of memory')\n"
        "load = relaxation.load_kernel\n"
        "def loaded(*given):\n"
        "    kernel = load(*given)\n"
        "    if given[0] == 'cuda': kernel_cuda.cuda.to_device = full\n"
        "    return kernel\n"
        "relaxation.load_kernel = loaded\n"
        "solver.main()"
    )
    task = run_task({"grid": 9, "iterations": 3}, [(4, 1), (5, 1)], ["numpy", "cuda"])
    run = solve(task, 2, ("-c", script), PYTHONPATH=str(PROGRAM))
    said = run.only("error")
    assert (run.code, said["resources"], said["rank"]) == (1, True, 1)
    assert "GPU's memory" in said["message"]


SOURCE = {"top": 1, "bottom": -2, "left": 3, "right": -4, "source": 50}


@pytest.mark.more
@pytest.mark.mpi
@pytest.mark.parametrize(
    ("pieces", "kernels"),
    [
        ([(5, 1), (6, 1), (4, 1)], ["numpy", "cuda", "numpy"]),
        ([(1, 1), (14, 2)], ["numpy", "cuda"]),
    ],
    ids=["between", "two-ranks-on-one"],
)
def test_hosts_with_and_without_a_gpu_give_the_sequential_bits_together(solve, pieces, kernels):
    parameters = {"grid": 15, "iterations": 24, "residual_every": 5, **SOURCE}
    run = solve(run_task(parameters, pieces, kernels, progress_seconds=1e-9))
    expected, iterations, residual = reference(
        15, 24, every=5, sides=(1, -2, 3, -4), source=SOURCE["source"]
    )
    result = run.only("result")
    assert result["sha256"] == sha256(expected)
    assert (result["iterations"], result["residual"]) == (iterations, residual)
    for host in result["hosts"]:
        if host["host"] == "h1":  # a wait for the GPU is no lack of a CPU
            assert host["processor_seconds"] >= 0.9 * host["compute_seconds"]


@pytest.mark.mpi
def test_calibration_says_how_much_of_the_gpus_memory_is_free_and_measures_no_strip_beyond(solve):
    task = {
        "schema": "apples.task/1",
        "mode": "calibrate",
        "parameters": {"grid": 9},
        "implementation": "cuda",
        "sizes": [2, 1000],
    }
    script = (
        "import kernel_cuda, solver; free = 8 * 24 * 3 * 7\n"
        "kernel_cuda.CudaKernel.free_memory = lambda self: free\n"
        "take = kernel_cuda.CudaKernel.take\n"
        "def little(self, *grids):\n"
        "    assert sum(grid.nbytes for grid in grids) <= free\n"
        "    take(self, *grids)\n"
        "kernel_cuda.CudaKernel.take = little\n"
        "solver.main()"
    )
    run = solve(task, 1, ("-c", script), PYTHONPATH=str(PROGRAM))
    found = [event for event in run.events if event["event"] == "calibration"]
    assert [one["rows"] for one in found] == [2, 1000]
    assert [one["free_memory"] for one in found] == [8 * 24 * 3 * 7] * 2


@pytest.mark.mpi
@pytest.mark.more
def test_a_walk_over_hosts_with_and_without_a_gpu_gives_the_bits_of_one_rank(solve):
    """What is on the GPU is brought back before each change, and before each commit."""
    parameters = {"grid": 40, "iterations": 600, "residual_every": 19, "source": 3}
    order = run_task(parameters, [(40, 1)], "numpy", progress_seconds=0)
    expected = solve(order).only("result")
    order["implementations"] = {"ada": "numpy", "gil": "cuda"}
    walk = (("gil", "ada"), ("gil",), ("ada", "gil"), ("ada",))
    maps = ([HostShare(host, 1.0 + k) for k, host in enumerate(hosts)] for hosts in walk)

    run = rehearse(
        (sys.executable, str(SOLVER)),
        {"ada": 1, "gil": 1},
        [HostShare("gil")],
        maps,
        task=order,
    )

    (result,) = run.events("result")
    assert run.ended.state == "finished"
    assert sum(isinstance(notice, ResizeDone) for notice in run.notices) >= 2
    assert {key: result[key] for key in ("sha256", "iterations", "residual")} == {
        key: expected[key] for key in ("sha256", "iterations", "residual")
    }


@pytest.mark.mpi
@pytest.mark.more
def test_after_the_loss_of_a_gpu_host_the_others_go_on_from_what_it_committed(solve):
    """Longer where it ended before the kill."""
    for iterations in (1500, 6000, 24_000):
        parameters = {"grid": 40, "iterations": iterations, "residual_every": 19, "source": 3}
        order = run_task(parameters, [(40, 1)], "numpy", progress_seconds=0)
        order["implementations"] = {"ada": "numpy", "gil": "cuda"}
        run = rehearse(
            (sys.executable, str(SOLVER)),
            {"ada": 1, "gil": 1},
            [HostShare("ada", 9.0), HostShare("gil", 1.0)],
            task=order,
            commit_seconds=0.05,
            watch=lambda manager: Killer(manager, "gil", str(SOLVER)),
        )
        assert run.ended.state == "finished", run.ended
        if lost := [notice for notice in run.notices if isinstance(notice, RolledBack)]:
            break
    assert lost[0].lost == ("gil",)
    assert lost[0].iteration > 0
    expected = solve(order).only("result")
    assert run.events("result")[-1]["sha256"] == expected["sha256"]
