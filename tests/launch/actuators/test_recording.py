import json

from apples.launch import ACTUATORS, Actuator, RecordingActuator


def test_it_keeps_what_it_was_asked_to_start_and_starts_nothing(case):
    one, actuator = case(), RecordingActuator()
    run = actuator.actuate(one.plan)
    assert actuator.plans == [one.plan]
    assert list(run.monitor()) == []
    assert run.outcome() is None
    run.cancel()
    assert one.records() == []


def test_it_shows_the_task(case):
    one = case()
    order = RecordingActuator().command(one.plan)
    assert order.argv == ()
    assert json.loads(order.files["task.json"])["partition"][0]["host"] == "ada"


def test_every_actuator_has_a_name_and_keeps_the_contract():
    assert set(ACTUATORS) == {"local", "ssh", "slurm", "recording"}
    assert all(isinstance(make(), Actuator) for make in ACTUATORS.values())
