"""The text of sweeps, master/worker runs and pipelines, by the schema of their documents."""

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
"""Schema -> the kind of application in words, and the function that returns its text."""
