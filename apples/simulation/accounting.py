"""Read the accounting of PBS, LSF and Grid Engine, and Batsim's workloads: one function for each format.

Each function returns a `Log` as `apples.simulation.sacct.read_sacct` does. Times are seconds since 1970 (for
Batsim: since the start). Unreadable records count as damaged. If a job ran several times, its last run counts. A
task of a job array gets its own number, above those of all jobs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isfinite
from typing import Any

from apples.errors import UsageError
from apples.simulation.job_records import JobRecord, JobRecords, log_of
from apples.simulation.swf import KINDS, MOST, DamagedRows, Log, RowError, is_whole
from nws import StoredText

MAX_JSON_BYTES = 1 << 28
MAX_DEPTH = 20
"""Maximum nesting of Batsim's composed profiles."""

_PBS = re.compile(r"\d\d/\d\d/\d{4} \d\d:\d\d:\d\d;[A-Za-z]{1,2};[^;]*;")
_LSF = re.compile(r'"[A-Z_0-9]+" "[0-9.]+" \d{1,15} ')
_LSF_WORD = re.compile(r'"((?:[^"]|"")*)"|(\S+)')
_PBS_VALUE = re.compile(r"(?<![\w.])([A-Za-z_][\w.]*)=(\"[^\"]*\"|'[^']*'|\S*)")
_HARD_LIMIT = re.compile(r"(?:^|[ ,])h_rt=([0-9:]+)")
_SGE_NUMBER = re.compile(r"-?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?")
_SGE_TASK = re.compile(r"\d+\.\S*[^\d\s.]\S*", re.ASCII)
"""Task of a parallel job: its number and its host."""
_ID = re.compile(r"(\d{1,15})(?:\[(\d{1,9})\]|\.(\d{1,9}))?")


def is_pbs(line: str) -> bool:
    """Return whether a line is a record of PBS's accounting."""
    return _PBS.match(line) is not None


def is_lsf(line: str) -> bool:
    """Return whether a line is a record of ``lsb.acct``."""
    return _LSF.match(line) is not None


def is_sge(line: str) -> bool:
    """Return whether a line is a record of Grid Engine's accounting."""
    words = line.split(":")
    return len(words) >= 42 and all(
        is_whole(words[place]) or (place > 8 and words[place] == "-1") for place in (5, 8, 9, 10)
    )


def read_pbs(text: StoredText, pieces: Iterator[bytes], source: str) -> Log:
    """Return the jobs of PBS's accounting: the records ``E`` of ended jobs.

    ``MM/DD/YYYY hh:mm:ss;E;ID;key=value ..`` with ``ctime start end`` (seconds since 1970), ``queue user``,
    ``exec_host`` (``node/0*8+..`` or ``node/0-7+..``), ``Resource_List.ncpus``, ``.nodes``, ``.walltime`` and
    ``Exit_status``. The processors are those of ``exec_host``.

    Source: PBS Professional Reference Guide, chapter "Accounting Log"; TORQUE Administrator Guide, appendix
    "Accounting Records".
    """

    def record(line: str, number: int, records: JobRecords) -> tuple[str, JobRecord] | None:
        moment, kind, name, rest = [*line.split(";", 3), "", "", ""][:4]
        if kind != "E":
            return None
        del moment
        name = name.partition(".")[0]
        if name.endswith("[]") and is_whole(name[:-2]):
            records.counts["records of whole job arrays left out: their tasks are jobs"] += 1
            return None
        given = {key: value.strip("\"'") for key, value in _PBS_VALUE.findall(rest)}
        hosts = given.get("exec_host", "")
        allocated = sum(map(_pbs_slots, hosts.split("+"))) if hosts else -1.0
        asked = _pbs_request(given)
        job = JobRecord(
            number, 0,
            _number(given.get("ctime") or given.get("qtime", ""), "ctime"),
            _number(given.get("start", ""), "start"),
            _number(given.get("end", ""), "end"),
            _clock(given.get("Resource_List.walltime", ""), "Resource_List.walltime"),
            allocated, asked if asked > 0 else allocated,
            1.0 if given.get("Exit_status", "0") == "0" else 0.0,
            {
                "queue": records.code("queue", given.get("queue", "")),
                "user": records.code("user", given.get("user", "")),
            },
        )  # fmt: skip
        return name, job

    return _by_lines(record, text, pieces, source)


def read_lsf(text: StoredText, pieces: Iterator[bytes], source: str) -> Log:
    """Return the jobs of LSF's ``lsb.acct``: its records ``JOB_FINISH``.

    Words, from 0: 2 event time (the end), 3 job, 6 processors, 7 submission, 10 start (0: never), 11 user,
    12 queue, 22 the number of hosts asked for, then their names, the number of hosts of the run, their names
    (``8*host``: eight slots), and the status (64: done, 32: exit). The records have no limit.

    Source: IBM Spectrum LSF, file reference ``lsb.acct``, "Job finish event record".
    """

    def record(line: str, number: int, records: JobRecords) -> tuple[str, JobRecord] | None:
        if not line.startswith('"JOB_FINISH" '):
            return None
        words = [quoted.replace('""', '"') or plain for quoted, plain in _LSF_WORD.findall(line)]
        place = 22
        asked_hosts = int(_number(words[place], "numAskedHosts"))
        place += 1 + asked_hosts
        count = int(_number(words[place], "numExHosts"))
        hosts = words[place + 1 : place + 1 + count]
        status = words[place + 1 + count]
        index = _lsf_index(words, place + 2 + count)
        allocated = sum(_lsf_slots(host) for host in hosts)
        start = _number(words[10], "startTime")
        job = JobRecord(
            number, 0,
            _number(words[7], "submitTime"),
            start if start > 0 else -1.0,
            _number(words[2], "event time") if start > 0 else -1.0,
            -1.0,
            allocated if start > 0 else 0.0, _number(words[6], "numProcessors"),
            1.0 if status == "64" else 0.0,
            {"queue": records.code("queue", words[12]), "user": records.code("user", words[11])},
        )  # fmt: skip
        return words[3] + (f"[{index}]" if index else ""), job

    return _by_lines(record, text, pieces, source)


def read_sge(text: StoredText, pieces: Iterator[bytes], source: str) -> Log:
    """Return the jobs of Grid Engine's file ``accounting``.

    Words between colons, from 0: 0 queue, 3 owner, 5 job, 8 submission, 9 start, 10 end (milliseconds in
    Univa's), 11 failed, 12 exit status, 34 slots, 35 task of an array, 39 category (``-l h_rt=..``: the limit),
    41 task of a parallel job (skipped unless ``NONE``). The category may contain colons.

    Source: the manual page accounting(5) of Sun, Son of and Univa Grid Engine.
    """

    def record(line: str, number: int, records: JobRecords) -> tuple[str, JobRecord] | None:
        words = line.split(":")
        if len(words) < 42:
            raise RowError(
                "columns-differ", f"{len(words)} columns where accounting has 42 or more"
            )
        after = _sge_category_end(words)
        if words[after + 1].casefold() not in ("none", ""):
            records.counts["tasks of parallel jobs left out: their jobs count"] += 1
            return None
        submit, start, end = (
            _seconds(_number(words[place], name))
            for place, name in ((8, "submission_time"), (9, "start_time"), (10, "end_time"))
        )
        limit = _HARD_LIMIT.search(":".join(words[39:after]))
        ran = start > 0 and end > 0
        job = JobRecord(
            number, 0, submit, start if ran else -1.0, end if ran else -1.0,
            _clock(limit[1], "h_rt") if limit else -1.0,
            _number(words[34], "slots") if ran else 0.0, _number(words[34], "slots"),
            1.0 if words[11] == "0" and words[12] == "0" else 0.0,
            {"queue": records.code("queue", words[0]), "user": records.code("user", words[3])},
        )  # fmt: skip
        task = words[35]
        return words[5] + (f"[{task}]" if task not in ("0", "") else ""), job

    return _by_lines(record, text, pieces, source)


def read_batsim(text: StoredText, blocks: Iterator[bytes], source: str) -> Log:
    """Return the jobs of a workload of Batsim.

    An object with ``nb_res``, ``jobs`` (``id subtime res profile``, ``walltime`` if there is a limit) and
    ``profiles``. Only profiles of the type ``delay`` and sequences of them have a run time. With another profile
    the run time depends on the simulated platform, so the job has none.

    Source: Batsim's documentation, "Workload" and "Profile types".
    """
    size, parts = 0, []
    for block in blocks:
        parts.append(block)
        size += len(block)
        if size > MAX_JSON_BYTES:
            raise UsageError(
                f"{source}: more than {MAX_JSON_BYTES} bytes of JSON",
                code="file-too-large",
                file=source,
                bound=MAX_JSON_BYTES,
            )
    try:
        document = json.loads(b"".join(parts))
    except (ValueError, RecursionError) as error:
        several = str(error).startswith("Extra data")
        raise UsageError(
            f"{source}: no JSON: {error}" + "; one object a line is not read" * several,
            code="file-invalid",
            file=source,
        ) from error
    jobs = document.get("jobs") if isinstance(document, dict) else None
    profiles = document.get("profiles") if isinstance(document, dict) else None
    if not isinstance(jobs, list) or not isinstance(profiles, dict):
        raise UsageError(
            f"{source}: JSON without 'jobs' and 'profiles', which Batsim has; read are {KINDS}",
            code="log-kind-unknown",
            file=source,
        )
    collected, damaged = _Collected(), DamagedRows(source)
    known: dict[str, float | RowError | None] = {}
    for place, given in enumerate(jobs, 1):
        try:
            collected.add(*_batsim_job(given, profiles, known, place, collected.records))
        except RowError as error:
            damaged.add(place, error, len(collected.jobs))
    nodes = document.get("nb_res")
    header = [f"MaxProcs: {nodes}"] if isinstance(nodes, int) and 0 < nodes <= MOST else []
    return log_of(collected.numbered(), damaged, text.sha256, source, header)


def _batsim_job(
    given: Any,
    profiles: Mapping[str, Any],
    known: dict[str, float | RowError | None],
    place: int,
    records: JobRecords,
) -> tuple[str, JobRecord]:
    if not isinstance(given, dict):
        raise RowError("value-type", f"jobs[{place - 1}] is not an object")
    seconds = _batsim_seconds(str(given.get("profile")), profiles, known)
    if seconds is None:
        records.counts["jobs whose profile is no delay: their run time is unknown"] += 1
    wall = given.get("walltime")
    own = given.get("id")
    if own is not None and (isinstance(own, bool) or not isinstance(own, int | str)):
        raise RowError("value-type", f"{str(own)[:40]!r} is not a name", "id")
    name = f"\0{place}" if own is None else str(own)  # without an id the job gets a unique name
    asked = _plain(given, "res")
    job = JobRecord(
        place, 0, _plain(given, "subtime"), -1.0, -1.0,
        -1.0 if wall is None or wall == -1 else _plain(given, "walltime"),
        asked, asked, 1.0, {}, duration=-1.0 if seconds is None else seconds,
    )  # fmt: skip
    return name, job


def _batsim_seconds(
    name: str,
    profiles: Mapping[str, Any],
    known: dict[str, float | RowError | None],
    depth: int = 0,
) -> float | None:
    """Return the run time of a profile; None if it depends on the platform or on itself.

    Raises
    ------
    RowError
        The profile, or a part of it, lacks a number. Each call for the profile raises it again.
    """
    if name not in known:
        known[name] = None  # for the recursion: a profile that contains itself has no run time
        try:
            known[name] = _batsim_computed(name, profiles, known, depth)
        except RowError as error:
            known[name] = error
    seconds = known[name]
    if isinstance(seconds, RowError):
        raise seconds.with_traceback(None)
    return seconds


def _batsim_computed(
    name: str, profiles: Mapping[str, Any], known: dict[str, float | RowError | None], depth: int
) -> float | None:
    profile = profiles.get(name)
    if not isinstance(profile, dict) or depth > MAX_DEPTH:
        return None
    kind, sequence = profile.get("type"), profile.get("seq")
    if kind == "delay":
        return _plain(profile, "delay")
    if kind in ("composed", "sequential_composition") and isinstance(sequence, list):
        times = next((_plain(profile, key) for key in ("repeat", "nb") if key in profile), 1.0)
        parts = [_batsim_seconds(str(part), profiles, known, depth + 1) for part in sequence]
        total = sum(part for part in parts if part is not None) * times
        return total if None not in parts and total <= MOST else None
    return None


# ------------------------------------------------------------------ parts
_Record = Callable[[str, int, JobRecords], tuple[str, JobRecord] | None]


class _Collected:
    """Jobs by name in the log, before they get numbers."""

    def __init__(self) -> None:
        self.records = JobRecords()
        self.jobs: dict[str, JobRecord] = {}

    def add(self, name: str, job: JobRecord) -> None:
        """Add a job; its last run counts.

        Raises
        ------
        RowError
            The times of the job are not in order.
        """
        if job.submit < 0:
            raise RowError("value-range", "has no time of submission", "submit")
        if 0 <= job.end < job.start:
            raise RowError("value-range", f"{job.end:.0f} lies before the start", "end")
        if name in self.jobs:
            self.records.counts["earlier runs of requeued jobs left out"] += 1
            del self.jobs[name]
        self.jobs[name] = job

    def numbered(self) -> JobRecords:
        """Return the jobs by number: the number in the name, or a new number above all of these."""
        own = {int(last) for name in self.jobs if is_whole(last := name.rpartition("!")[2])}
        free = max(own, default=0)
        renamed = 0
        for name, job in self.jobs.items():
            last = name.rpartition("!")[2]  # Batsim: workload name, !, job id
            if is_whole(last) and int(last) not in self.records.jobs:
                job.number = int(last)
            else:
                free += 1
                renamed += 1
                job.number = free
            self.records.jobs[job.number] = job
        if renamed:
            self.records.counts[
                f"jobs without a number of their own: {free - renamed + 1} and up"
            ] = renamed
        return self.records


def _by_lines(record: _Record, text: StoredText, pieces: Iterator[bytes], source: str) -> Log:
    collected, damaged = _Collected(), DamagedRows(source)
    number = 0
    for piece in pieces:
        for raw in piece.decode("utf-8", "replace").split("\n")[:-1]:
            number += 1
            line = raw.strip()
            if not line or line.startswith("#"):
                continue
            try:
                made = record(line, number, collected.records)
                if made is not None:
                    collected.add(_checked_name(made[0]), made[1])
            except RowError as error:
                damaged.add(number, error, len(collected.jobs))
            except IndexError:
                damaged.add(
                    number, RowError("columns-differ", "ends too early"), len(collected.jobs)
                )
    return log_of(collected.numbered(), damaged, text.sha256, source)


def _checked_name(name: str) -> str:
    if _ID.fullmatch(name) is None:
        raise RowError("value-type", f"{name[:40]!r} is not a number of a job", "job")
    return name


def _number(word: str, name: str) -> float:
    """Return a number of at least 0; -1 for an empty word."""
    if not word:
        return -1.0
    try:
        value = float(word)
    except ValueError:
        value = -2.0
    if not (isfinite(value) and -1 <= value <= MOST):
        raise RowError("value-type", f"{word[:40]!r} is not a number", name)
    return value


def _plain(given: Mapping[str, Any], name: str) -> float:
    value = given.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MOST:
        raise RowError("value-type", f"{str(value)[:40]!r} is not a number of at least 0", name)
    return float(value)


def _seconds(moment: float) -> float:
    """Return a time in seconds: Univa's accounting has milliseconds."""
    return moment / 1e3 if moment > 1e11 else moment


def _clock(word: str, name: str) -> float:
    """Return the seconds of ``hh:mm:ss``, ``mm:ss`` or seconds; -1 without a limit."""
    if not word:
        return -1.0
    parts = word.split(":")
    if len(parts) > 3 or not all(is_whole(part) and len(part) <= 12 for part in parts):
        raise RowError("value-type", f"{word[:40]!r} is not a time like 12:00:00", name)
    seconds = 0
    for part in parts:
        seconds = seconds * 60 + int(part)
    return float(seconds)


def _pbs_slots(host: str) -> float:
    """Return the processors of one entry of ``exec_host``: ``node/0``, ``node/0*8`` or ``node/0-3,6``."""
    _, slash, slots = host.partition("/")
    _, star, times = slots.partition("*")
    if star:
        return max(1.0, _number(times, "exec_host"))
    count = 0.0
    for part in slots.split(",") if slash else []:
        first, dash, last = part.partition("-")
        count += _number(last, "exec_host") - _number(first, "exec_host") + 1 if dash else 1
    if not 0 <= count <= MOST:
        raise RowError("value-type", f"{host[:40]!r} is not a host", "exec_host")
    return max(1.0, count)


def _pbs_request(given: Mapping[str, str]) -> float:
    """Return the processors that a job asked for: ``nodes=2:ppn=8+1:ppn=4``, ``ncpus`` or ``procs``."""
    nodes = given.get("Resource_List.nodes", "")
    if nodes and "Resource_List.select" not in given:
        total = 0.0
        for part in nodes.split("+"):
            count, *more = part.split(":")
            each = next((word[4:] for word in more if word.startswith("ppn=")), "1")
            total += (float(count) if is_whole(count) and len(count) < 9 else 1.0) * max(
                1.0, _number(each, "Resource_List.nodes")
            )
        return total
    for name in ("Resource_List.ncpus", "Resource_List.procs"):
        if given.get(name):
            return _number(given[name], name)
    return -1.0


def _sge_category_end(words: Sequence[str]) -> int:
    """Return the index of the word after the category: a number, then a parallel task or none, then a number."""
    for place in range(40, len(words) - 1):
        task = words[place + 1]
        if (
            (task.casefold() in ("none", "") or _SGE_TASK.fullmatch(task))
            and _SGE_NUMBER.fullmatch(words[place])
            and (place + 2 == len(words) or _SGE_NUMBER.fullmatch(words[place + 2]))
        ):
            return place
    raise RowError("columns-differ", "no parallel task, and no NONE, follows the category")


def _lsf_slots(host: str) -> float:
    count, star, _ = host.partition("*")
    return _number(count, "execHosts") if star else 1.0


def _lsf_index(words: Sequence[str], place: int) -> int:
    """Return the index in a job array; 0 for a job outside an array.

    The index follows the host factor, the job's name, its command, 19 numbers of resource usage, the mail user,
    the project, the exit status, the maximum number of processors, the shell and the time event.
    """
    at = place + 3 + 19 + 6
    word = words[at] if len(words) > at else "0"
    return int(word) if is_whole(word) and len(word) <= 9 else 0
