"""Commands run in this process, and the files they are given."""

import contextlib
import functools
import importlib
import io
import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import jsonschema

from apples.__main__ import DOCUMENTS
from apples.__main__ import main as apples_main
from apples.applications import document_schema
from apples.applications.commands import main as hat_main
from apples.weather.commands.nws import main as nws_main

MAINS = {"apples": apples_main, "hat": hat_main, "nws": nws_main}
EXAMPLE = Path(__file__).parents[1] / "examples" / "jacobi2d"
HOSTS = """
[[host]]
name = "ada"
seconds_per_point = 1e-8
free_memory = "4 GB"
[[host]]
name = "bob"
seconds_per_point = 2e-8
free_memory = "4 GB"
[[host]]
name = "far"
site = "abroad"
seconds_per_point = 1e-8
free_memory = "4 GB"
[[link]]
between = ["local", "local"]
latency = 1e-4
bandwidth = 1e8
[[link]]
between = ["local", "abroad"]
latency = 0.05
bandwidth = 1e7
"""
TEMPLATE = 'name = "heat"\nprogram = ["{python}", "heat.py"]\n'


@dataclass(frozen=True)
class Done:
    """What a command said and how it ended."""

    code: int
    out: str
    err: str

    @property
    def document(self):
        """What it printed, as JSON; it is what `apples check --schema` says, and has no key besides."""
        assert self.out, f"nothing printed, exit code {self.code}: {self.err}"
        document = json.loads(self.out)
        if "schema" in document:
            validator(document["schema"].partition("/")[0]).validate(document)
        return document

    @property
    def failure(self):
        """The error it printed with ``--json``: `code`, `exit_code`, `message` and `fields`."""
        document = json.loads(self.err.splitlines()[-1])
        assert document.pop("schema") == "apples.error/1"
        assert document["exit_code"] == self.code
        return document

    @property
    def error_codes(self):
        """The code at the end of each error line that it printed without ``--json``."""
        return re.findall(r"\[([a-z]+(?:-[a-z0-9]+)*)\]$", self.err, re.MULTILINE)


@functools.cache
def validator(name):
    """Return the validator of a document, which rejects keys that its type lacks."""
    module, _, cls = DOCUMENTS[name].partition(":")
    schema = document_schema(getattr(importlib.import_module(module), cls))
    for entry in (schema, *schema.get("$defs", {}).values()):
        if "properties" in entry:
            entry["additionalProperties"] = False
    return jsonschema.Draft202012Validator(schema)


def command(*words):
    """Run one command line in this process."""
    words = [str(word) for word in words]
    out, err = io.StringIO(), io.StringIO()
    before = sys.argv
    sys.argv = words
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            MAINS[words[0]]()
        code = 0
    except SystemExit as stop:
        code = stop.code or 0
    finally:
        sys.argv = before
    return Done(code, out.getvalue(), err.getvalue())


def refused(*words):
    """Run a command that prints an error, and nothing else, with ``--json``; return its `Done.failure`."""
    done = command(*words, "--json")
    assert done.out == ""
    assert done.err.count("\n") == 1, done.err
    return done.failure


def files(folder, hosts=HOSTS, template=TEMPLATE, user=""):
    """Write the three files of a problem; return the options that name them."""
    options = []
    for name, content in (("hosts", hosts), ("template", template), ("user", user)):
        path = folder / f"{name}.toml"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        options += [f"--{name}", str(path)]
    return options


def planned(folder, *options, **contents):
    """Plan in this process from static values; return what the command did."""
    given = files(folder, **contents)
    weather = () if "--weather" in options else ("--weather", "static")
    return command("apples", "plan", *given, *weather, *options)
