"""Generate the pages of the reference that list the keys of all JSON documents.

``make reference`` writes ``json.md``, ``json-cluster.md`` and ``json-nws.md`` in ``docs/reference``.
``python docs/json_documents.py --missing`` lists the keys without a
description, and exits with 1 if there are any.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from apples.__main__ import DOCUMENTS
from apples.applications.schemas import document_schema

ROOT = Path(__file__).resolve().parents[1]
Schema = Mapping[str, Any]

HEAD = """# JSON

This page lists the keys of each document that `apples` and `hat` print with `--json` about plans, runs, jobs
and files. Two more pages list the documents of [the scheduler, simulations, topologies and
labs](json-cluster.md) and [of `nws`, with the weather file](json-nws.md). `make reference` generates the
three pages from the types of the documents. `apples check --schema plan` prints the same as a JSON Schema
(2020-12); `apples check --schema template`, `user`, `hosts` and `protocol` print the schemas of files and
messages that apples reads.

Each document has a key `schema`, for example `apples.plan/1`. A later version may add a key under the same
number. A key with a changed meaning gets a new number. Times are in seconds and sizes in bytes, in full
precision. A point in time is in seconds since the epoch, unless its line differs. No number is NaN or
infinite.

The type follows the key; a key without one is text, and a list without one is of texts or of the objects below
it. `table` has names as keys. `/null`: the value may be null. `?` after a key: the key may be absent. A key
without a description is described above on the page, or its name describes it.

```console
$ apples check --schema job | head -6
{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "$defs": {
...
$ apples check --schema jon
apples: schema 'jon': unknown; known: template, user, hosts, protocol, ...
$ echo $?
2
```
"""

CLUSTER_HEAD = """# JSON of the cluster

This page lists the keys of each document that the commands of the scheduler, simulations, topologies and labs
print with `--json`. `make reference` generates it. [JSON](json.md) explains the types, versions and units.
"""

NWS_HEAD = """# JSON of the weather service

This page lists the keys of each document that `nws` prints with `--json`, and of the weather file.
`make reference` generates it. [JSON](json.md) explains the types, versions and units.
"""

HEADS = {"json.md": HEAD, "json-cluster.md": CLUSTER_HEAD, "json-nws.md": NWS_HEAD}
"""The text above the documents of each page."""

CLUSTER_ROOMS = ("cluster", "lab", "simulation", "topology")
"""The rooms of apples whose documents are on the page of the cluster."""

LINKS = {
    ("apples.plan", "weather.source"): "../how-to/nws.md#in-plans",
    ("apples.run", "execution.messages"): "../how-to/count-messages.md",
    ("apples.run", "execution.slow_hosts"): "../how-to/runs.md#the-slow-host",
    ("apples.run", "record"): "../how-to/runs.md",
    (
        "apples.simulation",
        "restarts",
    ): "../how-to/simulation-options.md#time-limits-and-checkpoints",
    ("apples.simulation", "by_partition"): "../how-to/simulation.md#describe-the-machine",
    ("apples.hosts", "host"): "files.md",
    ("apples.error", "code"): "errors.md",
    ("nws.forecast", "forecasts[].remarks"): ("../how-to/nws.md#late-and-wrong-time-stamps"),
}
"""Where other pages explain a key, by schema and key."""

EXAMPLES = {
    "nws.weather": """
```json
{"schema": "nws.weather/1", "time": 1763600000.0,
 "cpu": {"ada": {"value": 0.5, "error": 0.1, "method": "last_value", "samples": 12, "time": 1763599990.0}},
 "latency": {"ada/bob": {"value": 0.0001}}}
```

A user can write the file by hand: a forecast needs only its `value`. Each host must be in the host list of the
plan, else the plan fails with `host-unknown`. If the file does not name a host, the values of the list apply.

```console
$ cd examples/jacobi2d
$ echo '{"schema": "nws.weather/1", "time": 0, "cpu": {"ada": {"value": 0.3}}}' > sky.json
$ apples plan --weather sky.json
Run on far alone: 22.2 ms an iteration ...
...
```
""",
}
"""Text below the keys of a document."""

FILLERS = set(
    re.findall(
        "[a-z]+",
        "the of it a an in by each all name number is to at list second byte host their that "
        "and with from us don made given one as on for be was were time which this they",
    )
)
"""Words, without endings, that add nothing to the words of a key."""

TYPES = {"string": "text", "boolean": "boolean", "array": "list", "object": "table"}
"""The words for types of JSON Schema."""


@dataclass
class Page:
    """Types and keys that the rows already describe, keys without a description, and links not yet used."""

    described: dict[str, str] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    texts: set[tuple[str, str]] = field(default_factory=set)
    links: dict[tuple[str, str], str] = field(default_factory=dict)

    def section(self, name: str, schema: Schema) -> str:
        """Return the section of one document."""
        title = schema["properties"]["schema"]["const"]
        rows = "\n".join(_joined(self._rows(name, title, schema, schema, "", 0)))
        example = EXAMPLES.get(name, "")
        return f"\n## {title}\n\n{_line(schema.get('description', ''))}\n\n{rows}\n{example}"

    def _rows(
        self, name: str, title: str, whole: Schema, entry: Schema, before: str, depth: int
    ) -> Iterator[str]:
        """Yield a list item for each key of an object, and below it those of an object inside."""
        for key, value in entry["properties"].items():
            if not before and key == "schema":
                continue
            path = before + key
            text = value.get("description", "")
            if not text:
                self.missing.append(f"{title}: {path}")
            text = self._new_part(name, path, text)
            if target := self.links.pop((name, path), ""):
                text += f" [More]({target})."
            suffix, part = _part(value, whole)
            known = json.dumps(part, sort_keys=True)
            nested: Iterator[str] = iter(())
            if part is not None and known in self.described:
                text += f" Keys: {self.described[known]}."
            elif part is not None and "schema" not in part["properties"]:
                self.described[known] = f"`{path}` of [{title}]({anchor(title)})"
                nested = self._rows(name, title, whole, part, f"{path}{suffix}.", depth + 1)
            kind = _kind(value, whole)
            kind = "" if kind in {"text", "object"} else f" {kind}"
            optional = "" if key in entry.get("required", ()) else "?"
            yield f"{'  ' * depth}- `{key}{optional}`{kind}: {_line(text)}".rstrip(": ")
            yield from nested

    def _new_part(self, name: str, path: str, text: str) -> str:
        """Return the part of a description that neither its keys nor the same key above on the page give."""
        key = path.rpartition(".")[2]
        if (key, text) in self.texts:
            return ""
        self.texts.add((key, text))
        first, separator, rest = text.partition("; null: ")
        if _is_self_explanatory(f"{name}.{path}", first.removesuffix(".")):
            return f"null: {rest}" if separator else ""
        return text


def _is_self_explanatory(path: str, text: str) -> bool:
    """Return whether a description has only words of its key and of the keys above it."""
    words, known = (
        {_stem(word) for word in re.findall("[a-z]+", part.lower())} for part in (text, path)
    )
    return words <= known | FILLERS


def _joined(rows: Iterable[str]) -> Iterator[str]:
    """Yield the list items; neighbours of one type without a description share an item."""
    before = ""
    for row in rows:
        bare = re.fullmatch(r"( *- )(`\w+\??`)((?: [^:]+)?)", row)
        last = re.fullmatch(r"( *- )(`\w+\??`(?:, `\w+\??`)*)((?: [^:]+)?)", before)
        if bare and last and bare[1] == last[1] and bare[3] == last[3]:
            before = f"{last[1]}{last[2]}, {bare[2]}{bare[3]}"
            continue
        if before:
            yield before
        before = row
    yield before


def _stem(word: str) -> str:
    """Return a word without its ending."""
    return re.sub("(ed|ing|e?s)$", "", word)


def anchor(title: str) -> str:
    """Return the link to the section of a schema."""
    return "#" + title.replace(".", "").replace("/", "")


def _definition(value: Schema, whole: Schema) -> Schema | None:
    """Return the definition that a value refers to, or None."""
    place = value.get("$ref")
    return whole["$defs"][place.removeprefix("#/$defs/")] if place else None


def _part(value: Schema, whole: Schema) -> tuple[str, Schema | None]:
    """Return the object inside a value with the suffix of its keys, or None for a value without keys."""
    if found := _definition(value, whole):
        return "", found
    inside = [("", each) for each in value.get("anyOf", ())]
    if "items" in value:
        inside.append(("[]", value["items"]))
    if isinstance(value.get("additionalProperties"), dict):
        inside.append((".*", value["additionalProperties"]))
    for suffix, each in inside:
        more, found = _part(each, whole)
        if found:
            return suffix + more, found
    return "", None


def _kind(value: Schema, whole: Schema) -> str:
    """Return the type of a value in words."""
    if found := _definition(value, whole):
        title = found["properties"].get("schema", {}).get("const")
        return f"[{title}]({anchor(title)})" if title else "object"
    if "anyOf" in value:
        return "/".join(_kind(each, whole) for each in value["anyOf"])
    if "const" in value:
        return f"`{value['const']}`"
    if "enum" in value:
        return "/".join(f"`{each}`" for each in value["enum"])
    inside = value.get("items") or value.get("additionalProperties")
    kind = str(value.get("type", "any"))
    kind = TYPES.get(kind, kind)
    if not isinstance(inside, dict):
        return kind
    within = _kind(inside, whole)
    return kind if within in {"object", "text"} else f"{kind}-of-{within}"


def _line(text: str) -> str:
    """Return a description as one line of Markdown."""
    return " ".join(text.replace("``", "`").split())


def written() -> tuple[dict[str, str], list[str]]:
    """Return the text of each page by file name, and the keys without a description."""
    texts, links = dict(HEADS), {**LINKS}
    pages = {file: Page(links=links) for file in HEADS}
    for name, place in DOCUMENTS.items():
        module, _, cls = place.partition(":")
        document = getattr(importlib.import_module(module), cls)
        file = page_of(name, module)
        texts[file] += pages[file].section(name, document_schema(document))
    if links:
        raise LookupError(f"LINKS: no such keys: {sorted(links)}")
    return texts, [key for page in pages.values() for key in page.missing]


def page_of(name: str, module: str) -> str:
    """Return the file of the page with a document, by its schema and the module of its type."""
    if name.startswith("nws."):
        return "json-nws.md"
    return "json-cluster.md" if module.split(".")[1] in CLUSTER_ROOMS else "json.md"


def main() -> int:
    """Write the pages, or list the keys without a description."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--missing", action="store_true", help="list keys without a description")
    options = parser.parse_args()
    pages, missing = written()
    if options.missing:
        print(*missing, f"{len(missing)} without a description", sep="\n")
        return int(bool(missing))
    for file, text in pages.items():
        (ROOT / "docs/reference" / file).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
