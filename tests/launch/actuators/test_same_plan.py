"""One plan, whoever starts it: the program is told the same, on the same hosts, in the same order."""

import json

import pytest

from apples import load_information
from apples.agent import launch_plan
from apples.launch import LocalActuator, SlurmActuator, SshActuator
from apples.resources import Allocation, Schedule

HOSTS = """
[[host]]
name = "ada"
address = "198.51.100.7"
slots = 2
[[host]]
name = "bob"
address = "198.51.100.8"
[[host]]
name = "me"
address = "127.0.0.1"
"""
TEMPLATE = 'name = "any"\nprogram = ["{python}", "any.py"]\n[parameters.grid]\ndefault = 30\n'
TEMPLATE += "[parameters.iterations]\ndefault = 1\n"


@pytest.fixture
def plan(tmp_path):
    files = []
    for name, text in (("hosts", HOSTS), ("template", TEMPLATE), ("user", "")):
        files.append(tmp_path / f"{name}.toml")
        files[-1].write_text(text)
    (tmp_path / "any.py").touch()
    information = load_information(*files, weather="static")
    ada, bob, me = information.hosts
    strips = ((bob, 7), (ada, 20), (me, 3))
    schedule = Schedule(tuple(Allocation(h, rows, "default") for h, rows in strips))
    return launch_plan(schedule, information)


def test_every_actuator_tells_the_program_the_same(plan):
    tasks = [
        json.loads(actuator.command(plan).files["task.json"])
        for actuator in (LocalActuator(), SshActuator(), SlurmActuator())
    ]
    assert tasks[0] == tasks[1] == tasks[2]
    strips = [(p["host"], p["ranks"], p["first_row"], p["rows"]) for p in tasks[0]["partition"]]
    assert strips == [("bob", 1, 0, 7), ("ada", 2, 7, 20), ("me", 1, 27, 3)]


def test_ssh_places_as_many_ranks_on_each_address_as_the_plan_has(plan):
    command = SshActuator().command(plan)
    *others, last = command.files["machines"].split()
    assert others == ["198.51.100.8:1", "198.51.100.7:2"]
    assert last.endswith(":1")  # this machine, by the address towards the others
    counts = [command.argv[i + 1] for i, word in enumerate(command.argv) if word == "-n"]
    assert counts == ["1", "2", "1"]
    launch = json.loads(command.files["launch.json"])
    assert [entry["address"] for entry in launch["remote"]] == ["198.51.100.8", "198.51.100.7"]
    assert [bool(entry) for entry in launch["hosts"]] == [False, False, True]
