"""Strips of a map: planned rows as they are, rows by weight where none are planned."""

from dataclasses import replace

import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from apples.launch import HostSpec
from apples.malleable import (
    ChangeCost,
    CommandRequest,
    HostShare,
    JobFile,
    ResizeCommand,
    loads,
    moves,
    rate_of,
    request_of,
    rows_moved,
    strips,
    strips_moving_fewest_rows,
)

HOSTS = "abcdef"
ONE = dict.fromkeys(HOSTS, 1)


def planned(*rows):
    return tuple(HostShare.planned(host, count) for host, count in zip(HOSTS, rows, strict=False))


def test_planned_rows_are_taken_as_they_are():
    assert [one.rows for one in strips(planned(7, 1, 2), 10, ONE)] == [7, 1, 2]


def test_planned_rows_stay_with_their_host_whatever_order_moves_fewest():
    old = strips(planned(5, 5), 10, ONE)
    shares = (HostShare.planned("c", 3), HostShare.planned("a", 7))
    new = strips_moving_fewest_rows(old, shares, 10, ONE)
    assert {one.host: one.rows for one in new} == {"a": 7, "c": 3}
    assert [one.host for one in new] == ["a", "c"]


@settings(max_examples=examples(200))
@given(st.lists(st.integers(1, 100_000), min_size=1, max_size=6))
def test_planned_rows_are_what_apportioning_them_by_weight_was(rows):
    shares = planned(*rows)
    by_weight = tuple(replace(share, rows=0) for share in shares)
    assert strips(shares, sum(rows), ONE) == strips(by_weight, sum(rows), ONE)


@given(
    st.lists(st.sampled_from(HOSTS), min_size=1, max_size=6, unique=True),
    st.lists(st.sampled_from(HOSTS), min_size=1, max_size=6, unique=True),
    st.integers(6, 1000),
    st.data(),
)
def test_what_a_change_moves_is_what_its_transfers_between_hosts_come_to(
    before, after, rows, data
):
    weight = st.floats(0.1, 10.0)
    old, new = (
        strips([HostShare(host, data.draw(weight)) for host in names], rows, ONE)
        for names in (before, after)
    )
    between = moves(old, new)
    assert sum(between.values()) == rows_moved(old, new)
    # The link of one host is the bottleneck of all that goes over it, and no change is slower than one by one.
    rate = rate_of(old, new, 8, lambda *_: 100.0)
    assert rate == 0.0 if not between else 99.9 <= rate <= 100.1 * len(between)


@pytest.mark.parametrize(
    ("data", "limit"),
    [((3_200_000_000, 110e6), 147.3), ((0, 0.0), 60.0), ((20_000_000, 0.0), 120.0)],
)
def test_a_change_is_given_up_after_three_times_what_its_data_takes_and_a_minute(data, limit):
    assert ChangeCost(*data).limit == pytest.approx(limit, abs=0.1)


def test_the_slowest_host_of_a_change_decides_its_rate():
    old, new = strips(planned(100), 100, ONE), strips(planned(50, 25, 25), 100, ONE)
    slow = {"b": 10.0, "c": 100.0}
    assert rate_of(old, new, 1, lambda _, other: slow[other]) == pytest.approx(50 / 2.75)


@pytest.mark.parametrize(
    ("shares", "total", "found"),
    [
        (planned(6, 3), 18, [12, 6]),  # blocks, of another number than the planner's rows
        ((HostShare("a", 3.0, rows=9), HostShare("b", 1.0)), 12, [9, 3]),  # one has none planned
        (planned(2.5, 7.5), 10, [3, 7]),  # rows that are not whole
    ],
)
def test_where_planned_rows_do_not_fit_the_weights_decide(shares, total, found):
    assert [one.rows for one in strips(shares, total, ONE)] == found


def test_every_rank_has_a_row_even_where_fewer_were_planned():
    assert [one.rows for one in strips(planned(1, 9), 10, {"a": 2, "b": 1})] == [2, 8]


def test_rows_come_through_the_protocol_and_the_job_file():
    command = ResizeCommand(1, planned(7, 3))
    request = CommandRequest("0123456789abcdef", command)
    assert request_of(request.body()).command == command
    hosts = tuple(HostSpec(host, 1, ("x",), "python", "bind", "mpiexec") for host in "ab")
    job = JobFile("job", "/", hosts, planned(7, 3), {})
    assert loads(job.dumps()).members == planned(7, 3)
