"""What Slurm's commands print, read. Pure, and distrustful: it comes from other versions than we know.

Both shapes of ``--json`` are read: that of Slurm 22.05 and before, and that of 23.02 and after.
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
    """What is known of a job: Slurm's words for its state, and why it waits.

    Attributes
    ----------
    state
        ``""`` where Slurm knows no such job (any more).
    code
        Its exit code, where it has ended and Slurm says so.
    start
        When it began or is expected to, in seconds since 1970; 0 where nobody says.
    limit
        Its time limit in seconds, where it has one and Slurm says so.
    """

    state: str
    reason: str = ""
    code: int | None = None
    start: float = 0.0
    limit: float | None = None

    @property
    def waiting(self) -> bool:
        """Whether it has not begun."""
        return self.state in WAITING

    @property
    def running(self) -> bool:
        """Whether processes of it may be alive."""
        return self.state in RUNNING

    @property
    def out_of_time(self) -> bool:
        """Whether its time limit ended it, or is ending it at this moment."""
        return self.state == "TIMEOUT" or (
            # The controller notes the limit before it notifies a node, so this is true as soon as
            # ranks end. TIMEOUT comes later than the agent's own end of the run.
            self.state == "COMPLETING" and self.reason == "TimeLimit"
        )


def task_ends(line: str) -> dict[int, str]:
    """Return how tasks ended, by rank, from a line that srun prints; nothing from any other line.

    srun prints nothing of tasks that end with exit code 0.

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
    """Return what ``squeue --json`` says of a job; a state of ``""`` where it is not there.

    Raises
    ------
    LaunchError
        It is no answer of squeue, or an error in place of one: nothing is known of the job then.
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
    """A job that has nodes.

    Attributes
    ----------
    nodes
        As Slurm writes a list of names.
    end
        When its time limit ends it, in seconds since 1970; inf: it has none, or nobody says.
    """

    number: int
    name: str
    nodes: str
    end: float = inf


def allocations(listing: str, user: str) -> list[SlurmAllocationState]:
    """Return the running jobs of a user that ``squeue --json`` lists.

    Raises
    ------
    LaunchError
        It is no answer of squeue, or an error in place of one.
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
    """Return what ``scontrol show job -o`` says of a job.

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
    """Return the seconds of ``days-hours:minutes:seconds``; None where it is something else."""
    found = SPAN.fullmatch(text)
    if not found:
        return None
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def accounted(table: str) -> SlurmJobState:
    """Return what ``sacct --parsable2 --noheader --format=State,ExitCode`` says of a job.

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
    """Return the number of the job that ``sbatch --parsable`` names.

    Raises
    ------
    LaunchError
        It names none.
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
    """Return when ``sbatch --test-only`` says a job would start, by a clock of UTC; None if it does not.

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
    """Return the seconds from submission to start by squeue's ``%V %S``; None where they are no two times.

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
    """Return the object that a command with ``--json`` printed.

    Raises
    ------
    LaunchError
        It printed something else.
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
            f"{command} --json gave JSON that is no object",
            code="slurm-answer-invalid",
            command=command,
        )
    return found


def entries(answer: Mapping[str, Any], key: str) -> list[Any]:
    """Return a list of an answer.

    Raises
    ------
    LaunchError
        It has none of that name.
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
    """Refuse an answer that lists errors: Slurm's commands end well with ``--json`` when they reach nobody.

    Raises
    ------
    LaunchError
        With the errors' own words.
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
    """Return a number, plain or as newer versions wrap it; None where it is not set."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set", True) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < 1e18 else None


def text(value: Any) -> str:
    """Return a text as one printable line; empty where it is none."""
    return readable(value) if isinstance(value, str) else ""
