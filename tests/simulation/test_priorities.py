"""Waiting jobs in the order of the priorities that their log says."""

from dataclasses import replace

import numpy as np
import pytest
from commands import command
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from apples.errors import UsageError
from apples.scheduling import Conservative, Easy, FirstComeFirstServed, FirstFit
from apples.simulation import Log, SimulationConfig, has_kernel, rigid, simulate, write_swf
from apples.simulation import prepare_simulation as prepare

ORDERED = (FirstComeFirstServed, Easy, Conservative)


def with_priority(workload, *priority):
    return replace(workload, attributes={"priority": np.array(priority, dtype=float)})


def jobs(*rows):
    """Jobs of (submit, processors, run and request, priority), numbered from 1."""
    submit, width, run, priority = (np.array(column) for column in zip(*rows, strict=True))
    return with_priority(
        rigid(submit.astype(float), run.astype(float), width, run.astype(float)), *priority
    )


@pytest.mark.parametrize("policy", ORDERED)
def test_the_largest_priority_is_first_and_those_alike_go_by_submission(policy):
    rows = [(0, 4, 10, 0), (1, 4, 10, 1), (2, 4, 10, 7), (3, 4, 10, 1)]
    result = simulate(jobs(*rows), policy(order="priority"), SimulationConfig(4))
    assert result.start.tolist() == [0, 20, 10, 30]
    assert simulate(jobs(*rows), policy(), SimulationConfig(4)).start.tolist() == [0, 10, 20, 30]


def test_a_job_with_a_larger_priority_takes_precedence_over_a_promise():
    rows = [(0, 3, 10, 0), (1, 4, 10, 0), (2, 2, 30, 9)]
    result = simulate(jobs(*rows), Conservative(order="priority"), SimulationConfig(4))
    assert result.start.tolist() == [0, 40, 10]
    assert simulate(jobs(*rows), Conservative(), SimulationConfig(4)).start.tolist() == [0, 10, 20]


@st.composite
def drawn(draw):
    """Up to 12 jobs on 6 processors, with priorities and limits beyond their run times."""
    count = draw(st.integers(1, 12))

    def column(low, high):
        return np.array(draw(st.lists(st.integers(low, high), min_size=count, max_size=count)))

    run = column(1, 20) * 1.0
    workload = rigid(column(0, 30) * 1.0, run, column(1, 6), run + column(0, 9))
    return with_priority(workload, *column(0, 3).tolist())


@settings(max_examples=examples(80), deadline=None)
@given(drawn())
def test_under_first_come_first_served_nobody_overtakes_a_job_with_a_larger_priority(workload):
    result = simulate(workload, FirstComeFirstServed("priority"), SimulationConfig(6))
    key = [
        (-p, s, n)
        for p, s, n in zip(
            workload.attributes["priority"], workload.submit, workload.job, strict=True
        )
    ]
    for a, first in enumerate(key):
        for b, second in enumerate(key):
            if first < second and workload.submit[a] <= result.start[b]:
                assert result.start[a] <= result.start[b]


@settings(max_examples=examples(80), deadline=None)
@given(drawn(), st.sampled_from(ORDERED))
def test_jobs_that_come_at_once_run_as_if_they_were_numbered_by_priority(workload, policy):
    together = replace(workload, submit=np.zeros(len(workload)))
    together = replace(together, job=np.arange(1, len(workload) + 1))
    order = np.argsort(-together.attributes["priority"], kind="stable")
    plain = rigid(
        np.zeros(len(order)), together.run[order], together.processors[order],
        together.requested[order],
    )  # fmt: skip
    result = simulate(together, policy(order="priority"), SimulationConfig(6))
    expected = simulate(plain, policy(), SimulationConfig(6))
    assert result.start[order].tolist() == expected.start.tolist()


@settings(max_examples=examples(60), deadline=None)
@given(drawn(), st.sampled_from([FirstComeFirstServed, Easy]))
def test_the_kernels_take_the_order_as_the_event_engine_does(workload, policy):
    config, chosen = SimulationConfig(6), policy(order="priority")
    assert has_kernel(chosen, config, workload)
    driven = simulate(workload, chosen, config, engine="events")
    fast = simulate(workload, chosen, config, engine="kernel")
    assert fast.start.tolist() == driven.start.tolist()


def test_the_kernel_of_conservative_has_one_order():
    workload = jobs((0, 1, 1, 0))
    assert has_kernel(Conservative(), SimulationConfig(4), workload)
    assert not has_kernel(Conservative("priority"), SimulationConfig(4), workload)


# ------------------------------------------------------------------------------------ words


@pytest.fixture
def queues(tmp_path):
    path = tmp_path / "queues.swf"
    columns = {
        "job": [1, 2, 3], "submit": [0, 0, 0], "run": [10, 10, 10], "allocated": [4, 4, 4],
        "requested_processors": [4, 4, 4], "requested_time": [10, 10, 10], "status": [1, 1, 1],
        "queue": [1, 5, -1],
    }  # fmt: skip
    table = {name: np.array(column, dtype=float) for name, column in columns.items()}
    write_swf(path, Log(table, np.arange(1, 4)))
    return path


@pytest.fixture
def site(tmp_path):
    path = tmp_path / "site.sacct"
    path.write_text(
        "JobIDRaw|Submit|Start|End|Timelimit|AllocCPUS|ReqCPUS|State|QOS|Priority\n"
        "1|2026-01-01T00:00:00|2026-01-01T00:00:00|2026-01-01T00:01:00|00:01:00|4|4|COMPLETED|low|10\n"
        "2|2026-01-01T00:00:00|2026-01-01T00:01:00|2026-01-01T00:02:00|00:01:00|4|4|COMPLETED|high|900\n"
        "3|2026-01-01T00:00:00|2026-01-01T00:02:00|2026-01-01T00:03:00|00:01:00|4|4|COMPLETED|low|\n"
    )
    return path


def prepared(path, *words, policy="fcfs"):
    return prepare(
        str(path),
        policy,
        list(words),
        processors=4,
        nodes=None,
        cores=None,
        malleable=None,
        seed=0,
    )


def test_the_number_of_swfs_queue_is_the_priority(queues):
    made = prepared(queues, "order=priority")
    assert [job.priority for job in made.workload.jobs()] == [1, 5, 0]
    assert made.run().start.tolist() == [10, 0, 20]


def test_saccts_column_is_the_priority(site):
    made = prepared(site, "order=priority")
    assert [job.priority for job in made.workload.jobs()] == [10, 900, 0]
    assert not [note for note in made.source.cleaning.notes if "priority" in note]


def test_names_may_be_given_priorities(site, queues):
    named = prepared(site, "order=priority", "priorities=low:2,high:1", policy="easy")
    assert [job.priority for job in named.workload.jobs()] == [1, 0.5, 1]
    numbered = prepared(queues, "order=priority", "priorities=1:9", policy="conservative")
    assert [job.priority for job in numbered.workload.jobs()] == [1, 0, 0]


def test_priorities_that_nobody_looks_at_are_counted(site):
    notes = prepared(site, "priorities=low:2").source.cleaning.notes
    assert [note for note in notes if note.startswith("2 ") and "priority" in note]
    assert [note for note in notes if "fcfs" in note]
    assert [job.priority for job in prepared(site).workload.jobs()] == [0, 0, 0]


def test_a_policy_that_has_no_such_order_says_which_there_are():
    with pytest.raises(UsageError) as raised:
        FirstComeFirstServed(order="shortest")
    assert raised.value.code == "value-unknown"
    assert raised.value.fields == {
        "option": "order",
        "value": "shortest",
        "known": ["fcfs", "priority"],
    }
    assert FirstFit().looks_at == ("reservations",)


@pytest.mark.parametrize(
    ("words", "code", "field"),
    [
        (["order=priority"], "priorities-missing", "file"),
        (["order=priority", "priorities=low"], "value-invalid", "option"),
    ],
)
def test_a_log_without_priorities_is_an_error(words, code, field, site):
    lines = site.read_text().splitlines()
    site.write_text("".join(line.rpartition("|")[0] + "\n" for line in lines))
    with pytest.raises(UsageError) as raised:
        prepared(site, *words)
    assert raised.value.code == code
    assert raised.value.fields[field] == {"file": str(site), "option": "priorities"}[field]


def test_a_priority_that_is_no_number_is_a_damaged_row(site):
    site.write_text(site.read_text().replace("|900", "|soon"))
    said = command(
        "apples", "simulate", str(site), "--policy", "easy", "--processors", "4", "--json"
    )
    assert (said.code, said.failure["code"]) == (2, "rows-damaged")
    assert (said.failure["fields"]["field"], said.failure["fields"]["problem"]) == (
        "Priority",
        "value-type",
    )


def test_a_models_jobs_have_no_priorities():
    with pytest.raises(UsageError) as raised:
        prepared("lublin:jobs=9,processors=64", "order=priority")
    assert raised.value.code == "option-not-applicable"
    assert raised.value.fields["option"] == "order"
