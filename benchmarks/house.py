"""Count the code and the prose of a source tree: lines, modules, layers, and words that hide the noun.

    python benchmarks/house.py [PATH] [--json | --list | --draw]

PATH is any folder of Python sources, by default this repository. A checkout of another project works too. The
program imports and runs none of the files. A *room* is an entry at the top of the largest package, or another
package. An *arrow* is a pair of rooms; the first imports the second. A *floor* is a step of the longest way down.

The prose index counts the expressions of `INDEX` in 1,000 words; docs/writing.md explains them. `--list` prints
each place, for example ``apples/errors.py:9: docstrings, comments: say: ..``.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import subprocess
import tokenize
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

FOLDERS = {
    "tests": ("tests", "test", "_tests"),
    "docs": ("docs", "doc"),
    "examples": ("examples", "example"),
    "benchmarks": ("benchmarks", "benchmark", "bench", "asv_bench"),
}
"""Kind of a file -> names of a folder above it."""

PAGES = {".md", ".rst"}
CHANGELOG = re.compile(r"(change|history|news|release)", re.IGNORECASE)
NOT_AT_THE_TOP = {"__init__.py", "__init__.pyi", "__main__.py", "py.typed", "__pycache__"}

INDEX = {
    "who": r"who|whom|whose|whoever|nobody|somebody|anybody|everybody",
    "say": r"say|says|said|tell|tells|told",
    "what": r"what(?:ever)?(?![ -]if\b)(?![^.!?]*\?)",  # a question may begin with it
    "so many": r"so (?:long|many|much|few|often)",
    "ones": r"ones|one that|of which",
    "no": r"there (?:is|are) no",
}
COUNTED = {name: re.compile(rf"\b(?:{words})\b", re.IGNORECASE) for name, words in INDEX.items()}
WORD = re.compile(r"[^\W\d_][\w'-]*")

RST_CODE = re.compile(
    r"^(( *)(?:(?!\.\. ).*::|\.\. (?:code|code-block|ipython|testcode|sourcecode)::.*))\n"
    r"(?:\2[ \t]+.*\n|\s*\n)+",
    re.MULTILINE,
)
"""An indented block below ``::`` or a code directive."""

PRINTING = {
    "print", "echo", "secho", "say", "show", "warn", "talk", "report", "debug", "info", "warning", "error",
    "exception", "critical", "write", "exit",
}  # fmt: skip
AN_ERROR = re.compile(r"(Error|Exception|Warning|Refusal)$")
HELP = {"help", "short_help", "epilog", "description"}
NAMED = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
"""A function named in a string, for example ``apples.jobs.commands.plan:plan``."""


@dataclass(frozen=True)
class Module:
    """A Python file, read and parsed; `name` is dotted and empty outside packages."""

    name: str
    path: Path
    text: str
    tree: ast.Module
    kind: str

    @property
    def lines(self) -> int:
        """Return the number of lines."""
        return self.text.count("\n")

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes of the tree, breadth first; they are read several times."""
        return list(ast.walk(self.tree))


@dataclass(frozen=True)
class Passage:
    """A piece of prose with the place where it begins and the row of the table that counts it."""

    row: str
    path: Path
    line: int
    text: str


# Files -----------------------------------------------------------------------------------------------------------


def listed(tree: Path, suffixes: Iterable[str]) -> list[Path]:
    """Return the files with these suffixes, relative to the tree: git's list, else all but hidden folders."""
    command = ["git", "ls-files", "-co", "--exclude-standard"]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    files = [Path(line) for line in done.stdout.splitlines()]
    if not files:
        files = [path.relative_to(tree) for path in tree.rglob("*")]
        environments = {path.parent for path in files if path.name == "pyvenv.cfg"}
        files = [
            path for path in files
            if not any(part.startswith(".") for part in path.parts) and not environments & {*path.parents}
        ]  # fmt: skip
    return sorted(path for path in files if path.suffix in suffixes and (tree / path).is_file())


def package_above(path: Path) -> Path | None:
    """Return the outermost folder above a file that has an ``__init__.py``."""
    return next((up for up in reversed(path.parents) if (up / "__init__.py").is_file()), None)


def kind_of(tree: Path, path: Path) -> str:
    """Return the kind of a file: product, tests, docs, examples, benchmarks or other."""
    for kind, names in FOLDERS.items():
        if set(path.parent.parts) & {*names}:
            return kind
    if path.name.startswith("test_") or path.name == "conftest.py":
        return "tests"
    if path.suffix in PAGES:
        return "docs"
    in_source_folder = path.parent == Path("src")
    return "product" if in_source_folder or package_above(tree / path) else "other"


def read_all(tree: Path) -> list[Module]:
    """Return every Python file of a tree that can be parsed."""
    modules = []
    for path in listed(tree, [".py"]):
        text = (tree / path).read_text(errors="replace")
        try:
            with warnings.catch_warnings(action="ignore"):
                parsed = ast.parse(text)
        except (SyntaxError, ValueError):
            continue  # for example a template, or test data
        package = package_above(tree / path)
        dotted = (tree / path).relative_to(package.parent if package else (tree / path).parent)
        parts = [part for part in dotted.with_suffix("").parts if part != "__init__"]
        modules.append(Module(".".join(parts), path, text, parsed, kind_of(tree, path)))
    return modules


def read(tree: Path) -> dict[str, Module]:
    """Return every module of the product by its dotted name."""
    return {module.name: module for module in read_all(tree) if module.kind == "product"}


# Rooms, arrows, floors -------------------------------------------------------------------------------------------


def imported(module: Module) -> Iterator[tuple[str, str]]:
    """Yield module and name of every import in a file; the name is empty for ``import module``."""
    package = module.name.split(".")
    if module.path.name != "__init__.py":
        package = package[:-1]
    for node in module.nodes:
        if isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*above, *([node.module] if node.module else [])])
            yield from ((source, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)


def named_in_strings(module: Module) -> Iterator[tuple[str, str]]:
    """Yield the dotted names that the strings of a file consist of, such as ``apples.lab.commands:up``."""
    for node in module.nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "." in node.value:
            yield node.value.partition(":")[0], ""


def importers(modules: dict[str, Module], *, strings: bool = False) -> dict[str, set[str]]:
    """Return the importers of each module; `strings` adds the modules that name it in a string."""
    importers_of: dict[str, set[str]] = defaultdict(set)
    for module in modules.values():
        names = [*imported(module), *(named_in_strings(module) if strings else ())]
        for source, name in names:
            target = f"{source}.{name}" if f"{source}.{name}" in modules else source
            if target in modules and target != module.name:
                importers_of[target].add(module.name)
    return importers_of


def largest_package(modules: dict[str, Module]) -> str:
    """Return the package with most lines."""
    lines: Counter[str] = Counter()
    for module in modules.values():
        lines[module.name.split(".")[0]] += module.lines
    return lines.most_common(1)[0][0] if lines else ""


def arrows(modules: dict[str, Module], *, strings: bool = False) -> set[tuple[str, str]]:
    """Return the pairs of rooms (importer, imported).

    Python loads a package before its modules, so that a module's import of a package it lies in is no arrow.
    """
    divided = largest_package(modules)

    def room(module: str) -> str:
        parts = module.split(".")
        return ".".join(parts[:2]) if parts[0] == divided else parts[0]

    return {
        (room(importer), room(target))
        for target, names in importers(modules, strings=strings).items()
        for importer in names
        if room(importer) != room(target) and not importer.startswith(f"{target}.")
    }


def below(pairs: set[tuple[str, str]]) -> dict[str, set[str]]:
    """Return all rooms that each room imports, directly or not; itself if it stands in a circle."""
    direct: dict[str, set[str]] = defaultdict(set)
    for above, under in pairs:
        direct[above].add(under)
    reached: dict[str, set[str]] = defaultdict(set)
    for room in list(direct):
        waiting = [room]
        while waiting:
            new = direct[waiting.pop()] - reached[room]
            reached[room] |= new
            waiting.extend(new)
    return reached


def circles(pairs: set[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the arrows between two rooms that import each other, directly or not."""
    reached = below(pairs)
    return sorted((a, b) for a, b in pairs if a < b and a in reached[b])


def floors(pairs: set[tuple[str, str]]) -> int:
    """Return the number of floors; the rooms of a circle share one."""
    reached = below(pairs)
    height: dict[str, int] = {}
    rooms = {name for pair in pairs for name in pair}
    for room in sorted(rooms, key=lambda name: (len(reached[name]), name not in reached[name])):
        lower = (under for under in reached[room] if room not in reached[under])
        height[room] = 1 + max((height[under] for under in lower), default=0)
    return max(height.values(), default=1)


def meanings(modules: dict[str, Module]) -> dict[str, list[str]]:
    """Return the public class names that several modules define, with the modules."""
    places = defaultdict(list)
    for module in modules.values():
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(module.name)
    return {name: where for name, where in sorted(places.items()) if len(where) > 1}


def drawing(pairs: set[tuple[str, str]]) -> str:
    """Return the arrows as a graph in the DOT language, without those that a longer way implies."""
    reached = below(pairs)
    direct = sorted(
        (above, under)
        for above, under in pairs
        if not any(under in reached[other] for other in reached[above] - {above, under})
    )
    lines = ["// Made by: python benchmarks/house.py --draw", "digraph rooms {", "  rankdir=TB;"]
    lines += ['  node [shape=box, style=rounded, fontname="sans-serif", fontsize=11];']
    for name in sorted({name for pair in pairs for name in pair}):
        lines.append(f'  "{name}" [label="{name.removeprefix("apples.")}"];')
    lines += [f'  "{above}" -> "{under}";' for above, under in direct]
    return "\n".join([*lines, "}", ""])


# Lines and prose -------------------------------------------------------------------------------------------------


def docstrings(module: Module) -> Iterator[ast.Constant]:
    """Yield the docstrings of a file, those of attributes included."""
    for node in module.nodes:
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            value = statement.value if isinstance(statement, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield value


def kinds_of_lines(module: Module) -> Counter[str]:
    """Return the numbers of lines of code, docstring and comment, and of blank lines."""
    in_docstring: set[int] = set()
    for node in docstrings(module):
        in_docstring.update(range(node.lineno, (node.end_lineno or 0) + 1))
    kinds: Counter[str] = Counter()
    for number, line in enumerate(module.text.splitlines(), 1):
        stripped = line.strip()
        if number in in_docstring:
            kinds["docstring"] += 1
        elif not stripped:
            kinds["blank"] += 1
        else:
            kinds["comment" if stripped.startswith("#") else "code"] += 1
    return kinds


def comments(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of the comments of a file; neighbouring lines are one comment."""
    start, last, lines = 0, -1, list[str]()
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            words = token.string.lstrip("#!: ")
            if token.type != tokenize.COMMENT or re.match(r"(noqa|type|fmt|pragma|ruff)\b", words):
                continue
            line = token.start[0]
            if line != last + 1 and lines:
                yield start, " ".join(lines)
                lines = []
            start, last = (start if lines else line), line
            lines.append(words)
    except (tokenize.TokenError, IndentationError):
        pass
    if lines:
        yield start, " ".join(lines)


def strings(node: ast.AST) -> Iterator[tuple[int, ast.AST, str]]:
    """Yield line, node and text of the string literals below a node; an f-string is one, with 0 for its values."""
    if isinstance(node, ast.JoinedStr):
        parts = [
            str(part.value) if isinstance(part, ast.Constant) else "0" for part in node.values
        ]
        yield node.lineno, node, "".join(parts)
    elif isinstance(node, ast.Constant):
        if isinstance(node.value, str):
            yield node.lineno, node, node.value
    else:
        for child in ast.iter_child_nodes(node):
            yield from strings(child)


def help_texts(module: Module, commands: set[str]) -> Iterator[ast.AST]:
    """Yield the nodes with help: ``help=`` of a call, docstrings of commands, texts of a command table."""
    for node in module.nodes:
        if isinstance(node, ast.keyword) and node.arg in HELP:
            yield node.value
        elif isinstance(node, ast.Tuple) and any(
            isinstance(entry, ast.Constant) and str(entry.value) in commands for entry in node.elts
        ):
            yield node
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            decorators = " ".join(ast.unparse(decorator) for decorator in node.decorator_list)
            is_command = re.search(r"\.(command|callback)\b", decorators)
            if (is_command or f"{module.name}:{node.name}" in commands) and node.body:
                first = node.body[0]
                if isinstance(first, ast.Expr) and ast.get_docstring(node) is not None:
                    yield first.value


def messages(module: Module) -> Iterator[ast.AST]:
    """Yield the nodes that hold messages: raised errors, errors that are made, arguments of printing calls."""
    for node in module.nodes:
        if isinstance(node, ast.Raise) and node.exc is not None:
            yield node.exc
        elif isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name in PRINTING or AN_ERROR.search(name):
                yield from node.args


def prose_of(module: Module, commands: set[str]) -> Iterator[Passage]:
    """Yield the prose of a Python file. A literal counts once: as help, else as message, else as string."""
    kind = {"product": "", "tests": " of tests"}.get(module.kind, " of other files")
    package = f"/{module.name.split('.')[0]}" if module.kind == "product" else ""
    row = f"docstrings, comments{kind}{package}"
    seen: set[int] = set()
    help_nodes = [part for node in help_texts(module, commands) for part in ast.walk(node)]
    for node in docstrings(module):
        if module.kind == "product" and node in help_nodes:
            continue
        seen.add(id(node))
        yield Passage(row, module.path, node.lineno, str(node.value))
    for line, text in comments(module.text):
        yield Passage(row, module.path, line, text)
    if module.kind != "product":
        return
    literals = [
        *(("help", node, 2) for node in help_texts(module, commands)),
        *(("messages", node, 3) for node in messages(module)),
        ("other strings", module.tree, 3),
    ]
    for name, outer, least_words in literals:
        for line, literal, text in strings(outer):
            if id(literal) not in seen and len(text.split()) >= least_words:
                seen.add(id(literal))
                yield Passage(name, module.path, line, text)


def prose_of_page(path: Path, text: str) -> Passage:
    """Return the prose of a page, its code removed."""
    row = "changelog" if CHANGELOG.match(path.name) else "documentation"
    if path.suffix == ".md":
        text = re.sub(r"^ *(```|~~~).*?^ *\1", _blank, text, flags=re.MULTILINE | re.DOTALL)
        text = re.sub(r"\]\([^)]*\)", "]", text)
    else:
        text = RST_CODE.sub(lambda match: match[1] + _blank(match), text)
    return Passage(row, path, 1, text)


def _blank(match: re.Match[str]) -> str:
    return "\n" * match[0].count("\n")


def words_of(text: str) -> str:
    """Return the text without doctests, literals in backquotes and addresses."""
    text = re.sub(r"^[ \t]*>>>.*\n(?:[ \t]*\S.*(?:\n|$))*", _blank, text, flags=re.MULTILINE)
    text = re.sub(r"(`+)[^`]*\1", lambda match: "X" + _blank(match), text)
    return re.sub(r"https?://\S+", "X", text)


def occurrences(passage: Passage) -> Iterator[tuple[str, int, str]]:
    """Yield the entry of the index, the line and the surrounding text of each counted expression."""
    text = words_of(passage.text)
    flat = re.sub(r"\s", " ", text)  # of the same length, so that lines can be counted
    for name, pattern in COUNTED.items():
        for match in pattern.finditer(flat):
            line = passage.line + text.count("\n", 0, match.start())
            around = flat[max(0, match.start() - 50) : match.end() + 50]
            yield name, line, " ".join(around.split())


def index_of(passages: Iterable[Passage]) -> dict[str, dict[str, float]]:
    """Return the words and the occurrences in 1,000 words, by row of the table."""
    words: Counter[str] = Counter()
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for passage in sorted(passages, key=lambda passage: passage.row):
        row, _, package = passage.row.partition("/")
        number = len(WORD.findall(words_of(passage.text)))
        entries = [entry for entry, _, _ in occurrences(passage)]
        for name in [row, f"- of {package}"] if package else [row]:
            words[name] += number
            counts[name].update(entries)
    return {
        row: {
            "words": words[row],
            **{name: round(1000 * counts[row][name] / max(1, words[row]), 2) for name in INDEX},
            "all": round(1000 * counts[row].total() / max(1, words[row]), 2),
        }
        for row in words
    }


# The whole -------------------------------------------------------------------------------------------------------


def prose(tree: Path, modules: list[Module]) -> list[Passage]:
    """Return all prose of a tree: code first, then pages."""
    commands = {
        node.value
        for module in modules
        for node in module.nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and NAMED.fullmatch(node.value)
    }  # fmt: skip
    passages = [passage for module in modules for passage in prose_of(module, commands)]
    pages = (path for path in listed(tree, PAGES) if kind_of(tree, path) != "tests")
    return passages + [
        prose_of_page(page, (tree / page).read_text(errors="replace")) for page in pages
    ]


def house(tree: Path, modules: list[Module]) -> dict[str, object]:
    """Return every figure but those of the prose."""
    lines: dict[str, Counter[str]] = defaultdict(Counter)
    for module in modules:
        lines[module.kind] += Counter(files=1, all=module.lines) + kinds_of_lines(module)
    pages = {"documentation": 0, "changelog": 0}
    for path in listed(tree, PAGES):
        kind, text = kind_of(tree, path), (tree / path).read_text(errors="replace")
        lines[f"{kind} pages" if kind != "docs" else "pages"] += Counter(
            files=1, all=text.count("\n")
        )
        if kind != "tests":
            pages["changelog" if CHANGELOG.match(path.name) else "documentation"] += len(
                text.split()
            )
    product = {module.name: module for module in modules if module.kind == "product"}
    pairs, with_strings = arrows(product), arrows(product, strings=True)
    largest = largest_package(product)
    folder = package_above(tree / product[largest].path) if largest in product else None
    return {
        "lines": {kind: dict(counts) for kind, counts in lines.items()},
        "modules": len(product),
        "modules with one importer": sum(len(names) == 1 for names in importers(product).values()),
        "largest package": largest,
        "names at its top": len({path.name for path in folder.iterdir()} - NOT_AT_THE_TOP) if folder else 0,
        "floors": floors(pairs),
        "arrows": len(pairs),
        "circles": len(circles(pairs)),
        "floors with strings": floors(with_strings),
        "arrows with strings": len(with_strings),
        "circles with strings": len(circles(with_strings)),
        "classes with several meanings": len(meanings(product)),
        "words of documentation": pages["documentation"],
        "words of the changelog": pages["changelog"],
        "test functions": sum(
            len(re.findall(r"^\s*(?:async )?def test", module.text, re.MULTILINE))
            for module in modules
            if module.kind == "tests"
        ),
    }  # fmt: skip


def table(rows: dict[str, dict[str, float]], columns: list[str]) -> str:
    """Return rows of numbers as text with a heading."""
    lines = ["".join([f"{'':36}", *(f"{column:>10}" for column in columns)])]
    for name, row in rows.items():
        lines.append("".join([f"{name:36}", *(f"{row.get(column, 0):10,}" for column in columns)]))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("path", nargs="?", type=Path, default=Path(__file__).resolve().parents[1])
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true")
    form.add_argument("--list", action="store_true", help="print each place that the index counts")
    form.add_argument(
        "--draw",
        action="store_true",
        help="print the arrows between rooms, names in strings included, in DOT",
    )
    options = parser.parse_args()
    tree = options.path.resolve()
    if options.draw:
        print(drawing(arrows(read(tree), strings=True)), end="")
        return
    modules = read_all(tree)
    passages = prose(tree, modules)
    if options.list:
        for passage in passages:
            for name, line, text in occurrences(passage):
                print(f"{passage.path}:{line}: {passage.row.partition('/')[0]}: {name}: {text}")
        return
    figures, index = house(tree, modules), index_of(passages)
    if options.json:
        print(json.dumps({**figures, "prose": index}, indent=1))
        return
    lines = figures.pop("lines")
    assert isinstance(lines, dict)
    print(table(lines, ["files", "all", "code", "docstring", "comment", "blank"]), end="\n\n")
    for name, value in figures.items():
        print(f"{name:36}{value:>10,}" if isinstance(value, int) else f"{name:36}{value:>10}")
    print("\noccurrences in 1,000 words")
    print(table(index, ["words", *INDEX, "all"]))


if __name__ == "__main__":
    main()
