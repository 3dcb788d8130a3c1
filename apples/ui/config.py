"""``apples config``: print the settings with their sources."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict

from apples.ui.command_line import command, show_answer
from apples.ui.options import json_option
from apples.ui.settings import BUILT_IN, settings
from apples.ui.tables import in_columns


class SettingEntry(TypedDict):
    """One setting."""

    setting: str
    """Name of the setting."""
    value: str
    """Value; a built-in value in words; empty: none."""
    source: str
    """File, ``$VARIABLE`` or ``built in``."""


class ConfigDocument(TypedDict):
    """``apples config --json``."""

    schema: Literal["apples.config/1"]
    settings: list[SettingEntry]
    """All settings, with the values that commands use in this folder."""


@command("config")
@json_option
def config(json: bool) -> int:
    """Print each setting of apples.toml with its value and source.

    Example: apples config
    """
    found = settings()
    entries = [
        SettingEntry(
            setting=name,
            value=found[name].value if name in found else words,
            source=found[name].source if name in found else "built in",
        )
        for name, words in BUILT_IN.items()
    ]
    rows = [(entry["setting"], entry["value"] or "-", entry["source"]) for entry in entries]
    document = ConfigDocument(schema="apples.config/1", settings=entries)
    show_answer(document, lambda: "\n".join(in_columns(rows)), json)
    return 0
