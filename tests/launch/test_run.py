import os
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from apples.errors import ApplicationError, DeadlineError, LaunchError
from apples.launch import (
    Calibration,
    DoneEvent,
    LaunchCommand,
    Outcome,
    Progress,
    RankGroup,
    Ready,
    Resumed,
    Run,
    command,
)
from apples.launch import calibrate_program as calibrate
from apples.resources import Host


def test_a_run_is_its_events_in_order(job):
    run = job.run()
    ready, progress, outcome, done = run.events()
    run.finish()
    assert ready == Ready(protocol=1, program="fake", version="2", ranks=3)
    assert isinstance(progress, Progress)
    assert [times.host for times in progress.hosts] == ["ada", "bob"]
    assert isinstance(outcome, Outcome)
    assert outcome.sha256 == "0f" * 32
    assert done == DoneEvent()


def test_nothing_is_lost_between_ready_and_the_first_look(job):
    run = job.run()
    run.until_ready()
    assert [type(event) for event in run.events()] == [Progress, Outcome, DoneEvent]
    run.finish()


def test_a_look_at_whether_there_is_progress_loses_none_of_it(job):
    run = job.run()
    assert isinstance(run.until_ready(), Ready)
    assert run.has_progress(60.0)
    events = run.events()
    assert isinstance(next(events), Progress)
    assert run.has_progress(60.0)
    assert [type(event) for event in events] == [Outcome, DoneEvent]
    run.finish()


def test_what_a_look_finds_wrong_is_raised_by_the_events(job):
    order = LaunchCommand(("/bin/sh", "-c", f"echo '{READY}'\necho '{WRONG}'"))
    run = Run(order, [RankGroup("ada", 3, ("true",))], job=job.name, talk=job.talk.append)
    run.until_ready()
    assert run.has_progress(60.0)
    with pytest.raises(ApplicationError) as raised:
        list(run.events())
    assert raised.value.code == "protocol-version"


WRONG = '{"event": "ready", "protocol": 99, "program": "p", "version": "", "ranks": 3}'
RESUMED = '{"event": "resumed", "ranks": 3, "iteration": 40}'
AHEAD = '{"event": "progress", "iteration": 41, "iterations": 90, "seconds": 2.0, "hosts": []}'
DONE = '{"event": "done"}'


@pytest.mark.parametrize(
    ("lines", "seen"),
    [
        ([RESUMED, AHEAD, DONE], [Resumed, Progress, DoneEvent]),
        ([AHEAD, RESUMED, DONE], [Progress, Resumed, DoneEvent]),
    ],
    ids=["the manager first", "the program first"],
)
def test_a_program_that_goes_on_from_a_commit_need_not_be_ready_again(job, lines, seen):
    order = LaunchCommand(("/bin/sh", "-c", "\n".join(f"echo '{line}'" for line in lines)))
    groups = [RankGroup("ada", 3, ("true",))]
    run = Run(order, groups, job=job.name, talk=job.talk.append, managed=True, resumes=True)
    assert run.until_ready() is None
    assert [type(event) for event in run.events()] == seen
    run.finish()


def test_only_a_run_that_resumes_takes_that_word(job):
    order = LaunchCommand(("/bin/sh", "-c", f"echo '{RESUMED}'\necho '{AHEAD}'"))
    run = Run(order, [RankGroup("ada", 3, ("true",))], job=job.name, talk=job.talk.append)
    with pytest.raises(ApplicationError) as raised:
        run.until_ready()
    assert (raised.value.code, raised.value.fields["event"]) == ("protocol-violated", "progress")


LAST_WORDS = [f"the last of {n}" for n in range(40)]
TALKS = "\n".join(f"echo '{line}' >&2" for line in LAST_WORDS)
READY = '{"event": "ready", "protocol": 1, "program": "p", "version": "", "ranks": 3}'


@pytest.mark.parametrize("first", ["the talk", "done"])
@pytest.mark.parametrize(
    "end", [DONE, '{"event": "progress", "iteration": -1}'], ids=["", "wrong"]
)
def test_what_came_with_the_last_event_is_passed_on_whichever_pipe_is_read_first(
    job, tmp_path, first, end
):
    done = f"echo '{end}'"
    both = (TALKS, done) if first == "the talk" else (done, TALKS)
    lines = (f"echo '{READY}'", "read -r _ <go", *both, "echo said >said", "read -r _ <go")
    for name in ("go", "said"):
        os.mkfifo(tmp_path / name)
    order = LaunchCommand(("/bin/sh", "-c", "\n".join((f"cd '{tmp_path}'", *lines))))
    groups = [RankGroup("ada", 3, ("true",))]
    run = Run(order, groups, job=job.name, talk=job.talk.append, managed=True)
    with (tmp_path / "go").open("r+b", buffering=0) as go:
        run.until_ready()
        go.write(b"on\n")
        assert (
            tmp_path / "said"
        ).read_text() == "said\n"  # nothing of it is read before all is there
        with suppress(ApplicationError):
            list(run.events())
        go.write(b"on\n")
        run.finish()
    assert job.talk == LAST_WORDS


def test_talk_is_passed_through_and_bounded(job):
    run = job.run(how="babbles")
    assert isinstance(list(run.events())[-1], DoneEvent)
    run.finish()
    longest, *others = job.talk
    assert len(longest) == 65537
    assert others == ["\x1b[31mred", '{"event": "weather"}', '{"event": 3}', "[]", "{", "��"]


@pytest.mark.parametrize(
    ("how", "error", "code", "fields"),
    [
        (
            "dies early",
            LaunchError,
            "program-not-ready",
            {"reason": "rank-ended", "exit_status": 1, "last_words": "no licence"},
        ),
        (
            "wrong field",
            ApplicationError,
            "event-invalid",
            {"event": "progress", "field": "seconds"},
        ),
        ("foreign host", ApplicationError, "protocol-violated", {"host": "eve"}),
        (
            "no done",
            ApplicationError,
            "program-failed",
            {"reason": "program-ended", "launcher_end": "0"},
        ),
    ],
)
def test_a_failure_is_named_by_code_and_fields(job, how, error, code, fields):
    with pytest.raises(error) as raised:
        list(job.run(how=how).events())
    assert raised.value.code == code
    assert fields.items() <= raised.value.fields.items()
    assert "\n" not in str(raised.value)


def test_a_program_that_ends_well_without_the_protocol_is_told_apart(job):
    order = LaunchCommand(("/bin/sh", "-c", "echo computed"))
    run = Run(order, [RankGroup("ada", 3, ("true",))], job=job.name, talk=job.talk.append)
    with pytest.raises(LaunchError) as raised:
        run.until_ready()
    assert raised.value.code == "program-not-ready"
    assert raised.value.fields["reason"] == "protocol-missing"
    assert "apples doctor --program" in str(raised.value)


def test_an_error_names_its_rank_and_host(job):
    with pytest.raises(ApplicationError) as raised:
        job.run(how="refuses").until_ready()
    fields = raised.value.fields
    assert (raised.value.code, fields["reason"]) == ("program-failed", "program-error")
    assert (fields["program"], fields["text"]) == ("fake.py", "no parameter 'depth'")
    assert (fields["rank"], fields["host"]) in {(0, "ada"), (1, "ada"), (2, "bob")}


def test_code_of_a_program_is_that_of_its_error(job):
    line = '{"event": "error", "message": "too small", "code": "grid-too-small", "rank": 0}'
    order = LaunchCommand(("/bin/sh", "-c", f"echo '{line}'"))
    run = Run(order, [RankGroup("ada", 3, ("true",))], job=job.name, talk=job.talk.append)
    with pytest.raises(ApplicationError) as raised:
        run.until_ready()
    assert raised.value.code == "grid-too-small"
    assert raised.value.fields["text"] == "too small"


def test_another_protocol_is_refused(job):
    with pytest.raises(ApplicationError) as raised:
        job.run(protocol=2).until_ready()
    assert raised.value.code == "protocol-version"
    assert raised.value.fields == {"value": 2, "known": [1]}


def test_a_program_that_is_never_ready_is_ended(job):
    with pytest.raises(LaunchError) as raised:
        job.run(how="never ready", startup_seconds=0.3).until_ready()
    assert (raised.value.code, raised.value.fields["seconds"]) == ("startup-timeout", 0.3)
    assert job.is_gone()


def test_a_silent_program_is_ended(job):
    with pytest.raises(DeadlineError) as raised:
        list(job.run(how="silent", silence_seconds=0.3).events())
    assert (raised.value.code, raised.value.fields["seconds"]) == ("program-silent", 0.3)
    assert job.is_gone()


def test_done_is_success_even_if_a_rank_stays(job):
    run = job.run(how="lingers", deadlines={"farewell_seconds": 0.1})
    assert isinstance(list(run.events())[-1], DoneEvent)
    run.finish()
    assert job.is_gone()


def test_a_program_that_does_not_exist_is_no_run(job):
    rank_groups = [RankGroup("ada", 1, ("/no/such/solver", "-x"))]
    run = Run(
        command(rank_groups, job.task(rank_groups)),
        rank_groups,
        job=job.name,
        talk=job.talk.append,
    )
    with pytest.raises(LaunchError) as raised:
        run.until_ready()
    assert raised.value.code == "program-not-ready"
    assert "ada: /no/such/solver: " in raised.value.fields["last_words"]


def test_a_cpu_that_does_not_exist_is_no_host(job):
    rank_groups = [RankGroup("ada", 1, (sys.executable, "-c", ""), cpus=(65535,))]
    run = Run(
        command(rank_groups, job.task(rank_groups)),
        rank_groups,
        job=job.name,
        talk=job.talk.append,
    )
    with pytest.raises(LaunchError) as raised:
        run.until_ready()
    assert raised.value.code == "program-not-ready"
    assert "ada: CPUs 65535: " in raised.value.fields["last_words"]


def test_a_launcher_that_does_not_exist_is_no_run(job):
    rank_groups = [RankGroup("ada", 1, ("true",))]
    run = Run(
        LaunchCommand(("/no/such/mpiexec",)), rank_groups, job=job.name, talk=job.talk.append
    )
    with pytest.raises(LaunchError) as raised:
        run.until_ready()
    assert raised.value.code == "program-not-ready"
    assert "/no/such/mpiexec: " in raised.value.fields["last_words"]


DECIDES_LATE = """
trap 'echo "apples: job 7: the time limit of 90 minutes ended it" >&2; exit 124' TERM
echo '{"event": "error", "message": "asked to end by SIGTERM", "rank": 0}'
sleep 60 & wait
"""


@pytest.mark.parametrize(
    ("limit_code", "error", "code", "fields"),
    [
        (124, DeadlineError, "time-limit", {"minutes": 90.0}),
        (None, ApplicationError, "program-failed", {"text": "asked to end by SIGTERM"}),
        (3, ApplicationError, "program-failed", {"text": "asked to end by SIGTERM"}),
    ],
)
def test_a_time_limit_is_why_a_run_ended_whatever_its_ranks_said_first(
    job, limit_code, error, code, fields
):
    order = LaunchCommand(("/bin/sh", "-c", DECIDES_LATE))
    rank_groups = [RankGroup("ada", 1, ("true",))]
    run = Run(
        *(order, rank_groups),
        job=job.name,
        talk=job.talk.append,
        limit_code=limit_code,
        grace=job.patience,
    )
    with pytest.raises(error) as raised:
        run.until_ready()
    assert raised.value.code == code
    assert fields.items() <= raised.value.fields.items()
    assert "last_words" not in raised.value.fields
    assert job.is_gone()


def test_cancelling_twice_is_cancelling_once(job):
    run = job.run(how="silent")
    run.until_ready()
    run.cancel()
    assert not job.processes()
    run.cancel()
    assert list(run.events()) == []


def test_cgroups_that_cannot_be_made_end_the_run(job):
    def refuse():
        raise LaunchError("no", code="quota-refused")

    rank_groups = [RankGroup("ada", 1, ("true",))]
    with pytest.raises(LaunchError) as raised:
        Run(command(rank_groups, {}), rank_groups, job=job.name, prepare=refuse)
    assert raised.value.code == "quota-refused"
    assert job.is_gone()


@pytest.mark.mpi
def test_a_real_program_is_calibrated(job):
    program = (sys.executable, str(Path(__file__).with_name("programs") / "ring.py"))
    found = calibrate(Host("ada", cpus=(0,)), program, "plain", {}, (10, 20), talk=job.talk.append)
    assert found == (Calibration(10, 2e-9, 0.0, 5), Calibration(20, 2e-9, 0.0, 5))


FLOODS = "while :; do echo more >&2; done"
CALIBRATES = READY.replace('"ranks": 3', '"ranks": 1')
SIZE = (
    '{"event": "calibration", "rows": 10, "seconds_per_point": 1e-9, "error": 0.0, "repeats": 1}'
)


def calibrated_by(lines, job, seconds, **limits):
    program = ("/bin/sh", "-c", lines)
    return calibrate(
        Host("ada"), program, "plain", {}, (10, 20), silence_seconds=seconds, talk=job.talk.append,
        **limits,
    )  # fmt: skip


@pytest.mark.mpi
@pytest.mark.parametrize("lines", ["exec tail -f /dev/null", FLOODS], ids=["silent", "floods"])
def test_a_program_that_is_never_ready_to_be_calibrated_is_ended_in_time(job, lines):
    with pytest.raises(LaunchError) as raised:
        calibrated_by(lines, job, 2.0)
    assert (raised.value.code, raised.value.fields["seconds"]) == ("startup-timeout", 2.0)
    assert "no rank was ready within 2" in str(raised.value)
    assert len(job.talk) <= 21, "what it prints is cut"
    if lines == FLOODS:
        assert "its last words: more" in str(raised.value)


@pytest.mark.more
@pytest.mark.mpi
def test_the_sizes_that_came_before_a_program_stood_still_are_taken(job):
    lines = f"echo '{CALIBRATES}'; echo '{SIZE}'; {FLOODS}"
    found = calibrated_by(lines, job, 5.0, within_seconds=5.0)
    assert found == (Calibration(10, 1e-9, 0.0, 1),)


@pytest.mark.parametrize("rest", ["exec tail -f /dev/null", FLOODS.replace(">&2", "")])
def test_a_program_may_be_held_to_events_whatever_it_prints(job, rest):
    order = LaunchCommand(("/bin/sh", "-c", f"echo '{READY}'; {rest}"))
    groups = [RankGroup("ada", 3, ("true",))]
    run = Run(
        order, groups, job=job.name, talk=job.talk.append, managed=True, most_lines=3,
        event_seconds=0.2,
    )  # fmt: skip
    with pytest.raises(DeadlineError) as raised:
        list(run.events())
    assert (raised.value.code, raised.value.fields["seconds"]) == ("program-silent", 0.2)
    assert job.talk in ([], [*["more"] * 3, "note: more lines of true are not shown"])


@pytest.mark.mpi
def test_a_program_that_runs_where_it_is_to_calibrate_is_told_so_once(job):
    outcome = '{"event": "progress", "iteration": 1, "iterations": 1, "seconds": 1.0, "hosts": []}'
    with pytest.raises(ApplicationError) as raised:
        calibrated_by(f"echo '{CALIBRATES}'; echo '{outcome}'", job, job.patience)
    assert raised.value.code == "calibration-missing"
    assert str(raised.value) == "ran the application in mode 'calibrate'"
