"""``schema``: the JSON Schemas of what is read and written."""

from __future__ import annotations

import json
from importlib import resources
from typing import Annotated

import typer

import hat
from apples.cli.program import show_json
from apples.errors import UsageError
from apples.resources import HostListDocument

KINDS = ("template", "user", "hosts", "protocol")


def schema(kind: Annotated[str, typer.Argument(help=", ".join(KINDS))]) -> int:
    """Print the JSON Schema of a template, a user file, a host list, or the application protocol.

    Example: apples schema hosts
    """
    if kind == "template":
        show_json(hat.schema(hat.ApplicationTemplate))
    elif kind == "user":
        show_json(hat.schema(hat.UserSpecifications))
    elif kind == "hosts":
        show_json(hat.schema(HostListDocument))
    elif kind == "protocol":
        text = resources.files("apples.launch").joinpath("protocol.schema.json").read_text("utf-8")
        show_json(json.loads(text))
    else:
        raise UsageError(f"schema '{kind}': known are {', '.join(KINDS)}")
    return 0
