"""Hosts with a GPU: which of them run the GPU's implementation, with how many rows, and a whole set for real."""

import itertools
import os
from dataclasses import replace
from pathlib import Path

import pytest
from commands import EXAMPLE, command
from worlds import pool

import hat
from apples import Host, SpeedFunction
from apples.agent import (
    Learned,
    LearnedKey,
    gpu_finding,
    one_row_of_memory,
    recall,
    store_speeds,
    strip_memory,
)
from apples.resources import Allocation, Schedule

HOSTS = (Host("gil", platform="x86_64-cuda", free_memory="1 GB"), Host("ada", platform="x86_64"))
SWEPT = {"compiled": 1e-9, "wavefront": 5e-10, "numba": 2e-9, "numpy": 4e-9, "cuda": 1e-11}


def jacobi2d(learned=None, hosts=HOSTS, memory=float("inf")):
    """Return what is known of Jacobi2D at 1000 x 1000 where every implementation was measured everywhere."""
    template = hat.read(EXAMPLE / "template.toml", hat.ApplicationTemplate)
    speeds = {name: SpeedFunction.constant(seconds) for name, seconds in SWEPT.items()}
    speeds["cuda"] = replace(speeds["cuda"], memory=memory)
    learned = Learned({host.identity: speeds for host in hosts}) if learned is None else learned
    return replace(
        pool(hosts),
        template=template,
        application=template.bind({"grid": "1000"}),
        learned=learned,
        available=lambda *_: True,
    )


def chosen(information):
    return [information.implementation(host) for host in information.hosts]


def test_the_gpus_implementation_is_for_hosts_whose_platform_says_so():
    assert chosen(jacobi2d()) == ["cuda", "compiled"]


def test_a_gpu_that_nobody_measured_is_not_used():
    assert chosen(jacobi2d(Learned())) == ["compiled", "compiled"]


def test_a_strip_may_be_as_large_as_the_gpus_memory_or_the_hosts_whichever_is_less():
    strips = 16_000 * 102.0
    gil, ada = HOSTS
    information = jacobi2d(memory=strips)
    assert information.model.caps(HOSTS, 1000).tolist() == [100, 1000]
    assert one_row_of_memory(gil, information) is None
    schedule = Schedule((Allocation(gil, 101, "cuda"), Allocation(ada, 899, "compiled")))
    refused = strip_memory(schedule, information)
    assert refused.hosts == ("gil", "ada")
    assert refused.figures == (16_000 * 103, strips)
    assert one_row_of_memory(gil, jacobi2d(memory=100.0)).figures == (100.0, 48_000)
    little = (replace(gil, free_memory=16_000 * 52), ada)
    assert jacobi2d(hosts=little, memory=strips).model.caps(little, 1000).tolist() == [50, 1000]


def test_the_gpus_memory_is_remembered_with_the_speed_and_holds_for_other_grids(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    measured = SpeedFunction.measured([(10, 1e-9, 0.0), (90, 1e-9, 0.0)], 100, memory=5e9)
    key = LearnedKey("jacobi2d", "1", "/jacobi2d")
    store_speeds(key, "gil", {"cuda": measured, "numpy": SpeedFunction.constant(1e-8)})
    found = recall(key)
    assert found.speed("gil", "cuda").on(700).scaled(2.0).memory == 5e9
    assert found.speed("gil", "numpy").memory == float("inf")


def smi(folder, monkeypatch, script):
    """Put a driver's tool of our own on the path."""
    tool = folder / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.parametrize(
    ("script", "status", "printed"),
    [
        ("echo 'NVIDIA H100 80GB HBM3, 80990 MiB'", "ok", "NVIDIA H100 80GB HBM3, 80990 MiB"),
        ("echo 'No devices were found'; exit 6", "warn", "No devices were found"),
        ("exit 9", "warn", "nvidia-smi"),
        ("exec sleep 600", "warn", "0.05"),
    ],
)
def test_doctor_prints_the_output_of_the_gpus_driver(
    tmp_path, monkeypatch, script, status, printed
):
    pytest.importorskip("numba", reason="numba is in the gpu extra")
    smi(tmp_path, monkeypatch, script)
    found = gpu_finding("gpu", seconds=0.05) if "sleep" in script else gpu_finding("gpu")
    assert found.status == status
    assert printed in found.detail


def test_doctor_finds_no_fault_with_a_machine_that_has_no_gpu(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpu_finding("gpu").status == "ok"


TOGETHER = """
[[host]]
name = "gil"
platform = "x86_64-cuda"
cpus = [{0}]
[[host]]
name = "ada"
cpus = [{1}]
[[link]]
between = ["local", "local"]
latency = 1e-5
bandwidth = 1e9
"""


def together(folder, monkeypatch):
    """Return the options of a list of two hosts, of which one is bound to the GPU and one to numpy."""
    for name in ("STATE", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(folder / name))
    own = sorted(os.sched_getaffinity(0))
    (folder / "hosts.toml").write_text(TOGETHER.format(own[0], own[-1]))
    template = (EXAMPLE / "template.toml").read_text()
    for old, new in (
        ("solver.py", str(EXAMPLE / "solver.py")),
        ("[structure]", '[active_set]\ngil = "cuda"\nada = "numpy"\n\n[structure]'),
    ):
        template = template.replace(old, new)
    (folder / "template.toml").write_text(template)
    files = {"hosts": folder, "template": folder, "user": EXAMPLE}
    words = [(f"--{name}", str(where / f"{name}.toml")) for name, where in files.items()]
    return [*itertools.chain(*words), "--set", "grid=12"]


@pytest.mark.mpi
@pytest.mark.more
def test_a_set_that_mixes_gpu_and_cpu_is_calibrated_planned_run_and_verified(
    tmp_path, monkeypatch
):
    """On a GPU if there is one; else on one that numba plays, which never is the faster, so the set is given."""
    pytest.importorskip("numba", reason="numba is in the gpu extra")
    if not Path("/proc/driver/nvidia").exists():
        monkeypatch.setenv("NUMBA_ENABLE_CUDASIM", "1")
    files = together(tmp_path, monkeypatch)

    done = command("apples", "calibrate", *files, "--rows", "2,6", "--json")
    assert done.code == 0, done.err
    speeds = done.document["hosts"]
    assert sorted(speeds["gil"]) == ["cuda"]
    assert sorted(speeds["ada"]) == ["numpy"]
    assert speeds["ada"]["numpy"]["memory"] is None

    options = ["--set", "iterations=20", "--weather", "static", "--blueprint", "blocked"]
    done = command("apples", "run", *files, *options, "--verify", "full", "--json")
    assert done.code == 0, done.err
    assert done.document["verified"] is True
    ran = [
        (host["host"], host["implementation"])
        for host in done.document["plan"]["chosen"]["strips"]
    ]
    assert ran == [("gil", "cuda"), ("ada", "numpy")]


@pytest.mark.more
@pytest.mark.mpi
def test_a_host_that_has_no_gpu_after_all_is_left_out_with_the_reason(tmp_path, monkeypatch):
    pytest.importorskip("numba", reason="numba is in the gpu extra")
    if Path("/proc/driver/nvidia").exists():
        pytest.skip("there is a GPU here")
    monkeypatch.setenv("NUMBA_ENABLE_CUDASIM", "0")
    done = command(
        "apples", "calibrate", *together(tmp_path, monkeypatch), "--rows", "6", "--json"
    )
    assert done.code == 0
    speeds = done.document["hosts"]
    assert (sorted(speeds["ada"]), speeds.get("gil", {})) == (["numpy"], {})
    (line,) = (line for line in done.err.splitlines() if line.startswith("warning: cuda on gil: "))
    assert "NVIDIA" in line
    assert "SIGTERM" not in line
