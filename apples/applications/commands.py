"""``hat new | check | import`` and ``apples check``: the files of a user, and all JSON Schemas."""

from __future__ import annotations

try:
    import importlib
    import json
    from collections.abc import Mapping, Sequence
    from importlib import resources
    from pathlib import Path
    from typing import TYPE_CHECKING, Any

    import click

    import hat
    from apples.applications import files as user_files
    from apples.errors import LaunchError, UsageError, coded, unwritable
    from apples.ui.command_line import Entry, command, run, say, show, show_answer, show_json
    from apples.ui.options import json_option
    from apples.ui.parameters import FILE, Excludes, argument, option
except KeyboardInterrupt:  # as in `apples.__main__`
    raise SystemExit(130) from None

if TYPE_CHECKING:
    from apples.applications.documents import CheckDocument, HostsDocument, NewDocument

COMMANDS: Mapping[str, Entry] = {
    "new": Entry(
        "apples.applications.commands:new", "Start an agent of your own in a new folder."
    ),
    "check": Entry(
        "apples.applications.commands:check", "Check templates, user files and host lists."
    ),
    "import": Entry(
        "apples.applications.commands:import_hosts", "Make a host list of a Slurm cluster."
    ),
}
RENAMED = {"schema": "hat check --schema NAME"}

KINDS = ("template", "user", "hosts", "protocol")
"""Schemas of input files; the table of the console script has the schemas of documents."""

DOCUMENTS = {
    "hat.check": "apples.applications.documents:CheckDocument",
    "hat.new": "apples.applications.documents:NewDocument",
    "apples.hosts": "apples.applications.documents:HostsDocument",
}
"""The type of each JSON document that ``hat`` prints, by its schema without the number."""


def main() -> None:
    """Run the command line and exit."""
    run(
        "hat",
        COMMANDS,
        "Heterogeneous Application Templates and user specifications.",
        "Exit codes: 0 ok, 2 bad input. Start with: hat new heat",
        {"documents": DOCUMENTS},
        RENAMED,
    )


@command(
    rules=(
        Excludes("--sample", "--c", "--fortran", "--blocks", "--structure"),
        *(
            Excludes("--malleable", kind)
            for kind in ("--sample", "--c", "--fortran", "--structure")
        ),
    )
)
@argument("name", help="Name of the application.")
@option("--into", metavar="FOLDER", type=FILE, default=Path(), help="Folder to make it in.")
@option(
    "--malleable", is_flag=True, help="Write a program that can change its hosts while it runs."
)
@option("--blocks", is_flag=True, help="The same, with objects that migrate one by one.")
@option("--c", is_flag=True, help="Write a program in C; it keeps its hosts.")
@option("--fortran", is_flag=True, help="Write a program in Fortran; it keeps its hosts.")
@option(
    "--structure",
    metavar="NAME",
    default="strip",
    help="structure.model of the template: strip, rectangle, pipeline, sweep or master-worker.",
)
@option("--sample", is_flag=True, help="A copy of the Jacobi2D example.")
@json_option
def new(
    name: str,
    into: Path,
    malleable: bool,
    blocks: bool,
    c: bool,
    fortran: bool,
    structure: str,
    sample: bool,
    json: bool,
) -> int:
    """Make a folder with template, user file, host list, program and agent that run at once.

    Example: hat new heat; hat new heat --malleable; hat new jacobi --sample
    """
    from apples.applications.scaffold import ProgramKind, ScaffoldError  # noqa: PLC0415 - it loads Jinja
    from apples.applications.scaffold import new as new_folder  # noqa: PLC0415 - likewise

    models: tuple[ProgramKind, ...] = ("rectangle", "pipeline", "sweep", "master-worker")
    if structure not in {"strip", *models}:
        raise UsageError(
            f"--structure '{structure}': unknown; known: strip, {', '.join(models)}",
            code="model-unknown",
            option="--structure",
            value=structure,
            known=["strip", *models],
        )
    asked: dict[ProgramKind, bool] = {
        **{one: structure == one for one in models},
        "blocks": blocks,
        "malleable": malleable,
        "c": c,
        "fortran": fortran,
        "sample": sample,
    }
    kind: ProgramKind = next((one for one, wanted in asked.items() if wanted), "rigid")
    try:
        paths = new_folder(name, into, kind=kind)
    except ScaffoldError as error:
        if isinstance(error.__cause__, OSError):
            raise unwritable(str(into / name), error.__cause__) from None
        raise UsageError(str(error), **coded(error)) from None
    if json:
        written: NewDocument = {"schema": "hat.new/1", "files": [str(path) for path in paths]}
        show_json(written)
    else:
        for path in paths:
            show(str(path))
        build = "make && " if c or fortran else ""
        show(f"next:  cd {paths[0].parent} && {build}apples run")
    return 0


@command(rules=(Excludes("FILE", "--schema"),))
@argument(
    "files",
    type=FILE,
    nargs=-1,
    metavar="FILE",
    help="Template, user file, host list or another input.",
)
@option(
    "--schema",
    "kind",
    metavar="NAME",
    default="",
    help=f"Print a JSON Schema: {', '.join(KINDS)}; of a document plan, run, job, nws.forecast, ..",
)
@json_option
@click.pass_context
def check(context: click.Context, files: tuple[Path, ...], kind: str, json: bool) -> int:
    """Report every error in files with line, field and remedy, or print a JSON Schema.

    Example: hat check template.toml hosts.toml; hat check --schema template
    """
    if kind:
        print_schema(kind, context.obj["documents"])
        return 0
    if not files:
        raise UsageError(
            "check: no file (give at least one, or --schema NAME)",
            code="argument-missing",
            argument="FILE",
        )
    return check_files(files, json)


def check_files(files: Sequence[Path], json: bool, only: str | None = None) -> int:
    """Print the problems of the files on stderr, each with its code; return 2 if there are any.

    With `json`, stderr has one JSON line.
    """
    results = [user_files.inspect(path, only) for path in files]
    pairs = list(zip(files, results, strict=True))
    entries = [user_files.checked(path, result) for path, result in pairs]
    fine = "\n".join(f"{path}: {one.kind}, ok" for path, one in pairs if not one.problems)
    problems = [problem for result in results for problem in result.problems]
    if not json:
        for problem in problems:
            say(f"{problem} [{problem.code}]")
    document: CheckDocument = {"schema": "hat.check/1", "files": entries}
    show_answer(document, fine, json)
    if json and problems:
        raise hat.DocumentError(problems)
    return 2 if problems else 0


@command("import")
@argument("source", help="Cluster software: slurm.")
@option("--partition", metavar="NAME", default="", help="Only the nodes of this partition.")
@option("--site", metavar="NAME", multiple=True, help="A node feature that stands for a site.")
@json_option
def import_hosts(source: str, partition: str, site: tuple[str, ...], json: bool) -> int:
    """Print a host list of the nodes of a Slurm cluster; warn of nodes that take no jobs.

    Example: hat import slurm > hosts.toml
    """
    # Checking a list loads nothing of Slurm.
    from apples.launch.slurm import client  # noqa: PLC0415
    from apples.launch.slurm.nodes import host_entries, host_list, left_out  # noqa: PLC0415

    if source != "slurm":
        raise UsageError(
            f"import '{source}': unknown source; known: slurm",
            code="source-unknown",
            value=source,
            known=["slurm"],
        )
    nodes = client.nodes(partition)
    for line in left_out(nodes):
        say(f"warning: {line}")
    found = host_entries(nodes, site or ())
    if not found:
        raise LaunchError("Slurm has no node that takes jobs", code="nodes-missing")
    if json:
        document: HostsDocument = {"schema": "apples.hosts/1", "host": found}
        show_json(document)
    else:
        show(host_list(nodes, site or ()).rstrip())
    return 0


def print_schema(kind: str, documents: Mapping[str, str]) -> None:
    """Print the JSON Schema of an input file, or of a document that a command prints.

    Parameters
    ----------
    documents
        The type of each document, by its schema without the number.
    """
    if kind == "template":
        show_json(hat.schema(hat.ApplicationTemplate))
    elif kind == "user":
        show_json(hat.schema(hat.UserSpecifications))
    elif kind == "hosts":
        show_json(hat.schema(user_files.host_list_model()))
    elif kind == "protocol":
        text = resources.files("apples.launch").joinpath("protocol.schema.json").read_text("utf-8")
        show_json(json.loads(text))
    else:
        from apples.applications.schemas import document_schema  # noqa: PLC0415 - it loads pydantic

        show_json(document_schema(_document_type(kind, documents)))


def _document_type(kind: str, documents: Mapping[str, str]) -> Any:
    """Return the type of a document, named ``plan``, ``apples.plan`` or ``apples.plan/1``."""
    name = kind.partition("/")[0]
    place = documents.get(name) or documents.get(f"apples.{name}")
    if place is None:
        short = (name.removeprefix("apples.") for name in documents if name != "apples.hosts")
        known = [*KINDS, *(["apples.hosts"] if "apples.hosts" in documents else []), *short]
        raise UsageError(
            f"schema '{kind}': unknown; known: {', '.join(known)}",
            code="schema-unknown",
            value=kind,
            known=known,
        )
    module, _, cls = place.partition(":")
    return getattr(importlib.import_module(module), cls)
