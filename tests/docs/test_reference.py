"""The reference pages against what they describe."""

import json
import re
from pathlib import Path

import pytest
from commands import command

import apples
from apples.agent.session.planning import plan
from apples.agent.session.spec import PlanSpec
from apples.views.demo import demo_document

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs/reference"
ROW = re.compile(r"^\| `(\w+)` \| (.*?) \| (.*?) \| (.*?) \|$", re.MULTILINE)
FILES = [ROOT / f"examples/jacobi2d/{name}.toml" for name in ("hosts", "template", "user")]
TABLES = {
    "hosts": {
        "Top level of hosts.toml": "",
        "`[[host]]`": "Host",
        "`[[link]]`": "LinkEntry",
        "`[default_link]`": "DefaultLink",
    },
    "template": {
        "Top level of template.toml": "",
        "`[parameters.NAME]`": "Parameter",
        "`[structure]`": "Structure",
        "`[[data]]`": "Data",
        "`[[task]]`": "Task",
        "`[[implementation]]`": "Implementation",
        "`requires` of an implementation": "Requirements",
        "`[[interface]]`": "Interface",
    },
    "user": {
        "Top level of user.toml": "",
        "`[constraints]`": "Constraints",
        "`[objective]`": "Objective",
        "`[preferences]`": "Preferences",
    },
}


def documented(heading):
    """Return field -> default of the table under a heading of files.md."""
    text = (REFERENCE / "files.md").read_text()
    section = text.partition(f"\n### {heading}\n")[2].partition("\n#")[0]
    return {name: default for name, _, default, _ in ROW.findall(section)}


def stated(schema, name):
    """Return field -> default as the table must say it."""
    entry = schema["$defs"][name] if name else schema
    return {field: default_of(entry, field) for field in entry["properties"]}


def default_of(entry, field):
    if field in entry.get("required", ()):
        return "required"
    default = entry["properties"][field].get("default")
    if default is None:
        return "-"
    text = json.dumps(default)
    return "assumed" if isinstance(default, dict | list) and len(text) > 25 else f"`{text}`"


@pytest.mark.parametrize("kind", TABLES)
def test_every_field_and_default_of_a_file_is_in_its_table(kind):
    document = command("apples", "schema", kind).document
    for heading, name in TABLES[kind].items():
        assert documented(heading) == stated(document, name), heading
    assert set(document["$defs"]) == {name for name in TABLES[kind].values() if name}


def keys(document):
    """Yield every key of a document, the parameters of an application left out."""
    if isinstance(document, dict):
        for key, value in document.items():
            yield key
            if key not in ("parameters", "versions", "plan"):
                yield from keys(value)
    elif isinstance(document, list):
        for value in document[:3]:
            yield from keys(value)


def words_of(schema):
    """Return every word in code style in the section of json.md about a schema."""
    section = (
        (REFERENCE / "json.md").read_text().partition(f"\n## {schema}\n")[2].partition("\n## ")[0]
    )
    return set(re.findall(r"\w+", " ".join(re.findall(r"`[^`\n]+`", section))))


@pytest.mark.parametrize("blueprint", ["minimum_execution_time", "blocked"])
def test_every_key_of_a_plan_is_described(blueprint):
    spec = PlanSpec(*FILES, weather="static", blueprint=blueprint)
    document = plan(spec, explain=True).document()
    assert {*keys(document)} - {"schema"} <= words_of("apples.plan/1")


@pytest.mark.mpi
def test_every_key_of_a_run_and_of_a_demo_is_described():
    small = [word for name in ("grid=64", "iterations=5") for word in ("--set", name)]
    files = [word for path in FILES for word in (f"--{path.stem}", path)]
    options = ("--weather", "static", "--blueprint", "minimum_execution_time", "--json")
    document = command("apples", "run", *files, *small, *options).document
    assert {*keys(document)} - {"schema"} <= words_of("apples.run/1")
    demo = demo_document([document])
    assert {*keys({**demo, "runs": []})} - {"schema"} <= words_of("apples.demo/1")


def test_every_exit_code_is_explained():
    text = (REFERENCE / "exit-codes.md").read_text()
    explained = {int(code) for code in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)}
    errors = [getattr(apples, name) for name in apples.__all__ if name.endswith("Error")]
    assert {0, 1, 130, *(error.exit_code for error in errors)} == explained


def test_every_command_is_on_the_page():
    page = (REFERENCE / "cli.md").read_text()
    for program in ("apples", "hat", "nws"):
        names = re.findall(r"^  (\w[\w-]*)  ", command(program, "--help").out, re.MULTILINE)
        assert len(names) > 2
        for name in names:
            assert f"{program} {name}" in page
