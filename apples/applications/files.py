"""The files that users write: of which kind one is, and what is wrong with it.

`hat` knows templates and user specifications and nothing of ours; the host list, the parameter sweep, the
master/worker program and the pipeline are added here, for every face that checks a file. A model is imported when
a file of its kind is read, so that a file loads what its own kind needs.
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
    """Whether a document looks like a parameter sweep: its command is what no other document has."""
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
        The file cannot be read, or is no TOML.
    """
    table = hat.read_table(path)
    return next((kind for kind, (is_one, _) in KINDS.items() if is_one(table)), "")


def inspect(path: Path, only: str | None = None, text: str | None = None) -> hat.CheckResult:
    """Return of which kind a file is and what is wrong with it.

    Parameters
    ----------
    only
        It can be of this kind alone.
    text
        What it is about to say, in place of what it says.
    """
    if only is None:
        return hat.inspect(path, KINDS, text)
    return hat.inspect(path, {only: (lambda _: True, KINDS[only][1])})


def model_of(kind: str) -> type[Any] | None:
    """Return the model of a kind of file; None where it is unknown."""
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
