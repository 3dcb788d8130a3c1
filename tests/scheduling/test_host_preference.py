"""Which hosts a job gets and gives up: one site where it suffices, the fastest first."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from apples.resources import Host, HostList, Network
from apples.scheduling.server.host_preference import HostPreference

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
