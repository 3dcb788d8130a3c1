"""`migrate` and `decider` on a played job: owners come and go in simulated time, the monitor is played too."""

import contextlib
import re

import pytest
from agent.rescheduling.test_redistribute import PlayedActuator, pool

from apples import Coordinator, LoadRescheduling, UsageError
from apples.agent import AdaptiveExecution
from apples.launch import ArrayMessages, MessagesSent
from apples.scheduling import Easy
from apples.weather import NodeSnapshot
from blueprints import decider, migrate, minimum_execution_time

MARK = "0000abcd"


class PlayedMonitor(contextlib.AbstractContextManager):
    """Says at once what others want, as `others(host, now)` has it, whenever time has gone on."""

    def __init__(self, others, clock, silent=()):
        self.others, self.clock, self.over, self.hear = others, clock, False, None
        self.silent = silent

    def __call__(self, hosts, far, hear):
        assert list(far) == []
        self.names, self.hear = [host.name for host in hosts if host.name not in self.silent], hear
        return self

    def tell(self):
        for name in self.names:
            now = self.clock()
            wanting = {"": self.others(name, now), MARK: 1.0}
            self.hear(NodeSnapshot(name, now, 1, wanting, {"memory": 0.5}))

    def __exit__(self, *_):
        self.over = True


def run(information, others, policy, silent=(), **options):
    """Return the execution and the moves of a job that is slowed by others as processes share a processor."""
    actuator = PlayedActuator(slowness=lambda name, now: 1 + others(name, now), **options)
    coordinator = Coordinator(information, actuator, clock=lambda: actuator.execution.now)
    monitor = PlayedMonitor(others, coordinator.clock, silent)
    coordinator.execute(minimum_execution_time)
    chosen = coordinator.decision_log.chosen
    type(actuator.execution).mark = MARK
    rescheduling = LoadRescheduling(policy, monitor)
    execution = coordinator.actuate(chosen, rescheduling)
    assert isinstance(execution, AdaptiveExecution)
    for _ in execution.monitor():
        monitor.tell()
    assert monitor.over
    return execution, [one for one in execution.decisions if one.moved]


def owner(host, load=1.0, since=15.0):
    return lambda name, now: load if name == host and now >= since else 0.0


@pytest.mark.parametrize("policy", ["migrate", "decider"])
@pytest.mark.parametrize("most", [1, 2, 3])
def test_a_host_that_others_load_is_left_for_a_free_one_and_why_is_recorded(
    most, policy, tmp_path
):
    information = pool(tmp_path, most, 60.0)
    ran, moves = run(information, owner("ada"), policy, noise=0.05)
    assert len(moves) == 1
    assert "ada" not in ran.position()["hosts"]
    document = moves[0].document()
    assert document["iteration_seconds"] == pytest.approx(
        2 * document["predicted_seconds"], rel=0.3
    )
    assert 0 < document["payback_seconds"] < 60
    loads = {"1.00"} if policy == "migrate" else {"1.00", "0.60"}
    words = {*re.findall(r"[\w.+-]+", document["explanation"])}
    assert {"ada", "MB", *loads} <= words
    assert ("1.6e+04" in words) == (most == 2), "the bytes that its hosts send each other"


def test_where_arrays_report_their_messages_the_reason_has_them(tmp_path):
    sent = ArrayMessages()
    two = (("ada", 1), ("bob", 1))
    sent.hear(MessagesSent(two, (), iteration=10))
    sent.hear(MessagesSent(two, ((0, 1, 20, 400_000), (1, 0, 20, 200_000)), iteration=20))
    _, (move,) = run(pool(tmp_path, 2, 60.0), owner("ada"), "migrate", messages=sent)
    assert "6e+04" in move.explanation.split()
    sent.hear(MessagesSent((("ada", 1), ("zoe", 1)), ((0, 1, 9, 9000),), epoch=1, iteration=30))
    _, (move,) = run(pool(tmp_path, 2, 60.0), owner("ada"), "migrate", messages=sent)
    assert "1.6e+04" in move.explanation.split(), "of hosts that it is not on"


def test_the_others_of_a_job_keep_their_rows_and_the_one_moved_takes_its_own_along(tmp_path):
    information = pool(tmp_path, 3, 60.0)
    ran, _ = run(information, owner("bob"), "migrate")
    position = ran.position()
    assert position["hosts"] == ["ada", "dan", "cleo"]
    assert sum(position["rows"]) == information.application.rows


@pytest.mark.parametrize("load", [0.0, 2.0])
def test_under_constant_load_nothing_moves_in_ten_runs_of_a_minute(load, tmp_path):
    """Of `migrate`; the paper's rule takes any host above the threshold for overloaded, whoever loads it."""
    information = pool(tmp_path, 3, 60.0)
    for seed in range(5):
        ran, moves = run(information, lambda *_: load, "migrate", noise=0.1, seed=seed)
        assert moves == []
        assert ran.decisions == []


def test_an_owner_has_his_host_back_at_once_though_it_does_not_pay(tmp_path):
    information = pool(tmp_path, 1, 60.0)
    text = (tmp_path / "hosts.toml").read_text()
    assert run(information, owner("ada", 0.5, since=52.0), "migrate")[1] == []
    (tmp_path / "hosts.toml").write_text(
        text.replace('name = "ada"', 'name = "ada"\nowner_first = true')
    )
    information = pool_again(tmp_path, information)
    ran, moves = run(information, owner("ada", 0.5, since=52.0), "migrate")
    assert len(moves) == 1
    assert {"ada", "0.50"} <= {*re.findall(r"[\w.]+", moves[0].explanation)}
    assert "ada" not in ran.position()["hosts"]


def pool_again(folder, before):
    from apples import load_information

    files = [folder / f"{name}.toml" for name in ("hosts", "template", "user")]
    application = before.application
    return load_information(
        *files,
        settings={"grid": application.rows, "iterations": application.iterations},
        weather="static",
    )


def test_the_application_is_not_its_own_owner(tmp_path):
    """Its processes want its hosts, and those are not to be left for that."""
    information = pool(tmp_path, 1, 40.0)
    _, moves = run(information, lambda *_: 0.0, "migrate")
    assert moves == []


def test_where_a_host_of_the_job_is_not_heard_nothing_is_decided(tmp_path):
    silent = ("ada", "cleo", "dan")
    ran, moves = run(pool(tmp_path, 2, 40.0), owner("bob", 9.0), "migrate", silent)
    assert (moves, ran.decisions) == ([], [])


def test_what_the_job_refuses_is_recorded_once_a_hold(tmp_path):
    ran, moves = run(pool(tmp_path, 1, 60.0), owner("ada"), "migrate", refuses=True)
    assert moves == []
    assert 1 <= len(ran.decisions) <= 6
    assert not any(one.moved for one in ran.decisions)
    assert ran.decisions[0].explanation.endswith(": busy")


@pytest.mark.parametrize("blueprint", [migrate, decider])
def test_the_blueprints_plan_like_any_other_where_nothing_is_started(blueprint, tmp_path):
    information = pool(tmp_path, 3, 60.0)
    one, other = Coordinator(information), Coordinator(information)
    one.execute(blueprint)
    other.execute(minimum_execution_time)
    assert one.decision_log.chosen == other.decision_log.chosen
    assert isinstance(one.decision_log.policy, LoadRescheduling)


def test_a_policy_that_cannot_move_by_load_is_refused():
    with pytest.raises(UsageError) as raised:
        LoadRescheduling("fastest")
    assert (raised.value.code, raised.value.fields["value"]) == ("policy-unknown", "fastest")
    assert "migrate" in raised.value.fields["known"]
    with pytest.raises(UsageError) as raised:
        LoadRescheduling(Easy())
    assert (raised.value.code, raised.value.fields["policy"]) == ("policy-unsuitable", "Easy")
    with pytest.raises(UsageError) as raised:
        LoadRescheduling("migrate", longer=1.0)
    assert raised.value.code == "option-not-applicable"
    assert "'longer'" in str(raised.value)
