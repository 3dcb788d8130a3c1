"""`plan`: the same decision from files and from a loaded pool, typed, with nothing printed."""

import dataclasses
import inspect
from importlib.metadata import version

import pytest
from commands import EXAMPLE, HOSTS, files

import apples
from apples import (
    ModelError,
    NoFeasiblePlanError,
    PlanSpec,
    Rejection,
    UsageError,
    load_information,
    plan,
)
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


def first_line(function):
    """Return ``file:line`` where a function of this file begins."""
    code = function.__code__
    return f"{code.co_filename}:{code.co_firstlineno}"


def test_own_host_filter_leaves_hosts_out_with_its_reason():
    first = next(iter(plan(SPEC).rows))

    def maintained(host, _):
        if host.name == first:
            return Rejection((host.name,), f"{host.name} is maintained", (0.0, 1.0), "maintained")
        return None

    result = plan(dataclasses.replace(SPEC, host_filters=(maintained,)))
    assert first not in result.rows
    (refusal,) = (one for one in result.document()["rejected"] if one["hosts"] == [first])
    assert (refusal["filter"], refusal["reason"]) == ("maintained", f"{first} is maintained")


def test_own_filter_refuses_schedules_and_the_filters_of_apples_stay(tmp_path):
    def two_or_more(schedule, _):
        names = tuple(host.name for host in schedule.resources)
        if len(names) < 2:
            return Rejection(names, "one host", (len(names), 2.0), "two_or_more")
        return None

    assert len(plan(SPEC).rows) == 1
    assert len(plan(dataclasses.replace(SPEC, filters=(two_or_more,))).rows) > 1
    small = files(tmp_path, hosts=HOSTS.replace("4 GB", "1 MB"))[1::2]
    assert plan(PlanSpec(*small, weather="static", filters=(two_or_more,))).refusal is not None


def test_own_model_as_a_function_is_asked_and_checked():
    pool, built = load(SPEC), []

    def own(information):
        built.append(information)
        return pool.model

    assert plan(dataclasses.replace(SPEC, model=own)).rows == plan(SPEC).rows
    assert built
    with pytest.raises(ModelError):
        plan(dataclasses.replace(SPEC, model=lambda _: object()))


def test_mistakes_of_own_filter_and_planner_name_their_line():
    def says_text(host, _):
        return f"{host.name} is slow"

    with pytest.raises(UsageError) as refused:
        plan(dataclasses.replace(SPEC, host_filters=(says_text,)))
    assert first_line(says_text) in str(refused.value)

    def says_true(*_):
        return True

    with pytest.raises(UsageError) as refused:
        plan(dataclasses.replace(SPEC, filters=(says_true,)))
    assert first_line(says_true) in str(refused.value)

    def none(*_):
        return None

    with pytest.raises(ModelError) as refused:
        plan(dataclasses.replace(SPEC, planner=none))
    assert first_line(none) in str(refused.value)


def test_mistake_of_own_metric_names_its_line(tmp_path):
    metric = tmp_path / "metric.py"
    metric.write_text("\n\ndef watts(estimate):\n    return estimate.power\n")
    user = f'[objective]\nmeasure = "{metric}:watts"\nbetter = "lower"\n'
    given = files(tmp_path, user=user)[1::2]
    with pytest.raises(UsageError) as refused:
        plan(PlanSpec(*given, weather="static"))
    assert f"{metric}:4" in str(refused.value)


def test_version_is_that_of_the_distribution():
    assert apples.__version__ == version("apples")
    assert "__version__" in dir(apples)
