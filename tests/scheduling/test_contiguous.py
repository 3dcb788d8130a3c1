import numpy as np
import pytest
from coding import with_code

from apples.errors import UsageError
from apples.scheduling import (
    SlowdownDriven,
    contiguous_mates,
    is_contiguous,
    parse_node_ids,
    pick_free,
)
from apples.simulation import EventEngine, SimulationConfig, mark_malleable, rigid, simulate


def random_workload(seed, nodes=8, cores=2, count=40):
    rng = np.random.default_rng(seed)
    run = rng.integers(5, 60, count) * 1.0
    width = rng.integers(1, nodes * cores + 1, count)
    workload = rigid(rng.integers(0, 200, count) * 1.0, run, width, run * 2)
    return mark_malleable(workload, 1.0, seed)


class Watched:
    """A driver after each pass of which something is checked."""

    def __init__(self, driver, check):
        self._driver, self._check = driver, check

    def run_pass(self):
        refused = self._driver.run_pass()
        self._check()
        return refused

    def __getattr__(self, name):
        return getattr(self._driver, name)


class Watching(EventEngine):
    """Checks the nodes of all running jobs after every pass."""

    def __init__(self, *words):
        super().__init__(*words)
        self.driver = Watched(self.driver, self.check)

    def check(self):
        running = self.ledger.state.running.values()
        for one in running:
            assert len(one.node_ids) == one.nodes
            if self.policy.contiguous:
                assert is_contiguous(one.node_ids)
        holders = [node for one in running for node in one.node_ids]
        assert max((holders.count(node) for node in holders), default=0) <= 2
        free = self.ledger.state.free_node_ids
        assert len(free) == self.ledger.state.free
        assert not set(free) & set(holders)
        self.shared = getattr(self, "shared", set()) | {
            node for node in holders if holders.count(node) == 2
        }


@pytest.mark.parametrize("seed", range(6))
def test_contiguous_jobs_have_their_nodes_side_by_side(seed):
    policy = SlowdownDriven(max_slowdown=float("inf"), contiguous=True)
    schedule = Watching(random_workload(seed), policy, SimulationConfig(8, 2)).run()
    assert schedule.completed.all()
    assert schedule.guest.any()


@pytest.mark.parametrize("seed", range(6))
def test_only_the_nodes_of_the_filter_are_shared(seed):
    policy = SlowdownDriven(max_slowdown=float("inf"), nodes="0-3")
    engine = Watching(random_workload(seed), policy, SimulationConfig(8, 2))
    engine.run()
    assert engine.shared <= {0, 1, 2, 3}


@pytest.mark.more
def test_a_filter_of_all_nodes_changes_nothing():
    workload = random_workload(3)
    everywhere = simulate(workload, SlowdownDriven(nodes="0-7"), SimulationConfig(8, 2))
    usual = simulate(workload, SlowdownDriven(), SimulationConfig(8, 2))
    assert everywhere.start.tolist() == usual.start.tolist()


def test_side_by_side_is_not_the_same_as_cheapest():
    node_ids = [frozenset({0, 1}), frozenset({4, 5}), frozenset({2, 3})]
    assert contiguous_mates(node_ids, [1.0, 1.1, 3.0], wanted=4, most=2) == (0, 2)
    assert contiguous_mates(node_ids, [1.0, 1.1, 3.0], wanted=3, most=2) == ()


def test_free_nodes_side_by_side():
    assert pick_free([5, 0, 1, 6, 7], 3, contiguous=True) == {5, 6, 7}
    assert pick_free([0, 2, 4], 2, contiguous=True) is None
    assert pick_free([0, 2, 4], 2, contiguous=False) == {0, 2}


@pytest.mark.parametrize("text", ["a", "3-", "-3", "1-2-3"])
def test_a_bad_list_of_nodes_is_refused(text):
    with pytest.raises(UsageError, check=with_code("value-invalid", field="nodes", value=text)):
        parse_node_ids(text)
