"""The text of what is no run of a grid: by the schema of its document."""

from collections.abc import Callable, Mapping
from typing import Any

from apples.applications.master_worker.text import master_worker_text
from apples.applications.parameter_sweep.text import sweep_text
from apples.applications.pipeline.text import pipeline_text

TEXTS: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    "apples.parameter-sweep/1": ("parameter sweep", sweep_text),
    "apples.master-worker/1": ("master and workers", master_worker_text),
    "apples.pipeline/1": ("pipeline", pipeline_text),
}
"""By schema: the kind of application in words, and the function that makes its text."""
