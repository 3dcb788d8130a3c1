import json
import math

import numpy as np
import pytest
from commands import command
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from apples.errors import UsageError
from apples.scheduling import Easy, FirstComeFirstServed
from apples.simulation import (
    Log,
    SimulationConfig,
    WaitFit,
    clean,
    explain,
    explain_waits,
    lublin_workload,
    simulate,
    waits_of_log,
    write_swf,
)

MACHINE = SimulationConfig(nodes=64)
POLICIES = {"fcfs": FirstComeFirstServed(), "easy": Easy()}


def site_log(policy, jobs=600, seed=3, stretch=1.0, partitions=1):
    """The log of a site that ran a policy; its waits are `stretch` times as long."""
    workload = lublin_workload(jobs, 64, seed)
    result = simulate(workload, policy, MACHINE)
    waits = stretch * (result.start - workload.submit)
    columns = {
        "job": workload.job.astype(float),
        "submit": np.floor(workload.submit),
        "wait": waits,
        "run": workload.run,
        "allocated": workload.processors.astype(float),
        "requested_processors": workload.processors.astype(float),
        "requested_time": workload.requested,
        "status": np.ones(len(workload)),
        "partition": 1.0 + np.arange(len(workload)) % partitions,
    }
    return Log(columns, np.arange(1, jobs + 1), ("MaxProcs: 64",))


def explained(log):
    workload, _ = clean(log, 64)
    return explain(POLICIES, workload, MACHINE, log, log.columns["wait"])


@pytest.mark.parametrize("name", POLICIES)
def test_a_site_that_ran_a_policy_is_explained_by_it(name):
    said = explained(site_log(POLICIES[name]))
    assert said.policy == name
    assert said.is_explained
    assert name in str(said)


def test_waits_that_no_policy_makes_are_not_explained_and_no_verdict_is_given():
    said = explained(site_log(Easy(), stretch=14.0))
    assert not said.is_explained
    assert f"{said.second[said.policy].worst[1]:.3g} x" in str(said)


def test_the_choice_sees_the_first_half_only():
    """A site that changed its scheduler half-way: what was chosen before it is judged by what came after."""
    before, after = site_log(Easy()), site_log(FirstComeFirstServed())
    half = len(before) // 2
    waits = np.concatenate((before.columns["wait"][:half], after.columns["wait"][half:]))
    log = Log({**before.columns, "wait": waits}, before.lines)
    said = explained(log)
    assert said.policy == "easy"
    assert said.factor > said.first["easy"].worst[1]


def test_partitions_are_a_breakdown_where_there_are_several():
    assert set(explained(site_log(Easy())).second["easy"].breakdowns) == {"day", "size"}
    several = explained(site_log(Easy(), partitions=3)).second["easy"]
    assert [group["name"] for group in several.breakdowns["partition"]] == ["1", "2", "3"]


@settings(max_examples=examples(30))
@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e6), st.integers(1, 99)), min_size=1))
def test_a_factor_is_one_only_where_all_groups_agree_and_never_below(groups):
    made = tuple(
        {"name": "g", "jobs": jobs, "logged_wait": logged, "simulated_wait": other}
        for logged, other, jobs in groups
    )
    factor = WaitFit(made[0], {"day": made}).factor("day")
    assert factor >= 1
    if all(math.isclose(one["logged_wait"], one["simulated_wait"]) for one in made):
        assert factor == pytest.approx(1)


def test_unknown_waits_are_left_out_and_a_log_without_any_is_refused(tmp_path):
    log = site_log(Easy())
    log.columns["wait"][::10] = -1
    write_swf(tmp_path / "some.swf", log)
    read, waits = waits_of_log(tmp_path / "some.swf")
    workload, _ = clean(read, 64)
    said = explain(POLICIES, workload, MACHINE, read, waits)
    assert (said.jobs, said.unknown) == (540, 60)
    log.columns["wait"][:] = -1
    write_swf(tmp_path / "none.swf", log)
    with pytest.raises(UsageError) as raised:
        waits_of_log(tmp_path / "none.swf")
    assert raised.value.code == "waits-missing"
    assert raised.value.fields["file"] == str(tmp_path / "none.swf")


def test_the_command_answers_with_the_verdict_first(tmp_path):
    path = tmp_path / "site.swf"
    write_swf(path, site_log(Easy()))
    words = ["apples", "simulate", str(path), "--explain-waits"]
    text = command(*words).out
    assert "easy" in text.splitlines()[0]
    figures = json.loads(command(*words, "--json").out)
    assert (figures["policy"], figures["explained"]) == ("easy", True)
    assert set(figures["policies"]) == {
        "fcfs",
        "first_fit",
        "sjf",
        "easy",
        "conservative",
        "slurm",
    }
    assert figures["policies"]["easy"]["second_half"]["by_day"]


def test_no_verdict_is_given_on_a_few_waits(tmp_path):
    path = tmp_path / "site.swf"
    write_swf(path, site_log(Easy(), jobs=150))
    answer = command("apples", "simulate", path, "--explain-waits", "--json")
    assert (answer.code, answer.out) == (2, "")
    assert answer.failure["code"] == "waits-too-few"
    assert (answer.failure["fields"]["file"], answer.failure["fields"]["value"]) == (str(path), 75)


def test_a_policy_of_ones_own_that_fails_while_it_is_compared_is_named(tmp_path):
    path, mine = tmp_path / "site.swf", tmp_path / "mine.py"
    write_swf(path, site_log(Easy(), jobs=300))
    mine.write_text(
        "from apples.scheduling import Easy\n"
        "class Mine(Easy):\n"
        "    def decide(self, cluster):\n"
        "        raise KeyError(len(cluster.queue))\n"
    )
    words = ("apples", "simulate", path, "--explain-waits", "--policy", f"{mine}:Mine")
    answer = command(*words)
    assert answer.code == 2
    assert f"{mine}:4: KeyError: " in answer.err
    failed = command(*words, "--json").document["failed_passes"]
    assert failed > 0
    assert str(failed) in answer.out.splitlines()[1]


@pytest.mark.parametrize(
    ("words", "code", "fields"),
    [
        (
            ["lublin:jobs=50", "--explain-waits", "--processors", "64"],
            "option-not-applicable", {"option": "--explain-waits", "log": "lublin:jobs=50"},
        ),
        (["site.swf", "--explain-waits", "--policy", "sd"], "policy-unsuitable", {"policy": "sd"}),
        (["site.swf"], "option-missing", {"option": "--policy"}),
    ],
)  # fmt: skip
def test_what_cannot_be_compared_is_said(tmp_path, monkeypatch, words, code, fields):
    monkeypatch.chdir(tmp_path)
    write_swf(tmp_path / "site.swf", site_log(Easy(), jobs=60))
    answer = command("apples", "simulate", *words, "--json")
    assert (answer.code, answer.failure["code"]) == (2, code)
    assert fields.items() <= answer.failure["fields"].items()


def test_a_policy_without_a_kernel_is_tried_on_a_long_log_only_by_name(tmp_path):
    path = tmp_path / "site.swf"
    write_swf(path, site_log(Easy()))

    def tried(policy):
        return explain_waits(
            str(path),
            policy,
            [],
            processors=64,
            nodes=None,
            cores=None,
            seed=0,
            most_by_events=500,
        )

    assert tried(None).not_tried == ("slurm",)
    assert "slurm" not in tried(None).second
    named = tried("slurm")
    assert named.not_tried == ()
    assert "slurm" in named.second
