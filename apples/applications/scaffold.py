"""``hat new``: makes the folder of an agent for a new application, ready to run."""

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
"""The kind or language of the program. ``templates/scaffold`` has a folder for each kind except ``sample``, which
is the Jacobi2D example of the installation."""

FILES = ("README.md", "agent.py", "hosts.toml")
"""Files of every folder."""
DOCUMENTS = ("template.toml", "user.toml")
"""Further files of an application with one template."""
MODELS: Mapping[ProgramKind, tuple[str, ...]] = {
    "sweep": ("sweep.toml",),
    "master-worker": ("master-worker.toml",),
    "pipeline": ("pipeline.toml",),
}
"""Further files of other applications: parameter sweep, master/worker program, pipeline."""
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
"""Program files that differ from a grid's script -> their descriptions."""
SCRIPT = {"program.py": "the work itself: put yours here"}
LANGUAGES: Mapping[ProgramKind, str] = {"c": "C", "fortran": "Fortran"}
TEMPLATES = Path(__file__).parent / "templates" / "scaffold"
COPIED = {"apples.h": "c/apples.h", "apples.f90": "fortran/apples.f90"}
"""Files that are copied unchanged -> their paths among the templates."""


UNFIT = "the name must start with a letter and hold at most 64 letters, digits, - and _ (is {})"


class ScaffoldError(HatError):
    """A scaffold that cannot be made; no file was written."""


FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOMEM})
"""Errors of a full or failing device."""


def _check_name(name: str) -> None:
    if not NAME.fullmatch(name):
        raise ScaffoldError(UNFIT.format(shown(name)), code="name-invalid", value=shown(name))


def new(
    name: str, directory: str | os.PathLike[str] = ".", *, kind: ProgramKind = "rigid"
) -> list[Path]:
    """Write the files of a new agent into `directory`/`name`, and return them.

    The folder appears complete or not at all, and existing files are not changed.

    Parameters
    ----------
    kind
        ``rigid``: a program that keeps its hosts. ``malleable``: its hosts may change while it runs. ``blocks``:
        also malleable, with work in objects that migrate separately. C or Fortran: a rigid program, built by
        ``make``. ``rectangle``: it takes rectangles of its grid. ``sweep``: it is run with many settings.
        ``master-worker``: a master hands out units of work. ``pipeline``: several tasks. ``sample``: a copy of
        the Jacobi2D example.

    Raises
    ------
    ScaffoldError
        The name is invalid, the folder exists, or it cannot be written. Permanent.
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
    """Return the initial text of a scaffold's document, such as ``template.toml``, for a name.

    Raises
    ------
    ScaffoldError
        The document does not exist, or the name is invalid. Permanent.
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
        autoescape=True,  # a name needs no escaping; this protects later changes
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
