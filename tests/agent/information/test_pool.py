"""The information pool: changed by `with_*` only, and each change leaves the rest as it was."""

from dataclasses import replace

import pytest
from worlds import ROOMY, pool

import hat
from apples import Host, HostList, Link, Network
from apples.agent import Learned, SpeedFunction, offers, refusal
from apples.launch import Finding, Fitness
from apples.weather import Conditions
from nws import Forecast, Weather

LINKS = {("local", "local"): Link(1e-6, 1e9)}
HOSTS = [Host(name, seconds_per_point=1e-8, free_memory=ROOMY) for name in ("ada", "bob")]
ADA, BOB = HOSTS
ANSWERS = Finding("ssh", "ok", "answers")


def weather(share):
    return Weather(cpu={"ada": Forecast(share, 0.01, "mean", 9, 0.0)})


@pytest.fixture
def information():
    measured = {BOB.identity: {"default": SpeedFunction.constant(2e-8)}}
    return pool(HOSTS, LINKS, weather=weather(0.5), learned=Learned(measured))


def test_another_weather_keeps_what_was_learned_and_none_is_the_host_list_alone(information):
    other = information.with_weather(weather(0.25), "a file")
    assert other.conditions.cpu(ADA).value == 0.25
    assert other.conditions.source == "a file"
    assert other.learned is information.learned
    static = information.with_weather(None)
    assert static.conditions.cpu(ADA).value == 1.0
    assert static.learned == Learned()
    assert not static.conditions.measured(ADA)


def test_the_host_list_alone_runs_the_same_implementations(information):
    template = information.template.model_copy(
        update={"implementations": tuple(hat.Implementation(name=n) for n in ("slow", "fast"))}
    )
    speeds = {"slow": SpeedFunction.constant(2e-9), "fast": SpeedFunction.constant(1e-9)}
    learned = Learned(speeds={ADA.identity: speeds})
    both = replace(information, template=template, learned=learned, available=lambda *_: True)
    assert both.implementation(ADA) == "fast"
    assert both.with_weather(None).implementation(ADA) == "fast"


def test_the_same_horizon_is_the_same_pool(information):
    assert information.with_horizon(60.0) is information

    def over(seconds):
        cpu = {"ada": Forecast(0.5, 0.01, "mean", 9, 0.0, horizon=2 if seconds > 30 else 1)}
        return Conditions(information.hosts, Weather(cpu=cpu))

    live = replace(information, conditions_over=over)
    assert live.with_horizon(10.0) is live
    assert live.with_horizon(60.0).conditions.horizons == {"ada": 2}


def test_other_hosts_bring_nothing_of_the_old_ones(information):
    slow = information.with_what_if(slowdown={"ada": 3.0})
    alone = slow.with_hosts(HostList((BOB,), Network()))
    assert [host.name for host in alone.hosts] == ["bob"]
    assert alone.slowdown == {}
    assert alone.learned == Learned()
    assert not alone.conditions.weather.cpu


def test_a_what_if_changes_speed_and_memory_by_its_factors(information):
    slower = information.with_what_if(slowdown={"ada": 3.0})
    one, other = (p.model.computation((ADA,), [100.0])[0] for p in (information, slower))
    assert other == pytest.approx(3 * one)
    fuller = information.with_what_if(memory={"ada": 0.5}).conditions.free_memory(ADA)
    assert fuller.value == ROOMY / 2


def test_findings_add_up_and_refuse_a_host_with_its_reason(information):
    fine = Fitness("ada", (ANSWERS,), cpus=8)
    dead = Fitness("bob", (Finding("ssh", "fail", "no answer"),))
    known = information.with_findings({"ada": fine}).with_findings({"bob": dead})
    assert set(known.findings) == {"ada", "bob"}
    assert known.conditions.width(ADA) == 8
    assert refusal(known, ADA) == ""
    assert refusal(known, BOB) == "ssh: no answer"
    assert known.conditions.weather is information.conditions.weather


def test_a_host_offers_what_was_found_on_it_or_else_what_is_here(information):
    text = 'name = "heat"\nprogram = ["heat"]\n[[implementation]]\nname = "rare"\n'
    template = hat.parse(
        f'{text}program = ["heat"]\n[implementation.requires]\nmodules = ["nowhere"]\n',
        hat.ApplicationTemplate,
    )
    rare = template.implementation("rare")
    assert not offers(information, "ada", rare)
    there = Fitness("ada", (ANSWERS,))
    assert offers(information.with_findings({"ada": there}), "ada", rare)
    lacking = replace(there, missing=frozenset({"nowhere"}))
    assert not offers(information.with_findings({"ada": lacking}), "ada", rare)
