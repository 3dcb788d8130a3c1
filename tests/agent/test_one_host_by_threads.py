"""A host alone by threads in the place of ranks: planned where it is faster so, run, verified, learned from."""

import json
from dataclasses import replace

import pytest
from commands import EXAMPLE, command
from hypothesis import given
from hypothesis import strategies as st
from worlds import pool

import apples
import hat
from apples import (
    Coordinator,
    Host,
    Link,
    LocalActuator,
    RecordingActuator,
    SpeedFunction,
    load_information,
)
from apples.agent import Learned, by_threads, check, decide, equal_strips, recall, remember
from apples.launch import HostTimes, Outcome, RankGroup, SlurmActuator, bound, run_task
from apples.malleable import MalleableActuator
from apples.topology import synthetic
from blueprints import all_resources, minimum_execution_time

ADA, BOB = Host("ada", slots=4), Host("bob", slots=2)
RANKS = 1e-9


def jacobi2d(threads, hosts=(ADA, BOB), learned=None):
    """Return what is known of Jacobi2D at 1000 x 1000, measured by ranks and by threads (None: not)."""
    template = hat.read(EXAMPLE / "template.toml", hat.ApplicationTemplate)
    speeds = {"compiled": SpeedFunction.constant(RANKS)}
    if threads is not None:
        speeds["threads"] = SpeedFunction.constant(threads)
    return replace(
        pool(hosts, default=Link(1e-6, 1e9)),
        template=template,
        application=template.bind({"grid": "1000"}),
        learned=learned or Learned({host.identity: speeds for host in hosts}),
        available=lambda *_: True,
    )


def planned(information, resources, actuator=None):
    return Coordinator(information, actuator).plan(resources)


@given(st.floats(1e-10, 1e-8))
def test_a_host_alone_is_by_threads_where_these_were_measured_to_be_faster_and_only_there(threads):
    (one,) = planned(jacobi2d(threads), (ADA,)).allocations
    assert (one.implementation == "threads") == (one.threads == 4) == (threads < RANKS)
    assert one.ranks == (1 if threads < RANKS else 4)


def test_an_explanation_takes_no_threads_where_the_actuator_takes_none():
    class RanksOnly(RecordingActuator):
        takes_threads = False

    information = jacobi2d(RANKS / 9)
    user = hat.parse("[constraints]\nmaximum_hosts = 2\n", hat.UserSpecifications)
    information = replace(information, specifications=user)
    for actuator, threads in ((RanksOnly(), 0), (RecordingActuator(), 4)):
        coordinator = Coordinator(information, actuator)
        result = decide("best", minimum_execution_time, coordinator, explain=True)
        assert result.estimate.schedule.threads == threads
        assert result.binding == ()


def test_every_host_of_a_set_of_several_has_ranks():
    for one in planned(jacobi2d(RANKS / 9), (ADA, BOB)).allocations:
        assert (one.threads, one.implementation, one.ranks) == (0, "compiled", one.host.slots)


def test_threads_that_nobody_measured_are_not_used_however_slow_the_ranks():
    assert planned(jacobi2d(None), (ADA,)).threads == 0
    guessed = (replace(ADA, seconds_per_point=1e-12),)  # of whatever runs there
    assert planned(jacobi2d(None, guessed), guessed).threads == 0


def test_a_users_own_choice_for_a_host_holds_also_where_it_is_alone():
    information = jacobi2d(RANKS / 9)
    bound_to = information.template.model_copy(update={"active_set": {"ada": "compiled"}})
    information = replace(information, template=bound_to)
    assert planned(information, (ADA,)).threads == 0
    assert planned(information, (BOB,)).threads == 2


@pytest.mark.parametrize("kind", [SlurmActuator, MalleableActuator])
def test_what_can_be_moved_and_what_slurm_starts_has_ranks(kind):
    actuator = object.__new__(kind)  # its class says it
    assert planned(jacobi2d(RANKS / 9), (ADA,), RecordingActuator(actuator)).threads == 0


def test_a_planner_of_the_users_own_is_given_threads_too():
    assert Coordinator(jacobi2d(RANKS / 9), planner=equal_strips).plan((BOB,)).threads == 2


def test_one_host_by_threads_is_chosen_before_two_by_ranks_and_two_where_they_are_faster():
    for threads, used in ((RANKS / 9, {"ada"}), (RANKS / 1.1, {"ada", "bob"})):
        coordinator = Coordinator(jacobi2d(threads))
        coordinator.execute(minimum_execution_time)
        chosen = coordinator.decision_log.chosen
        assert {host.name for host in chosen.schedule.resources} == used
        alone = [e for e in coordinator.decision_log.estimates if e.names == ("ada",)]
        assert [e.hosts[0].implementation for e in alone] == ["threads"]
        assert chosen.iteration_seconds <= alone[0].iteration_seconds


def test_the_program_is_started_once_with_all_cpus_of_the_host_and_told_how_many_threads():
    actuator = RecordingActuator()
    coordinator = Coordinator(jacobi2d(RANKS / 9), actuator)
    coordinator.actuate(coordinator.estimate(coordinator.plan((ADA,))))
    (piece,) = run_task(actuator.plans[0])["partition"]
    assert (piece["ranks"], piece["threads"], piece["rows"]) == (1, 4, 1000)
    assert run_task(actuator.plans[0])["implementations"] == {"ada": "threads"}
    machine = synthetic("package:2 core:4 pu:1")
    (placed,) = bound([RankGroup("ada", 1, ("x",), threads=4)], machine)
    assert placed.rank_cpus == ((0, 1, 2, 3),)


def outcome(estimate, longer, processor):
    """Return a run that took so many times longer than its computing, and that of the model, by the processor."""
    (one,) = estimate.hosts
    compute = one.compute_seconds * processor
    times = HostTimes("ada", compute * 10, 0.0, processor_seconds=compute * 10, wait_seconds=0.0)
    return Outcome(10, compute * longer * 10, 0.1, (times,))


def test_what_ranks_take_to_meet_is_learned_of_ranks_and_what_threads_take_of_threads(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    key = jacobi2d(RANKS * 1.1).learned_key
    for speed, longer, processor, threads in (
        (RANKS * 1.1, 2.0, 1.5, 0),
        (RANKS / 9, 1.2, 0.9, 4),
    ):
        information = jacobi2d(speed)
        for _ in range(3):  # two runs test the corrections of the first
            known = replace(recall(key), speeds=information.learned.speeds)
            estimate = Coordinator(information).estimate(Coordinator(information).plan((ADA,)))
            assert estimate.schedule.threads == threads
            result = check(estimate, outcome(estimate, longer, processor))
            remember(result, replace(information, learned=known))
    learned = recall(key)
    assert learned.factor("slowdown", "ada") == pytest.approx(1.5, rel=0.05)
    assert learned.factor("slowdown", by_threads("ada")) == pytest.approx(0.9, rel=0.1)
    assert learned.straggler_factor_of((ADA,)) == pytest.approx(2.0, rel=0.05)
    assert learned.straggler_factor_of((ADA,), threads=True) == pytest.approx(1.2, rel=0.05)
    assert learned.straggler_factor_of((ADA, BOB)) == 1.0  # no set of several ran


ALONE = '[[host]]\nname = "ada"\nslots = 2\n'


@pytest.fixture
def quick_threads(tmp_path, monkeypatch):
    """Return a run of Jacobi2D whose template says that threads are faster, on a host of two slots."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "hosts.toml").write_text(ALONE)
    template = (EXAMPLE / "template.toml").read_text()
    for name, seconds in (("compiled", 4e-9), ("threads", 1e-9)):
        said = f'name = "{name}"\n'
        template = template.replace(said, f"{said}seconds_per_point = {seconds}\n")
    for file in EXAMPLE.iterdir():
        if file.is_file():
            (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "template.toml").write_text(template)
    (tmp_path / "hosts.toml").write_text(ALONE)
    settings = {"grid": "90", "iterations": "50"}
    return apples.RunSpec(
        tmp_path / "hosts.toml",
        tmp_path / "template.toml",
        user=None,
        settings=settings,
        weather="static",
    )


@pytest.mark.more
def test_a_run_by_threads_comes_to_the_bits_of_one_process(quick_threads):
    done = apples.run(replace(quick_threads, verify="full"))
    assert done.plan.estimate.hosts[0].implementation == "threads"
    assert done.verification.verified is True
    document = done.document()
    assert document["plan"]["chosen"]["strips"][0]["threads"] == 2
    ranks = Coordinator(
        load_information(
            quick_threads.hosts,
            quick_threads.template,
            None,
            settings=quick_threads.settings,
            weather="static",
        ),
        LocalActuator(),
    )
    ranks.information = replace(
        ranks.information,
        template=ranks.information.template.model_copy(update={"active_set": {"ada": "numpy"}}),
    )
    execution = ranks.execute(all_resources)
    assert execution.outcome().sha256 == done.result_sha256


def test_the_plan_says_by_how_many_threads(quick_threads):
    spec = quick_threads
    found = command(
        "apples",
        "plan",
        "--hosts",
        spec.hosts,
        "--template",
        spec.template,
        "--weather",
        "static",
        "--json",
    )
    (strip,) = json.loads(found.out)["chosen"]["strips"]
    assert (strip["implementation"], strip["threads"]) == ("threads", 2)
