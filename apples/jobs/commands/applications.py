"""``apples parameter-sweep | master-worker | pipeline``: applications of other models, and their records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import Annotated, Any, Protocol

import typer

from apples.jobs.commands.options import NoVerify, how_verified
from apples.ui import options
from apples.ui.command_line import say, show_answer

Document = dict[str, Any]
Talk = Callable[[str], None]

HEURISTIC_HELP = "The only one that plans, or queue: nobody plans. Default: the best of all."

DASK_HELP = "Scheduler of an existing Dask cluster, whose workers run the tasks."

LONG_SECONDS = 3.0
SEARCHING = "still looking for the quickest mapping; of fewer hosts (hosts = [..] in the file) it takes less"


def parameter_sweep(
    sweep: Annotated[Path, typer.Argument(help="The sweep.")] = Path("sweep.toml"),
    hosts: options.Hosts = None,
    weather: Annotated[
        str, typer.Option("--weather", help="static, or a recorded weather file.")
    ] = "static",
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder of results; NAME-results unless named.")
    ] = None,
    heuristic: Annotated[
        str, typer.Option("--heuristic", help=HEURISTIC_HELP, show_default=False)
    ] = "",
    dask: Annotated[
        str, typer.Option("--dask", help=DASK_HELP, show_default=False, metavar="ADDRESS")
    ] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be done where.")
    ] = False,
    json: options.Json = False,
) -> int:
    """Run one program at many settings: plan, move files, run, fetch results.

    A sweep that was ended goes on with the same command: nothing that has its result is run again.

    Example: apples parameter-sweep; apples parameter-sweep sweep.toml --dry-run
    """
    from apples.applications import SweepSpec, plan_parameter_sweep, run_parameter_sweep  # noqa: PLC0415 - help does without
    from apples.applications.parameter_sweep.text import sweep_text  # noqa: PLC0415 - likewise
    from apples.jobs import store  # noqa: PLC0415 - help does without

    spec = SweepSpec(sweep, hosts or Path("hosts.toml"), weather, out, heuristic, dask)
    if dry_run:
        document = plan_parameter_sweep(spec).document()
        show_answer(document, lambda: sweep_text(document), json)
        return 0
    with recorded_command(store.SWEEP, sweep) as record:
        result = run_parameter_sweep(spec, record.talk, record.began)
        document = record.record_result(result)
        show_answer(document, lambda: sweep_text(document), json)
        result.check()
    return 0


def master_worker(
    file: Annotated[Path, typer.Argument(help="The program.")] = Path("master-worker.toml"),
    hosts: options.Hosts = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="A parameter of the file: NAME=VALUE.")
    ] = None,
    weather: Annotated[
        str, typer.Option("--weather", help="static, or a recorded weather file.")
    ] = "static",
    master: Annotated[str, typer.Option("--master", help="The master; default: the best.")] = "",
    workers: Annotated[
        str,
        typer.Option("--workers", help="The workers, as ada,bob; they stay. Default: the best."),
    ] = "",
    verify: Annotated[
        str | None,
        typer.Option(
            "--verify", help="What is done again here: full, sample, none; sample unless named."
        ),
    ] = None,
    no_verify: NoVerify = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be done where.")
    ] = False,
    json: options.Json = False,
) -> int:
    """Choose a master and workers, run the program, verify what it comes to.

    Workers join and leave while it runs, at the end of a unit.

    Example: apples master-worker; apples master-worker --dry-run
    """
    from apples.applications import MasterWorkerSpec, plan_master_worker, run_master_worker  # noqa: PLC0415 - help does without
    from apples.applications.master_worker.text import master_worker_text  # noqa: PLC0415 - likewise
    from apples.jobs import store  # noqa: PLC0415 - help does without

    how = how_verified(verify, no_verify) or "sample"
    some = tuple(name.strip() for name in workers.split(",") if name.strip())
    spec = MasterWorkerSpec(
        file, hosts or Path("hosts.toml"), options.settings_of(settings), weather, how, some, master
    )  # fmt: skip
    if dry_run:
        document = plan_master_worker(spec).document()
        show_answer(document, lambda: master_worker_text(document), json)
        return 0
    with recorded_command(store.MASTER_WORKER, file) as record:
        result = run_master_worker(spec, record.talk, record.began)
        document = record.record_result(result)
        show_answer(document, lambda: _with_result(document, master_worker_text(document)), json)
        result.check()
    return 0


def _with_result(document: dict[str, Any], lines: str) -> str:
    """Return the lines with what the units come to, which is what was asked for, first."""
    import json  # noqa: PLC0415 - of what was run

    return f"{json.dumps(document['execution']['result'])}\n{lines}"


def pipeline(
    file: Annotated[Path, typer.Argument(help="The pipeline.")] = Path("pipeline.toml"),
    hosts: options.Hosts = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="A parameter of the file: NAME=VALUE.")
    ] = None,
    weather: Annotated[
        str, typer.Option("--weather", help="static, or a recorded weather file.")
    ] = "static",
    unit: Annotated[
        int | None,
        typer.Option("--unit", min=0, help="Items that pass at a time; default: the best."),
    ] = None,
    run: Annotated[bool, typer.Option("--run", help="Run it too, and verify the result.")] = False,
    actuator: Annotated[str, typer.Option("--actuator", help="local or ssh.")] = "",
    verify: Annotated[
        str | None,
        typer.Option("--verify", help="Compare with one process: full, none; full unless named."),
    ] = None,
    no_verify: NoVerify = False,
    json: options.Json = False,
) -> int:
    """Plan which hosts do which task, and how much passes at a time; run it if asked.

    Example: apples pipeline; apples pipeline --run
    """
    from apples.applications import PipelineSpec, plan_pipeline_file, run_pipeline  # noqa: PLC0415 - help does without
    from apples.applications.pipeline.text import pipeline_text  # noqa: PLC0415 - likewise
    from apples.jobs import store  # noqa: PLC0415 - help does without

    how = how_verified(verify, no_verify, ("full", "none"))
    spec = PipelineSpec(
        file, hosts or Path("hosts.toml"), options.settings_of(settings), weather, unit or 0, actuator
    )  # fmt: skip
    if not run:
        with _long_search_said():
            document = plan_pipeline_file(spec).document()
        show_answer(document, lambda: pipeline_text(document), json)
        return 0
    with recorded_command(store.PIPELINE, file) as record, _long_search_said() as planned:

        def began(result: Documented) -> None:
            planned()
            record.began(result)

        result = run_pipeline(spec, verify=how != "none", began=began)
        document = record.record_result(result)
        show_answer(document, lambda: pipeline_text(document), json)
    return 0


@contextmanager
def _long_search_said() -> Iterator[Callable[[], None]]:
    """Say that the search goes on when it is long; hand out what is to be called when there is a plan."""
    timer = Timer(LONG_SECONDS, say, (SEARCHING,))
    timer.daemon = True
    timer.start()
    try:
        yield timer.cancel
    finally:
        timer.cancel()


class Documented(Protocol):
    """What is planned, or what came of it."""

    def document(self) -> Document:
        """Return the JSON document."""


class Recorder(Protocol):
    """The part of an `apples.jobs.recorder.RunRecorder` that is used here; help does without that module."""

    def heard(self, talk: Talk) -> Talk:
        """Return a function that passes lines on and keeps them."""

    def began(self, document: Document, **known: Any) -> None:
        """Keep the plan."""

    def record_result(self, document: Document, **known: Any) -> None:
        """Keep the result."""


class CommandRecord:
    """Writes what becomes of one command into its record.

    Attributes
    ----------
    talk
        Says a line, and keeps it in the record's log.
    """

    def __init__(self, record: Recorder) -> None:
        self.talk: Talk = record.heard(say)
        self._record = record

    def began(self, planned: Documented) -> None:
        """Keep the plan, when nothing has been started yet."""
        from apples.jobs.recorder import known_of  # noqa: PLC0415 - help does without

        document = planned.document()
        self._record.began(document, **known_of(document))

    def record_result(self, result: Documented) -> Document:
        """Keep what came of it; return its document."""
        from apples.jobs.recorder import known_of  # noqa: PLC0415 - likewise

        document = result.document()
        self._record.record_result(document, **known_of(document))
        return document


@contextmanager
def recorded_command(kind: str, file: Path) -> Iterator[CommandRecord]:
    """Record what is done meanwhile; what ends it is recorded and raised.

    Parameters
    ----------
    kind
        One of `apples.jobs.store`'s.
    file
        What is asked for.
    """
    from apples.jobs.recorder import recorded  # noqa: PLC0415 - help does without

    with recorded({"file": str(file.absolute())}, say, kind) as record:
        yield CommandRecord(record)
