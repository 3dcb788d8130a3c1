"""The column-based partition: divisions against every partition there is, whole rows and columns against all."""

from itertools import combinations, product

import numpy as np
import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from apples import Rectangle
from apples.agent import Demands, covered_once, cut, division, divisions, half_perimeters
from apples.agent import proportional as near

SHARES = st.lists(st.floats(0.01, 1.0), min_size=1, max_size=7)


def volume(sizes, shares, rows, columns):
    """Return the sum of half perimeters of columns of so many hosts, fractions of points allowed."""
    shares, begin, found = np.asarray(shares) / np.sum(shares), 0, 0.0
    for size in sizes:
        found += rows + size * columns * shares[begin : begin + size].sum()
        begin += size
    return found


def groupings(items):
    """Yield every way to part some items."""
    if not items:
        yield []
        return
    first, rest = items[0], items[1:]
    for size in range(len(rest) + 1):
        for beside in combinations(rest, size):
            for others in groupings([x for x in rest if x not in beside]):
                yield [[first, *beside], *others]


@given(SHARES, st.floats(0.2, 5.0))
@settings(max_examples=examples(40), deadline=None)
def test_no_grouping_into_columns_has_less_communication_than_the_division(shares, columns):
    shares = np.sort(shares)
    best = min(
        sum(1.0 + len(group) * columns * shares[group].sum() / shares.sum() for group in every)
        for every in groupings(list(range(len(shares))))
    )
    assert volume(division(shares, 1.0, columns), shares, 1.0, columns) == pytest.approx(best)
    every = [volume(sizes, shares, 1.0, columns) for sizes in divisions(shares, columns)]
    assert min(every) == pytest.approx(best)
    assert [len(sizes) for sizes in divisions(shares, columns)] == list(range(1, len(shares) + 1))


def parts(total, count):
    """Yield every way to write a number as so many positive ones, in order."""
    if count == 1:
        yield (total,)
        return
    for first in range(1, total - count + 2):
        for rest in parts(total - first, count - 1):
            yield (first, *rest)


def least_seconds(sizes, demands, rows, columns):
    """Return the least largest time of all whole rows and columns that have room, by trying each."""
    best = np.inf
    for widths in parts(columns, len(sizes)):
        wide = np.repeat(widths, sizes)
        for every in product(*(list(parts(rows, size)) for size in sizes)):
            high = np.concatenate(every)
            if np.all((high + 2) * (wide + 2) <= demands.room):
                seconds = demands.border_seconds + demands.point_seconds * high * wide
                best = min(best, float(seconds.max()))
    return best


def random_demands(generator, count):
    roomy = generator.integers(2)
    return Demands(
        10 ** generator.uniform(-1, 0, count),
        generator.uniform(0, 2, count) * generator.integers(0, 2),
        np.full(count, 1e9) if roomy else generator.uniform(20, 120, count),
    )


def test_whole_rows_and_columns_are_exact_with_borders_and_with_little_memory():
    generator, without = np.random.default_rng(1), 0
    for _ in range(60):
        count = int(generator.integers(1, 5))
        rows, columns = (int(generator.integers(count, 9)) for _ in range(2))
        demands = random_demands(generator, count)
        demands = demands.in_order(np.argsort(demands.point_seconds))
        sizes = divisions(1 / demands.point_seconds, columns)[int(generator.integers(count))]
        found, best = (
            cut(sizes, demands, rows, columns),
            least_seconds(sizes, demands, rows, columns),
        )
        if found is None:
            assert best == np.inf
            without += 1
            continue
        points = np.array([one.points for one in found])
        seconds = float((demands.border_seconds + demands.point_seconds * points).max())
        assert seconds == pytest.approx(best, rel=1e-9)
        assert covered_once(found, rows, columns) == rows * columns
        for one, room in zip(found, demands.room, strict=True):
            assert (one.rows + 2) * (one.columns + 2) <= room
    assert 0 < without < 30  # both cases were tried


@given(SHARES, st.integers(8, 300), st.integers(8, 300))
@settings(max_examples=examples(40), deadline=None)
def test_every_point_has_one_host_and_every_host_a_point(shares, rows, columns):
    shares = np.sort(shares)
    demands = Demands(1 / shares, np.zeros(len(shares)), np.full(len(shares), 1e12))
    sizes = division(shares, rows, columns)
    for found in (cut(sizes, demands, rows, columns), near(sizes, shares, rows, columns)):
        assert found is not None
        assert len(found) == len(shares)
        assert min(min(one.rows, one.columns) for one in found) >= 1
        assert covered_once(found, rows, columns) == rows * columns


def test_with_more_hosts_than_rows_or_columns_there_are_no_rectangles():
    demands = Demands(np.ones(5), np.zeros(5), np.full(5, 1e9))
    assert cut([5], demands, 4, 9) is None
    assert cut([1] * 5, demands, 9, 4) is None
    assert near([5], [1.0] * 5, 4, 9) is None
    assert cut([5], demands, 5, 1) is not None


def test_nine_equal_hosts_get_nine_squares():
    found = cut([3, 3, 3], Demands(np.ones(9), np.zeros(9), np.full(9, 1e9)), 90, 90)
    assert {(one.rows, one.columns) for one in found} == {(30, 30)}
    assert half_perimeters(found) == 9 * 60


def test_a_point_that_two_hosts_have_or_that_lies_outside_is_not_covered_once():
    assert covered_once([Rectangle(0, 4, 0, 4)], 4, 4) == 16
    assert covered_once([Rectangle(0, 4, 0, 4), Rectangle(3, 1, 3, 1)], 4, 4) == 15
    assert covered_once([Rectangle(0, 5, 0, 4)], 4, 4) == 0
    assert covered_once([Rectangle(-1, 4, 0, 4), Rectangle(0, 0, 0, 4)], 4, 4) == 0
    assert covered_once([], 4, 4) == 0
