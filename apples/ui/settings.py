"""Settings: defaults of options, from ``apples.toml`` in the current folder and in the user's configuration."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import hat

FILE = "apples.toml"
VARIABLES = {
    "scheduler": "APPLES_SCHEDULER",
    "token_file": "APPLES_TOKEN_FILE",
    "ca": "APPLES_CA",
}
"""Environment variables, which take precedence over the files."""
BUILT_IN = {
    "hosts": "hosts.toml",
    "actuator": "ssh if the host list has other machines, else local",
    "scheduler": "the only scheduler of this user",
    "token_file": "",
    "ca": "",
}
"""Built-in value of each setting, in words."""
PATHS = frozenset({"hosts", "scheduler", "token_file", "ca"})
"""Settings that are paths, relative to the folder of their file; a scheduler may be a URL."""


class Setting(NamedTuple):
    """Value of a setting, and its source: a file, a variable, or an empty text for the built-in value."""

    value: str
    source: str


def files() -> tuple[Path, ...]:
    """Return the files of settings: the current folder's, which takes precedence, and the user's."""
    import platformdirs  # noqa: PLC0415 - most commands ask for no setting

    try:
        return Path(FILE).absolute(), platformdirs.user_config_path("apples") / FILE
    except RuntimeError:  # a user without a home has no file there
        return (Path(FILE).absolute(),)


def setting(name: str) -> str | None:
    """Return the value of a setting from its variable or a file, None if it is set nowhere.

    Raises
    ------
    hat.DocumentError
        A file of settings is not valid. Permanent.
    """
    found = settings().get(name)
    return found.value if found else None


def from_files(name: str) -> str | None:
    """Return the value of a setting from a file; None if no file sets it or its variable is set."""
    return None if os.environ.get(VARIABLES.get(name, "")) else setting(name)


def settings() -> dict[str, Setting]:
    """Return the settings that are set in the current folder, by the user, or by variables.

    Raises
    ------
    hat.DocumentError
        A file of settings is not valid. Permanent.
    """
    own, *users = files()
    found = {name: one for path in users for name, one in _of_file(path, of_folder=False)}
    if own not in users:
        found |= dict(_of_file(own, of_folder=True))
    for name, variable in VARIABLES.items():
        if value := os.environ.get(variable):
            found[name] = Setting(value, f"${variable}")
    return found


def _of_file(path: Path, *, of_folder: bool) -> Iterator[tuple[str, Setting]]:
    if not path.exists():
        return
    # pydantic takes longer to load than most commands run, and most folders have no settings.
    from apples.ui.settings_file import read  # noqa: PLC0415

    for name, value in read(path, of_folder=of_folder).items():
        is_path = name in PATHS and "://" not in value
        yield name, Setting(_absolute(path, name, value) if is_path else value, str(path))


def _absolute(file: Path, name: str, value: str) -> str:
    try:
        return str(file.parent / Path(value).expanduser())
    except RuntimeError:
        problem = hat.Problem(
            str(file), None, name, f"'{value}': no such home directory", code="home-missing"
        )
        raise hat.DocumentError([problem]) from None
