"""Each host runs the fastest implementation it has."""

from hat import ApplicationTemplate, active_set

TEMPLATE = ApplicationTemplate.model_validate(
    {
        "name": "heat",
        "program": ["heat"],
        "implementation": [
            {"name": "numpy"},
            {"name": "numba", "platforms": ["x86_64*"], "requires": {"modules": ["numba"]}},
            {"name": "c", "requires": {"commands": ["cc"]}, "measured": {"arm64": 3e-9}},
        ],
        "active_set": {"eve": "numba"},
    }
)
COSTS = {"numpy": 2e-9, "numba": 1e-9}


def everything(_host, _implementation):
    return True


def measured(_host, implementation):
    return COSTS.get(implementation.name)


def test_without_a_measurement_the_templates_figures_decide():
    found = active_set(TEMPLATE, {"ada": "arm64"}, everything)
    assert found.implementations["ada"].name == "c"


def chosen(hosts, available=everything, cost=measured):
    found = active_set(TEMPLATE, hosts, available, cost)
    return {host: one.name for host, one in found.implementations.items()}, dict(found.left_out)


def test_the_fastest_measured_implementation_wins():
    assert chosen({"ada": "x86_64"}) == ({"ada": "numba"}, {})


def test_an_implementation_for_another_platform_is_passed_over():
    assert chosen({"ada": "riscv", "bob": ""}) == ({"ada": "numpy", "bob": "numpy"}, {})


def test_an_implementation_that_is_not_installed_is_passed_over():
    assert chosen({"ada": "x86_64"}, lambda _, one: one.name == "c") == ({"ada": "c"}, {})


def test_nothing_measured_leaves_the_order_of_the_file():
    assert chosen({"ada": "x86_64"}, cost=lambda *_: None) == ({"ada": "numpy"}, {})


def test_the_templates_own_figure_counts_where_nothing_else_is_known():
    assert chosen({"ada": "arm64"}, cost=lambda *_: None) == ({"ada": "c"}, {})


def test_the_users_choice_is_binding():
    slow = {"numpy": 1e-9, "numba": 9e-9}
    assert chosen({"eve": "x86_64"}, cost=lambda _, one: slow.get(one.name))[0] == {"eve": "numba"}


def test_a_host_that_can_run_none_is_left_out_with_the_reason():
    for hosts, available, values in (
        ({"eve": "arm64"}, everything, ("numba", "arm64")),
        ({"eve": "x86_64"}, lambda *_: False, ("numba needs numba",)),
        ({"ada": "arm64"}, lambda *_: False, ("numpy needs", "c needs cc")),
    ):
        found, left_out = chosen(hosts, available)
        assert found == {}
        assert {*left_out} == {*hosts}
        (reason,) = left_out.values()
        assert [value for value in values if value not in reason] == []


PACED = ApplicationTemplate.model_validate(
    {
        "name": "heat",
        "program": ["heat"],
        "implementation": [
            {"name": "plain"},
            {"name": "quick"},
            {"name": "paced", "sweeps": 8, "requires": {"commands": ["cc"]}},
        ],
    }
)


def paced(costs, missing=()):
    """What runs where, and the sweeps between exchanges, by costs of (host, implementation)."""
    hosts = dict.fromkeys(sorted({host for host, _ in costs}), "x86_64")
    found = active_set(
        PACED,
        hosts,
        lambda host, one: (host, one.name) not in missing,
        lambda host, one: costs.get((host, one.name)),
    )
    return {host: one.name for host, one in found.implementations.items()}, found.sweeps


COSTS_OF_TWO = {
    ("ada", "plain"): 3e-9,
    ("ada", "quick"): 2e-9,
    ("ada", "paced"): 1e-9,
    ("bob", "plain"): 2e-9,
    ("bob", "quick"): 3e-9,
    ("bob", "paced"): 2.5e-9,
}


def test_several_sweeps_an_exchange_are_made_by_all_hosts_where_together_they_are_faster():
    assert paced(COSTS_OF_TWO) == ({"ada": "paced", "bob": "paced"}, 8)
    slower = COSTS_OF_TWO | {("bob", "paced"): 90e-9, ("ada", "paced"): 1.9e-9}
    assert paced(slower) == ({"ada": "quick", "bob": "plain"}, 1)


def test_one_host_that_cannot_make_several_sweeps_an_exchange_keeps_all_from_it():
    found = paced(COSTS_OF_TWO, missing={("bob", "paced")})
    assert found == ({"ada": "quick", "bob": "plain"}, 1)


def test_several_sweeps_an_exchange_are_not_chosen_unmeasured():
    unmeasured = {key: cost for key, cost in COSTS_OF_TWO.items() if key != ("bob", "paced")}
    assert paced(unmeasured)[1] == 1
    assert paced(dict.fromkeys(COSTS_OF_TWO)) == ({"ada": "plain", "bob": "plain"}, 1)


def test_where_hosts_have_nothing_in_common_each_runs_what_it_has():
    missing = {("ada", "plain"), ("ada", "quick"), ("bob", "paced")}
    assert paced(COSTS_OF_TWO, missing) == ({"ada": "paced", "bob": "plain"}, 1)
