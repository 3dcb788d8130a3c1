"""`apples report` and `apples.compare`: plans side by side, from files, runs and results."""

import dataclasses
import json

import pytest
from commands import EXAMPLE, HOSTS, command, files, refused
from pages.documents import plan as plan_of
from pages.documents import run, strip

from apples import PlanSpec, UsageError, compare, plan
from apples.jobs import recorded

FILES = [EXAMPLE / f"{name}.toml" for name in ("hosts", "template", "user")]
SPEC = PlanSpec(*FILES, settings={"grid": 2000}, weather="static")


@pytest.fixture(autouse=True)
def own_state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def saved(tmp_path):
    """Return a function that writes a plan as ``apples plan --json`` prints it."""

    def write(name, document):
        path = tmp_path / name
        path.write_text(json.dumps(document))
        return path.name

    return write


def printed(*options):
    """Return what ``apples plan --json`` prints of the example."""
    given = [
        word
        for name, path in zip(("--hosts", "--template", "--user"), FILES, strict=True)
        for word in (name, path)
    ]
    return command(
        "apples", "plan", *given, "--weather", "static", "--set", "grid=2000", "--json", *options
    ).document


def recorded_run(**parameters):
    document = run()
    document["plan"]["application"]["parameters"] |= parameters
    with recorded({"kind": "run"}, print) as record:
        record.finished(document)
    return record.id


def test_two_saved_plans_are_compared_row_by_row(saved):
    calm, other = printed(), printed("--blueprint", "blocked")
    names = saved("calm.json", calm), saved("blocked.json", other)
    document = command("apples", "report", *names, "--json").document
    assert document["schema"] == "apples.compare-plans/1"
    first, second = document["plans"]
    assert [one["name"] for one in (first, second)] == ["calm.json", "blocked.json"]
    assert (
        second["ratio"]
        == other["chosen"]["iteration_seconds"] / calm["chosen"]["iteration_seconds"]
    )
    assert [one["blueprint"] for one in (first, second)] == ["minimum_execution_time", "blocked"]
    rows = {one["host"]: one["rows"] for one in document["hosts"]}
    for place, one in enumerate((calm, other)):
        chosen = one["chosen"]
        assert {host: own[place] for host, own in rows.items() if own[place] is not None} == dict(
            zip(chosen["hosts"], chosen["rows"], strict=True)
        )
    (far,) = (one for one in document["hosts"] if one["host"] == "far")
    (reason,) = (one["reason"] for one in calm["left_out"] if one["host"] == "far")
    assert (far["rows"][0], far["reasons"]) == (None, [reason, ""])
    assert document["differ"] == {"planner": ["time_balancing", "blocked"]}
    assert document["same"]["grid"] == 2000


def test_the_text_begins_with_the_answer_and_names_the_reason(saved):
    names = saved("calm.json", printed()), saved("blocked.json", printed("--blueprint", "blocked"))
    lines = command("apples", "report", *names).out.splitlines()
    assert lines[0].startswith("blocked.json: ")
    assert "times as long as calm.json, with far." in lines[0]
    (why,) = (line for line in lines if line.startswith("far, not in calm.json: "))
    assert "its border costs" in why
    (blueprint,) = (line for line in lines if line.startswith("blueprint"))
    assert blueprint.split() == ["blueprint", "minimum_execution_time", "blocked"]


def test_a_plan_is_compared_with_the_plan_of_a_run_and_what_it_measured(saved):
    document = run()
    name = recorded_run()
    plan_file = saved("plan.json", document["plan"])
    compared = command("apples", "report", plan_file, name, "--json").document
    assert compared["schema"] == "apples.compare-plans/1"
    assert [one["measured_iteration_seconds"] for one in compared["plans"]] == [
        None,
        document["execution"]["iteration_seconds"],
    ]
    assert compared["differ"] == {}
    run_file = saved("run.json", document)
    of_file = command("apples", "report", plan_file, run_file, "--json").document
    assert of_file["plans"][1] == compared["plans"][1] | {"name": "run.json"}


def test_runs_are_compared_with_the_hosts_of_their_plans_too():
    document = command("apples", "report", recorded_run(), recorded_run(tol=3), "--json").document
    assert document["schema"] == "apples.compare/1"
    assert document["hosts"]
    assert all(one["reasons"] == ["", ""] for one in document["hosts"])


def test_a_plan_that_does_not_exist_is_compared_by_its_reason(saved, tmp_path):
    (tmp_path / "small").mkdir()
    given = files(tmp_path / "small", hosts=HOSTS.replace("4 GB", "1 MB"))[1::2]
    none = plan(PlanSpec(*given, weather="static")).document()
    some = plan(PlanSpec(*files(tmp_path)[1::2], weather="static")).document()
    names = saved("none.json", none), saved("some.json", some)
    document = command("apples", "report", *names, "--json").document
    assert [one["hosts"] is None for one in document["plans"]] == [True, False]
    assert none["rejected"][0]["reason"] in document["plans"][0]["refusal"]
    assert command("apples", "report", *names).out.startswith("none.json: no plan: ")


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ("no JSON", "file-invalid"),
        ("[1]", "file-invalid"),
        ('{"schema": "apples.runs/1"}', "file-invalid"),
        ('{"schema": "apples.plan/1", "chosen": null}', "file-invalid"),
        (None, "file-missing"),
    ],
)
def test_a_file_that_is_no_plan_is_refused(saved, tmp_path, content, code):
    good = saved("good.json", printed())
    if content is not None:
        (tmp_path / "bad.json").write_text(content)
    failure = refused("apples", "report", good, "bad.json")
    assert (failure["exit_code"], failure["code"]) == (2, code)
    assert failure["fields"]["file"] == "bad.json"


def test_plans_of_different_applications_are_refused(saved):
    other = printed()
    other["application"]["name"] = "heat"
    failure = refused("apples", "report", saved("a.json", printed()), saved("b.json", other))
    assert (failure["exit_code"], failure["code"]) == (2, "application-differs")
    assert (failure["fields"]["value"], failure["fields"]["expected"]) == ("heat", "jacobi2d")


def test_results_are_compared_in_python_under_names():
    calm = plan(SPEC)
    other = plan(dataclasses.replace(SPEC, blueprint="blocked"))
    comparison = compare(calm=calm, blocked=other)
    document = comparison.document()
    assert [one["name"] for one in document["plans"]] == ["calm", "blocked"]
    assert document["plans"][1]["hosts"] == list(other.rows)
    assert repr(comparison) == "<Comparison of calm, blocked>"
    assert str(comparison).startswith("blocked: ")
    shown = comparison._repr_html_()
    assert "<table>" in shown
    assert all(f'<th scope="row">rows of {host}</th>' in shown for host in other.rows)
    unnamed = compare(calm, other).document()
    assert [one["name"] for one in unnamed["plans"]] == ["plan 1", "plan 2"]
    with pytest.raises(UsageError):
        compare(calm)


def test_the_frame_of_a_comparison_has_a_row_a_plan():
    pytest.importorskip("pandas")
    comparison = compare(
        calm=plan(SPEC), blocked=plan(dataclasses.replace(SPEC, blueprint="blocked"))
    )
    frame = comparison.to_frame()
    assert list(frame.index) == ["calm", "blocked"]
    assert list(frame["ratio"]) == [one["ratio"] for one in comparison.document()["plans"]]


def test_the_page_is_written_and_shows_every_figure(saved, tmp_path):
    names = saved("calm.json", printed()), saved("blocked.json", printed("--blueprint", "blocked"))
    done = command("apples", "report", *names, "-o", "page.html", "--json")
    page = (tmp_path / "page.html").read_text()
    assert "page.html" in done.err
    for one in done.document["plans"]:
        assert f'<data value="{one["iteration_seconds"]!r}">' in page
        assert one["name"] in page
    assert "its border costs" in page
    done = command("apples", "report", *names, "-o", "/dev/null/x.html", "--json")
    assert (done.code, done.failure["code"]) == (2, "file-unwritable")


def test_hosts_of_old_plans_without_reasons_are_named(saved):
    both, one = plan_of([strip("ada", 60), strip("bob", 40)]), plan_of([strip("ada", 100)])
    names = saved("both.json", both), saved("one.json", one)
    text = command("apples", "report", *names).out
    assert "bob, not in one.json: its plan gives no reason" in text


def test_report_of_an_unknown_name_names_the_known_runs():
    known = recorded_run()
    failure = refused("apples", "report", "nosuch")
    assert (failure["exit_code"], failure["code"]) == (2, "run-unknown")
    assert known in failure["message"]
