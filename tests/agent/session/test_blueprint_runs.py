"""A blueprint is executed against the application that it starts: its progress, its moves, its failures."""

import hashlib
import threading
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from agent.rescheduling.test_redistribute import PlayedActuator, arriving, pool
from commands import EXAMPLE

from apples import (
    Coordinator,
    LaunchError,
    NoFeasiblePlanError,
    RunSpec,
    UsageError,
    run,
)
from apples.agent import PreparedRun, prepare
from apples.errors import failure_of
from apples.io import resolve
from apples.launch import Execution, Finding, Fitness

GUIDE = EXAMPLE.parent / "blueprints" / "leave_slow_hosts.py"


WAIT_SECONDS = 60.0


class Actuator(PlayedActuator):
    """Starts played jobs; counts them, and notes whether one was cancelled.

    If `live`, a job has its next message at once, and does not answer after its end.
    """

    def __init__(self, **options):
        super().__init__(**{"slowness": lambda *_: 1.0, **options})
        self.started, self.cancelled, self.unfit, self.rigid = 0, False, {}, False
        self.live = False

    def look(self, survey):
        return {name: one for name, one in self.unfit.items() if name not in survey.findings}

    def actuate(self, plan):
        self.started += 1
        execution = super().actuate(plan)
        execution.cancel = self.cancel
        if self.live:
            execution.has_progress = lambda _: True
            execution.position = partial(self.position, execution)
        if self.rigid:
            execution.position = lambda seconds=0.0: Execution.position(execution, seconds)
        return execution

    def cancel(self):
        self.cancelled = True

    def position(self, execution, seconds=0.0):
        if execution.iteration == execution.iterations:
            raise LaunchError("job 1 gave no answer; see: apples jobs 1", code="job-unanswered")
        return type(execution).position(execution)


def fastest(coordinator):
    schedules = map(coordinator.plan, coordinator.select_resources())
    return coordinator.best(
        coordinator.estimate(each) for each in schedules if coordinator.is_feasible(each)
    )


def single(coordinator, name):
    """The estimate of one host that has all rows."""
    host = coordinator.information.hosts[name]
    return coordinator.estimate(coordinator.plan((host,)))


@pytest.fixture
def started(tmp_path):
    """Return a run of a blueprint on played hosts, its actuator, and what was seen of it."""

    def start(blueprint, most=1, seconds=20.0, **options):
        actuator = Actuator(**options)
        coordinator = Coordinator(
            pool(tmp_path, most, seconds), actuator, clock=lambda: actuator.execution.now
        )
        run = PreparedRun(blueprint, coordinator, "mine", verify=False, learn=False)
        return run, actuator

    return start


@pytest.fixture
def leave_slow_hosts():
    """Return the blueprint of the guide, loaded as a user's is."""
    return resolve(f"{GUIDE}:leave_slow_hosts", {}, "blueprint", ("coordinator",))


def watching(seen):
    return lambda *_: nullcontext(lambda progress: seen.append(progress.iteration))


def test_what_the_blueprint_and_then_the_session_receives_is_followed_once_each_in_order(started):
    mine, seen = [], []

    def blueprint(coordinator):
        execution = coordinator.actuate(fastest(coordinator))
        for progress in coordinator.monitor(execution):
            mine.append(progress.iteration)
            assert seen == mine, "the follower has it when the blueprint has it"
            if len(mine) == 5:
                break
        for progress in coordinator.monitor(execution):
            mine.append(progress.iteration)
            if len(mine) == 9:
                break
        return execution

    run, actuator = started(blueprint)
    result = run.execute(follow=watching(seen))
    assert mine == seen[:9]
    assert seen == sorted(set(seen))
    assert len(seen) > 20
    assert actuator.started == 1
    assert not result.moved


def test_a_blueprint_that_follows_its_run_to_the_end_needs_no_more(started):
    def blueprint(coordinator):
        execution = coordinator.actuate(fastest(coordinator))
        assert execution.outcome().iterations > 0

    run, _ = started(blueprint)
    assert run.execute().outcome.iterations > 0


@pytest.mark.parametrize("returned", ["x", True, 3.5])
def test_what_a_blueprint_returns_beside_its_execution_is_said_and_its_run_followed(
    started, returned
):
    def blueprint(coordinator):
        coordinator.actuate(fastest(coordinator))
        return returned

    run, actuator = started(blueprint)
    told = []
    assert run.execute(talk=told.append).outcome.iterations > 0
    assert [line for line in told if f"'mine' returned {returned!r}" in line] == told[:1]
    assert told[0].startswith("warning: ")
    assert not actuator.cancelled


def test_what_is_no_execution_cannot_be_followed(started):
    def blueprint(coordinator):
        execution = coordinator.actuate(fastest(coordinator))
        coordinator.monitor("x")
        return execution

    run, actuator = started(blueprint)
    with pytest.raises(UsageError, match="got 'x'") as refused:
        run.execute()
    assert (refused.value.code, refused.value.fields["field"]) == ("value-type", "execution")
    assert actuator.cancelled


def test_the_decision_is_announced_once_and_before_anything_runs(started):
    run, actuator = started(lambda coordinator: coordinator.actuate(fastest(coordinator)))
    announced = []
    result = run.execute(
        decided=lambda plan, launch: announced.append((plan, launch, actuator.started))
    )
    ((plan, launch, before),) = announced
    assert before == 0
    assert result.plan is plan
    assert {one.host.name: one.rows for one in launch.strips} == plan.rows


def test_what_a_blueprint_decides_later_is_not_the_plan_of_the_run(started):
    def blueprint(coordinator):
        execution = coordinator.actuate(fastest(coordinator))
        slower = coordinator.information.with_what_if(slowdown={"ada": 5.0})
        fastest(coordinator.under(slower))
        return execution

    run, _ = started(blueprint)
    result = run.execute()
    assert list(result.rows) == ["ada"]
    assert result.document()["plan"]["chosen"]["hosts"] == ["ada"]


def impatient(seen):
    """Follow a run; its blueprint has no time to work on after the end."""

    def follow(_, run):
        run.patience_seconds = 0.0
        return nullcontext(lambda progress: seen.append(progress.iteration))

    return follow


def test_progress_and_end_are_followed_while_a_blueprint_does_not_return(started):
    seen, lines, warned = [], [], threading.Event()

    def blueprint(coordinator):
        coordinator.actuate(fastest(coordinator))
        assert warned.wait(WAIT_SECONDS)
        assert len(seen) > 20

    def talk(line):
        lines.append(line)
        warned.set()

    run, actuator = started(blueprint)
    actuator.live = True
    result = run.execute(talk=talk, follow=impatient(seen))
    assert lines == ["warning: the application has ended; blueprint mine still runs"]
    assert seen == sorted(set(seen))
    assert result.outcome.iterations == actuator.execution.iterations


def test_messages_read_before_a_blueprint_asks_are_its_messages_all_the_same(started):
    mine, seen, came = [], [], threading.Event()

    def blueprint(coordinator):
        execution = coordinator.actuate(fastest(coordinator))
        assert came.wait(WAIT_SECONDS)
        mine.extend(progress.iteration for progress in coordinator.monitor(execution))

    @contextmanager
    def follow(*_):
        def received(progress):
            seen.append(progress.iteration)
            came.set()

        yield received

    run, actuator = started(blueprint)
    actuator.live = True
    run.execute(follow=follow)
    assert mine == seen == sorted(set(seen))
    assert len(mine) > 20


def test_a_follower_that_fails_while_a_blueprint_works_ends_the_run(started):
    failed = threading.Event()

    def blueprint(coordinator):
        execution = coordinator.actuate(fastest(coordinator))
        assert failed.wait(WAIT_SECONDS)
        return execution

    def received(_):
        failed.set()
        raise OSError("no room")

    run, actuator = started(blueprint)
    actuator.live = True
    with pytest.raises(OSError, match="no room"):
        run.execute(follow=lambda *_: nullcontext(received))
    assert actuator.cancelled


@pytest.mark.parametrize("read", [True, False], ids=["end was read", "end was not read"])
def test_a_move_after_the_end_says_so_and_the_run_counts(read, started):
    errors, lines = [], []

    def blueprint(coordinator):
        execution = coordinator.actuate(fastest(coordinator), movable=True)
        target = single(coordinator, "bob")
        if read:
            assert execution.outcome().iterations > 0
        else:
            actuator.execution.disturb(float("inf"))
        try:
            coordinator.resize(execution, target)
        except LaunchError as error:
            errors.append((error.code, str(error)))
            raise

    run, actuator = started(blueprint)
    actuator.live = True
    result = run.execute(talk=lines.append)
    assert errors == [("job-ended", "the job finished first")]
    assert lines == ["warning: mine: a move came too late: the job finished first"]
    assert result.outcome.iterations == actuator.execution.iterations
    assert not actuator.cancelled


def test_a_move_of_a_blueprint_is_made_and_recorded_with_its_reason_and_seconds(started):
    lines = []

    def blueprint(coordinator):
        execution = coordinator.actuate(fastest(coordinator), movable=True)
        for progress in coordinator.monitor(execution):
            if progress.seconds > 3 and not execution.moved:
                target = single(coordinator, "bob")
                assert coordinator.resize(execution, target, "I like bob").seconds > 0
                assert coordinator.resize(execution, target).seconds == 0.0, "it is there already"
        return execution

    run, actuator = started(blueprint)
    result = run.execute(talk=lines.append)
    assert result.moved
    (move,) = result.document()["execution"]["redistributions"]
    assert (move["moved"], move["breach"], move["hosts"]) == (True, "I like bob", ["bob"])
    assert move["resize_seconds"] > 0
    assert any("I like bob" in line for line in lines)
    assert actuator.execution.rows == {"bob": 1000}


def test_a_move_that_is_not_worth_its_cost_is_recorded_and_not_made(started):
    def blueprint(coordinator):
        execution = coordinator.actuate(fastest(coordinator), movable=True)
        next(coordinator.monitor(execution))
        equal = single(coordinator, "bob")
        assert coordinator.resize(execution, equal, "a look", worth=2.0).seconds == 0.0
        return execution

    run, actuator = started(blueprint)
    result = run.execute()
    (stay,) = result.document()["execution"]["redistributions"]
    assert (stay["moved"], stay["breach"]) == (False, "a look")
    assert stay["gain_seconds"] < 2 * stay["cost_seconds"]
    assert (result.moved, actuator.execution.rows) == (False, {"ada": 1000})


def test_a_refused_move_is_recorded_and_raised_and_the_run_may_go_on(started):
    def blueprint(coordinator):
        execution = coordinator.actuate(fastest(coordinator), movable=True)
        next(coordinator.monitor(execution))
        with pytest.raises(LaunchError):
            coordinator.resize(execution, single(coordinator, "bob"), "away")
        return execution

    run, _ = started(blueprint, refuses=True)
    result = run.execute()
    (stay,) = result.document()["execution"]["redistributions"]
    assert (stay["moved"], stay["breach"]) == (False, "away")
    assert stay["explanation"].endswith(": busy")
    assert not result.moved


def test_a_blueprint_does_not_move_a_run_whose_hosts_a_scheduler_chooses(started):
    def blueprint(coordinator):
        execution = coordinator.actuate(fastest(coordinator), movable=True)
        with pytest.raises(LaunchError, match="scheduler"):
            coordinator.resize(execution, single(coordinator, "bob"))
        return execution

    run, actuator = started(blueprint)
    run.moves = False
    (stay,) = run.execute().document()["execution"]["redistributions"]
    assert not stay["moved"]
    assert actuator.execution.rows == {"ada": 1000}


def test_a_blueprint_that_fails_ends_its_run_and_its_line_is_named(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "def mine(coordinator):\n"
        "    sets = coordinator.select_resources('single')\n"
        "    execution = coordinator.actuate(coordinator.best(\n"
        "        coordinator.estimate(coordinator.plan(each)) for each in sets))\n"
        "    for progress in coordinator.monitor(execution):\n"
        "        1 / 0\n"
    )
    spec = RunSpec(
        *(EXAMPLE / f"{name}.toml" for name in ("hosts", "template", "user")),
        blueprint=f"{file}:mine", weather="static", verify=False,
    )  # fmt: skip
    actuator = Actuator()
    left = []

    @contextmanager
    def follow(*_):
        try:
            yield lambda _: None
        except ZeroDivisionError:
            left.append(actuator.cancelled)
            raise

    with pytest.raises(ZeroDivisionError) as raised:
        prepare(spec, actuator=actuator).execute(follow=follow)
    failure = failure_of(raised.value)
    assert (failure.code, failure.fields["line"]) == ("user-code-failed", 6)
    assert left == [False], "the follower hears of it, and then the run is cancelled"
    assert actuator.cancelled


def test_a_blueprint_that_finds_no_plan_while_its_run_goes_on_ends_it(started):
    def blueprint(coordinator):
        coordinator.actuate(fastest(coordinator))
        return coordinator.actuate(coordinator.best([]))

    run, actuator = started(blueprint)
    announced = []
    with pytest.raises(NoFeasiblePlanError):
        run.execute(decided=lambda *decision: announced.append(decision))
    assert actuator.cancelled
    assert len(announced) == 1


@pytest.mark.parametrize(
    ("blueprint", "code", "starts"),
    [
        (lambda c: [c.actuate(fastest(c)), c.actuate(fastest(c))], "blueprint-starts-twice", 1),
        (fastest, "blueprint-no-choice", 0),
    ],
    ids=["two", "none"],
)
def test_a_blueprint_starts_one_application(blueprint, code, starts, started):
    run, actuator = started(blueprint)
    with pytest.raises(UsageError) as raised:
        run.execute()
    assert (raised.value.code, raised.value.fields["value"]) == (code, "mine")
    assert (actuator.started, actuator.cancelled) == (starts, starts > 0)


def test_before_the_start_a_blueprint_is_executed_again_without_a_host_that_is_unfit(started):
    chosen = []

    def blueprint(coordinator):
        best = fastest(coordinator)
        chosen.append(best.names)
        return coordinator.actuate(best)

    run, actuator = started(blueprint)
    actuator.unfit = {"ada": Fitness("ada", (Finding("disk", "fail", "it is full"),))}
    result = run.execute()
    assert actuator.started == 1
    assert chosen[0] == ("ada",)
    assert chosen[-1] == tuple(result.rows)
    assert "ada" not in result.rows


def test_what_is_only_planned_ends_at_actuate(started):
    reached = []

    def blueprint(coordinator):
        execution = coordinator.actuate(fastest(coordinator))
        reached.append(execution)
        return execution

    run, actuator = started(blueprint)
    assert run.plan().estimate.names == ("ada",)
    assert (reached, actuator.started) == ([], 0)
    assert run.execute().rows == {"ada": 1000}
    assert len(reached) == 1


def test_a_run_that_was_not_started_to_be_moved_says_how_it_would_be(started):
    def blueprint(coordinator):
        execution = coordinator.actuate(fastest(coordinator))
        coordinator.resize(execution, single(coordinator, "bob"))

    run, actuator = started(blueprint)
    actuator.rigid = True
    with pytest.raises(LaunchError) as raised:
        run.execute()
    assert raised.value.code == "run-not-resizable"
    assert "movable=True" in str(raised.value)


def test_the_blueprint_of_the_guide_leaves_a_slow_host(started, leave_slow_hosts):
    run, actuator = started(leave_slow_hosts, slowness=arriving("ada", 4.0, 8.0), noise=0.05)
    result = run.execute()
    (move,) = (one for one in result.rescheduling if one.moved)
    assert move.move.violation.startswith("slow: ada")
    assert "ada" not in actuator.execution.rows


def test_the_blueprint_of_the_guide_stays_where_nothing_is_slow(started, leave_slow_hosts):
    run, _ = started(leave_slow_hosts, most=3, noise=0.2)
    assert run.execute().rescheduling == ()


SAMPLE = Path(__file__).parents[2] / "jobs" / "sample"
ITERATIONS, SLOW_FROM = 200, 80


def ran(folder, hosts, slow):
    """Run the guide's blueprint; one host becomes five times as slow while it runs. Return the result."""

    def follow(*_):
        return nullcontext(
            lambda at: at.iteration > SLOW_FROM and (folder / "slow").write_text(f"{slow} 5\n")
        )

    (folder / "user.toml").write_text("[constraints]\nmaximum_hosts = 1\n")
    settings = {"iterations": ITERATIONS, "pause": 0.024, "slow": str(folder / "slow")}
    spec = RunSpec(
        hosts, SAMPLE / "template.toml", folder / "user.toml", settings,
        f"{GUIDE}:leave_slow_hosts", "static", verify=False, learn=False,
    )  # fmt: skip
    return run(spec, follow=follow)


def held(result, slow):
    """Whether a run was moved off the slow host, once, and its result is that of one process."""
    document = result.document()
    (move,) = document["execution"]["redistributions"]
    assert (move["moved"], move["breach"].startswith(f"slow: {slow}")) == (True, True)
    assert move["iteration"] > SLOW_FROM
    assert 0 < document["phases"]["moves"] <= move["resize_seconds"] * 1.001
    assert list(result.rows) == [slow]
    assert [one.host for one in result.outcome.hosts] == move["hosts"] != [slow]
    assert result.moved
    expected = hashlib.sha256(np.full((60, 4), float(ITERATIONS)).tobytes()).hexdigest()
    return result.outcome.sha256 == expected


@pytest.mark.mpi
@pytest.mark.slow
def test_on_this_machine_the_guides_blueprint_moves_a_real_run_off_a_slow_host(
    tmp_path, monkeypatch
):
    """Slow: the run has to be seen as slow for a second."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert held(ran(tmp_path, SAMPLE / "hosts.toml", "ada"), "ada")


@pytest.mark.mpi
@pytest.mark.ssh
@pytest.mark.slow
def test_over_ssh_the_guides_blueprint_moves_a_real_run_off_a_slow_host(
    tmp_path, monkeypatch, sshd
):
    """Slow: logins, and the run has to be seen as slow for a second."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    hosts = tmp_path / "hosts.toml"
    hosts.write_text(sshd.host_list(2).replace("1e-9\n", "1e-4\n"))
    assert held(ran(tmp_path, hosts, "h1"), "h1")
