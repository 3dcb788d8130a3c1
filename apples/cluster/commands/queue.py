"""``apples submit | queue | why | drain | resume | history``: what a live scheduler is asked."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from apples.agent.commands.options import WeatherName
from apples.cluster.text import (
    history_text,
    queue_text,
    submitted_text,
    swf_lines,
    watched_text,
    what_if_text,
    why_text,
)
from apples.errors import ApplesError, LaunchError, UsageError
from apples.jobs.commands.scheduled import WATCH_SECONDS, checked_name, client_of
from apples.jobs.scheduler_client import SchedulerClient
from apples.topology.options import Messages
from apples.ui import options
from apples.ui.command_line import answers_a_terminal, repaint, show, show_answer
from apples.ui.options import Json

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
    weather: WeatherName = "live",
    no_verify: Annotated[
        bool, typer.Option("--no-verify", help="Do not check its result.")
    ] = False,
    count_messages: Annotated[
        bool, typer.Option("--count-messages", help="Tell which host sends which how much.")
    ] = False,
    messages: Messages = None,
    scheduler: Scheduler = None,
    token_file: TokenPath = None,
    certificate: Certificate = None,
    json: Json = False,
) -> int:
    """Submit a job to the scheduler; when this returns it is on the disk.

    Example: apples submit --template template.toml --min 1 --max 4
    """
    from apples.cluster.submission import JobRequest  # noqa: PLC0415 - for this command only

    client = client_of(scheduler, token_file, certificate)
    nothing = Path(os.devnull)  # the scheduler has a list of its own
    _, place, wishes = options.files_of(nothing, template or Path("template.toml"), user)
    matrix = None
    if messages is not None:
        from apples.topology.message_matrix import messages_of  # noqa: PLC0415 - for this option only

        matrix = messages_of(messages)
    body = JobRequest(
        place, wishes, options.settings_of(settings), minimum, maximum, kind, seconds, priority, after or (),
        weather, "none" if no_verify else "auto", count_messages, matrix,
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
        return client.ask("GET", f"/v1/jobs/{checked_name(job)}/why")
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
    client = client_of(scheduler, token_file, certificate)
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
    client = client_of(scheduler, token_file, certificate, job)
    document = client.ask("GET", f"/v1/jobs/{checked_name(job)}/why")
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
    client = client_of(scheduler, token_file, certificate)
    document = client.ask("POST", f"/v1/hosts/{checked_name(host)}/drain")
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
    client = client_of(scheduler, token_file, certificate)
    document = client.ask("POST", f"/v1/hosts/{checked_name(host)}/resume")
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
    document = client_of(scheduler, token_file, certificate).ask("GET", "/v1/history")
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
    document = client_of(scheduler, token_file, certificate).ask("POST", "/v1/whatif", body)
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
        found[checked_name(job)] = int(number[:9])
    return found
