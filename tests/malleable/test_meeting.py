"""Groups that join a job meet in a binary tree: whoever comes is received, and all are one in the end."""

import math

from hypothesis import given
from hypothesis import strategies as st

from apples.malleable import ChangePlan, HostRows, pairs, rank_ids


@given(st.integers(1, 200))
def test_whoever_comes_is_received_and_all_are_one_in_the_order_of_their_places(groups):
    merged = {place: [place] for place in range(groups)}
    left = {place: list(pairs(place, groups)) for place in range(groups)}
    while any(left.values()):
        going = {first: left[first][0] for first in merged if left[first]}
        met = [
            (host, guest)
            for host, (comes, guest) in going.items()
            if not comes and going.get(guest) == (True, host)
        ]
        assert met, f"everybody waits for somebody else: {going}"
        for host, guest in met:
            for first in (host, guest):  # all ranks of a communicator know of the same encounter
                assert all(left[one].pop(0) == going[first] for one in merged[first])
            merged[host] += merged.pop(guest)
    assert merged == {0: list(range(groups))}


@given(st.integers(1, 200))
def test_the_first_takes_part_in_as_many_rounds_as_the_logarithm_of_the_groups(groups):
    assert len(list(pairs(0, groups))) == math.ceil(math.log2(groups))


@given(st.lists(st.integers(1, 3), min_size=2, max_size=8), st.data())
def test_the_plan_says_who_every_rank_is_members_first_in_their_order(slots, data):
    hosts = [f"h{index}" for index in range(len(slots))]
    ranks = dict(zip(hosts, slots, strict=True))
    old = data.draw(st.lists(st.sampled_from(hosts), min_size=1, unique=True))
    new = data.draw(st.lists(st.sampled_from(hosts), min_size=1, unique=True))
    plan = ChangePlan(2, rows(old), rows(new), ranks, "live")
    found = rank_ids(plan)
    before = [one for one in found if one.before >= 0]
    assert [one.before for one in before] == list(range(sum(ranks[host] for host in old)))
    assert [one.host for one in before] == [host for host in old for _ in range(ranks[host])]
    joined = [one for one in found if one.before < 0]
    assert found == before + joined
    coming = [host for host in new if host not in old]
    assert [one.host for one in joined] == [host for host in coming for _ in range(ranks[host])]
    for host in {*old, *coming}:
        assert [one.rank for one in found if one.host == host] == list(range(ranks[host]))


def rows(hosts):
    return tuple(HostRows(host, index, 1) for index, host in enumerate(hosts))
