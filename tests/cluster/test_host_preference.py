"""Which hosts a job gets and gives up: one site where it suffices, the fastest first."""

from itertools import combinations

from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from apples.cluster import HostPreference
from apples.resources import Host, HostList, Link, Network

PLACES = st.dictionaries(
    st.sampled_from("abcdefgh"),
    st.tuples(st.sampled_from("xyz"), st.integers(1, 9).map(float)),
    min_size=1,
)


@given(PLACES, st.data())
def test_where_one_site_suffices_no_set_of_one_site_is_faster_and_none_is_spread(places, data):
    one = HostPreference(places)
    count = data.draw(st.integers(1, len(places)))
    chosen = one.best(places, count)
    assert len(set(chosen)) == count
    assert set(chosen) <= places.keys()
    together = [
        sum(places[host][1] for host in some)
        for some in combinations(places, count)
        if len({places[host][0] for host in some}) == 1
    ]
    if together:
        assert len({places[host][0] for host in chosen}) == 1
        assert sum(places[host][1] for host in chosen) == max(together)


@given(PLACES, st.data())
def test_where_no_site_suffices_as_few_are_used_as_can_be(places, data):
    count = data.draw(st.integers(1, len(places)))
    chosen = HostPreference(places).best(places, count)
    sizes = sorted(
        (sum(site == each for site, _ in places.values()) for each in "xyz"), reverse=True
    )
    fewest = next(n for n in (1, 2, 3) if sum(sizes[:n]) >= count)
    assert len({places[host][0] for host in chosen}) == fewest


def test_a_growth_stays_at_the_sites_that_the_job_has():
    one = HostPreference({"a": ("x", 1.0), "b": ("x", 1.0), "c": ("y", 9.0), "d": ("y", 9.0)})
    assert one.best("bcd", 1, beside="a") == ("b",)
    assert one.best("cd", 1, beside="a") == ("c",)


def test_hosts_of_a_list_are_as_fast_as_their_slots_and_their_share():
    hosts = [
        Host("a", seconds_per_point=1e-6, cpu=0.5),
        Host("b", seconds_per_point=2e-6, slots=4, site="there"),
        Host("c"),
    ]
    found = HostPreference.of(HostList(tuple(hosts), Network())).places
    assert found == {"a": ("local", 5e5), "b": ("there", 2e6), "c": ("local", 5e5)}
    assert HostPreference(found).said(["a", "b"]) == "a, b of sites local, there"
    assert HostPreference(found).said(["a", "left"]) == "a, left"  # it is not in the host list


THREE_SITES = {"x": 3.0, "y": 2.0, "z": 1.0}
WAYS = {("x", "y"): Link(0.1, 1e5), ("x", "z"): Link(1e-3, 1e7), ("y", "z"): Link(0.1, 1e5)}
INSIDE = {(site, site): Link(1e-4, 1e8) for site in THREE_SITES}
RING = ((0, 9, 0, 9), (9, 0, 9, 0), (0, 9, 0, 9), (9, 0, 9, 0))


def in_sites(sizes):
    """Hosts of three sites, `x` the fastest, `y` fast and far from all, `z` slow and near `x`."""
    hosts = [
        Host(f"{site}{number}", site=site, seconds_per_point=1e-6 / THREE_SITES[site])
        for site, size in sizes.items()
        for number in range(size)
    ]
    both = {**INSIDE, **WAYS, **{(b, a): link for (a, b), link in WAYS.items()}}
    network = Network(both, None, {host.name: host.site for host in hosts})
    return HostPreference.of(HostList(tuple(hosts), network))


def test_a_job_whose_messages_are_known_gets_slower_hosts_that_are_nearer():
    one = in_sites({"x": 2, "y": 2, "z": 2})
    assert sorted(one.best(one.places, 4)) == ["x0", "x1", "y0", "y1"]
    assert sorted(one.talking(RING).best(one.places, 4)) == ["x0", "x1", "z0", "z1"]


@settings(max_examples=examples(40), deadline=None)
@given(
    st.fixed_dictionaries(dict.fromkeys(THREE_SITES, st.integers(0, 3))),
    st.integers(1, 5),
    st.data(),
)
def test_messages_change_nothing_where_one_site_suffices_or_they_are_of_other_hosts(
    sizes, count, data
):
    one = in_sites(sizes)
    rows = st.lists(st.integers(0, 9), min_size=count, max_size=count)
    told = tuple(map(tuple, data.draw(st.lists(rows, min_size=count, max_size=count))))
    for number in range(min(len(one.places), 6) + 1):
        found = one.talking(told).best(one.places, number)
        assert len(set(found)) == number
        if number != count or max(sizes.values()) >= count:
            assert found == one.best(one.places, number)
