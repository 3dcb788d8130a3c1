"""The front door opens for every name it lists, and loads nothing before it is asked."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import hat


def loaded_by(statement):
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return set(done.stdout.split())


def test_importing_hat_loads_nothing_else():
    modules = loaded_by("import hat")
    assert [name for name in modules if name.startswith("hat.")] == []
    assert modules.isdisjoint({"pydantic", "jinja2", "tomllib"})


def test_reading_loads_neither_models_nor_jinja():
    modules = loaded_by("import hat; hat.read, hat.DocumentError")
    assert modules.isdisjoint({"jinja2", "hat.template", "hat.specifications"})


@pytest.mark.parametrize("name", hat.__all__)
def test_every_name_of_the_front_door_opens(name):
    assert getattr(hat, name) is not None
    assert name in dir(hat)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'hat' has no attribute 'Cap'"):
        _ = hat.Cap


def test_type_checkers_see_the_names_that_python_loads():
    stub = ast.parse(Path(hat.__file__).with_suffix(".pyi").read_text())
    seen = {
        (alias.name, statement.module)
        for statement in stub.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }
    assert {name for name, _ in seen} == set(hat.__all__)
    for name, module in seen:
        assert getattr(importlib.import_module(module), name) is getattr(hat, name)
