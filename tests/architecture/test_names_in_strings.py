"""Each name of a module in a string, a program text or a template: a module that moves takes it along."""

import ast
import functools
import importlib
import importlib.util
import re
import tomllib
from pathlib import Path

import pytest

import apples

ROOT = Path(apples.__file__).parents[1]
HERE = Path(__file__).resolve()
OLD_NAMES = [HERE, HERE.parents[1] / "test_moved_names.py"]
"""These write names that are not there on purpose."""
PACKAGES = ("apples", "nws", "hat", "blueprints")
TOP = "|".join(PACKAGES)
# With braces a host replaces it by the module's file; with a last dot it is the beginning of names of modules.
# `apples.toml` is a file.
NAME = re.compile(rf"\{{?((?:{TOP})(?!\.toml\b)(?:\.\w+)+)(?::(\w+)|\.)?\}}?")
IN_A_PROGRAM = re.compile(
    rf"(?:-m|\bfrom|\bimport) ((?:{TOP})(?:\.\w+)*)(?: import \(?([\w, \t]+))?"
)
SCHEMA = re.compile(rf"((?:{TOP})\.\w+)/\d")
TEXTS = {".j2", ".md", ".toml", ".py", ".pyi", ".sh", ""}


def files(*folders, suffixes=(".py",), but=()):
    found = (path for name in folders for path in (ROOT / name).rglob("*"))
    return sorted(
        path
        for path in found
        if path.suffix in suffixes and path.is_file() and "__pycache__" not in path.parts
        if path not in but
    )


def called(path):
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name


def strings(path):
    """Yield line and text of each string of a file that is no docstring and does not name a logger."""
    tree = ast.parse(path.read_text())
    skipped = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "getLogger":
            skipped |= {id(argument) for argument in node.args}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in skipped
        ):
            yield node.lineno, node.value


def is_module(name):
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError:  # what stands before the last dot is no package
        return False
    return spec is not None and spec.origin != "moved"  # that is for programs of apples 0.2


def has(module, *attributes):
    """Return whether a module has an attribute, or a module below it; and that has the next one, and so on."""
    if not is_module(module):
        return False
    value = importlib.import_module(module)
    for attribute in attributes:
        if not hasattr(value, attribute):
            if not is_module(f"{getattr(value, '__name__', '')}.{attribute}"):
                return False
            importlib.import_module(f"{value.__name__}.{attribute}")
        value = getattr(value, attribute)
    return True


@functools.cache
def others():
    """Return names that are none of modules: of documents, as ``apples.plan/1``, and of files, as ``apples.h``."""
    texts = [*files(*PACKAGES), *files("docs", suffixes=(".md",))]
    documents = {name for path in texts for name in SCHEMA.findall(path.read_text())}
    return documents | {path.name for name in PACKAGES for path in (ROOT / name).rglob("*.*")}


def missing_in_strings(paths, *, attributes=False):
    """Return the strings that look like a module, or like ``module:name``, and are neither; with their places.

    With `attributes` a string may be ``module.name`` as well, as in `monkeypatch.setattr`.
    """
    missing = []
    for path in paths:
        for line, text in strings(path):
            found = NAME.fullmatch(text)
            if not found or text in others():
                continue
            module, name = found.groups()
            if not (has(module, name) if name else is_module(module)) and not (
                attributes and has(*module.split("."))
            ):
                missing.append(f"{called(path)}:{line}: {text}")
    return missing


def missing_in_programs(paths):
    """Return what is missing of ``-m MODULE``, ``import MODULE`` and ``from MODULE import NAME``."""
    missing = []
    for path in paths:
        for found in IN_A_PROGRAM.finditer(path.read_text()):
            module, names = (
                found[1],
                re.split(r"[,\s]+", re.sub(r"\s+as\s+\w+", "", found[2] or "")),
            )
            # As `nws.query` and `hat.check`, the kinds of documents.
            if not all(has(module, *([name] if name else [])) for name in names):
                missing.append(f"{called(path)}: {found[0]}")
    return missing


def test_every_module_named_in_a_string_of_the_product_is_there():
    assert missing_in_strings(files(*PACKAGES, "examples")) == []


def test_every_name_in_a_string_of_a_test_resolves():
    """`monkeypatch.setattr("apples.x.NAME", ..)` and programs that tests write."""
    assert missing_in_strings(files("tests", "benchmarks", but=OLD_NAMES), attributes=True) == []


def test_every_module_that_a_program_text_or_a_template_names_is_there():
    paths = files(
        *PACKAGES,
        "examples",
        "tests",
        "benchmarks",
        "docs",
        "packaging",
        suffixes=TEXTS,
        but=OLD_NAMES,
    )
    assert missing_in_programs([*paths, ROOT / "README.md", ROOT / "Makefile"]) == []


def test_every_console_script_is_there():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = [project["scripts"], *project.get("entry-points", {}).values()]
    places = [place for group in groups for place in group.values()]
    assert places
    assert [place for place in places if not has(*place.split(":"))] == []


WRONG = '''
"""A docstring may name apples.jobs.nothing."""
MODULES = ("apples.jobs.nothing", "apples.jobs", "apples.jobs.nothing.", "{nws.nothing}")
PLACES = {"a": "apples.jobs:nothing", "b": "apples.jobs:submit", "c": "apples.plan", "d": "apples.h"}
TEXT = "from apples.nothing import main; from apples.jobs import nothing, submit; import hat"
WORDS = f"{TEXT} -m apples.jobs.nothing" + "nws.forecasters.nothing"
'''


def test_names_that_do_not_exist_are_reported(tmp_path):
    path = tmp_path / "wrong.py"
    path.write_text(WRONG)
    assert missing_in_strings([path]) == [
        "wrong.py:3: apples.jobs.nothing",
        "wrong.py:3: apples.jobs.nothing.",
        "wrong.py:3: {nws.nothing}",
        "wrong.py:4: apples.jobs:nothing",
        "wrong.py:6: nws.forecasters.nothing",
    ]
    assert missing_in_programs([path]) == [
        "wrong.py: from apples.nothing import main",
        "wrong.py: from apples.jobs import nothing, submit",
        "wrong.py: -m apples.jobs.nothing",
    ]


@pytest.mark.parametrize("attributes", [False, True])
def test_only_a_test_may_name_an_attribute_by_a_dot(tmp_path, attributes):
    path = tmp_path / "test_wrong.py"
    path.write_text('set("apples.jobs.submit"); set("apples.jobs.nothing")')
    wrong = (
        ["apples.jobs.nothing"] if attributes else ["apples.jobs.submit", "apples.jobs.nothing"]
    )
    assert missing_in_strings([path], attributes=attributes) == [
        f"test_wrong.py:1: {name}" for name in wrong
    ]


def floor_of_rooms():
    """Return the floor of each room, 0 the topmost, as the layers of import-linter have them."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = next(
        contract["layers"]
        for contract in contracts["contracts"]
        if contract.get("containers") == ["apples"]
    )
    return {
        room: floor for floor, layer in enumerate(layers) for room in re.findall(r"\w+", layer)
    }


def rooms_in_strings(path):
    """Yield line and room of each module of apples that the strings of a file, or a template, name."""
    texts = [(1, path.read_text())] if path.suffix == ".j2" else strings(path)
    for line, text in texts:
        found = NAME.fullmatch(text)
        names = [found[1]] if found and text not in others() else []
        names += [match[1] for match in IN_A_PROGRAM.finditer(text)]
        for name in names:
            top, _, module = name.partition(".")
            if top == "apples" and module:
                yield line, module.split(".")[0]


def strings_that_point_up(package):
    """Return the strings that name a module of a room above, or beside, the one that they stand in."""
    floors = floor_of_rooms()
    found = []
    for path in package.rglob("*"):
        # Scaffolds are programs of users, who may import all that is public.
        if path.suffix not in {".py", ".j2"} or "scaffold" in path.parts:
            continue
        room = path.relative_to(package).parts[0].removesuffix(".py")
        found += [
            f"{path.relative_to(package.parent)}:{line}: {target}"
            for line, target in rooms_in_strings(path)
            if room in floors and target in floors
            if target != room and floors[target] <= floors[room]
        ]
    return found


def test_no_string_names_a_module_of_a_room_above_or_beside():
    assert strings_that_point_up(ROOT / "apples") == []


@pytest.mark.parametrize(
    "text",
    [
        'LATER = "apples.jobs.children"',
        'LATER = ["-m", "apples.lab.commands:up"]',
        'LATER = "python -m apples.jobs.service"',
        'LATER = "apples.weather.links"',
    ],
)
def test_string_that_points_up_or_sideways_is_reported(tmp_path, text):
    planted = tmp_path / "apples/simulation/decider.py"
    planted.parent.mkdir(parents=True)
    planted.write_text(
        f'"""Only "apples.jobs" in a docstring."""\n{text}\nDOWN = "apples.io.plugins"\n'
    )
    assert len(strings_that_point_up(tmp_path / "apples")) == 1
