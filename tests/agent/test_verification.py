"""Verification by a budget: in full, by a sample, or not at all; whichever it is, it can fail, and says why."""

import re
from dataclasses import replace

import pytest
import rowed
from commands import files

from apples.agent import (
    Coordinator,
    FinishedRun,
    Reference,
    asked_for,
    load_information,
    sequential,
    verify,
)
from apples.errors import UsageError
from apples.launch import HostTimes, LocalActuator, Outcome, RowDigests
from blueprints import blocked

pytestmark = pytest.mark.mpi


@pytest.fixture
def finished(tmp_path):
    """A run of the program with a fault, and its pool; `work` is what each host claims to have computed."""

    def make(fault="", work=0.1, own=1.0, iterations=10, hosts=rowed.HOSTS, **more):
        files(
            tmp_path,
            hosts=hosts,
            template=rowed.template(fault, iterations=iterations, **more),
        )
        pool = load_information(
            *(tmp_path / f"{name}.toml" for name in ("hosts", "template", "user")),
            weather="static",
        )
        coordinator = Coordinator(pool)
        coordinator.execute(blocked)
        right = sequential(pool) if fault != "alone" else Reference(iterations, "0" * 64)
        outcome = Outcome(
            iterations,
            work,
            0.01,
            tuple(HostTimes(host.name, work, 0.0) for host in pool.hosts),
            sha256=right.sha256,
        )
        schedule = coordinator.decision_log.chosen.schedule
        run = FinishedRun(schedule, outcome, right.rows, own, sampler=LocalActuator)
        return run, pool

    return make


def figures(reason):
    """Return the numbers of a text with their units, and without them."""
    return {*re.findall(r"[\d.]+(?: s|%)?", reason)}


def test_a_short_run_is_done_again_in_full(finished):
    run, pool = finished()
    found = verify("auto", run, pool)
    assert (found.how, found.verified, found.iterations, found.reason) == ("full", True, 10, "")
    assert found.predicted_seconds < 10


ONE_HOST = '[[host]]\nname = "ada"\nseconds_per_point = 1e-9\n'


def test_the_ranks_that_were_compared_are_stated(finished):
    found = verify("auto", *finished())
    assert found.document()["compared"] == {
        "ranks": 2, "reference_ranks": 1, "partition_tested": True,
    }  # fmt: skip


@pytest.mark.parametrize("own", [1.0, 60.0], ids=["full", "sample"])
@pytest.mark.parametrize("fault", ["", "partition"])
def test_a_run_of_one_rank_is_compared_with_two(finished, own, fault):
    run, pool = finished(fault, work=own, own=own, iterations=1000, hosts=ONE_HOST)
    found = verify("auto", run, pool)
    assert (found.how, found.verified) == ("full" if own == 1.0 else "sample", not fault)
    assert found.document()["compared"] == {
        "ranks": 1, "reference_ranks": 2, "partition_tested": True,
    }  # fmt: skip


@pytest.mark.parametrize("fault", ["several", "partition"])
def test_one_rank_that_cannot_be_compared_with_two_is_not_said_to_test_the_partition(
    finished, fault
):
    run, pool = finished(fault, hosts=ONE_HOST)
    if fault == "partition":  # of a grid of two rows
        pool = pool.with_application(pool.template.bind({"grid": 2}))
        run = replace(run, outcome=replace(run.outcome, sha256=sequential(pool).sha256))
    found = verify("full", run, pool)
    assert (found.how, found.verified) == ("full", True)
    assert found.document()["compared"] == {
        "ranks": 1, "reference_ranks": 1, "partition_tested": False,
    }  # fmt: skip
    assert {"several": "it is not parallel", "partition": "2 rows"}[fault] in found.reason


def test_what_differs_is_named_by_its_first_row_and_its_owner(finished):
    run, pool = finished()
    (right,) = run.row_digests
    mine = [
        RowDigests(0, "ada", 0, right.digests[: 15 * 8]),
        RowDigests(
            15, "bob", 1, right.digests[15 * 8 : 17 * 8] + "0" * 8 + right.digests[18 * 8 :]
        ),
    ]
    wrong = replace(run, outcome=replace(run.outcome, sha256="1" * 64), row_digests=mine)
    found = verify("auto", wrong, pool)
    assert found.verified is False
    assert found.document()["differs_at"] == {"row": 17, "host": "bob", "rank": 1}
    silent = verify("full", replace(wrong, row_digests=()), pool)
    assert (silent.verified, silent.difference) == (False, None)


def test_a_run_that_would_take_long_alone_is_sampled_and_it_says_why(finished):
    run, pool = finished(work=60.0, own=60.0, iterations=1000)
    found = verify("auto", run, pool)
    assert (found.how, found.verified, found.sampled_on) == ("sample", True, "hosts")
    # An iteration takes 0.12 s alone and 0.06 s in the run; of 5 s the two starts take 0.02.
    assert found.iterations == 27
    assert {"120 s", "20%"} <= figures(found.reason)


def test_a_sample_sees_a_result_that_depends_on_the_partition_and_none_that_comes_later(finished):
    run, pool = finished("partition", work=60.0, own=60.0, iterations=2000)
    found = verify("auto", run, pool)
    assert (found.how, found.verified) == ("sample", False)
    assert found.difference == {"row": 15, "host": "bob", "rank": 1}
    run, pool = finished("late", work=60.0, own=60.0, iterations=2000)
    assert verify("auto", run, pool).verified is True


def test_a_sample_has_more_iterations_than_one_exchange_is_good_for(finished):
    run, pool = finished(work=3000.0, own=1000.0, iterations=1000)  # 9 s an iteration in all
    found = verify("auto", run, pool)
    assert (found.verified, found.iterations) == (True, 3)


def test_a_sample_has_no_fewer_iterations_than_the_template_allows(finished):
    run, pool = finished(work=3000.0, own=10_000.0, iterations=1000)
    template = pool.template
    few = template.parameters["iterations"].model_copy(update={"minimum": 6})
    limited = template.model_copy(
        update={"parameters": {**template.parameters, "iterations": few}}
    )
    found = verify("auto", run, replace(pool, template=limited))
    assert (found.verified, found.iterations) == (True, 6)


def test_what_no_budget_allows_is_not_done_and_has_its_reason(finished):
    run, pool = finished(work=3000.0, own=60.0, iterations=1000)
    told = []
    found = verify("auto", run, pool, talk=told.append)
    assert (found.how, found.verified) == ("none", None)
    assert {"3", "27.0 s"} <= figures(found.reason)
    (line,) = told
    assert found.reason in line
    assert verify("sample", run, pool).verified is True


def test_a_check_that_turns_out_to_take_longer_than_it_may_is_given_up(finished):
    run, pool = finished(each=5.0, iterations=1000)
    found = verify("auto", run, pool)
    assert (found.how, found.verified) == ("none", None)
    assert {"5000 s", "10.0 s"} <= figures(found.reason)
    assert verify("full", run, pool).how == "full"
    run, pool = finished(each=2.0, iterations=1000, own=1000.0)
    assert verify("auto", run, pool).how == "sample"  # three iterations, 6 s of 200


def test_without_a_parameter_for_the_iterations_there_is_no_sample(finished):
    run, pool = finished(
        work=60.0, own=60.0, structure='[structure]\niterations = "2*iterations"\n'
    )
    found = verify("auto", run, pool)
    assert found.verified is None
    assert "2*iterations" in found.reason


def test_a_check_that_cannot_be_made_takes_nothing_from_the_run(finished):
    run, pool = finished("alone")
    found = verify("full", run, pool)
    assert (found.asked, found.how, found.verified) == ("full", "none", None)
    assert "one process is not enough" in found.reason, "what the program wrote"


def test_a_result_without_a_digest_is_not_run_again(finished):
    run, pool = finished("alone")
    bare = replace(run, outcome=replace(run.outcome, sha256=""))
    found = verify("auto", bare, pool)
    assert (found.how, found.verified) == ("none", None)
    assert "sha256" in found.reason


def test_only_a_long_check_is_announced(finished):
    told = []
    run, pool = finished()
    verify("auto", run, pool, talk=told.append)
    assert told == []
    run, pool = finished(work=4.0)
    verify("auto", run, pool, talk=told.append)
    assert told == ["verifying: the whole run again as one process here, about 8.01 s"]


def test_where_hosts_are_waited_for_a_sample_is_run_on_this_machine(finished):
    run, pool = finished(work=60.0, own=60.0, iterations=1000)
    found = verify("sample", replace(run, sampler=None), pool)
    assert (found.verified, found.sampled_on) == (True, "this machine")


def test_the_words_and_the_booleans_of_before():
    assert [asked_for(word) for word in (True, False, "full")] == ["auto", "none", "full"]
    with pytest.raises(UsageError) as raised:
        asked_for("most")
    assert raised.value.code == "value-unknown"
    assert raised.value.fields["known"] == ["full", "sample", "none"]
