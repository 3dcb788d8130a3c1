"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import hat
from apples.errors import UsageError
from apples.ui.completion import parameters
from apples.ui.parameters import FILE, option
from apples.ui.settings import setting

hosts_option = option(
    "--hosts",
    type=FILE,
    default=lambda: setting("hosts"),
    show_default=False,
    help="Host list; hosts.toml unless named, here or in apples.toml.",
)
template_option = option(
    "--template", type=FILE, help="Application template; template.toml unless named."
)
user_option = option(
    "--user", type=FILE, help="User specifications; user.toml unless named, if there is one."
)
settings_option = option(
    "--set",
    "settings",
    metavar="NAME=VALUE",
    multiple=True,
    help="A parameter of the template: NAME=VALUE.",
    shell_complete=parameters,
)
json_option = option("--json", is_flag=True, help="Print JSON on stdout.")

NO_FILE = "no such file"


def files_of(
    hosts: Path | None, template: Path | None, user: Path | None
) -> tuple[Path, Path, Path | None]:
    """Return the files of an application: named files, else those of the current folder; a user's may be missing.

    Raises
    ------
    hat.DocumentError
        Files are missing; with one problem for each.
    """
    own = Path("user.toml")
    named = {"--hosts": hosts, "--template": template, "--user": user}
    found = (
        hosts or Path("hosts.toml"),
        template or Path("template.toml"),
        user or (None if is_missing(own) else own),
    )
    problems = [
        hat.Problem(
            str(path),
            None,
            "",
            NO_FILE if named[option] else f"{NO_FILE} ({option} names another)",
            code="file-missing",
        )
        for option, path in zip(named, found, strict=True)
        if path is not None and is_missing(path)
    ]
    if problems:
        raise hat.DocumentError(problems)
    return found


def is_missing(path: Path) -> bool:
    """Whether a file does not exist. Its reader reports other problems."""
    try:
        path.stat()
    except FileNotFoundError:
        return True
    except (OSError, ValueError):
        return False
    return False


def settings_of(pairs: Sequence[str] | None, option: str = "--set") -> dict[str, str]:
    """Return ``NAME=VALUE`` options as a mapping."""
    settings = {}
    for pair in pairs or ():
        name, separator, value = pair.partition("=")
        if not separator or not name:
            raise UsageError(
                f"{option} {pair}: must be NAME=VALUE",
                code="value-invalid",
                option=option,
                value=pair,
            )
        settings[name] = value
    return settings
