"""`plan`: the same decision from files and from a loaded pool, typed, with nothing printed."""

import dataclasses
import inspect

import pytest
from commands import EXAMPLE, HOSTS, files

from apples import NoFeasiblePlanError, PlanSpec, UsageError, load_information, plan
from apples.agent import equal_strips, host_survey, load
from blueprints import blocked

FILES = [EXAMPLE / f"{name}.toml" for name in ("hosts", "template", "user")]
SPEC = PlanSpec(*FILES, settings={"grid": 200}, weather="static")


def test_files_and_a_loaded_pool_give_the_same_decision(capsys):
    from_files = plan(SPEC)
    from_pool = plan(PlanSpec(weather="static"), load(SPEC))
    assert from_files.rows == from_pool.rows
    assert from_files.document() == from_pool.document()
    assert capsys.readouterr() == ("", "")


def test_a_plan_builds_the_model_of_its_pool_once():
    pool, built = load(SPEC), []

    def model(information):
        built.append(information)
        return pool.model

    assert plan(SPEC, dataclasses.replace(pool, make_model=model)).rows == plan(SPEC).rows
    assert len(built) == 1


def test_a_pool_and_a_plan_are_under_the_same_weather_by_default():
    parameters = inspect.signature(load_information).parameters
    assert parameters["weather"].default == PlanSpec().weather


def test_the_rows_are_whole_and_cover_the_grid_on_the_chosen_hosts():
    result = plan(SPEC)
    assert sum(result.rows.values()) == 200
    assert tuple(result.rows) == result.estimate.names


def test_no_plan_is_a_result_whose_refusal_says_why_and_what_would_help(tmp_path):
    given = files(tmp_path, hosts=HOSTS.replace("4 GB", "1 MB"))[1::2]
    result = plan(PlanSpec(*given, weather="static"))
    assert isinstance(result.refusal, NoFeasiblePlanError)
    assert "grid" in result.refusal.remedy
    with pytest.raises(NoFeasiblePlanError) as refused:
        _ = result.rows
    assert refused.value is result.refusal
    assert result.document()["chosen"] is None
    assert result.document()["remedy"] == result.refusal.remedy


def test_a_host_that_is_known_not_to_answer_is_neither_used_nor_looked_at():
    lost = next(iter(plan(SPEC).rows))
    spec = dataclasses.replace(SPEC, silent=(lost,))
    result = plan(spec)
    assert lost not in result.rows
    (refusal,) = (one for one in result.document()["rejected"] if one["hosts"] == [lost])
    assert refusal["filter"] == "fitness"
    assert lost not in [host.name for host in host_survey(load(spec)).unseen]


def test_functions_of_ones_own_take_the_place_of_names():
    named = plan(dataclasses.replace(SPEC, blueprint="blocked"))
    given = plan(dataclasses.replace(SPEC, blueprint=blocked))
    assert (named.blueprint, named.rows) == (given.blueprint, given.rows)
    asked = []

    def planner(resources, information):
        asked.append(resources)
        return equal_strips(resources, information)

    plan(dataclasses.replace(SPEC, planner=planner))
    assert asked


def test_a_name_that_is_none_is_refused_with_those_that_are():
    with pytest.raises(UsageError) as raised:
        plan(dataclasses.replace(SPEC, blueprint="fastest"))
    assert (raised.value.code, raised.value.fields["value"]) == ("blueprint-unknown", "fastest")
    assert "blocked" in raised.value.fields["known"]


@pytest.mark.more
def test_the_argument_is_made_only_where_it_is_asked_for():
    short, long = plan(SPEC), plan(SPEC, explain=True)
    assert short.explanation is None
    assert long.explanation.equal_strips.iteration_seconds >= long.estimate.iteration_seconds
    added = set(long.document()) - set(short.document())
    changes = {"changes", "changes_within", "changes_asked", "changes_possible"}
    assert added == {"sets", *changes, "equal_strips", "rests_on"}
