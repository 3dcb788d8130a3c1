"""Rules of the house that a tool does not keep."""

import ast
import functools
import importlib
import importlib.util
import re
import sys
import tomllib
from pathlib import Path

import pytest

import apples

ROOT = Path(apples.__file__).parents[1]
PACKAGES = ("apples", "nws", "hat", "blueprints", "examples")
BLUEPRINTS = sorted(p for p in (ROOT / "blueprints").glob("*.py") if p.stem != "__init__")
DOORS = [p.parent for name in PACKAGES[:4] for p in (ROOT / name).rglob("__init__.py")]


def called(path):
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", BLUEPRINTS, ids=called)
def test_blueprint_imports_only_apples_and_is_short(path):
    tree = ast.parse(path.read_text())
    whole = [a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names]
    names = [n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
    assert {*whole, *names} == {"apples"}
    (function,) = [n for n in tree.body if isinstance(n, ast.FunctionDef)]
    assert function.name == path.stem
    assert sum(isinstance(n, ast.stmt) for n in ast.walk(function)) - 1 <= 20


@pytest.mark.xdist_group("kept together")
def test_tests_that_share_a_laboratory_run_one_after_the_other(request):
    """pytest-xdist knows a group by the end of a test's name, which not every pytest lets it write."""
    if not request.config.getoption("loadgroup", default=False):
        pytest.skip("tests are not spread over processes by groups")
    assert request.node.nodeid.endswith("@kept together")


def test_import_linter_follows_imports_for_type_checkers_so_that_they_hide_no_cycle():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    assert not contracts.get("exclude_type_checking_imports", False)


def test_every_name_of_a_package_door_opens():
    for folder in DOORS:
        module = importlib.import_module(".".join(folder.relative_to(ROOT).parts))
        for name in getattr(module, "__all__", []):
            assert getattr(module, name) is not None, f"{called(folder)}: {name}"


STUBS = [stub.parent for name in PACKAGES[:4] for stub in (ROOT / name).rglob("__init__.pyi")]


def test_type_checkers_see_the_names_that_python_loads():
    for folder in STUBS:
        module = importlib.import_module(".".join(folder.relative_to(ROOT).parts))
        stub = (folder / "__init__.pyi").read_text()
        seen, aliases = {}, {}
        for statement in ast.parse(stub).body:
            if isinstance(statement, ast.ImportFrom):
                for alias in statement.names:
                    seen[alias.asname] = statement.module, alias.name
            else:
                aliases[statement.targets[0].id] = statement.value.id
        for name, (home, its_name) in seen.items():
            value = getattr(importlib.import_module(home), its_name, None)
            if value is None:
                value = importlib.import_module(f"{home}.{its_name}")
            assert value is getattr(module, name), f"{called(folder)}: {name}"
        for alias, name in aliases.items():
            assert getattr(module, alias) is getattr(module, name), f"{called(folder)}: {alias}"
        public, _, internal = stub.partition("# Not public:")
        listed = {
            name
            for name in {*seen, *aliases}
            if re.search(rf"\b{name}( =|,?$)", public, re.MULTILINE)
        }
        assert {*module.__all__} == listed, called(folder)
        assert not {*module.__all__} & {
            line.split()[-1].strip(",") for line in internal.splitlines()[1:]
        }
        if folder.name != "lab":  # which imports its functions `up`, `down` and `shape` at once
            for name in {*seen, *aliases}:
                # A module of the same name would take the name's place when it is imported.
                assert not (folder / f"{name}.py").exists(), f"{called(folder)}: {name}"
                assert not (folder / name / "__init__.py").exists(), f"{called(folder)}: {name}"


ENTRY_POINTS = {"apples.__main__", "apples.weather.commands.nws", "apples.applications.commands"}
"""What the console scripts call; the only part of the command line that a test or a benchmark may run."""
TABLES = {"main", "COMMANDS", "DOCUMENTS", "PAGES", "RENAMED"}
"""The names of them that a test may use."""
COMMAND_LINE = re.compile(r"apples\.(__main__|ui\.command_line|.*\b\w*commands)\b")


def test_tests_import_from_package_doors():
    """A module may move inside its package, and no test changes: ``from apples.agent import ...``."""
    deep = [
        f"{called(path)}: {module}"
        for path in (ROOT / "tests").rglob("*.py")
        for module in imported_modules(path)
        if module.split(".")[0] in {"apples", "nws", "hat"} and module.count(".") > 1
        if module not in ENTRY_POINTS
    ]
    assert deep == []


def test_tests_import_no_private_name():
    private = [
        f"{called(path)}: {alias.name}"
        for path in (ROOT / "tests").rglob("*.py")
        for node in imports(path)
        if isinstance(node, ast.ImportFrom)
        if (node.module or "").split(".")[0] in {"apples", "nws", "hat"}
        for alias in node.names
        if alias.name.startswith("_")
    ]
    assert private == []


@functools.cache
def imports(path):
    """Return the import statements of a file."""
    nodes = ast.walk(ast.parse(path.read_text()))
    return [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]


def imported_modules(path):
    for node in imports(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def test_apples_never_imports_the_examples():
    for path in (ROOT / "apples").rglob("*.py"):
        for name in imported_modules(path):
            assert name.split(".")[0] not in {"examples", "solver"}, path


PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.more
def test_nothing_imports_the_command_line_but_its_entry_points():
    users = [
        p for name in ("tests", "benchmarks", "examples") for p in (ROOT / name).rglob("*.py")
    ]
    texts = {called(path): path.read_text() for path in users}
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        texts[called(page)] = "\n".join(PYTHON_BLOCK.findall(page.read_text()))
    for place, text in texts.items():
        for node in ast.walk(ast.parse(text)):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [a.name for a in node.names] if isinstance(node, ast.Import) else []
            inside = {name for name in names if COMMAND_LINE.match(name)}
            assert inside <= ENTRY_POINTS, place
            if inside:
                assert {alias.name for alias in node.names} <= TABLES, place


@functools.cache  # it parses all sources
def error_codes():
    spec = importlib.util.spec_from_file_location("error_codes", ROOT / "docs/error_codes.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["error_codes"] = module  # its dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_every_error_has_a_code_and_each_code_one_exit_code():
    tool = error_codes()
    assert tool.missing() == []
    codes = tool.catalogue()
    assert [name for name in codes if not tool.KEBAB.fullmatch(name)] == []
    assert {name: sorted(code.exits) for name, code in codes.items() if len(code.exits) > 1} == {}
    # A program's own error ends its run with 5 and the program with 2, so no command may raise its code.
    raised = {name for name, code in codes.items() if code.of_program} | tool.codes_of_examples()
    assert sorted(name for name in raised if name in codes and codes[name].of_command) == []


def test_page_of_error_codes_is_generated_from_the_source():
    assert error_codes().page() == (ROOT / "docs/reference/errors.md").read_text(), "make errors"
