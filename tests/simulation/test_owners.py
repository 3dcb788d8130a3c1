"""Owners' load in simulations: jobs are as fast as on their most loaded node, and policies move them."""

import numpy as np
import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from apples.errors import UsageError
from apples.scheduling import POLICIES, Easy, PaybackMigration, ThresholdMigration
from apples.simulation import (
    OwnerLoad,
    ReconfigurationCost,
    SimulationConfig,
    mark_malleable,
    rigid,
    simulate,
)
from apples.simulation import prepare_simulation as prepare

COST = ReconfigurationCost(expand=5.0)


def jobs(*rows):
    """Rows of submission, run time and processors; all malleable."""
    submit, run, processors = (np.array(column) for column in zip(*rows, strict=True))
    return mark_malleable(rigid(submit * 1.0, run * 1.0, processors, run * 1.0), 1.0, 0)


def machine(nodes, *owners, **more):
    loads = tuple(OwnerLoad(float(time), node, load) for time, node, load in owners)
    return SimulationConfig(nodes, owners=loads, **more)


def test_a_job_is_as_fast_as_on_its_most_loaded_node():
    both = jobs((0, 100, 2))
    # 50 s of work alone, then a half of a processor, then a third.
    config = machine(2, (50, 1, 1.0), (80, 0, 2.0))
    assert simulate(both, Easy(), config).end.tolist() == [80 + 3 * 35]
    assert simulate(both, Easy(), machine(2)).end.tolist() == [100]
    config = machine(1, (50, 0, 4.0), cores_per_node=4)
    assert simulate(jobs((0, 100, 4)), Easy(), config).end.tolist() == [150]


@pytest.mark.parametrize("policy", [ThresholdMigration(), PaybackMigration()])
def test_a_job_is_moved_off_a_node_whose_owner_came_and_stands_still_for_what_that_costs(policy):
    config = machine(3, (50, 0, 1.0), (50, 1, 0.0), cost=COST)
    result = simulate(jobs((0, 100, 2)), policy, config)
    assert result.end.tolist() == [105]
    assert result.resizes.tolist() == [1]
    assert simulate(jobs((0, 100, 2)), Easy(), config).end.tolist() == [150]


def test_a_job_that_moved_a_moment_ago_moves_when_its_hold_is_over_and_at_once_for_an_owner():
    owners = [(50, 0, 1.0), (60, 1, 1.0)]
    for first, end in ((False, 70 + 5 + 40), (True, 60 + 5 + 45)):
        config = machine(3, *owners, cost=COST, owner_first=first)
        result = simulate(jobs((0, 100, 1)), PaybackMigration(), config)
        assert result.end.tolist() == [end], first


def test_jobs_start_where_others_want_least():
    config = machine(3, (0, 0, 1.0), (0, 1, 3.0))
    found = simulate(jobs((0, 10, 1), (0, 10, 1)), Easy(), config)
    assert found.end.tolist() == [10, 20]


def test_under_constant_load_nothing_is_moved():
    for seed in range(10):
        chance = np.random.default_rng(seed)
        owners = [(0, node, float(chance.integers(0, 3))) for node in range(6)]
        one = jobs((0, 500, int(chance.integers(1, 6))))
        result = simulate(one, PaybackMigration(), machine(6, *owners))
        assert result.resizes.sum() == 0


@st.composite
def histories(draw):
    count = draw(st.integers(1, 8))
    rows = [
        (draw(st.integers(0, 60)), draw(st.integers(1, 200)), draw(st.integers(1, 8)))
        for _ in range(count)
    ]
    owners = draw(
        st.lists(
            st.tuples(
                st.integers(0, 300), st.integers(0, 3), st.sampled_from([0.0, 0.5, 1.0, 4.0])
            ),
            max_size=12,
        )
    )
    # In the end all owners go, or a job that needs every node would wait for ever.
    return jobs(*rows), [*owners, *((2000, node, 0.0) for node in range(4))]


@settings(max_examples=examples(40), deadline=None)
@given(histories(), st.sampled_from(sorted(POLICIES)), st.booleans())
def test_whatever_owners_do_every_job_does_its_work(history, name, first):
    workload, owners = history
    config = machine(4, *owners, cores_per_node=2, cost=COST, owner_first=first)
    result = simulate(workload, POLICIES[name](), config)
    assert result.completed.all()
    assert result.node_seconds >= 0


@pytest.mark.parametrize(
    ("row", "code", "fields"),
    [
        ("0,9,1", "value-range", {"field": "node", "value": 9, "bound": 3}),
        ("0,1,-1", "value-range", {"field": "load", "value": -1}),
        ("0,1", "columns-differ", {"value": 2, "bound": 3}),
    ],
)
def test_a_file_of_owners_is_refused_with_its_line(tmp_path, row, code, fields):
    log = tmp_path / "log.swf"
    log.write_text("1 0 -1 100 4 -1 -1 4 100 -1 1 1 1 1 1 1 -1 -1\n")
    owners = tmp_path / "owners.csv"
    owners.write_text(f"time,node,load\n0,1,1\n{row}\n")
    words = [f"owners={owners}"]
    with pytest.raises(UsageError) as raised:
        prepare(
            str(log), "easy", words, processors=4, nodes=None, cores=None, malleable=None, seed=0
        )
    assert raised.value.code == code
    assert ({"file": str(owners), "line": 3} | fields).items() <= raised.value.fields.items()
