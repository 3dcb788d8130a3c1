"""Which implementations are measured on which hosts: those that a run of the list could use."""

from collections import Counter
from pathlib import Path

import pytest

import hat
from apples import Host
from apples.agent import InformationPool, LearnedKey, calibrate_hosts, recall
from apples.errors import LaunchError
from apples.launch import Calibration
from apples.resources import HostList, Network
from apples.weather import Conditions
from nws import Weather

TEMPLATE = """
name = "heat"
program = ["heat"]
active_set = {active}
[[implementation]]
name = "fast"
[[implementation]]
name = "blocked"
sweeps = 4
[[implementation]]
name = "plain"
"""
KEY = LearnedKey.of("heat", "", Path())
HOSTS = [Host(name, cpus=(k // 2,)) for k, name in enumerate(("ada", "bob", "cyd", "dot"))]


@pytest.fixture
def measured(monkeypatch, tmp_path):
    """Return what counts the measurements: one by implementation and CPUs, whoever stands for them."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    asked = Counter()

    def measure(host, _program, implementation, _parameters, sizes, **_):
        asked[implementation, host.cpus] += 1
        if implementation in broken:
            raise LaunchError(f"{implementation} does not start")
        return [Calibration(rows, 1e-9, 0.0, 7) for rows in sizes]

    broken = set()

    def run(active, *, at_once=False, fails=()):
        broken.clear()
        broken.update(fails)
        template = hat.parse(TEMPLATE.replace("{active}", active), hat.ApplicationTemplate)
        hosts = Conditions(HostList(tuple(HOSTS), Network()), Weather())
        pool = InformationPool(
            template, template.bind({}), hat.parse("", hat.UserSpecifications), hosts
        )
        return calibrate_hosts(pool, [100, 500], at_once=at_once, measure=measure), asked

    return run


@pytest.mark.parametrize("at_once", [False, True])
def test_hosts_that_share_cpus_are_measured_once_with_all_that_one_of_them_may_run(
    measured, at_once
):
    found, asked = measured(
        '{ "bob" = "plain", "cyd" = "plain", "dot" = "plain" }', at_once=at_once
    )
    assert asked == {("fast", (0,)): 1, ("plain", (0,)): 1, ("plain", (1,)): 1}
    assert {host: sorted(speeds) for host, speeds in found.items()} == {
        "ada": ["fast", "plain"], "bob": ["fast", "plain"], "cyd": ["plain"], "dot": ["plain"],
    }  # fmt: skip
    assert set(recall(KEY).speeds) == {host.identity for host in HOSTS}


def test_a_number_of_sweeps_that_every_host_can_make_is_measured(measured):
    _, asked = measured("{}")
    assert {name for name, _ in asked} == {"fast", "blocked", "plain"}
    assert set(asked.values()) == {1}


@pytest.mark.parametrize("fails", [("plain",), ("fast", "blocked", "plain")])
def test_a_failed_calibration_keeps_the_speeds_of_the_last_one(measured, fails):
    measured("{}")
    before = recall(KEY).speeds
    measured("{}", fails=fails)
    assert recall(KEY).speeds == before
