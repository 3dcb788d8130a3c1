import ast
import importlib
import subprocess
import sys
from pathlib import Path

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
    assert loaded_by("import nws; nws.classic(), nws.dynamite()").isdisjoint({"numpy", "numba"})
    assert loaded_by("import nws; nws.default()").isdisjoint({"numba", "scipy"})


@pytest.mark.parametrize("name", nws.__all__)
def test_every_name_of_the_front_door_opens(name):
    assert getattr(nws, name) is not None
    assert name in dir(nws)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'nws' has no attribute 'Almanac'"):
        _ = nws.Almanac


def test_type_checkers_see_the_names_that_python_loads():
    stub = ast.parse(Path(nws.__file__).with_suffix(".pyi").read_text())
    seen = {
        (alias.name, statement.module)
        for statement in stub.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }
    assert {name for name, _ in seen} == set(nws.__all__)
    for name, module in seen:
        assert getattr(importlib.import_module(module), name) is getattr(nws, name)
