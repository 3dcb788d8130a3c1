import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import said_by

from apples.errors import UsageError
from apples.topology import MAX_CPUS, CpuSet, hwloc_bitmap, hwloc_words

SETS = st.sets(st.integers(0, 300))


@given(SETS, SETS)
def test_it_is_a_set(a, b):
    one, other = CpuSet.of(a), CpuSet.of(b)
    assert list(one) == sorted(a)
    assert len(one) == len(a)
    assert set(one | other) == a | b
    assert set(one & other) == a & b
    assert set(one - other) == a - b
    assert (one <= other) == (a <= b)
    assert bool(one) == bool(a)
    assert all((i in one) == (i in a) for i in range(-1, 302))


@given(SETS)
def test_what_is_printed_can_be_read(a):
    assert CpuSet.parse(str(CpuSet.of(a))) == CpuSet.of(a)
    assert hwloc_bitmap(hwloc_words(CpuSet.of(a))) == CpuSet.of(a).mask


@given(st.text(st.sampled_from("0123456789-,x .f"), max_size=30))
def test_a_list_is_read_or_refused_in_one_line(text):
    for read in (CpuSet.parse, hwloc_bitmap):
        assert "\n" not in said_by(read, text)


@pytest.mark.parametrize(
    ("text", "value", "offset"),
    [
        ("3-1", "3-1", 0),
        ("a", "a", 0),
        ("1,,2", "", 2),
        ("-1", "-1", 0),
        ("1,1-2-3", "1-2-3", 2),
        ("0x3", "0x3", 0),
    ],
)
def test_no_list(text, value, offset):
    with pytest.raises(UsageError) as raised:
        CpuSet.parse(text)
    assert raised.value.code == "cpu-list-invalid"
    assert raised.value.fields == {"value": value, "offset": offset}


@pytest.mark.parametrize(
    ("read", "given", "value"),
    [
        (CpuSet.parse, f"0-{MAX_CPUS}", MAX_CPUS),
        (CpuSet.of, [MAX_CPUS], MAX_CPUS),
        (CpuSet.of, [-1], -1),
        (hwloc_bitmap, "0x1," * 3000, 12_000),
        (hwloc_bitmap, "0x1" + ",0x0" * (MAX_CPUS // 32), MAX_CPUS),
    ],
)
def test_a_cpu_beyond_the_largest_is_refused(read, given, value):
    with pytest.raises(UsageError) as raised:
        read(given)
    assert (raised.value.code, raised.value.fields["value"]) == ("value-range", value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0x000000ff,,,,,,0x000000ff", 0xFF << 192 | 0xFF),
        ("0x0", 0),
        ("0xf...f", -1),
        ("0xf...f,0xffff0000", -(2**16)),
    ],
)
def test_bitmaps_of_hwloc(text, value):
    assert hwloc_bitmap(text) == value


@pytest.mark.parametrize("text", ["", "0xg", "0x123456789", "0x1;0x2", "0x10x2"])
def test_no_bitmap(text):
    with pytest.raises(UsageError) as raised:
        hwloc_bitmap(text)
    assert (raised.value.code, raised.value.fields["value"]) == ("bitmap-invalid", text)
