"""JSON Schemas of the documents that commands print: a field's docstring is its description.

The description of a field is the string below it. A field of ``TypedDict("Name", {..})`` has ``Doc("..")`` in its
type instead.
"""

from __future__ import annotations

import ast
import functools
import inspect
import sys
import typing
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema
from typing_extensions import Doc, get_type_hints


def document_schema(document: type[Any]) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a type of documents, with descriptions."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **TypeAdapter[Any](document).json_schema(schema_generator=_WithDescriptions),
    }


class _WithDescriptions(GenerateJsonSchema):
    def typed_dict_schema(self, schema: core_schema.TypedDictSchema) -> JsonSchemaValue:
        """Generate the schema of a TypedDict."""
        return _describe(super().typed_dict_schema(schema), schema["cls"])

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        """Generate the schema of a pydantic model, as `nws` has."""
        return _describe(super().model_schema(schema), schema["cls"])

    def field_title_should_be_set(self, schema: Any) -> bool:
        """Return False: the title would repeat the key."""
        del schema
        return False


def _describe(schema: JsonSchemaValue, cls: type[Any]) -> JsonSchemaValue:
    """Add the docstrings of a class and its fields to its schema, in place."""
    if cls.__doc__ and cls.__module__ != "builtins":
        schema["description"] = _flat(cls.__doc__)
    for name, text in _descriptions(cls).items():
        if name in schema["properties"]:
            schema["properties"][name].setdefault("description", text)
    return schema


def _descriptions(cls: type[Any]) -> dict[str, str]:
    """Return the descriptions of a class's fields, including those of its bases."""
    found: dict[str, str] = {}
    bases = (*getattr(cls, "__orig_bases__", ()), *cls.__mro__[1:])
    for base in reversed(bases):
        if isinstance(base, type) and base.__module__.partition(".")[0] in {"apples", "nws"}:
            found |= _descriptions(base)
    found |= _docstrings(cls.__module__).get(cls.__name__, {})
    for name, hint in get_type_hints(cls, include_extras=True).items():
        if text := _doc(hint):
            found[name] = text
    return found


def _doc(hint: Any) -> str:
    """Return the text of ``Doc`` in a type, excluding the types inside it."""
    if typing.get_origin(hint) in {typing.Required, typing.NotRequired}:
        return _doc(typing.get_args(hint)[0])
    metadata = getattr(hint, "__metadata__", ())
    return "".join(each.documentation for each in metadata if isinstance(each, Doc))


@functools.cache
def _docstrings(module: str) -> dict[str, dict[str, str]]:
    """Return class -> field -> docstring of a module, from its source."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {
        node.name: {
            field.target.id: _flat(text.value.value)
            for field, text in zip(node.body, node.body[1:], strict=False)
            if isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
            and isinstance(text.value.value, str)
        }
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }


def _flat(text: str) -> str:
    """Return a docstring with each paragraph on one line."""
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(" ".join(each.split()) for each in paragraphs)
