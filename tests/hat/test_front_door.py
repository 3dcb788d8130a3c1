"""The front door opens for every name it lists, and loads nothing before it is asked."""

import subprocess
import sys

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


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'hat' has no attribute 'Cap'"):
        _ = hat.Cap
