"""Programs that travel over ssh or run without site packages load with nothing but the standard library."""

import ast
import functools
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import apples
from apples.launch import bootstrap

ROOT = Path(apples.__file__).parents[1]
SOURCES = [path for name in ("apples", "nws", "hat") for path in (ROOT / name).rglob("*.py")]
SOURCES = sorted(path for path in SOURCES if "templates" not in path.parts)
SENT = re.compile(r"\.(?:parcel|Program)\((\w[\w.]*)")
BY_PATH = re.compile(r"python -I -S (\w+\.py)")
AS_MODULE = re.compile(r"python(?: -\w)* -m ([\w.]+)")
BESIDE_S = re.compile(r'"-S",\s*(?:\w+\()?(\w+)\.__file__')
WITH_PACKAGES = {
    "apples.agent.expected_result",
    "apples.jobs.supervisor",
    "apples.launch.slurm.follow",
    "apples.launch.slurm.placing",
    "apples.malleable.migration.on_host",
    "apples.cluster.queue_planner",
    "apples.launch.actuators.checks",
}
"""Programs that are started with site packages and need them: they plan, read files of users, or keep state."""


def dotted(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def value_in(path, expression):
    """Return what an expression of names stands for in a module; None where it is no global one."""
    try:
        return functools.reduce(
            getattr, expression.split("."), importlib.import_module(dotted(path))
        )
    except AttributeError:
        return None


@functools.cache
def docstrings():
    """Return the docstring of each module, in one line; read without parsing, as every test run collects this."""
    found = {path: re.match(r'r?"""(.*?)"""', path.read_text(), re.DOTALL) for path in SOURCES}
    return {path: " ".join(text[1].split()) for path, text in found.items() if text}


def sent_programs():
    """Return each ``module:function`` that a caller of `Program` or `parcel` sends to another host."""
    candidates = ((path, word) for path in SOURCES for word in SENT.findall(path.read_text()))
    values = {value_in(path, word) for path, word in candidates}
    return sorted(value for value in values if isinstance(value, str))


def programs_run_by_path():
    """Return the files that the first lines of their own docstring call ``python -I -S FILE``."""
    texts = docstrings().items()
    return [path for path, text in texts if path.name in BY_PATH.findall(text)]


def programs_run_as_modules():
    """Return the modules whose own docstring says how they are run: ``python -m MODULE``."""
    return sorted({
        dotted(path)
        for path, text in docstrings().items()
        if dotted(path) in AS_MODULE.findall(text)
    })  # fmt: skip


def bare(code, *arguments):
    """Run a program without site packages; return its last error."""
    argv = [sys.executable, "-I", "-S", "-c", f"import importlib, runpy, sys\n{code}", *arguments]
    done = subprocess.run(map(str, argv), capture_output=True, text=True, check=False)
    return done.stderr.strip().rpartition("\n")[2]


def write(folder, sources):
    for name, text in sources.items():
        path = folder.joinpath(*name.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for path in folder.rglob("*/"):
        (path / "__init__.py").touch()


def imports_of(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or "."


IMPORT = "sys.path.append(sys.argv[1]); importlib.import_module(sys.argv[2])"


def test_program_that_travels_loads_where_nothing_else_is(tmp_path):
    for place in sent_programs():
        check_travelling(place, tmp_path / place.replace(":", "."))


def check_travelling(place, folder):
    modules = bootstrap.Program(place).modules
    home, _, function = place.partition(":")
    texts = {
        module: Path(importlib.import_module(module).__file__).read_text() for module in modules
    }
    write(folder, texts)
    check = f"{IMPORT}; getattr(sys.modules[sys.argv[2]], sys.argv[3])"
    assert bare(check, folder, home, function) == "", place
    for module, text in texts.items():  # those inside functions as well, which are not loaded here
        packages = {name.rpartition(".")[0] for name in modules}
        for name in imports_of(text):
            known = name.split(".")[0] in sys.stdlib_module_names
            assert known or name in {*modules, *packages}, f"{module} imports {name}"


@pytest.mark.parametrize("path", programs_run_by_path(), ids=dotted)
def test_program_run_by_path_loads_without_site_packages(path):
    assert bare("runpy.run_path(sys.argv[1], run_name='bare')", path) in {
        "",
        # `host_agent.py` finds the rest of itself only where it is run.
        "ModuleNotFoundError: No module named 'apples'",
    }
    code = "sys.path.append(sys.argv[2]); runpy.run_path(sys.argv[1], run_name='bare')"
    assert bare(code, path, ROOT) == ""


@pytest.mark.parametrize("module", sorted({*programs_run_as_modules()} - WITH_PACKAGES))
def test_program_run_as_a_module_loads_without_site_packages(module):
    assert bare(IMPORT, ROOT, module) == ""


def test_every_program_is_found():
    assert len(sent_programs()) >= 6
    assert {*programs_run_as_modules()} >= WITH_PACKAGES
    beside = {
        value_in(path, name).__file__
        for path in SOURCES
        for name in BESIDE_S.findall(path.read_text())
    }
    assert beside
    assert {Path(file) for file in beside} <= {*programs_run_by_path()}


@pytest.mark.parametrize(
    "planted", ["import pydantic", "from apples.resources import read_host_list"]
)
def test_package_in_a_program_is_reported(planted, tmp_path):
    write(tmp_path, {"shop.desk": f"{planted}\n"})
    error = bare(f"sys.path.append(sys.argv[3]); {IMPORT}", tmp_path, "shop.desk", ROOT)
    assert error == "ModuleNotFoundError: No module named 'pydantic'"


def test_what_travels_is_what_a_module_imports_first(tmp_path, monkeypatch):
    write(
        tmp_path,
        {
            "shop.desk": "from apples.io.connection import (\n    LineConnection,  # (one end)\n)\n"
            "from apples.launch import job_processes, this_host\n",
        },
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert bootstrap.Program("shop.desk:main").modules == [
        "apples.io.json_lines",
        "apples.io.connection",
        "apples.launch.job_processes",
        "apples.launch.this_host",
        "shop.desk",
    ]
