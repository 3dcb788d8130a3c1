"""The files that users write: the kind and the problems of a file.

`hat` knows only templates and user specifications. This module adds the host list, the parameter sweep, the
master/worker program and the pipeline, for every front end that checks a file. A model is imported only when a
file of its kind is read, to keep the start short.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hat

if TYPE_CHECKING:
    from apples.applications.documents import CheckedFile, FileProblem

HOST_LIST = "host list"
SWEEP = "parameter sweep"
MASTER_WORKER = "master/worker"
PIPELINE = "pipeline"


def host_list_model() -> type[Any]:
    """Return the model of a host list."""
    from apples.resources import HostListDocument  # noqa: PLC0415 - see the module's docstring

    return HostListDocument


def _sweep_model() -> type[Any]:
    from apples.applications.parameter_sweep.document import ParameterSweepFile  # noqa: PLC0415 - likewise

    return ParameterSweepFile


def _master_worker_model() -> type[Any]:
    from apples.applications.master_worker.document import MasterWorkerFile  # noqa: PLC0415 - likewise

    return MasterWorkerFile


def _pipeline_model() -> type[Any]:
    from apples.applications.pipeline.document import PipelineFile  # noqa: PLC0415 - likewise

    return PipelineFile


def is_host_list(document: Mapping[str, Any]) -> bool:
    """Whether a document looks like a host list."""
    return "host" in document or "default_link" in document


def is_sweep(document: Mapping[str, Any]) -> bool:
    """Whether a document looks like a parameter sweep: no other document has a command."""
    return "command" in document


def is_master_worker(document: Mapping[str, Any]) -> bool:
    """Whether a document looks like a master/worker program: no other document counts units."""
    return "units" in document


def is_pipeline(document: Mapping[str, Any]) -> bool:
    """Whether a document looks like a pipeline of tasks: no other document counts items."""
    return "items" in document


KINDS: Mapping[str, hat.Kind] = {
    HOST_LIST: (is_host_list, host_list_model),
    SWEEP: (is_sweep, _sweep_model),
    MASTER_WORKER: (is_master_worker, _master_worker_model),
    PIPELINE: (is_pipeline, _pipeline_model),
}


def kind_of(path: Path) -> str:
    """Return the kind of a file by its content, one of `KINDS`; empty for every other kind. Loads no model.

    Raises
    ------
    hat.DocumentError
        The file cannot be read, or is not TOML.
    """
    table = hat.read_table(path)
    return next((kind for kind, (is_one, _) in KINDS.items() if is_one(table)), "")


def inspect(path: Path, only: str | None = None, text: str | None = None) -> hat.CheckResult:
    """Return the kind of a file and its problems.

    Parameters
    ----------
    only
        The only kind allowed.
    text
        Text to check instead of the file's content.
    """
    if only is None:
        return hat.inspect(path, KINDS, text)
    return hat.inspect(path, {only: (lambda _: True, KINDS[only][1])})


def model_of(kind: str) -> type[Any] | None:
    """Return the model of a kind of file; None for an unknown kind."""
    if kind in KINDS:
        return KINDS[kind][1]()
    return {hat.TEMPLATE: hat.ApplicationTemplate, hat.USER: hat.UserSpecifications}.get(kind)


def checked(path: Path, result: hat.CheckResult) -> CheckedFile:
    """Return the entry of a file in ``hat.check/1``."""
    problems: list[FileProblem] = [
        {"line": p.line, "field": p.field, "message": p.message, "suggestion": p.suggestion}
        for p in result.problems
    ]
    return {"file": str(path), "kind": result.kind, "problems": problems}
