"""Parse the output of Slurm's commands. Pure; validates all input, because it may come from an unknown version.

Both formats of ``--json`` are read: that of Slurm up to 22.05, and that of Slurm from 23.02.
"""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from typing import Any

from apples.errors import LaunchError
from apples.launch.events import readable

JOB = re.compile(r"^(\d+)(?:;[^\n]*)?$")
PLANNED = re.compile(r"Job \d+ to start at (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)")
CODE = re.compile(r"[0-9]{1,9}")
FIELD = re.compile(r"(?:^| )(\w+)=(\S*)")
SPAN = re.compile(r"(?:(\d{1,6})-)?(\d\d):(\d\d):(\d\d)", re.ASCII)
TASK_ENDS = re.compile(r"srun: error: [^:]{1,1000}: tasks? ([0-9,-]{1,1000}): ([ -~]{1,200})")
TASKS = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?(?:,|$)")
WAITING = frozenset(("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "RESIZING"))
RUNNING = frozenset(("RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT"))


@dataclass(frozen=True, slots=True)
class SlurmJobState:
    """The state of a job, in Slurm's words.

    Attributes
    ----------
    state
        Slurm's name of the state; ``""``: Slurm does not know the job (any more).
    reason
        Slurm's reason for the state, for example why the job waits.
    code
        Exit code; None: it has not ended, or Slurm does not report it.
    start
        Actual or expected start, in seconds since 1970 (Unix time); 0: unknown.
    limit
        Time limit in seconds; None: it has none, or Slurm does not report it.
    """

    state: str
    reason: str = ""
    code: int | None = None
    start: float = 0.0
    limit: float | None = None

    @property
    def waiting(self) -> bool:
        """Whether the job has not started."""
        return self.state in WAITING

    @property
    def running(self) -> bool:
        """Whether processes of the job may exist."""
        return self.state in RUNNING

    @property
    def out_of_time(self) -> bool:
        """Whether its time limit has ended the job or is ending it now."""
        return self.state == "TIMEOUT" or (
            # The controller records the limit before it notifies a node, so this is true as soon as ranks end. The
            # state TIMEOUT appears only after the agent has ended the run.
            self.state == "COMPLETING" and self.reason == "TimeLimit"
        )


def task_ends(line: str) -> dict[int, str]:
    """Return rank -> end in words, from a line that srun prints about tasks; empty for any other line.

    srun prints no line about tasks that end with exit code 0.

    Examples
    --------
    >>> task_ends("srun: error: bob: task 3: Segmentation fault (core dumped)")
    {3: 'killed by SIGSEGV'}
    >>> task_ends("srun: error: ada,bob: tasks 0-1,4: Exited with exit code 5")
    {0: 'exit code 5', 1: 'exit code 5', 4: 'exit code 5'}
    >>> task_ends("srun: error: ada: task 2: Out Of Memory")
    {2: 'killed by SIGKILL; Slurm reports: Out Of Memory'}
    >>> task_ends("srun: Terminating StepId=7.0")
    {}
    """
    match = TASK_ENDS.fullmatch(line)
    if match is None:
        return {}
    end = match[2].removesuffix(" (core dumped)")
    killers = {signal.strsignal(number): number for number in signal.Signals}
    if end in killers:
        how = f"killed by {killers[end].name}"
    elif end == "Out Of Memory":
        how = f"killed by SIGKILL; Slurm reports: {end}"
    else:
        how = end.removeprefix("Exited with ")
    spans = [(int(first), int(last or first)) for first, last in TASKS.findall(match[1])]
    return {rank: how for first, last in spans for rank in range(first, last + 1)}


def job_state(listing: str, job: int) -> SlurmJobState:
    """Return the state of a job from the output of ``squeue --json``; a state of ``""`` if it is not listed.

    Raises
    ------
    LaunchError
        The text is not an answer of squeue, or reports an error. The job's state is then unknown.
    """
    answer = document(listing, "squeue")
    for entry in entries(answer, "jobs"):
        if isinstance(entry, dict) and entry.get("job_id") == job:
            state = entry.get("job_state", "")
            words = [str(word) for word in state] if isinstance(state, list) else [str(state)]
            base = [word for word in words if word in WAITING or word in RUNNING] or words
            reason = text(entry.get("state_reason"))
            return SlurmJobState(
                base[0] if base else "", reason, None, number(entry.get("start_time")) or 0.0
            )
    refuse_errors(answer, "squeue")
    return SlurmJobState("")


@dataclass(frozen=True, slots=True)
class SlurmAllocationState:
    """A job with allocated nodes.

    Attributes
    ----------
    nodes
        Slurm's compressed list of node names.
    end
        Time at which its time limit ends it, in seconds since 1970 (Unix time); inf: no limit, or unknown.
    """

    number: int
    name: str
    nodes: str
    end: float = inf


def allocations(listing: str, user: str) -> list[SlurmAllocationState]:
    """Return the running jobs of a user from the output of ``squeue --json``.

    Raises
    ------
    LaunchError
        The text is not an answer of squeue, or reports an error.
    """
    answer, found = document(listing, "squeue"), []
    for entry in entries(answer, "jobs"):
        if not isinstance(entry, dict) or entry.get("user_name") != user:
            continue
        state = entry.get("job_state", "")
        job, end = number(entry.get("job_id")), number(entry.get("end_time"))
        if "RUNNING" in (state if isinstance(state, list) else [state]) and job:
            where = text(entry.get("nodes"))
            found.append(
                SlurmAllocationState(int(job), text(entry.get("name")), where, end or inf)
            )
    if not found:
        refuse_errors(answer, "squeue")
    return found


def job_end(line: str) -> SlurmJobState:
    """Return the state of a job from the output of ``scontrol show job -o``.

    Examples
    --------
    >>> job_end("JobId=7 JobState=TIMEOUT Reason=TimeLimit ExitCode=0:15 TimeLimit=00:01:00")
    SlurmJobState(state='TIMEOUT', reason='TimeLimit', code=143, start=0.0, limit=60.0)
    """
    fields = dict(FIELD.findall(line))
    code, _, signal = fields.get("ExitCode", "").partition(":")
    number = int(code) if CODE.fullmatch(code) else None
    if number == 0 and CODE.fullmatch(signal) and signal != "0":
        number = 128 + int(signal)
    reason = fields.get("Reason", "")
    return SlurmJobState(
        fields.get("JobState", ""),
        "" if reason == "None" else reason,
        number,
        limit=_span(fields.get("TimeLimit", "")),
    )


def _span(text: str) -> float | None:
    """Return the seconds of a text ``days-hours:minutes:seconds``; None for another text."""
    found = SPAN.fullmatch(text)
    if not found:
        return None
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def accounted(table: str) -> SlurmJobState:
    """Return the state of a job from ``sacct --parsable2 --noheader --format=State,ExitCode``.

    Examples
    --------
    >>> accounted("CANCELLED by 1000|0:15")
    SlurmJobState(state='CANCELLED', reason='', code=143, start=0.0, limit=None)
    >>> accounted("")
    SlurmJobState(state='', reason='', code=None, start=0.0, limit=None)
    """
    first = table.strip().split("\n", maxsplit=1)[0]
    state, bar, code = first.partition("|")
    if not bar or not state.strip():
        return SlurmJobState("")
    return job_end(f"JobState={state.split()[0]} ExitCode={code}")


def submitted(said: str) -> int:
    """Return the job number from the output of ``sbatch --parsable``.

    Raises
    ------
    LaunchError
        The output has no job number.
    """
    for line in reversed(said.strip().split("\n")):
        found = JOB.match(line.strip())
        if found and len(found[1]) < 19:
            return int(found[1])
    raise LaunchError(
        f"sbatch named no job: {readable(said) or 'it said nothing'}",
        code="slurm-answer-invalid",
        command="sbatch",
    )


def planned_start(said: str) -> datetime | None:
    """Return the expected start from the output of ``sbatch --test-only``, in UTC; None if it has none.

    Examples
    --------
    >>> planned_start("sbatch: Job 2 to start at 2026-11-20T14:01:46 using 3 processors on nodes h[1-3]")
    datetime.datetime(2026, 11, 20, 14, 1, 46, tzinfo=datetime.timezone.utc)
    >>> planned_start("allocation failure: Requested node configuration is not available") is None
    True
    """
    found = PLANNED.search(said)
    if not found:
        return None
    try:
        return datetime.strptime(found[1], "%Y-%m-%dT%H:%M:%S").replace(tzinfo=UTC)
    except ValueError:
        return None


def held_back(said: str) -> float | None:
    """Return the seconds from submission to start, from squeue's ``%V %S``; None if these are not two times.

    Examples
    --------
    >>> held_back("2026-11-22T09:00:00 2026-11-22T09:01:30"), held_back("2026-11-22T09:00:00 N/A")
    (90.0, None)
    """
    try:
        submitted, begun = (datetime.fromisoformat(word) for word in said.split())
    except ValueError:
        return None
    return max(0.0, (begun - submitted).total_seconds())


def document(answer: str, command: str) -> dict[str, Any]:
    """Return the JSON object that a command with ``--json`` printed.

    Raises
    ------
    LaunchError
        The output is not a JSON object.
    """
    try:
        found = json.loads(answer)
    except (ValueError, RecursionError):
        raise LaunchError(
            f"{command} --json gave no JSON: {readable(answer, 80)}",
            code="slurm-answer-invalid",
            command=command,
        ) from None
    if not isinstance(found, dict):
        raise LaunchError(
            f"{command} --json gave JSON that is not an object",
            code="slurm-answer-invalid",
            command=command,
        )
    return found


def entries(answer: Mapping[str, Any], key: str) -> list[Any]:
    """Return the list with key `key` in an answer.

    Raises
    ------
    LaunchError
        The answer has no such list.
    """
    value = answer.get(key)
    if not isinstance(value, list):
        raise LaunchError(
            f"Slurm's JSON has no list '{key}': this version of Slurm is not supported",
            code="slurm-answer-invalid",
            field=key,
        )
    return value


def refuse_errors(answer: Mapping[str, Any], command: str) -> None:
    """Raise LaunchError if an answer lists errors: with ``--json``, Slurm's commands exit with 0 after an error.

    Raises
    ------
    LaunchError
        The answer lists errors; the message has the first of them.
    """
    errors = answer.get("errors")
    if isinstance(errors, list) and errors:
        first = errors[0] if isinstance(errors[0], dict) else {}
        said = [text(first.get(key)) for key in ("description", "error")]
        words = ": ".join(word for word in said if word) or "an error without words"
        raise LaunchError(
            f"{command}: Slurm did not answer: {words}",
            code="slurm-command-failed",
            command=command,
            reason=words,
        )


def number(value: Any) -> float | None:
    """Return a number, plain or wrapped in an object by newer versions; None if it is not set."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set", True) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < 1e18 else None


def text(value: Any) -> str:
    """Return a text as one printable line; empty if `value` is not a text."""
    return readable(value) if isinstance(value, str) else ""
