"""The reference pages against what they describe."""

import importlib.util
import json
import re
import sys
from pathlib import Path

import jsonschema
import pytest
from commands import command, validator

import apples
from apples.__main__ import DOCUMENTS
from apples.agent import PlanSpec, plan
from apples.jobs import demo_document

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs/reference"
FIELD = re.compile(r"^- `(\w+)` \(([^;\n]*?)(?:; ([^\n]*?))?\): ", re.MULTILINE)
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
        "`[expected_result]`": "ExpectedResult",
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
    """Return field -> default of the list under a heading of files.md."""
    text = (REFERENCE / "files.md").read_text()
    section = text.partition(f"\n### {heading}\n")[2].partition("\n#")[0]
    return {name: default or "-" for name, _, default in FIELD.findall(section)}


def stated(schema, name):
    """Return field -> default as the list must state it."""
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
def test_every_field_and_default_of_a_file_is_in_its_list(kind):
    document = command("apples", "check", "--schema", kind).document
    for heading, name in TABLES[kind].items():
        assert documented(heading) == stated(document, name), heading
    assert set(document["$defs"]) == {name for name in TABLES[kind].values() if name}


def generator(name):
    """Return the module that generates a page of the reference."""
    spec = importlib.util.spec_from_file_location(name, ROOT / f"docs/{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # its dataclass looks its module up
    spec.loader.exec_module(module)
    return module


def test_json_pages_are_generated_and_describe_every_key():
    pages, missing = generator("json_documents").written()
    for file, text in pages.items():
        assert text == (REFERENCE / file).read_text(), "make reference"
    assert missing == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_schema_has_the_name_of_its_document(name):
    schema = command("apples", "check", "--schema", name).document
    assert schema["properties"]["schema"]["const"].startswith(f"{name}/")
    assert schema["description"]


@pytest.mark.parametrize("blueprint", ["minimum_execution_time", "blocked"])
def test_a_plan_with_its_whole_argument_is_what_its_schema_says(blueprint):
    spec = PlanSpec(*FILES, weather="static", blueprint=blueprint)
    validator("apples.plan").validate(plan(spec, explain=True).document())


@pytest.mark.mpi
def test_a_run_and_a_demo_are_what_their_schemas_say():
    small = [word for name in ("grid=64", "iterations=5") for word in ("--set", name)]
    files = [word for path in FILES for word in (f"--{path.stem}", path)]
    options = ("--weather", "static", "--blueprint", "minimum_execution_time", "--json")
    document = command("apples", "run", *files, *small, *options).document
    validator("apples.demo").validate(demo_document([document]))


@pytest.mark.parametrize(
    "wrong",
    [
        {"schema": "apples.joblog/1", "id": "a", "lines": [], "more": 1},
        {"schema": "apples.joblog/1", "id": "a"},
        {"schema": "apples.joblog/1", "id": "a", "lines": [1]},
        {"schema": "apples.joblog/2", "id": "a", "lines": []},
    ],
)
def test_a_document_that_is_not_as_its_schema_says_is_refused(wrong):
    with pytest.raises(jsonschema.ValidationError):
        validator("apples.joblog").validate(wrong)


def test_every_schema_name_in_the_source_has_its_schema():
    """What goes between processes and into files is no output of a command."""
    inside = {"apples.state", "apples.measurements", "apples.probes", "apples.probe", "apples.commit",
              "apples.task", "apples.look", "nws.ladder", "nws.stdio", "nws.measurements",
              "nws.endpoint", "nws.tokens", "apples.job-file",
              "apples.lab-journal", "apples.scheduler-log", "apples.topologyd-journal",
              "apples.parameter-sweep-journal",
              "apples.node-load"}  # fmt: skip
    source = [*(ROOT / "apples").rglob("*.py"), *(ROOT / "nws").rglob("*.py")]
    printed = {
        name
        for path in source
        for name in re.findall(r"\"((?:apples|nws|hat)\.[a-z_-]+)/\d\"", path.read_text())
    }
    assert printed - inside == {*DOCUMENTS}


def test_every_exit_code_is_explained():
    text = (REFERENCE / "exit-codes.md").read_text()
    explained = {int(code) for code in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)}
    errors = [getattr(apples, name) for name in apples.__all__ if name.endswith("Error")]
    assert {0, 1, 130, *(error.exit_code for error in errors)} == explained


def test_page_of_commands_is_generated_and_has_every_command():
    page = (REFERENCE / "cli.md").read_text()
    assert generator("command_help").written(page) == page, "make reference"
    for program in ("apples", "hat", "nws"):
        names = re.findall(r"^  (\w[\w-]*)  ", command(program, "--help").out, re.MULTILINE)
        assert len(names) > 2
        for name in names:
            assert f"{program} {name}" in page
