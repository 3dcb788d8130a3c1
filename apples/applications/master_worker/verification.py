"""The check of a run: this machine repeats a sample of its units, or all, and compares the results."""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import Any

from apples.applications.master_worker.planning import MasterWorkerOutcome, MasterWorkerPlan
from apples.applications.master_worker.processes import role_script
from apples.applications.workers import last_line, result_of
from apples.errors import ApplicationError, VerificationError

MAX_SAMPLE = 8
MAX_SAMPLE_FRACTION = 0.1
"""The repetition of a sample takes at most this fraction of the predicted duration of the run."""


def choose_sample(run: MasterWorkerPlan) -> list[int]:
    """Return the numbers of the units that are repeated, at least one; empty unless ``--verify sample``."""
    if run.spec.verify != "sample":
        return []
    unit_seconds = run.rates.unit_seconds(min(run.usable, key=run.rates.unit_seconds))
    affordable = int(MAX_SAMPLE_FRACTION * run.count / run.choice.rate / unit_seconds)
    size = min(run.count, max(1, min(MAX_SAMPLE, affordable)))
    return sorted(random.sample(range(run.count), size))


def verify(
    run: MasterWorkerPlan,
    sample: list[int],
    digests: Mapping[str, str],
    outcome: MasterWorkerOutcome,
) -> int:
    """Repeat the sample, or all units with ``full``, one after the other; return how many were compared.

    Parameters
    ----------
    digests
        By unit of the sample: the digest of its result in the run.

    Raises
    ------
    VerificationError
        A result or the total differs.
    ApplicationError
        The program fails here.
    """
    if run.spec.verify == "none":
        return 0
    whole = run.spec.verify == "full"
    config = {
        "role": "check", "samples": sample, "failed": list(outcome.failed), "all": whole,
        "parameters": dict(run.parameters), "program": str(next(iter(run.program.values()))),
    }  # fmt: skip
    repeated = _repeat(run, config)
    for unit, digest in repeated["samples"].items():
        if digests.get(unit) != digest:
            raise VerificationError(
                f"unit {unit}: its result differs from that of a second run on this machine",
                code="result-differs",
                unit=int(unit),
            )
    if whole and repeated["total"] != outcome.total:
        raise VerificationError(
            "the total differs from that of a sequential run on this machine",
            code="result-differs",
            field="total",
            value=outcome.total,
            bound=repeated["total"],
        )
    units = set(range(run.count)) if whole else set(sample)
    return len(units - outcome.failed.keys())


def _repeat(run: MasterWorkerPlan, config: Mapping[str, Any]) -> dict[str, Any]:
    with tempfile.NamedTemporaryFile(suffix=".py") as script:
        script.write(role_script(config))
        script.flush()
        done = subprocess.run(
            [sys.executable, script.name], cwd=run.spec.file.absolute().parent,
            capture_output=True, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    found, fault = result_of(done.stdout)
    if done.returncode or fault:
        reason = last_line(done.stderr) if done.returncode or fault is None else fault.text
        raise ApplicationError(f"verifying here: {reason}", code="program-failed", reason=reason)
    return found
