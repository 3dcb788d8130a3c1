from hypothesis import given
from hypothesis import strategies as st

from apples.launch.lines import Lines


@given(st.binary(), st.lists(st.integers(0, 300)))
def test_lines_do_not_depend_on_how_the_bytes_arrive(data, cuts):
    whole = Lines(10)
    expected = [*whole.feed(data), *whole.rest()]
    pieces, found, start = Lines(10), [], 0
    for cut in [*sorted(cuts), len(data)]:
        found += pieces.feed(data[start:cut])
        start = max(start, cut)
    assert [*found, *pieces.rest()] == expected


@given(st.lists(st.binary(max_size=50)))
def test_memory_is_bounded(chunks):
    lines = Lines(10)
    for chunk in chunks:
        assert all(len(line) <= 11 for line in lines.feed(chunk))
    assert all(len(line) <= 11 for line in lines.rest())
