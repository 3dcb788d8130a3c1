"""`apples workloads`: convert the logs of batch systems."""

from __future__ import annotations

from pathlib import Path

from apples.errors import UsageError, unwritable
from apples.simulation.documents import ConvertedDocument
from apples.ui.command_line import CommandGroup, say, show_answer
from apples.ui.options import json_option
from apples.ui.parameters import FILE, argument, integer, option

commands = CommandGroup(help="Convert the logs of batch systems to SWF.")


@commands.command("convert")
@argument(
    "log",
    type=FILE,
    help="sacct --parsable2, Batsim JSON, accounting of PBS or SGE, lsb.acct of LSF, or SWF.",
)
@argument("out", metavar="FILE", type=FILE, help="The SWF file to write; .gz packs it.")
@option("--processors", type=integer(1, 10**9), help="Processors of the machine, for the header.")
@json_option
def convert(log: Path, out: Path, processors: int | None, json: bool) -> int:
    """Convert a workload log to the Standard Workload Format.

    Example: apples workloads convert sacct.txt month.swf
    """
    from apples.simulation.sources import read_log  # noqa: PLC0415 - it brings numpy
    from apples.simulation.swf import COLUMNS, convert_to_swf  # noqa: PLC0415

    if log.is_file() and out.exists() and out.samefile(log):
        raise UsageError(
            f"{out}: is the log itself; name another file for the SWF",
            code="file-exists",
            file=str(out),
        )
    read = read_log(log, COLUMNS)
    try:
        convert_to_swf(read, out, processors)
    except OSError as error:
        raise unwritable(str(out), error) from None
    document: ConvertedDocument = {
        "schema": "apples.converted/1",
        "path": str(out),
        "records": len(read),
        "damaged": read.damaged.count,
        "notes": [*read.notes],
    }
    for note in read.notes:
        say(note)
    show_answer(document, f"wrote {out}: {len(read)} jobs", json)
    return 0
