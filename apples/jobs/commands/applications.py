"""Sweeps, master/worker programs and pipelines: ``apples plan``, ``apples run``, and the records of their runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from apples.applications.files import MASTER_WORKER, PIPELINE, SWEEP
from apples.ui.command_line import say, show_answer

# The modules of a model are imported at their use: each command loads one model only.
if TYPE_CHECKING:
    from apples.applications import MasterWorkerSpec, PipelineResult, PipelineSpec, SweepSpec
    from apples.applications.documents import MasterWorkerDocument

Document_co = TypeVar("Document_co", bound=Mapping[str, Any], covariant=True)
Talk = Callable[[str], None]

LONG_SECONDS = 3.0
SEARCHING = "still looking for the quickest mapping; of fewer hosts (hosts = [..] in the file) it takes less"


@dataclass(frozen=True)
class ModelRequest:
    """The file of an application and the options of the command; options of other models are empty.

    Attributes
    ----------
    output
        Folder of results, of a sweep.
    verify
        How a result is verified, as `apples.jobs.commands.options.how_verified` returns it.
    json
        Print the JSON document.
    """

    file: Path
    hosts: Path
    settings: Mapping[str, str]
    weather: str
    json: bool
    output: Path | None = None
    heuristic: str = ""
    dask: str = ""
    master: str = ""
    workers: tuple[str, ...] = ()
    unit: int = 0
    actuator: str = ""
    verify: str = ""


def show_plan(model: str, request: ModelRequest) -> int:
    """Print the plan of a sweep, master/worker program or pipeline; start nothing."""
    {SWEEP: _plan_sweep, MASTER_WORKER: _plan_units, PIPELINE: _plan_pipeline}[model](request)
    return 0


def run_model(model: str, request: ModelRequest) -> int:
    """Run a sweep, master/worker program or pipeline; record and print its result."""
    {SWEEP: _run_sweep, MASTER_WORKER: _run_units, PIPELINE: _run_pipeline}[model](request)
    return 0


def _plan_sweep(request: ModelRequest) -> None:
    from apples.applications import plan_parameter_sweep  # noqa: PLC0415
    from apples.applications.parameter_sweep.text import sweep_text  # noqa: PLC0415

    document = plan_parameter_sweep(_sweep(request)).document()
    show_answer(document, lambda: sweep_text(document), request.json)


def _run_sweep(request: ModelRequest) -> None:
    from apples.applications import run_parameter_sweep  # noqa: PLC0415
    from apples.applications.parameter_sweep.text import sweep_text  # noqa: PLC0415
    from apples.jobs import store  # noqa: PLC0415

    with recorded_command(store.SWEEP, request.file) as record:
        result = run_parameter_sweep(_sweep(request), record.talk, record.began)
        document = record.record_result(result)
        show_answer(document, lambda: sweep_text(document), request.json)
        result.check()


def _sweep(request: ModelRequest) -> SweepSpec:
    from apples.applications import SweepSpec  # noqa: PLC0415

    return SweepSpec(
        request.file, request.hosts, request.weather, request.output, request.heuristic, request.dask
    )  # fmt: skip


def _plan_units(request: ModelRequest) -> None:
    from apples.applications import plan_master_worker  # noqa: PLC0415
    from apples.applications.master_worker.text import master_worker_text  # noqa: PLC0415

    document = plan_master_worker(_units(request)).document()
    show_answer(document, lambda: master_worker_text(document), request.json)


def _run_units(request: ModelRequest) -> None:
    from apples.applications import run_master_worker  # noqa: PLC0415
    from apples.applications.master_worker.text import master_worker_text  # noqa: PLC0415
    from apples.jobs import store  # noqa: PLC0415

    with recorded_command(store.MASTER_WORKER, request.file) as record:
        result = run_master_worker(_units(request), record.talk, record.began)
        document = record.record_result(result)
        show_answer(
            document, lambda: _with_result(document, master_worker_text(document)), request.json
        )
        result.check()


def _units(request: ModelRequest) -> MasterWorkerSpec:
    from apples.applications import MasterWorkerSpec  # noqa: PLC0415

    return MasterWorkerSpec(
        request.file, request.hosts, request.settings, request.weather, request.verify or "sample",
        request.workers, request.master,
    )  # fmt: skip


def _with_result(document: MasterWorkerDocument, lines: str) -> str:
    """Return the lines after the total of the units."""
    import json  # noqa: PLC0415

    total = document["execution"] and document["execution"]["result"]
    return f"{json.dumps(total)}\n{lines}"


def _plan_pipeline(request: ModelRequest) -> None:
    from apples.applications import plan_pipeline_file  # noqa: PLC0415
    from apples.applications.pipeline.text import pipeline_text  # noqa: PLC0415

    with _long_search_said():
        document = plan_pipeline_file(_pipeline(request)).document()
    show_answer(document, lambda: pipeline_text(document), request.json)


def _run_pipeline(request: ModelRequest) -> None:
    from apples.applications import run_pipeline  # noqa: PLC0415
    from apples.applications.pipeline.text import pipeline_text  # noqa: PLC0415
    from apples.jobs import store  # noqa: PLC0415

    with recorded_command(store.PIPELINE, request.file) as record, _long_search_said() as planned:

        def began(result: PipelineResult) -> None:
            planned()
            record.began(result)

        result = run_pipeline(_pipeline(request), verify=request.verify != "none", began=began)
        document = record.record_result(result)
        show_answer(document, lambda: pipeline_text(document), request.json)


def _pipeline(request: ModelRequest) -> PipelineSpec:
    from apples.applications import PipelineSpec  # noqa: PLC0415

    return PipelineSpec(
        request.file, request.hosts, request.settings, request.weather, request.unit, request.actuator
    )  # fmt: skip


@contextmanager
def _long_search_said() -> Iterator[Callable[[], None]]:
    """Print a line if the search for a plan is long; yield the function to call when the plan is found."""
    timer = Timer(LONG_SECONDS, say, (SEARCHING,))
    timer.daemon = True
    timer.start()
    try:
        yield timer.cancel
    finally:
        timer.cancel()


class Documented(Protocol[Document_co]):
    """A plan or a result with its JSON document."""

    def document(self) -> Document_co:
        """Return the JSON document."""


class Recorder(Protocol):
    """The part of an `apples.jobs.recorder.RunRecorder` that is used here, so that help need not import it."""

    def logging(self, talk: Talk) -> Talk:
        """Return a function that passes each line to `talk` and appends it to the log."""

    def began(self, document: Mapping[str, Any], **known: Any) -> None:
        """Record the plan."""

    def record_result(self, document: Mapping[str, Any], **known: Any) -> None:
        """Record the result."""


class CommandRecord:
    """Writes the plan, result and log of one command into its record.

    Attributes
    ----------
    talk
        Prints a line, and appends it to the record's log.
    """

    def __init__(self, record: Recorder) -> None:
        self.talk: Talk = record.logging(say)
        self._record = record

    def began(self, planned: Documented[Mapping[str, Any]]) -> None:
        """Record the plan, before anything is started."""
        from apples.jobs.recorder import known_of  # noqa: PLC0415 - help does without

        document = planned.document()
        self._record.began(document, **known_of(document))

    def record_result(self, result: Documented[Document_co]) -> Document_co:
        """Record the document of a result and return it."""
        from apples.jobs.recorder import known_of  # noqa: PLC0415 - likewise

        document = result.document()
        self._record.record_result(document, **known_of(document))
        return document


@contextmanager
def recorded_command(kind: str, file: Path) -> Iterator[CommandRecord]:
    """Record a command during the block; an error that ends the block is recorded and raised again.

    Parameters
    ----------
    kind
        Kind of the record, one of those in `apples.jobs.store`.
    file
        The application's file.
    """
    from apples.jobs.recorder import recorded  # noqa: PLC0415 - help does without

    with recorded({"file": str(file.absolute())}, say, kind) as record:
        yield CommandRecord(record)
