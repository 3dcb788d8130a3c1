import subprocess
import sys

import pytest

import nws


def loaded_by(statement):
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return set(done.stdout.split())


def test_importing_nws_loads_nothing_else_of_it():
    modules = loaded_by("import nws")
    assert [name for name in modules if name.startswith("nws.")] == []
    assert modules.isdisjoint({"numpy", "psutil", "scipy", "json", "socket"})


def test_a_process_that_only_senses_loads_no_forecaster_and_nothing_heavy():
    modules = loaded_by("import nws; nws.CpuSensor, nws.LatencySensor")
    assert modules.isdisjoint({"numpy", "psutil", "nws.forecasters", "nws.service.in_process"})


def test_the_classic_profile_needs_no_numpy_and_the_default_one_no_numba():
    assert loaded_by("import nws; nws.classic()").isdisjoint({"numpy", "numba"})
    assert loaded_by("import nws; nws.default()").isdisjoint({"numba", "scipy"})


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'nws' has no attribute 'Almanac'"):
        _ = nws.Almanac
