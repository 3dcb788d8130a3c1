"""The file of settings, ``apples.toml``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from pydantic import Field, Strict, model_validator

import hat

Text = Annotated[str, Strict(), Field(min_length=1, max_length=4096)]


class SettingsDocument(hat.StrictTable):
    """``apples.toml``: defaults of options, all optional.

    Attributes
    ----------
    hosts
        Host list, as of ``--hosts``.
    actuator
        Launcher, as of ``--actuator`` of plan and run.
    scheduler
        Directory or URL of the scheduler, as of ``--scheduler``.
    token_file, ca
        Files for a scheduler's URL.
    """

    hosts: Text | None = None
    actuator: Text | None = None
    scheduler: Text | None = None
    token_file: Text | None = None
    ca: Text | None = None


class FolderSettings(SettingsDocument):
    """The file of a folder, which may be another user's. It must not name a server that gets this user's token."""

    @model_validator(mode="after")
    def _check_no_server(self) -> FolderSettings:
        hat.refuse(self._of_users())
        return self

    def _of_users(self) -> Iterator[hat.Fault]:
        for name in ("scheduler", "token_file", "ca"):
            value = getattr(self, name)
            if value is not None and (name != "scheduler" or "://" in value):
                message = (
                    "a scheduler's URL and its files count only in the user's own apples.toml"
                )
                yield hat.Fault((name,), message, code="setting-of-user")


def read(path: Path, *, of_folder: bool) -> dict[str, str]:
    """Return the settings in a file.

    Raises
    ------
    hat.DocumentError
        The file is invalid; with every problem. Permanent.
    """
    model = FolderSettings if of_folder else SettingsDocument
    return hat.read(path, model).model_dump(exclude_none=True)
