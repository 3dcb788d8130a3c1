"""The architecture page against the source: its figure and every place that it names."""

import ast
import importlib.util
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("architecture page")  # the source is read once
ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/architecture.md").read_text()
PICTURES = ROOT / "docs/pictures"
NAMES = re.findall(r"`(\w+)` (?:in|of) `([\w/]+\.py)`", PAGE)
PLACES = sorted(
    {*re.findall(r"`([\w/]+\.py)`(?:: `(\w+)`)?", PAGE), *((file, name) for name, file in NAMES)}
)


@pytest.fixture(scope="module")
def house():
    spec = importlib.util.spec_from_file_location("house", ROOT / "benchmarks/house.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["house"] = module  # its dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def modules(house):
    if not (ROOT / ".git").exists():
        pytest.skip("the files of the repository are listed by git")
    return house.read(ROOT)


@pytest.fixture(scope="module")
def arrows(house, modules):
    return house.arrows(modules, strings=True)


def test_each_place_on_the_page_exists():
    assert PLACES
    for file, name in PLACES:
        tree = ast.parse((ROOT / file).read_text())
        defined = {
            node.name
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        }
        defined |= {
            target.id
            for node in tree.body
            if isinstance(node, ast.Assign | ast.AnnAssign)
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
            if isinstance(target, ast.Name)
        }
        assert not name or name in defined, f"{file}: {name}"


def test_the_figure_of_the_rooms_is_what_the_source_says(house, arrows):
    assert house.drawing(arrows) == (PICTURES / "rooms.dot").read_text(), "run: make pictures"


@pytest.mark.parametrize("figure", ["rooms", "processes"])
def test_the_picture_was_made_from_the_text_beside_it(figure):
    text = (PICTURES / f"{figure}.dot").read_text()
    drawn = ET.parse(PICTURES / f"{figure}.svg")  # noqa: S314 - our own picture
    titles = {element.text for element in drawn.iter() if element.tag.endswith("title")}
    for above, under in re.findall(r'"?([\w.]+)"? -> "?([\w.]+)"?', text):
        assert f"{above}->{under}" in titles


def test_rooms_stand_on_floors_without_a_circle(house, arrows):
    assert house.circles(arrows) == []
    assert house.floors(arrows) <= 10


def test_a_public_class_name_has_one_meaning(house, modules):
    assert house.meanings(modules) == {}


def packages():
    return [
        p for top in ("apples", "nws", "hat") for p in sorted((ROOT / top).rglob("__init__.py"))
    ]


def test_modules_named_in_the_docstring_of_a_package_exist():
    """Each word in single backquotes that could be a module is one, or is defined in the package."""
    for front in packages():
        folder = front.parent
        docstring = ast.get_docstring(ast.parse(front.read_text())) or ""
        for word in re.findall(r"(?<!`)`([a-z_][\w.]*)`(?!`)", docstring):
            path = Path(*word.split("."))
            places = [ROOT, folder.parent, folder, *folder.glob("*/")]
            is_module = any((at / f"{path}.py").is_file() or (at / path).is_dir() for at in places)
            parent = ROOT / f"{path.parent}.py"
            sources = [parent] if parent.is_file() else folder.glob("*.py")
            defined = rf"^(\s*(async )?(def|class) )?{path.name}\b"
            assert is_module or any(
                re.search(defined, source.read_text(), re.MULTILINE) for source in sources
            ), f"{front}: {word}"
