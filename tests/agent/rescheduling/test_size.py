"""The hosts for an application that asks for another number of them."""

import pytest
from worlds import ROOMY, pool

from apples import Coordinator, Host, Link, Resized
from apples.agent import move_to_size
from apples.launch import Execution
from apples.resources import NoFeasiblePlanError

LINKS = {("local", "local"): Link(1e-6, 1e9)}
SPEEDS = {"ada": 1e-8, "bob": 2e-8, "cleo": 4e-8, "dan": 3e-8}
HOSTS = [Host(name, seconds_per_point=s, free_memory=ROOMY) for name, s in SPEEDS.items()]


class Resizable(Execution):
    """A job that only notes its rows."""

    def __init__(self):
        self.rows = {}

    def monitor(self):
        yield from ()

    def resize(self, schedule, *, ordered=False, bandwidth=None):
        self.rows = {one.host.name: one.rows for one in schedule.allocations}
        return Resized(1, 0.0, {})

    def outcome(self):
        return None

    def cancel(self):
        pass


def sized(min_hosts, max_hosts, rows=None, seconds=None):
    coordinator, execution = Coordinator(pool(HOSTS, LINKS, iterations=1000)), Resizable()
    now = rows or {"ada": 1000}
    move_to_size(coordinator, execution, now, seconds or {}, min_hosts, max_hosts, "a test")
    return execution.rows


@pytest.mark.parametrize(("count", "hosts"), [(1, "ada"), (2, "ada bob"), (3, "ada bob dan")])
def test_the_fastest_hosts_of_the_list_share_the_rows(count, hosts):
    rows = sized(count, count)
    assert set(rows) == set(hosts.split())
    assert sum(rows.values()) == 1000
    assert rows["ada"] == max(rows.values())


def test_a_host_that_computes_slower_than_its_model_says_is_left_for_another():
    slow = {"ada": 40 * 1000 * 1000 * SPEEDS["ada"]}
    assert set(sized(1, 1, {"ada": 1000}, slow)) == {"bob"}


def test_more_hosts_than_there_are_is_no_plan():
    with pytest.raises(NoFeasiblePlanError):
        sized(5, 5)
