"""`apples calibrate --learned`, `--forget` and `--learned`: the learned state is local, visible and removable."""

import json
from dataclasses import replace

import pytest
from commands import command
from worlds import pool

from apples import Coordinator, Host, Link, SpeedFunction
from apples.agent import (
    PROVEN,
    Correction,
    Learned,
    LearnedKey,
    LearnedLink,
    LearnedLinks,
    PlanSpec,
    RunObservation,
    by_kind_and_key,
    described,
    learn,
    left_out,
    plan,
    recall,
    store_speeds,
)
from blueprints import minimum_execution_time

HOSTS = """
[[host]]
name = "ada"
[[host]]
name = "bob"
"""
FORECAST = {"value": 0.9, "error": 0.05, "method": "mean", "samples": 9, "time": 0.0}
TEMPLATE = 'name = "heat"\nversion = "1"\nprogram = ["heat"]\n[[implementation]]\nname = "numpy"\n'


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return application(tmp_path / "heat")


def application(path):
    path.mkdir()
    (path / "hosts.toml").write_text(HOSTS)
    (path / "template.toml").write_text(TEMPLATE)
    weather = {"schema": "nws.weather/1", "time": 0.0, "cpu": {"ada": FORECAST}}
    (path / "weather.json").write_text(json.dumps(weather))
    return path


def teach(folder, host="ada"):
    """Have three runs find a host twice as slow as it was calibrated."""
    key = LearnedKey.of("heat", "1", folder)
    for name in ("ada", "bob"):
        store_speeds(key, name, {"numpy": SpeedFunction.constant(1e-9)})
    for _ in range(3):
        learn(key, RunObservation(["ada", "bob"], slowdown={host: 2.0}))
    return key


def rows(folder, weather, **options):
    files = folder / "hosts.toml", folder / "template.toml", None
    found = plan(PlanSpec(*files, weather=weather, **options))
    return {strip["host"]: strip["rows"] for strip in found.document()["chosen"]["strips"]}


@pytest.mark.parametrize("weather", ["static", "weather.json"])
def test_a_recorded_weather_gives_the_same_plan_whatever_was_run_before(folder, weather):
    weather = weather if weather == "static" else str(folder / weather)
    before = rows(folder, weather)
    teach(folder)
    assert rows(folder, weather) == before
    assert rows(folder, weather, learned=True) != before


def test_a_copy_in_another_folder_inherits_nothing(folder, tmp_path):
    teach(folder)
    copy = application(tmp_path / "copy")
    assert rows(copy, "static", learned=True) == rows(copy, "static")


def planned(folder, *more):
    files = [f"--hosts={folder}/hosts.toml", f"--template={folder}/template.toml"]
    return command("apples", "plan", *files, "--weather", "static", "--explain", *more)


def test_explain_lists_each_correction_with_its_evidence_and_two_errors(folder):
    teach(folder)
    (known,) = [
        one
        for one in planned(folder, "--learned", "--json").document["rests_on"]["corrections"]
        if one["kind"] == "slowdown"
    ]
    assert (known["of"], known["applied"], known["runs"], known["tested"]) == (["ada"], True, 3, 2)
    assert known["factor"] == pytest.approx(2.0, rel=0.05)
    assert (known["error_with"] < 0.1, known["error_without"] > 0.9) == (True, True)
    text = " ".join(planned(folder, "--learned").out.split())
    assert "slowdown of ada times 2.0" in text
    assert "% with it, 100 % without" in text
    assert planned(folder, "--json").document["rests_on"]["corrections"] == []


def test_learned_shows_what_is_stored(folder):
    assert command("apples", "calibrate", "--learned").out.startswith("Nothing learned yet")
    teach(folder)
    document = command("apples", "calibrate", "--learned", "heat", "--json").document
    (state,) = document["applications"]
    assert (state["application"], state["folder"]) == ("heat", str(folder))
    assert set(state["speeds"]) == {"ada", "bob"}
    assert [one["kind"] for one in state["corrections"]] == ["slowdown"]
    assert "slowdown of ada times" in command("apples", "calibrate", "--learned").out


@pytest.mark.parametrize("word", ["--learned", "--forget"])
def test_an_unknown_name_is_refused_with_a_suggestion(folder, word):
    teach(folder)
    done = command("apples", "calibrate", word, "heta", "--json")
    assert done.code == 2
    assert "did you mean 'heat'?" in done.err


def test_forget_removes_an_application_or_a_host(folder, tmp_path):
    key, other = teach(folder), teach(application(tmp_path / "other"))
    removed = command("apples", "calibrate", "--forget", "ada", "--json").document["removed"]
    assert len(removed) == 2
    assert recall(key).identities == recall(other).identities == ["bob"]
    command("apples", "calibrate", "--forget", str(folder))
    assert recall(key).identities == []
    assert recall(other).identities == ["bob"]
    assert (
        command("apples", "calibrate", "--forget", "heat").out
        == f"forgotten: heat 1 in {other.folder}\n"
    )
    assert command("apples", "calibrate", "--forget", "heat").code == 2


@pytest.mark.parametrize("word", [".", "./", "../heat", "{folder}", "{folder}/"])
def test_a_folder_is_named_as_a_path_is(folder, word, monkeypatch):
    key = teach(folder)
    monkeypatch.chdir(folder)
    word = word.format(folder=folder)
    (state,) = command("apples", "calibrate", "--learned", word, "--json").document["applications"]
    assert state["folder"] == str(folder)
    assert (
        command("apples", "calibrate", "--forget", word).out == f"forgotten: heat 1 in {folder}\n"
    )
    assert recall(key).identities == []


def test_learned_of_a_host_shows_its_part_of_each_application(folder, tmp_path):
    teach(folder)
    teach(application(tmp_path / "other"), host="bob")
    states = command("apples", "calibrate", "--learned", "ada", "--json").document["applications"]
    first, second = sorted(states, key=lambda state: state["folder"])
    assert (set(first["speeds"]), set(second["speeds"])) == ({"ada"}, {"ada"})
    assert [len(state["corrections"]) for state in (first, second)] == [1, 0]


def test_forget_refuses_a_name_of_several_folders_unless_all_are_meant(folder, tmp_path):
    key, other = teach(folder), teach(application(tmp_path / "other"))
    refused = command("apples", "calibrate", "--forget", "heat")
    assert refused.code == 2
    assert all(known.folder in refused.err for known in (key, other))
    assert recall(key).identities == recall(other).identities == ["ada", "bob"]
    removed = command("apples", "calibrate", "--forget", "heat", "--all", "--json").document[
        "removed"
    ]
    assert len(removed) == 2
    assert recall(key).identities == recall(other).identities == []


def test_a_correction_that_is_not_used_has_its_reason(folder):
    key = LearnedKey.of("heat", "1", folder)
    factors = (1.5, 1.25, 1.4, 1.4, 1.0)
    reasons = []
    for straggler_factor in factors:
        run = RunObservation(["ada", "bob"], straggler_factor=straggler_factor)
        learn(key, run)
        entry = command("apples", "calibrate", "--learned", "heat", "--json").document[
            "applications"
        ][0]
        reasons.append({len(known["of"]): known["unused"] for known in entry["corrections"]})
    assert reasons == [
        {2: "not tested by a later run", 0: "not tested by a later run"},
        {2: "tested by 1 of 2 later runs", 0: "tested by 1 of 2 later runs"},
        {2: None, 0: "fewer than 2 sets taught it"},
        {2: None, 0: "fewer than 2 sets taught it"},
        {2: "worse in the newest run", 0: "worse in the newest run"},
    ]
    assert "not used (worse in the newest run): 5 runs" in " ".join(
        command("apples", "calibrate", "--learned", "heat").out.split()
    )


def test_errors_of_rounding_are_shown_as_none(folder):
    key = LearnedKey.of("heat", "1", folder)
    for ratio in (1.0, 1.0 + 1e-15, 1.0):
        learn(key, RunObservation(["ada"], slowdown={"ada": ratio}))
    out = command("apples", "calibrate", "--learned", "heat").out
    assert "error 0 % with it, 0 % without" in " ".join(out.split())
    assert out.startswith(f"heat 1 in {folder}: 0 runs compared with a prediction\n")


def test_a_plan_says_where_a_straggler_factor_is_in_its_iteration_time(folder):
    key = LearnedKey.of("heat", "1", folder)
    for name in ("ada", "bob"):
        store_speeds(key, name, {"numpy": SpeedFunction.constant(1e-9)})
    both = ("--learned", "--blueprint", "all_resources")
    before = planned(folder, *both).out
    for _ in range(3):
        learn(key, RunObservation(["ada", "bob"], straggler_factor=1.5))
    chosen = planned(folder, *both, "--json").document["chosen"]
    longest = max(strip["seconds"] for strip in chosen["strips"])
    assert chosen["iteration_seconds"] == pytest.approx(1.5 * longest, rel=0.03)
    assert chosen["straggler_factor"] == pytest.approx(chosen["iteration_seconds"] / longest)
    line = " times the longest total: hosts are late by turns (learned)"
    assert line in planned(folder, *both).out
    assert line not in before


HOSTS_OF_LINKS = [Host("a", seconds_per_point=1e-9), Host("b", seconds_per_point=1e-9)]
NEAR = {("local", "local"): Link(1e-4, 1e8)}


def reason_of_the_host_left_out(learned, hosts=HOSTS_OF_LINKS, links=NEAR, **specification):
    coordinator = Coordinator(pool(hosts, links, learned=learned, **specification))
    coordinator.execute(minimum_execution_time)
    (reason,) = left_out(coordinator.decision_log)
    return reason["reason"]


def test_a_host_that_a_learned_link_leaves_out_names_the_factor_that_is_used():
    link = LearnedLink(("a", "b"), 1e-4, 1e6, 1e-4, 1e8, spread=0.0, evidence=PROVEN)
    reason = reason_of_the_host_left_out(Learned(links=LearnedLinks({("a", "b"): link})))
    assert "(its link is learned: 30 times the forecast, 6 runs)" in reason


def test_a_shown_link_is_shrunk_by_its_evidence_as_the_used_one_is():
    link = LearnedLink(("a", "b"), 1e-4, 1e7, 1e-4, 2e7, spread=0.5, evidence=PROVEN)
    used = 2e7 / link.under(Link(1e-4, 2e7)).bandwidth
    information = pool(
        HOSTS_OF_LINKS, NEAR, learned=Learned(links=LearnedLinks({("a", "b"): link}))
    )
    (shown,) = described(information, information.hosts)
    assert shown["factor"] == used == pytest.approx(1.89, abs=0.01)


def test_a_host_that_a_learned_start_leaves_out_names_it():
    start = Correction.proven("start", ("local", "b"), 60.0)
    hosts = [replace(host, start_seconds=0.0) for host in HOSTS_OF_LINKS]
    learned = Learned(corrections=by_kind_and_key([start]))
    reason = reason_of_the_host_left_out(learned, hosts, launcher="local")
    assert reason.endswith("(its start is learned: 60.0 s, 6 runs)")


def test_a_host_that_a_learned_straggler_factor_leaves_out_names_it():
    factor = Correction.proven("straggler_factor", ("a", "b"), 2.0)
    hosts = [replace(HOSTS_OF_LINKS[0], seconds_per_point=1.05e-9), HOSTS_OF_LINKS[1]]
    reason = reason_of_the_host_left_out(Learned(corrections=by_kind_and_key([factor])), hosts)
    assert reason.endswith(
        "(the straggler factor with it is learned: 2.0 times the model, 6 runs)"
    )


def test_a_learned_start_is_shown_with_the_seconds_of_the_list_in_it():
    listed = [replace(host, start_seconds=2.0) for host in HOSTS_OF_LINKS]
    start = Correction.proven("start", ("local", "b"), 3.0, 2.0)
    learned = Learned(corrections=by_kind_and_key([start]))
    information = pool(listed, learned=learned, launcher="local")
    (shown,) = described(information, information.hosts)
    assert (shown["of"], shown["seconds"]) == (["local", "b"], 5.0)
