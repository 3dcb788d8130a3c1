import numpy as np
import pytest
from commands import command

from apples.simulation import first_fit, mean_distance, passing_jobs, random_fit
from apples.topology import fit, origin

MACHINE = origin(256)


@pytest.mark.parametrize("seed", range(3))
def test_after_many_jobs_the_best_radius_is_nearer_than_first_fit_and_that_than_chance(seed):
    jobs = passing_jobs(256, 120, seed)
    best, first, chance = (
        mean_distance(MACHINE, c, jobs) for c in (fit, first_fit, random_fit(seed))
    )
    assert best < first < chance


def test_the_jobs_keep_the_machine_as_busy_as_they_say():
    jobs = passing_jobs(256, 4000, 1)
    work = float((jobs.run * jobs.processors).sum())
    assert work / 256 / np.ptp(jobs.submit) == pytest.approx(0.85, abs=0.05)
    assert (jobs.processors.min(), jobs.processors.max()) == (1, 32)


def simulated(*words):
    done = command(
        "apples", "simulate", "lublin:jobs=80,processors=64", "--policy", "easy", "--seed", "3",
        "--processors", "64", "--json", *[word for option in words for word in ("--option", option)],
    )  # fmt: skip
    return done.document if done.code == 0 else done


def test_any_rigid_policy_can_be_simulated_on_a_machine_whose_places_matter():
    plain = simulated("engine=events")
    placed = simulated("topology=origin:64")
    assert placed["mean_wait"] == plain["mean_wait"]
    waits = [
        simulated("topology=origin:64", "sensitivity=1", f"placement={name}")["mean_response"]
        for name in ("best", "random")
    ]
    assert plain["mean_response"] < waits[0] < waits[1]


@pytest.mark.parametrize(
    ("words", "code", "fields"),
    [
        (["topology=pu:4"], "machine-size-differs", {"value": 64, "bound": 4}),
        (
            ["topology=origin:64", "placement=nice"],
            "value-unknown",
            {"value": "nice", "known": ["best", "first", "spread", "random"]},
        ),
        (
            ["topology=origin:64", "sensitivity=-1"],
            "value-range",
            {"option": "sensitivity", "value": -1.0, "bound": 0},
        ),
        (["topology=origin:64", "requirement=COLOUR=red"], "field-unknown", {"field": "COLOUR"}),
        (["topology=absent.xml"], "file-missing", {"file": "absent.xml"}),
        (["placement=best"], "option-missing", {"option": "topology"}),
    ],
)
def test_a_machine_that_does_not_fit_the_simulation_is_refused(words, code, fields):
    failure = simulated(*words).failure
    assert (failure["exit_code"], failure["code"]) == (2, code)
    assert fields.items() <= failure["fields"].items()


def test_a_jobs_requirement_that_can_never_be_met_is_rejected_with_the_reason():
    done = simulated("topology=origin:64", "requirement=MAX_RADIUS=0.5")
    assert 0 < done["completed"] < 80
