"""``apples submit | queue | why | drain | resume | history``: what a live scheduler is asked."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, overload

import typer

from apples.cli import options
from apples.cli.options import Json
from apples.cli.program import answers_a_terminal, repaint, say, show, show_answer
from apples.errors import ApplesError, DeadlineError, LaunchError, UsageError, coded
from apples.scheduling.server.client import SchedulerClient, found
from apples.views.queue import (
    OVER,
    history_text,
    queue_text,
    submitted_text,
    swf_lines,
    watched_text,
    what_if_text,
    why_text,
)

WATCH_SECONDS = 2.0
SCHEDULED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\.[0-9]{1,12}")
"""NAME.NUMBER, the id of a scheduler's job."""
AWAY_SECONDS = 600.0
"""For a scheduler that does not answer to come back, while somebody waits for a job of it."""

Scheduler = Annotated[
    str | None,
    typer.Option(
        "--scheduler",
        help="Its directory or https://HOST:PORT; $APPLES_SCHEDULER, or the only one.",
    ),
]
TokenPath = Annotated[
    Path | None,
    typer.Option("--token-file", help="For a URL: file of the token; $APPLES_TOKEN_FILE."),
]
Certificate = Annotated[
    Path | None,
    typer.Option("--certificate", help="For a URL: its authority's; $APPLES_CERTIFICATE."),
]
JobName = Annotated[str, typer.Argument(metavar="JOB", help="Id of the job: NAME.NUMBER.")]
HostName = Annotated[str, typer.Argument(metavar="HOST", help="A host of the scheduler's list.")]


def submit(
    template: options.Template = None,
    user: options.User = None,
    settings: options.Settings = None,
    minimum: Annotated[int, typer.Option("--min", min=1, help="Fewest hosts.")] = 1,
    maximum: Annotated[
        int | None, typer.Option("--max", min=1, help="Most hosts; as many as --min.")
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            "--kind", help="rigid, moldable, malleable, evolving; by the template and the hosts."
        ),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            "--seconds",
            min=0.001,
            help="Estimate of its run time on --max hosts; default: its model's.",
        ),
    ] = None,
    priority: Annotated[float, typer.Option("--priority", help="The larger, the sooner.")] = 0.0,
    after: Annotated[
        list[str] | None,
        typer.Option(
            "--after", metavar="JOB", help="Only when this has finished; may be repeated."
        ),
    ] = None,
    weather: options.WeatherName = "live",
    no_verify: Annotated[
        bool, typer.Option("--no-verify", help="Do not check its result.")
    ] = False,
    count_messages: Annotated[
        bool, typer.Option("--count-messages", help="Tell which host sends which how much.")
    ] = False,
    messages: options.Messages = None,
    scheduler: Scheduler = None,
    token_file: TokenPath = None,
    certificate: Certificate = None,
    json: Json = False,
) -> int:
    """Submit a job to the scheduler; when this returns it is on the disk.

    Example: apples submit --template template.toml --min 1 --max 4
    """
    from apples.jobs.submission import JobRequest  # noqa: PLC0415 - for this command only

    client = _client(scheduler, token_file, certificate)
    nothing = Path(os.devnull)  # the scheduler has a list of its own
    _, place, wishes = options.files_of(nothing, template or Path("template.toml"), user)
    body = JobRequest(
        place, wishes, options.settings_of(settings), minimum, maximum, kind, seconds, priority, after or (),
        weather, "none" if no_verify else "auto", count_messages, messages_of(messages),
    ).body()  # fmt: skip
    answer = client.ask("POST", "/v1/jobs", body)
    shown = {key: value for key, value in answer.items() if key != "state"}
    reasons = None
    if answer["state"] not in {"starting", "running"}:
        reasons = _foretold(client, answer["job"])
        shown["start"] = None if reasons is None else reasons["start"]
    show_answer(shown, lambda: submitted_text(answer, reasons), json)
    return 0


def _foretold(client: SchedulerClient, job: str) -> dict[str, Any] | None:
    """Return why a job waits that was just submitted; None: nobody can say, and it is submitted all the same."""
    try:
        return client.ask("GET", f"/v1/jobs/{_named(job)}/why")
    except ApplesError:
        return None


def queue(
    watch: Annotated[
        bool, typer.Option("--watch", help="Again and again, on a terminal, until Ctrl-C.")
    ] = False,
    scheduler: Scheduler = None,
    token_file: TokenPath = None,
    certificate: Certificate = None,
    json: Json = False,
) -> int:
    """Show the scheduler's hosts and jobs.

    Example: apples queue --json
    """
    client = _client(scheduler, token_file, certificate)
    document = client.ask("GET", "/v1/queue")
    if json or not (watch and answers_a_terminal()):
        show_answer(document, lambda: queue_text(document), json)
        return 0
    try:
        while True:
            size = shutil.get_terminal_size()
            repaint(watched_text(document, size.columns, size.lines))
            time.sleep(WATCH_SECONDS)
            try:
                document = client.ask("GET", "/v1/queue")
            except LaunchError as error:
                document = {**document, "trouble": str(error)}
    except KeyboardInterrupt:
        return 0


def why(
    job: JobName,
    scheduler: Scheduler = None,
    token_file: TokenPath = None,
    certificate: Certificate = None,
    json: Json = False,
) -> int:
    """Say why a job waits, and for whom.

    Example: apples why local.17
    """
    client = _client(scheduler, token_file, certificate, job)
    document = client.ask("GET", f"/v1/jobs/{_named(job)}/why")
    show_answer(document, lambda: why_text(document), json)
    return 0


def drain(
    host: HostName,
    scheduler: Scheduler = None,
    token_file: TokenPath = None,
    certificate: Certificate = None,
    json: Json = False,
) -> int:
    """Have a host get no other job; the one that it has stays.

    Example: apples drain ada
    """
    client = _client(scheduler, token_file, certificate)
    document = client.ask("POST", f"/v1/hosts/{_named(host)}/drain")
    show_answer(document, lambda: queue_text(document), json)
    return 0


def resume(
    host: HostName,
    scheduler: Scheduler = None,
    token_file: TokenPath = None,
    certificate: Certificate = None,
    json: Json = False,
) -> int:
    """Have a host that was drained get jobs again.

    Example: apples resume ada
    """
    client = _client(scheduler, token_file, certificate)
    document = client.ask("POST", f"/v1/hosts/{_named(host)}/resume")
    show_answer(document, lambda: queue_text(document), json)
    return 0


def history(
    swf: Annotated[
        bool, typer.Option("--swf", help="In the standard workload format, for apples simulate.")
    ] = False,
    scheduler: Scheduler = None,
    token_file: TokenPath = None,
    certificate: Certificate = None,
    json: Json = False,
) -> int:
    """Show the jobs that are over.

    Example: apples history --swf > log.swf
    """
    document = _client(scheduler, token_file, certificate).ask("GET", "/v1/history")
    if swf:
        show("\n".join(swf_lines(document)))
    else:
        show_answer(document, lambda: history_text(document), json)
    return 0


def what_if(
    policy: Annotated[
        str, typer.Option("--policy", help="As of apples scheduler; the one it has.")
    ] = "",
    option: Annotated[
        list[str] | None, typer.Option("--option", help="Of the policy: NAME=VALUE.")
    ] = None,
    more: Annotated[int, typer.Option("--hosts-more", min=0, help="Hosts that come.")] = 0,
    less: Annotated[int, typer.Option("--hosts-less", min=0, help="Hosts that go.")] = 0,
    minimum: Annotated[
        list[str] | None,
        typer.Option("--minimum", help="JOB=N: a waiting job with fewer hosts; may be repeated."),
    ] = None,
    scheduler: Scheduler = None,
    token_file: TokenPath = None,
    certificate: Certificate = None,
    json: Json = False,
) -> int:
    """Say what would become of the queue under another policy, on more or fewer hosts.

    Example: apples what-if --policy equipartition --hosts-more 2
    """
    if option and not policy:
        raise UsageError(
            f"--option {option[0]}: needs --policy",
            code="option-missing",
            option="--policy",
        )
    body = {
        "policy": policy, "options": options.settings_of(option, "--option"), "hosts_more": more,
        "hosts_less": less, "minimum": _minimums(minimum or ()),
    }  # fmt: skip
    document = _client(scheduler, token_file, certificate).ask("POST", "/v1/whatif", body)
    show_answer(document, lambda: what_if_text(document, time.time()), json)
    return 0


def _minimums(words: Sequence[str]) -> dict[str, int]:
    found = {}
    for word in words:
        job, _, number = word.partition("=")
        if not job or not number.isdecimal():
            raise UsageError(
                f"--minimum {word}: must be JOB=N",
                code="value-invalid",
                option="--minimum",
                value=word,
            )
        found[_named(job)] = int(number[:9])
    return found


def cancel_scheduled(job: str, json: bool) -> int:
    """End a job of a scheduler; returns when it is over."""
    _ask_of(job, "POST", "/cancel")
    document = until_over(job, None)
    show_answer(document, f"{job} is {document['state']}", json)
    return 0


def until_over(job: str, seconds: float | None) -> dict[str, Any]:
    """Return a job of a scheduler that is over, after waiting for that; a scheduler may come back meanwhile.

    Raises
    ------
    DeadlineError
        It is not, after so many seconds.
    LaunchError
        No scheduler has answered for `AWAY_SECONDS`.
    """
    deadline, pause = None if seconds is None else time.monotonic() + seconds, 0.05
    away: float | None = None  # since when nobody answers
    shown = "not known to be over"
    while True:
        try:
            document = _ask_of(job)
        except LaunchError as error:
            if error.code == "scheduler-missing":  # there is no directory: it does not come back
                raise
            if away is None:
                away = time.monotonic()
                say(f"apples: {error}; its jobs go on; asking for {AWAY_SECONDS:g} s more")
            elif time.monotonic() >= away + AWAY_SECONDS:
                raise
        else:
            away, shown = None, document["state"]
            if shown in OVER:
                if document["reason"]:
                    say(f"apples: {job} {shown}: {document['reason']}")
                return document
        if deadline is not None and time.monotonic() >= deadline:
            raise DeadlineError(
                f"{job} is {shown} after {seconds:g} s",
                code="wait-timeout",
                job=job,
                value=shown,
                seconds=seconds,
            )
        time.sleep(pause)
        pause = min(1.0, 1.3 * pause)


def is_scheduled(job: str) -> bool:
    """Whether a word is an id of a scheduler's job: NAME.NUMBER."""
    return SCHEDULED.fullmatch(job) is not None and not Path(job).exists()


def record_of(job: str) -> str:
    """Return the id of a job's record, which for a job of a scheduler is that of its last attempt.

    It is read in the scheduler's log where we may: its jobs have their records also while it does not answer.

    Raises
    ------
    UsageError
        The scheduler is not this one, has no such job, or has not started it yet.
    """
    if not is_scheduled(job):
        return job
    place = found(job=job)
    if isinstance(place, Path) and os.access(place / "journal", os.R_OK):
        from apples.scheduling.server.log import recorded_job  # noqa: PLC0415 - others ask the scheduler

        folder = recorded_job(place, int(job.rpartition(".")[2])).folder
    else:
        folder = str(_ask_of(job)["record"])
    if not folder:
        raise UsageError(
            f"{job} has not been started, and has no record; see: apples why {job}",
            code="job-not-started",
            job=job,
        )
    return folder


@overload
def messages_of(run: str) -> Path: ...


@overload
def messages_of(run: str | None) -> Path | None: ...


def messages_of(run: str | None) -> Path | None:
    """Return the document of a run that ``--messages`` names: a file, or the result of a record.

    Raises
    ------
    UsageError
        There is no such file and no such record, or it cannot be read.
    LaunchError
        There is no such file, and the name is of a job whose scheduler is not there. Transient.
    """
    if run is None:
        return None
    try:
        if Path(run).is_file():
            return Path(run)
    except OSError as error:
        raise UsageError(
            f"--messages: {run[:200]}: {error.strerror}",
            code="file-unreadable",
            option="--messages",
            file=run[:200],
        ) from None
    from apples.jobs import store  # noqa: PLC0415 - most commands ask for no record

    try:
        return store.record(record_of(run)).result
    except (UsageError, LaunchError) as error:
        kind = UsageError if isinstance(error, UsageError) else LaunchError
        raise kind(
            f"--messages: no file of that name, and {error}",
            **{**coded(error), "option": "--messages"},
        ) from None


def resize_scheduled(job: str, hosts: Sequence[str], json: bool) -> int:
    """Have the scheduler order a job to these hosts; returns when it has said what became of it."""
    before = _ask_of(job)
    document = _ask_of(job, "POST", "/resize", {"hosts": list(hosts)})
    while document["state"] in {"resizing", "unsettled"}:
        time.sleep(0.1)
        document = _ask_of(job)
    if document["resizes"] == before["resizes"] and set(document["hosts"]) != set(hosts):
        raise LaunchError(
            f"{job} was not resized, and is {_where(document)}; see: apples queue",
            code="job-not-resized",
            job=job,
            hosts=document["hosts"],
        )
    show_answer(document, f"{job} is {_where(document)}", json)
    return 0


def migrate_scheduled(job: str, source: str, target: str, json: bool) -> int:
    """Have the scheduler move what a job has on one host to another."""
    hosts = _ask_of(job)["hosts"]
    if source not in hosts:
        raise UsageError(
            f"--from {source}: the job is not there (it is on {', '.join(hosts)})",
            code="host-unknown",
            option="--from",
            host=source,
            known=list(hosts),
        )
    if target in hosts:
        raise UsageError(
            f"--to {target}: the job is there already",
            code="host-in-use",
            option="--to",
            host=target,
        )
    return resize_scheduled(job, [target if host == source else host for host in hosts], json)


def _where(document: Mapping[str, Any]) -> str:
    on = f" on {', '.join(document['hosts'])}" if document["hosts"] else ""
    return f"{document['state']}{on}"


def _client(
    scheduler: str | None = None,
    token_file: Path | None = None,
    certificate: Path | None = None,
    job: str = "",
) -> SchedulerClient:
    return SchedulerClient(found(scheduler, job=job), token_file, certificate)


def _ask_of(
    job: str, method: str = "GET", path: str = "", body: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return what the scheduler of a job answers about it."""
    return _client(job=job).ask(method, f"/v1/jobs/{_named(job)}{path}", body)


def _named(word: str) -> str:
    """Return a word that may stand in a path."""
    if not word or len(word) > 80 or set(word) - NAME_LETTERS:
        raise UsageError(
            f"'{word[:80]}': not a name of a job or host", code="name-invalid", value=word[:80]
        )
    return word


NAME_LETTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
