"""`prepare` and `run`: one coordinator from the decision to the lesson; real MPI at the end."""

import json
import os
import sys
from contextlib import nullcontext
from dataclasses import replace
from functools import partial, partialmethod
from pathlib import Path

import pytest
from commands import EXAMPLE, HOSTS, files

from apples import (
    Coordinator,
    NoFeasiblePlanError,
    RecordingActuator,
    Rejection,
    RunSpec,
    UsageError,
    VerificationError,
    run,
)
from apples.agent import (
    PreparedRun,
    Reference,
    VerificationInterrupt,
    launch_plan,
    load_information,
    prepare,
    recall,
)
from apples.io import state
from apples.jobs import list_runs, run_record, store
from apples.jobs import recorder as recording
from apples.launch import Execution, Outcome
from blueprints import compile_time, minimum_execution_time
from nws import Forecast, Weather

FILES = [EXAMPLE / f"{name}.toml" for name in ("hosts", "template", "user")]
SMALL = {"grid": 200, "iterations": 20}
SPEC = RunSpec(*FILES, settings=SMALL, weather="static")


@pytest.fixture(autouse=True)
def own_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", os.environ.get("XDG_CACHE_HOME", str(tmp_path / "cache")))


class Done(Execution):
    """A run that is over."""

    def __init__(self, outcome):
        self._outcome, self.cancelled = outcome, False

    def monitor(self):
        return iter(())

    def outcome(self):
        return self._outcome

    def cancel(self):
        self.cancelled = True


class Instant(RecordingActuator):
    """Runs everything in the time that was predicted, times `late`."""

    def __init__(self, late=1.0):
        super().__init__()
        self.late = late

    def actuate(self, plan):
        super().actuate(plan)
        seconds = self.late * plan.iteration_seconds
        self.execution = Done(Outcome(20, 20 * seconds, 0.1, (), sha256="a" * 64))
        return self.execution


def prepared(blueprint, late=1.0):
    information = load_information(
        *FILES,
        settings=SMALL,
        weather="static",
    )
    sky = Weather(cpu={"ada": Forecast(0.5, 0.05, "mean", 9, 0.0)})
    return blueprint, Coordinator(information.with_weather(sky), Instant(late))


def learned():
    return list(Path(state.directory()).glob("*.json"))


def test_a_run_is_learned_from_whatever_method_chose_it_and_only_if_asked():
    reference = Reference(20, "a" * 64)
    PreparedRun(*prepared(minimum_execution_time), learn=False).execute(reference=reference)
    assert learned() == []
    PreparedRun(*prepared(compile_time)).execute(reference=reference)
    assert len(learned()) == 1


def test_a_run_teaches_how_long_its_hosts_took_to_start():
    for _ in range(3):
        blueprint, coordinator = prepared(minimum_execution_time)
        PreparedRun(blueprint, coordinator, verify=False).execute()
    starts = recall(coordinator.information.learned_key).starts("local")
    assert starts
    assert list(starts.values()) == pytest.approx([0.1] * len(starts), rel=0.02)


def test_a_compile_time_plan_is_started_under_this_moments_weather():
    blueprint, coordinator = prepared(compile_time)
    PreparedRun(blueprint, coordinator, verify=False, learn=False).execute()
    schedule = coordinator.decision_log.chosen.schedule
    assert coordinator.actuator.plans[-1] == launch_plan(schedule, coordinator.information)
    assert coordinator.information.conditions.measured(coordinator.information.hosts["ada"])


def test_a_run_whose_lesson_cannot_be_kept_is_reported_all_the_same(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    run = PreparedRun(*prepared(minimum_execution_time), verify=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    lines = []
    result = run.execute(talk=lines.append)
    assert result.outcome.iterations == 20
    assert f"{tmp_path}/file" in lines[0]


def test_a_different_digest_is_not_verified():
    other = Reference(20, "b" * 64)
    run = PreparedRun(*prepared(minimum_execution_time), learn=False)
    result = run.execute(reference=other)
    assert result.verified is False


def test_what_is_prepared_is_started_as_it_was_decided_and_by_the_actuator_given():
    actuator = Instant()
    prepared = prepare(SPEC, actuator=actuator)
    assert actuator.plans == []
    decisions = []
    result = prepared.execute(
        reference=Reference(20, "a" * 64), decided=lambda *decision: decisions.append(decision)
    )
    ((plan, launch),) = decisions
    (started,) = actuator.plans
    assert launch is started, "the decision is announced with what is started"
    assert {one.host.name: one.rows for one in started.strips} == plan.rows == result.rows
    assert result.measured_seconds == pytest.approx(result.predicted_seconds)
    assert result.verified is True


def test_the_document_of_a_result_has_the_plan_and_the_figures_of_its_properties():
    result = prepare(SPEC, actuator=Instant(late=2.0)).execute(reference=Reference(20, "a" * 64))
    document = result.document()
    assert document["plan"] == result.plan.document()
    execution = document["execution"]
    assert execution["measured_seconds"] == result.measured_seconds
    assert execution["off"] == pytest.approx(1.0)
    assert (document["result_sha256"], document["verified"]) == (result.result_sha256, True)


def test_whatever_stops_who_follows_ends_the_run():
    actuator = Instant()
    prepared = prepare(SPEC, actuator=actuator)

    def follow(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepared.execute(follow=follow)
    assert actuator.execution.cancelled


def test_a_verification_that_is_interrupted_loses_nothing_of_the_run():
    prepared = prepare(SPEC, actuator=Instant())
    with pytest.raises(VerificationInterrupt) as interrupted:
        prepared.execute(reference=Stopped(20, "a" * 64))
    result = interrupted.value.result
    assert result.verified is None
    assert result.measured_seconds == pytest.approx(result.predicted_seconds)


def test_a_run_without_a_plan_raises_the_refusal_and_starts_nothing(tmp_path):
    given = files(tmp_path, hosts=HOSTS.replace("4 GB", "1 kB"))[1::2]
    actuator = Instant()
    prepared, decisions = prepare(RunSpec(*given, weather="static"), actuator=actuator), []
    with pytest.raises(NoFeasiblePlanError) as refused:
        prepared.execute(decided=lambda *decision: decisions.append(decision))
    ((plan, launch),) = decisions
    assert refused.value is plan.refusal
    assert (launch, actuator.plans) == (None, [])


def test_a_blueprint_that_moves_its_run_needs_an_actuator_that_can():
    spec = RunSpec(*FILES, settings=SMALL, weather="static", blueprint="redistribute")
    with pytest.raises(UsageError) as raised:
        prepare(spec, actuator=Instant()).execute()
    assert raised.value.code == "launcher-not-malleable"


def test_a_blueprint_that_moves_its_run_needs_a_malleable_template(tmp_path):
    given = files(tmp_path)[1::2]
    spec = RunSpec(*given, weather="static", blueprint="redistribute", actuator="local")
    with pytest.raises(UsageError) as raised:
        prepare(spec).execute()
    assert raised.value.code == "program-not-malleable"
    assert raised.value.fields["option"] == "--blueprint redistribute"


@pytest.mark.parametrize("blueprint", ["redistribute", "migrate", "decider"])
def test_a_run_whose_hosts_somebody_has_chosen_is_not_moved_by_its_blueprint(blueprint):
    spec = RunSpec(*FILES, settings=SMALL, weather="static", blueprint=blueprint)
    assert prepare(spec, look=False).plan().decisions.policy is not None
    chosen = prepare(replace(spec, on=("ada",)), look=False).plan()
    assert chosen.decisions.policy is None
    assert list(chosen.rows) == ["ada"]


def test_the_command_of_a_prepared_run_is_there_without_starting_it():
    prepared = prepare(SPEC, look=False)
    assert "mpiexec" in " ".join(prepared.command(prepared.plan()).argv)


@pytest.mark.more
@pytest.mark.mpi
def test_a_run_from_python_prints_nothing_and_is_verified(capfd):
    seen = []

    def follow(*_):
        return nullcontext(lambda at: seen.append(at.iteration))

    result = run(replace(SPEC, verify="full"), follow=follow)
    assert result.verified is True
    assert sum(result.rows.values()) == SMALL["grid"]
    assert result.outcome.iterations == SMALL["iterations"]
    assert seen == sorted(seen)
    assert capfd.readouterr() == ("", "")
    kept = run_record(result.record)
    assert (kept.state, kept.document["verified"], kept.document["record"]) == (
        "finished", True, result.record,
    )  # fmt: skip


@pytest.mark.mpi
def test_a_run_from_python_with_functions_of_its_own_is_recorded_under_their_names():
    partial_one = partial(compile_time)
    found = [
        run(replace(SPEC, blueprint=one, verify=False)) for one in (compile_time, partial_one)
    ]
    orders = [
        json.loads((store.folder() / each.record / "order.json").read_text()) for each in found
    ]
    assert [order["blueprint"] for order in orders] == [
        f"{compile_time.__module__}:compile_time", "functools:partial",
    ]  # fmt: skip
    assert orders[0]["command"] == sys.argv


@pytest.mark.mpi
def test_a_run_from_python_takes_filters_and_records_their_names():
    first = next(iter(run(replace(SPEC, verify=False)).rows))
    filtered = replace(SPEC, verify=False, host_filters=(partial(_refuse, first),))
    result = run(filtered)
    assert first not in result.rows
    order = json.loads((store.folder() / result.record / "order.json").read_text())
    assert order["host_filters"] == ["functools:partial"]
    assert "filters" not in order


def _refuse(name, host, _):
    return Rejection((name,), "not today", (0.0, 1.0), "own") if host.name == name else None


class Stopped(Reference):
    """Whose check the user interrupts."""

    def check(self, *_):
        raise KeyboardInterrupt


@pytest.fixture
def run_checked_against(monkeypatch):
    """Return what runs the specification from Python at once, and checks its result against a reference."""

    def checked(reference):
        monkeypatch.setattr(
            recording, "prepare", lambda spec, *_, **__: prepare(spec, actuator=Instant())
        )
        execute = partialmethod(PreparedRun.execute, reference=reference)
        monkeypatch.setattr(PreparedRun, "execute", execute)
        return run(SPEC)

    return checked


def test_a_run_from_python_that_is_wrong_is_returned_and_recorded_as_failed(run_checked_against):
    result = run_checked_against(Reference(20, "b" * 64))
    assert result.verified is False
    kept = run_record(result.record)
    assert (kept.state, kept.document["verified"]) == ("failed", False)
    assert kept.exit_code == VerificationError.exit_code


def test_a_run_from_python_whose_check_is_interrupted_has_its_result_in_the_record(
    run_checked_against,
):
    with pytest.raises(VerificationInterrupt):
        run_checked_against(Stopped(20, "a" * 64))
    (kept,) = list_runs()
    document = run_record(kept["id"]).document
    assert (document["verified"], document["record"]) == (None, kept["id"])
    assert document["execution"]["measured_seconds"] > 0


def test_a_run_from_python_that_has_no_plan_raises_and_is_recorded_as_failed():
    with pytest.raises(NoFeasiblePlanError):
        run(replace(SPEC, settings={"grid": 10**9}))
    (kept,) = list_runs()
    assert (kept["kind"], kept["state"]) == ("run", "failed")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("def __init__(self, *given, **named): pass", "abstract"),
        ("command = actuate = None\n    def __init__(self): pass", "argument"),
    ],
    ids=["abstract", "arguments"],
)
def test_an_actuator_of_the_users_that_cannot_be_made_is_a_usage_error(tmp_path, body, why):
    file = tmp_path / "mine.py"
    file.write_text(f"from apples import Actuator\nclass Mine(Actuator):\n    {body}\n")
    with pytest.raises(UsageError) as raised:
        prepare(RunSpec(*FILES, settings=SMALL, weather="static", actuator=f"{file}:Mine"))
    assert raised.value.code == "launcher-invalid"
    assert raised.value.fields["value"] == f"{file}:Mine"
    assert why in str(raised.value), "what Python wrote"
