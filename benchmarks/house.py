"""Counts what a reader meets in the four packages: modules, rooms and arrows, names, hops. Runs little.

    python benchmarks/house.py [--json] [--repository FOLDER]

A *room* is what stands at the top of `apples/` (a package or a file), and each of `nws`, `hat`, `blueprints`
and `benchmarks`. An *arrow* is a pair of rooms of which one imports the other, a *floor* the longest way down.
The figures are symptoms of simplicity, not its aim; docs/design/house.md says what they were and what was reached.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import statistics
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGES = ("apples", "nws", "hat", "blueprints")
PRINTING = {"print", "say", "show", "show_answer", "show_json", "pass_through", "echo", "write"}


@dataclass(frozen=True)
class Module:
    """One file of the four packages, read and parsed."""

    name: str
    path: Path
    text: str
    tree: ast.Module

    @property
    def lines(self) -> int:
        """Return how many lines the file has."""
        return self.text.count("\n")


def read(repository: Path, folders: Iterable[str] = PACKAGES) -> dict[str, Module]:
    """Return every tracked module of some folders by its dotted name."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "*.py"],  # noqa: S607 - the one on the path
        cwd=repository, capture_output=True, text=True, check=True,
    ).stdout.split("\n")  # fmt: skip
    found = {}
    for line in filter(None, listed):
        path = Path(line)
        if path.parts[0] not in folders or not (repository / path).is_file():
            continue
        text = (repository / path).read_text()
        parts = [p for p in path.with_suffix("").parts if p != "__init__"]
        found[".".join(parts)] = Module(".".join(parts), path, text, ast.parse(text))
    return found


def imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield module and name of every import in a file; the name is empty for ``import module``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)


def importers(modules: dict[str, Module]) -> dict[str, set[str]]:
    """Return by module who imports it; a package is imported by who takes a name that it defines or hands on."""
    found: dict[str, set[str]] = defaultdict(set)
    for one in modules.values():
        for module, name in imported(one.tree):
            target = f"{module}.{name}" if f"{module}.{name}" in modules else module
            if target in modules and target != one.name:
                found[target].add(one.name)
    return found


def room(module: str) -> str:
    """Return the room that a module stands in."""
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[0] == "apples" and len(parts) > 1 else parts[0]


def arrows(modules: dict[str, Module]) -> set[tuple[str, str]]:
    """Return the pairs of rooms of which the first imports the second."""
    return {
        (room(who), room(target))
        for target, all_who in importers(modules).items()
        for who in all_who
        if room(who) != room(target)
    }


def below(pairs: set[tuple[str, str]]) -> dict[str, set[str]]:
    """Return by room all rooms that it rests on, by whatever way; itself where it stands in a circle."""
    direct: dict[str, set[str]] = defaultdict(set)
    for above, under in pairs:
        direct[above].add(under)
    found: dict[str, set[str]] = {}
    for one in list(direct):
        seen: set[str] = set()
        waiting = [one]
        while waiting:
            for room_below in direct[waiting.pop()] - seen:
                seen.add(room_below)
                waiting.append(room_below)
        found[one] = seen
    return defaultdict(set, found)


def circles(pairs: set[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the pairs of rooms of which each rests on the other."""
    reach = below(pairs)
    return sorted((a, b) for a, b in pairs if a < b and a in reach[b])


def floors(pairs: set[tuple[str, str]]) -> int:
    """Return how many floors the rooms stand on; only of rooms without circles."""
    reach = below(pairs)
    height: dict[str, int] = {}
    for one in sorted(
        {name for pair in pairs for name in pair}, key=lambda name: len(reach[name])
    ):
        height[one] = 1 + max((height[under] for under in reach[one]), default=0)
    return max(height.values(), default=1)


def meanings(modules: dict[str, Module]) -> dict[str, list[str]]:
    """Return the public class names that are defined more than once, with the modules."""
    where = defaultdict(list)
    for one in modules.values():
        for node in one.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                where[node.name].append(one.name)
    return {name: places for name, places in sorted(where.items()) if len(places) > 1}


def public_members(modules: dict[str, Module], name: str) -> list[str]:
    """Return the public methods and properties of a class, those of its bases in the house included."""
    classes = {
        node.name: node
        for one in modules.values()
        for node in one.tree.body
        if isinstance(node, ast.ClassDef)
    }
    members: list[str] = []
    todo = [name]
    while todo:
        node = classes.get(todo.pop())
        if node is None:
            continue
        todo += [base.id for base in node.bases if isinstance(base, ast.Name)]
        members += [
            n.name
            for n in node.body
            if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef) and n.name[0] != "_"
        ]
    return members


def kinds_of_lines(text: str, tree: ast.Module) -> Counter[str]:
    """Return how many lines of a file are code, docstring, comment and blank."""
    kinds: Counter[str] = Counter()
    docstrings: set[int] = set()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue
        for statement in body:  # attribute docstrings too
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                docstrings.update(range(statement.lineno, (statement.end_lineno or 0) + 1))
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if number in docstrings:
            kinds["docstring"] += 1
        elif not stripped:
            kinds["blank"] += 1
        elif stripped.startswith("#"):
            kinds["comment"] += 1
        else:
            kinds["code"] += 1
    return kinds


def working_lines(modules: dict[str, Module]) -> int:
    """Return the lines of `apples.cli` that neither declare an option nor print.

    Left out are imports, docstrings, blank lines and comments, signatures and decorators, assignments of option
    types at the top of a file, and statements that do nothing but print.
    """
    total = 0
    for one in modules.values():
        if not one.name.startswith("apples.cli"):
            continue
        for node in ast.walk(one.tree):
            if isinstance(node, ast.FunctionDef):
                total += sum(_weight(statement) for statement in node.body)
    return total


def _weight(statement: ast.stmt) -> int:
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return 0  # counted by itself
    if isinstance(statement, ast.Expr):
        if isinstance(statement.value, ast.Constant):
            return 0
        called = statement.value.func if isinstance(statement.value, ast.Call) else None
        name = getattr(called, "attr", getattr(called, "id", ""))
        if name in PRINTING:
            return 0
    inner = [s for field in ("body", "orelse", "finalbody") for s in getattr(statement, field, [])]
    inner += [s for handler in getattr(statement, "handlers", []) for s in handler.body]
    whole = (statement.end_lineno or statement.lineno) - statement.lineno + 1
    if not inner:
        return whole
    within = sum((s.end_lineno or s.lineno) - s.lineno + 1 for s in inner)
    return max(1, whole - within) + sum(_weight(s) for s in inner)


def behind_front_doors(repository: Path, modules: dict[str, Module]) -> dict[str, int]:
    """Return how many modules below a package's top the docs, examples and benchmarks import."""
    found = {}
    for folder, pattern in (("docs", "*.md"), ("examples", "*.py"), ("benchmarks", "*.py")):
        named: set[str] = set()
        for path in (repository / folder).rglob(pattern):
            for match in re.finditer(
                r"^\s*(?:from|import) ((?:apples|nws|hat|blueprints)[\w.]*)(?: import ([\w, ]+))?",
                path.read_text(), re.MULTILINE,
            ):  # fmt: skip
                module, names = match.group(1), match.group(2) or ""
                for name in names.split(","):
                    inner = f"{module}.{name.strip()}"
                    target = inner if inner in modules else module
                    # `apples.room` and `nws` are front doors, whatever lies below is behind one.
                    if target.count(".") > (1 if target.startswith("apples") else 0):
                        named.add(target)
        found[folder] = len(named)
    return found


def drawing(pairs: set[tuple[str, str]]) -> str:
    """Return who imports whom as a graph in the DOT language, without what a longer way implies."""
    reach = below(pairs)
    direct = sorted(
        (above, under)
        for above, under in pairs
        if not any(under in reach[other] for other in reach[above] - {above, under})
    )
    lines = ["// Made by: python benchmarks/house.py --draw", "digraph rooms {", "  rankdir=TB;"]
    lines += ['  node [shape=box, style=rounded, fontname="sans-serif", fontsize=11];']
    for name in sorted({name for pair in pairs for name in pair}):
        lines.append(f'  "{name}" [label="{name.removeprefix("apples.")}"];')
    lines += [f'  "{above}" -> "{under}";' for above, under in direct]
    return "\n".join([*lines, "}", ""])


PLAN = """
import sys, json
ours = ("apples", "nws", "hat", "blueprints")
ran, deepest, stack = set(), 0, []
def watch(frame, event, argument):
    global deepest
    name = frame.f_globals.get("__name__", "")
    if name.split(".")[0] not in ours: return
    if event == "call":
        if frame.f_code.co_name != "<module>": ran.add(name)
        stack.append(name); deepest = max(deepest, len(set(stack)))
    elif event == "return" and stack: stack.pop()
from apples.cli.main import main
sys.argv = ["apples", "plan", "--weather", "static", "--json", "--hosts", "hosts.toml",
            "--template", "template.toml", "--user", "user.toml"]
import io, contextlib
sys.setprofile(watch)
with contextlib.redirect_stdout(io.StringIO()):
    try: main()
    except SystemExit: pass
sys.setprofile(None)
loaded = [m for m in sys.modules if m.split(".")[0] in ours]
print(json.dumps({"loaded": len(loaded), "executed": len(ran), "depth": deepest}))
"""


def plan_figures(repository: Path) -> dict[str, int]:
    """Return what ``apples plan --weather static`` of the sample loads, executes, and how deep it goes."""
    done = subprocess.run(
        [sys.executable, "-c", PLAN], cwd=repository / "examples" / "jacobi2d",
        env={"PYTHONPATH": str(repository), "PATH": "/usr/bin:/bin", "HOME": "/nonexistent"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return dict(json.loads(done.stdout.splitlines()[-1]))


def house(repository: Path) -> dict[str, object]:
    """Return every figure."""
    modules = read(repository)
    with_benchmarks = modules | read(repository, ("benchmarks",))
    pairs = arrows(with_benchmarks)
    single = [m for m, who in importers(modules).items() if len(who) == 1 and modules[m].lines > 0]
    lines = {one.name: one.lines for one in modules.values()}
    kinds: Counter[str] = Counter()
    for one in modules.values():
        kinds += kinds_of_lines(one.text, one.tree)
    tests = read(repository, ("tests",))
    largest = max(lines, key=lambda name: lines[name])
    top = {p.name for p in (repository / "apples").iterdir() if p.name != "__pycache__"}
    return {
        "modules": len(modules),
        "lines": sum(lines.values()),
        **{f"lines_{kind}": count for kind, count in sorted(kinds.items())},
        "lines_tests": sum(one.lines for one in tests.values()),
        "median_file": statistics.median(lines.values()),
        "largest_file": [largest, lines[largest]],
        "names_at_the_top": len([n for n in top if not n.startswith("__init__")]),
        "floors": floors(pairs) if not circles(pairs) else None,
        "arrows": len(pairs),
        "circles": circles(pairs),
        "modules_with_one_importer": len(single),
        "classes_with_several_meanings": len(meanings(modules)),
        "coordinator_members": len(public_members(modules, "Coordinator")),
        "information_pool_members": len(public_members(modules, "InformationPool")),
        "cli_working_lines": working_lines(modules),
        "behind_front_doors": behind_front_doors(repository, modules),
        "plan": plan_figures(repository),
        "compares_a_launcher's_name": sum(
            len(re.findall(r'[!=]= "(?:slurm|ssh|local)"', one.text)) for one in modules.values()
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--repository", type=Path, default=Path(__file__).resolve().parents[1])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--draw", action="store_true", help="print who imports whom, in DOT")
    options = parser.parse_args()
    if options.draw:
        print(drawing(arrows(read(options.repository.resolve()))), end="")
        return
    found = house(options.repository.resolve())
    if options.json:
        print(json.dumps(found, indent=1))
        return
    for name, value in found.items():
        print(f"{name.replace('_', ' '):34} {value}")


if __name__ == "__main__":
    main()
