"""``apples submit | queue | drain | undrain``: the commands of a live scheduler."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from apples.agent.commands.options import weather_name_option
from apples.cluster.documents import NOT_DECIDED
from apples.cluster.text import (
    history_text,
    prediction_text,
    queue_text,
    replay_text,
    submitted_text,
    swf_lines,
    watched_text,
    what_if_text,
    why_text,
)
from apples.errors import ApplesError, LaunchError, UsageError, VerificationError
from apples.jobs.commands.scheduled import (
    WATCH_SECONDS,
    checked_name,
    client_of,
    scheduler_options,
)
from apples.jobs.scheduler_client import SchedulerClient
from apples.topology.commands.options import messages_option
from apples.ui import options
from apples.ui.command_line import answers_a_terminal, command, repaint, show, show_answer
from apples.ui.options import json_option
from apples.ui.parameters import NUMBER, Excludes, Requires, argument, integer, number, option

if TYPE_CHECKING:
    from apples.cluster.documents import (
        HistoryDocument,
        PredictionDocument,
        QueueDocument,
        SubmittedAnswer,
        WaitingDocument,
        WhatIfDocument,
    )

host_name_argument = argument("host", metavar="HOST", help="A host of the scheduler's list.")


@command(rules=(Excludes("--dry-run", "--after"),))
@options.template_option
@options.user_option
@options.settings_option
@option("--min", "minimum", type=integer(1), default=1, help="Fewest hosts.")
@option("--max", "maximum", type=integer(1), help="Most hosts; default: --min.")
@option(
    "--kind",
    metavar="NAME",
    help="rigid, moldable, malleable or evolving; default: from the template and the hosts.",
)
@option(
    "--seconds",
    metavar="SECONDS",
    type=number(0.001),
    help="Estimated run time on --max hosts; default: the estimate of the application's model.",
)
@option("--priority", type=NUMBER, default=0.0, help="Jobs of larger priority start sooner.")
@option(
    "--after",
    multiple=True,
    metavar="JOB",
    help="Start only after this job has finished; may be repeated.",
)
@weather_name_option
@option("--no-verify", is_flag=True, help="Do not check its result.")
@option(
    "--count-messages",
    is_flag=True,
    help="Record the messages and bytes between each pair of hosts.",
)
@messages_option
@option(
    "--require",
    metavar="CPUSET[..]",
    default="",
    help="CPUs that the topology daemon of each of its hosts must give it.",
)
@option("--dry-run", is_flag=True, help="Print predicted start and finish; submit nothing.")
@json_option
@scheduler_options
def submit(
    template: Path | None,
    user: Path | None,
    settings: tuple[str, ...],
    minimum: int,
    maximum: int | None,
    kind: str | None,
    seconds: float | None,
    priority: float,
    after: tuple[str, ...],
    weather: str,
    no_verify: bool,
    count_messages: bool,
    messages: str | None,
    require: str,
    dry_run: bool,
    json: bool,
) -> int:
    """Submit a job to the scheduler; when this returns it is on the disk.

    Example: apples submit --template template.toml --min 1 --max 4
    """
    from apples.cluster.submission import JobRequest  # noqa: PLC0415 - for this command only

    client = client_of()
    nothing = Path(os.devnull)  # the scheduler has its own host list
    _, place, wishes = options.files_of(nothing, template or Path("template.toml"), user)
    matrix = None
    if messages is not None:
        from apples.topology.message_matrix import messages_of  # noqa: PLC0415 - for this option only

        matrix = messages_of(messages)
    body = JobRequest(
        place, wishes, options.settings_of(settings), minimum, maximum, kind, seconds, priority, after or (),
        weather, "none" if no_verify else "auto", count_messages, matrix, require,
    ).body()  # fmt: skip
    if dry_run:
        found: PredictionDocument = client.ask("POST", "/v1/prediction", body)
        show_answer(found, lambda: prediction_text(found), json)
        return 0
    answer = _decided(client, client.ask("POST", "/v1/jobs", body))
    shown = {key: value for key, value in answer.items() if key != "state"}
    reasons = None
    if answer["state"] not in {"starting", "running"}:
        reasons = _foretold(client, answer["job"])
        shown["start"] = None if reasons is None else reasons["start"]
    show_answer(shown, lambda: submitted_text(answer, reasons), json)
    return 0


def _decided(client: SchedulerClient, answer: SubmittedAnswer) -> SubmittedAnswer:
    """Return the answer to a submission after the pass that decides on the job, if that pass comes soon."""
    deadline = time.monotonic() + DECISION_SECONDS
    while answer["reason"].startswith(NOT_DECIDED) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
        with contextlib.suppress(ApplesError):  # the submission has succeeded in any case
            job = client.ask("GET", f"/v1/jobs/{checked_name(answer['job'])}")
            answer = {**answer, "state": job["state"], "reason": job["reason"]}
    return answer


def _foretold(client: SchedulerClient, job: str) -> WaitingDocument | None:
    """Return the answer on a newly submitted, waiting job; None: not available, but the job is submitted."""
    try:
        why: WaitingDocument = client.ask("GET", f"/v1/jobs/{checked_name(job)}/why")
    except ApplesError:
        return None
    return why


DECISION_SECONDS, POLL_SECONDS = 1.0, 0.01
"""Time limit and poll interval of the wait for the first pass after a submission."""
WHAT_IF = ("--policy", "--hosts-more", "--hosts-less", "--minimum")
"""Options of ``apples queue --what-if``."""


@command(
    rules=(
        Excludes("JOB", "--watch", "--all", "--what-if", "--replay"),
        Excludes("--swf", "--json"),
        Requires("--swf", "--all"),
        Excludes("--watch", "--json"),
        *(Requires(name, "--what-if") for name in WHAT_IF),
        Requires("--option", "--policy"),
    )
)
@argument("job", required=False, metavar="JOB", help="Print the reason why this job waits.")
@option("--watch", is_flag=True, help="Repeat on a terminal until Ctrl-C.")
@option("--all", "history", is_flag=True, help="Print the ended jobs.")
@option("--replay", is_flag=True, help="Make the decisions of the log again, and compare them.")
@option("--swf", is_flag=True, help="With --all: in the standard workload format.")
@option("--what-if", is_flag=True, help="Predict the queue under another policy or set of hosts.")
@option(
    "--policy", metavar="NAME", default="", help="With --what-if: a policy of apples scheduler."
)
@option(
    "--option", metavar="NAME=VALUE", multiple=True, help="With --policy: an option of the policy."
)
@option(
    "--hosts-more",
    "more",
    type=integer(0),
    default=0,
    help="With --what-if: number of hosts to add.",
)
@option(
    "--hosts-less",
    "less",
    type=integer(0),
    default=0,
    help="With --what-if: number of hosts to remove.",
)
@option(
    "--minimum",
    metavar="JOB=N",
    multiple=True,
    help="With --what-if: the fewest hosts of a waiting job.",
)
@json_option
@scheduler_options
def queue(
    job: str | None,
    watch: bool,
    history: bool,
    replay: bool,
    swf: bool,
    what_if: bool,
    policy: str,
    option: tuple[str, ...],
    more: int,
    less: int,
    minimum: tuple[str, ...],
    json: bool,
) -> int:
    """Print the hosts and jobs of the scheduler, why a job waits, a prediction, or a replay of its log.

    Example: apples queue; apples queue local.17; apples queue --what-if --policy equipartition --hosts-more 2
    """
    client = client_of(job or "")
    if replay:
        return _replay(client, json)
    if job is not None:
        why: WaitingDocument = client.ask("GET", f"/v1/jobs/{checked_name(job)}/why")
        show_answer(why, lambda: why_text(why), json)
    elif history:
        past: HistoryDocument = client.ask("GET", "/v1/history")
        while past["next"]:
            page: HistoryDocument = client.ask("GET", f"/v1/history?after={past['next']}")
            past["jobs"] += page["jobs"]
            past["next"] = page["next"]
        if swf:
            show("\n".join(swf_lines(past)))
        else:
            show_answer(past, lambda: history_text(past), json)
    elif what_if:
        body = {
            "policy": policy, "options": options.settings_of(option, "--option"), "hosts_more": more,
            "hosts_less": less, "minimum": _minimums(minimum),
        }  # fmt: skip
        future: WhatIfDocument = client.ask("POST", "/v1/whatif", body)
        show_answer(future, lambda: what_if_text(future, time.time()), json)
    else:
        document: QueueDocument = client.ask("GET", "/v1/queue")
        if watch and answers_a_terminal():
            _watch(client, document)
        else:
            show_answer(document, lambda: queue_text(document), json)
    return 0


def _replay(client: SchedulerClient, json: bool) -> int:
    """Print the replay of the scheduler's log; exit code 6 if it differs."""
    from apples.cluster.replay_verb import replay_document  # noqa: PLC0415 - for this option only

    if not isinstance(client.place, Path):
        raise UsageError(
            "--replay: reads the log, which is on the scheduler's machine; name a directory",
            code="option-not-applicable", option="--replay", value=str(client.place),
        )  # fmt: skip
    document = replay_document(client.place)
    show_answer(document, lambda: replay_text(document), json)
    return VerificationError.exit_code if document["difference"] else 0


def _watch(client: SchedulerClient, document: QueueDocument) -> None:
    """Repaint the queue until Ctrl-C."""
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            size = shutil.get_terminal_size()
            repaint(watched_text(document, size.columns, size.lines))
            time.sleep(WATCH_SECONDS)
            try:
                document = client.ask("GET", "/v1/queue")
            except LaunchError as error:
                document = {**document, "trouble": str(error)}


@command()
@host_name_argument
@json_option
@scheduler_options
def drain(host: str, json: bool) -> int:
    """Stop scheduling jobs on a host; its present job stays.

    Example: apples drain ada
    """
    client = client_of()
    document: QueueDocument = client.ask("POST", f"/v1/hosts/{checked_name(host)}/drain")
    show_answer(document, lambda: queue_text(document), json)
    return 0


@command()
@host_name_argument
@json_option
@scheduler_options
def undrain(host: str, json: bool) -> int:
    """Schedule jobs on a drained host again.

    Example: apples undrain ada
    """
    client = client_of()
    document: QueueDocument = client.ask("POST", f"/v1/hosts/{checked_name(host)}/resume")
    show_answer(document, lambda: queue_text(document), json)
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
