"""The program on the hosts of a master/worker run: the master, a worker, or the repetition of a sample of units.

Standard library only: it is sent with its connection.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from apples.applications.master_worker.messages import (
    EXIT_MASTER_LOST,
    Message,
    ProgramFailedError,
    digest,
    units_of,
)
from apples.applications.master_worker.unit_master import UnitMaster
from apples.applications.master_worker.unit_worker import FLUSH_SECONDS, UnitWorker, error_line


def main(config: Mapping[str, Any]) -> int:
    """Run the role of the configuration: ``master``, ``worker``, or ``check``, which repeats units.

    The output of the user's program goes to standard error; standard output carries only the answer.
    """
    answer = os.fdopen(os.dup(1), "w")
    # Descriptor 1 carries the answer. A print() in the user's code must not become part of it.
    os.dup2(2, 1)
    try:
        program = load_program(Path(config["program"]))
        if config["role"] == "worker":
            worker = UnitWorker(config, program)
            try:
                worker.run()
            except OSError:  # the connection to the master is lost
                os._exit(EXIT_MASTER_LOST)
        elif config["role"] == "master":
            answer.write(json.dumps(UnitMaster(config, program).run(), allow_nan=False))
        else:
            answer.write(json.dumps(repeat_units(config, program), allow_nan=False))
        answer.flush()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's, or a connection's
        sys.stderr.write(f"{error_line(error, config['program'])}\n")
        sys.stderr.flush()
        os._exit(1)  # without waiting for the threads of connections
    time.sleep(
        0.0 if config["role"] != "master" else FLUSH_SECONDS
    )  # threads send the last messages
    os._exit(0)


def repeat_units(config: Mapping[str, Any], program: Any) -> Message:
    """Do units one after the other; return the digests of a sample and, for all units, the total."""
    samples, left_out = set(config["samples"]), set(config["failed"])
    digests, total, last = {}, None, max(samples, default=-1)
    for number, unit in enumerate(units_of(program, config["parameters"])):
        if not config["all"] and number > last:
            break
        if number not in left_out and (config["all"] or number in samples):
            result = json.loads(json.dumps(program.work(json.loads(json.dumps(unit)))))
            digests[str(number)] = digest(result)
            total = program.combine(total, result) if config["all"] else None
    return {
        "samples": {n: digests[n] for n in map(str, sorted(samples)) if n in digests},
        "total": total,
    }


def load_program(path: Path) -> Any:
    """Return the user's program: a module with `units`, `work` and `combine`, and optionally `check`."""
    found = importlib.util.spec_from_file_location("program", path)
    assert found is not None  # noqa: S101 - for the type checker: the path ends with .py
    assert found.loader is not None  # noqa: S101 - likewise
    program = importlib.util.module_from_spec(found)
    sys.modules["program"] = program
    found.loader.exec_module(program)
    for name in ("units", "work", "combine"):
        if not callable(getattr(program, name, None)):
            raise ProgramFailedError(f"{path.name} has no function {name}")
    return program
