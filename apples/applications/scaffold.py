"""``hat new``: a folder with all that an agent for a new application consists of, ready to run."""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from apples.launch.sample import example_folder
from hat import HatError, shown

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")

ProgramKind = Literal[
    "rigid",
    "malleable",
    "blocks",
    "c",
    "fortran",
    "rectangle",
    "sweep",
    "master-worker",
    "pipeline",
    "sample",
]
"""The kind or language of the program. ``templates/scaffold`` has a folder for each kind but ``sample``, which is
the Jacobi2D example of the installation."""

FILES = ("README.md", "agent.py", "hosts.toml")
"""What every folder holds."""
DOCUMENTS = ("template.toml", "user.toml")
"""What the folder of an application of one template holds besides."""
MODELS: Mapping[ProgramKind, tuple[str, ...]] = {
    "sweep": ("sweep.toml",),
    "master-worker": ("master-worker.toml",),
    "pipeline": ("pipeline.toml",),
}
"""The same where it is no grid: of a parameter sweep, of a master and workers, of a pipeline."""
HEADER = {"apples.h": "the application protocol's side in C: nothing to change"}
PROGRAMS: Mapping[ProgramKind, Mapping[str, str]] = {
    "c": {"program.c": "the work itself: put yours here", "Makefile": "how it is built", **HEADER},
    "fortran": {
        "program.f90": "the work itself: put yours here",
        "Makefile": "how it is built",
        "apples.f90": "the calls of `apples.h` in Fortran: nothing to change",
        **HEADER,
    },
    "sweep": {
        "program.py": "one task: put yours here",
        "text-1.txt": "a file that half of the tasks read",
        "text-2.txt": "and one for the other half",
    },
    "pipeline": {"program.py": "both tasks: put yours here"},
    "master-worker": {"program.py": "the units, and the work on each unit: put yours here"},
}
"""What the folder holds besides where that is not the script of a grid, and what that is."""
SCRIPT = {"program.py": "the work itself: put yours here"}
LANGUAGES: Mapping[ProgramKind, str] = {"c": "C", "fortran": "Fortran"}
TEMPLATES = Path(__file__).parent / "templates" / "scaffold"
COPIED = {"apples.h": "c/apples.h", "apples.f90": "fortran/apples.f90"}
"""What is written as it stands, and where it stands among the templates."""


UNFIT = "the name must start with a letter and hold at most 64 letters, digits, - and _ (is {})"


class ScaffoldError(HatError):
    """A scaffold that cannot be made; nothing was written."""


FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOMEM})
"""Errors of the device that is written to."""


def _check_name(name: str) -> None:
    if not NAME.fullmatch(name):
        raise ScaffoldError(UNFIT.format(shown(name)), code="name-invalid", value=shown(name))


def new(
    name: str, directory: str | os.PathLike[str] = ".", *, kind: ProgramKind = "rigid"
) -> list[Path]:
    """Return the files of a new agent's folder, `directory`/`name`, once all of them are there.

    The folder appears whole or not at all, and nothing that exists is touched.

    Parameters
    ----------
    kind
        Whether the program's hosts may change while it runs (``malleable``), or its work consists of objects that
        migrate one by one (``blocks``), which implies that; or that it keeps its hosts and is written in C or
        Fortran, to be built by ``make``; or that it takes rectangles of its grid (``rectangle``); or that it is
        run at many settings (``sweep``), or does units of work
        that a master hands out (``master-worker``), or is of several tasks (``pipeline``). ``sample``: a copy of
        the Jacobi2D example.

    Raises
    ------
    ScaffoldError
        The name is unfit, the folder is there already, or it cannot be written. Permanent.
    """
    _check_name(name)
    contents = _sample() if kind == "sample" else _scaffold(name, kind)
    target = Path(directory) / name
    unfinished = Path(directory) / f".{name}.{secrets.token_hex(4)}"
    try:
        if os.path.lexists(target):
            raise FileExistsError  # noqa: TRY301 - the same answer as when it appears meanwhile
        unfinished.mkdir(parents=True)
        for file, content in contents.items():
            (unfinished / file).write_bytes(content)
        unfinished.rename(target)
    except FileExistsError:
        raise ScaffoldError(
            f"{target}: exists already; nothing was written", code="file-exists", file=str(target)
        ) from None
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise ScaffoldError(
            f"{target}: cannot be made ({why})",
            code="disk-full" if error.errno in FULL else "file-unwritable",
            file=str(target),
        ) from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return [target / file for file in contents]


def _scaffold(name: str, kind: ProgramKind) -> dict[str, bytes]:
    """Return the content of each file of a new agent, by file name."""
    documents = MODELS.get(kind, DOCUMENTS)
    files = sorted({*FILES, *documents, *PROGRAMS.get(kind, SCRIPT)})
    return {file: rendered(file, name, kind).encode() for file in files}


def _sample() -> dict[str, bytes]:
    """Return the content of each file of the Jacobi2D example, by file name."""
    paths = sorted(path for path in example_folder().iterdir() if path.is_file())
    return {path.name: path.read_bytes() for path in paths}


def new_document(file: str, name: str) -> str:
    """Return the text with which a document of a scaffold begins, such as ``template.toml``, for a name.

    Raises
    ------
    ScaffoldError
        There is no such document, or the name is unfit. Permanent.
    """
    _check_name(name)
    kinds: dict[str, ProgramKind] = {
        file: kind for kind, files in MODELS.items() for file in files
    }
    if file not in {*DOCUMENTS, "hosts.toml", *kinds}:
        raise ScaffoldError(
            f"a scaffold has no {shown(file)}",
            code="document-unknown",
            value=file,
            known=[*DOCUMENTS, "hosts.toml", *kinds],
        )
    return rendered(file, name, kinds.get(file, "rigid"))


def rendered(file: str, name: str, kind: ProgramKind = "rigid") -> str:
    """Return the text of one file of the scaffold."""
    if file in COPIED:
        return (TEMPLATES / COPIED[file]).read_text(encoding="utf-8")
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        autoescape=True,  # a name has nothing to escape; should that change, it is not forgotten
        keep_trailing_newline=True,
    )
    found = environment.select_template([f"{kind}/{file}.j2", f"{file}.j2"])
    return found.render(
        name=name,
        malleable=kind in {"malleable", "blocks"},
        rectangle=kind == "rectangle",
        language=LANGUAGES.get(kind, ""),
        program=PROGRAMS.get(kind, SCRIPT),
    )
