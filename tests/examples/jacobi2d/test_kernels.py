import os
import shutil

import numpy as np
import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels import (
    HALO,
    LEFT,
    NAMES,
    KernelUnavailableError,
    allocate,
    load_kernel,
    pitch_of,
)

SIZES = st.tuples(st.integers(1, 12), st.integers(1, 70))


def needed(name):
    if name in {"numba", "cuda"}:
        pytest.importorskip("numba", reason="numba is in the fast extra")
    if name in {"compiled", "wavefront", "threads"} and shutil.which("cc") is None:
        pytest.skip("no C compiler")


def strip(rows, columns, seed):
    """Two arrays with the same boundary, and a forcing, of numbers of all sizes."""
    random = np.random.default_rng(seed)
    now, new, forcing = (allocate(rows, columns) for _ in range(3))
    now[...] = random.normal(size=now.shape) * 10.0 ** random.integers(-9, 9, now.shape)
    new[...] = random.normal(size=now.shape)
    forcing[...] = random.normal(size=now.shape)
    for side in (LEFT - 1, LEFT + columns):
        new[:, side] = now[:, side]
    return now, new, forcing


def formula(now, forcing, columns):
    left, right = LEFT, LEFT + columns
    vertical = now[:-2, left:right] + now[2:, left:right]
    value = 0.25 * (vertical + (now[1:-1, left - 1 : right - 1] + now[1:-1, left + 1 : right + 1]))
    return value if forcing is None else value + forcing[1:-1, left:right]


def check(kernel, arrays, forced, first, last):
    now, new, forcing = arrays
    columns = kernel.columns
    given_forcing = forcing if forced else None
    before_now, before_new = now.copy(), new.copy()
    expected = formula(now, given_forcing, columns)[first - 1 : last - 1]
    kernel.take(*arrays)
    kernel.sweep(now, new, given_forcing, first, last)
    kernel.settle()
    inside = slice(LEFT, LEFT + columns)
    assert np.array_equal(new[first:last, inside], expected)

    whole = slice(LEFT - 1, LEFT + columns + 1)
    elsewhere = np.ones(len(new), bool)
    elsewhere[first:last] = False
    assert np.array_equal(now, before_now)
    assert np.array_equal(new[elsewhere, whole], before_new[elsewhere, whole])
    for side in (LEFT - 1, LEFT + columns):
        assert np.array_equal(new[:, side], now[:, side])

    change = kernel.sweep_residual(now, new, given_forcing, first, last)
    kernel.settle()
    assert np.array_equal(new[first:last, inside], expected)
    assert change == np.abs(expected - now[first:last, inside]).max()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("forced", [False, True])
def test_every_kernel_gives_the_bits_of_the_formula_and_touches_nothing_else(name, forced):
    needed(name)

    @settings(max_examples=examples(15), deadline=None)
    @given(size=SIZES, data=st.data(), seed=st.integers(0, 999))
    def claim(size, data, seed):
        rows, columns = size
        first = data.draw(st.integers(1, rows), "first")
        last = data.draw(st.integers(first + 1, rows + 1), "last")
        kernel = load_kernel(name, columns)
        check(kernel, strip(rows, columns, seed), forced, first, last)

    claim()


@pytest.mark.more
@pytest.mark.parametrize("name", NAMES)
def test_blocks_of_a_large_strip_join_without_a_seam(name):
    needed(name)
    played = name == "cuda" and "NUMBA_ENABLE_CUDASIM" in os.environ
    rows, columns = (18, 21) if played else (160, 1501)
    check(load_kernel(name, columns), strip(rows, columns, 1), True, 1, rows + 1)


@pytest.mark.more
@pytest.mark.parametrize("forced", [False, True])
def test_writing_past_the_caches_changes_no_bit(monkeypatch, forced):
    needed("compiled")
    import kernel_c

    monkeypatch.setattr(kernel_c, "STREAMING_BYTES", 0)
    for columns in (1, 7, 8, 9, 64, 71):
        check(load_kernel("compiled", columns), strip(5, columns, columns), forced, 1, 6)


def swept(now, forcing, columns, sweeps):
    """A grid after several sweeps of the formula."""
    now = now.copy()
    for _ in range(sweeps):
        now[1:-1, LEFT : LEFT + columns] = formula(now, forcing, columns)
    return now


def check_pass(kernel, rows, cuts, sweeps, forced, seed):
    """Cut a grid in three strips (or two, or one) and check the one between the cuts."""
    columns = kernel.columns
    whole, _, force = strip(rows, columns, seed)
    force = force if forced else None
    expected = swept(whole, force, columns, sweeps)
    top, bottom = cuts

    beside = top > 1, bottom < rows + 1

    def piece(grid):
        """The strip as the middle of a larger array: beyond it `sweeps` rows, or a fixed one at the edge."""
        if grid is None:
            return None
        array = allocate(bottom - top + 2 * HALO - 2, columns)
        array[...] = np.nan
        first = top - (sweeps if beside[0] else 1)
        stop = bottom + (sweeps if beside[1] else 1)
        array[HALO + first - top : HALO + stop - top] = grid[first:stop]
        return array[HALO - 1 : 1 - HALO]

    now, new = piece(whole), allocate(bottom - top, columns)
    new[...] = -1.0
    before = now.copy()
    change = kernel.several_sweeps(now, new, piece(force), beside, sweeps, checked=seed % 2 == 0)
    inside = slice(LEFT, LEFT + columns)
    assert np.array_equal(new[1:-1, inside], expected[top:bottom, inside])
    assert np.array_equal(now, before, equal_nan=True)
    assert (new[[0, -1]] == -1.0).all()
    assert (new[1:-1, [LEFT - 1, LEFT + columns]] == -1.0).all()
    if seed % 2 == 0:
        last_but_one = swept(whole, force, columns, sweeps - 1)
        both = expected[top:bottom, inside] - last_but_one[top:bottom, inside]
        assert change == np.abs(both).max()
    else:
        assert np.isnan(change)


@pytest.mark.parametrize("name", ["wavefront", "threads"])
@pytest.mark.parametrize("forced", [False, True])
def test_several_sweeps_in_one_pass_give_the_bits_of_one_after_the_other(name, forced):
    needed(name)

    @settings(max_examples=examples(60), deadline=None)
    @given(data=st.data(), columns=st.integers(1, 70), seed=st.integers(0, 999))
    def claim(data, columns, seed):
        sweeps = data.draw(st.integers(1, 8), "sweeps")
        own = data.draw(st.integers(1, 20), "own rows")
        threads = data.draw(st.integers(1, 5), "threads")
        above, below = (data.draw(st.sampled_from([0, sweeps, sweeps + 3])) for _ in range(2))
        cuts = (1 + above, 1 + above + own)
        kernel = load_kernel(name, columns, threads)
        check_pass(kernel, above + own + below, cuts, sweeps, forced, seed)

    claim()


@pytest.mark.parametrize("columns", [2047, 2048, 2049, 2055, 2057, 4096 + 3])
@pytest.mark.parametrize("streams", [False, True])
def test_tiles_of_a_wide_strip_join_without_a_seam(monkeypatch, columns, streams):
    needed("wavefront")
    import kernel_c

    monkeypatch.setattr(kernel_c, "STREAMING_BYTES", 0 if streams else 1 << 40)
    for sweeps in (2, 7, 8):
        check_pass(load_kernel("wavefront", columns), 30, (9, 21), sweeps, True, sweeps + streams)


def test_a_pass_of_more_sweeps_than_the_tiles_allow_is_refused():
    needed("wavefront")
    grid = allocate(9, 9)
    with pytest.raises(ValueError, match=r"\b9\b.*\b8\b"):
        load_kernel("wavefront", 9).several_sweeps(grid, grid, None, (False, False), 9, False)


def test_a_row_of_unknowns_begins_on_a_cache_line_and_never_a_page_apart():
    for columns in range(1, 1100):
        assert pitch_of(columns) % 8 == 0
        assert pitch_of(columns) % 512
        assert pitch_of(columns) >= LEFT + columns + 1
    for _ in range(20):
        assert allocate(3, 17)[1, LEFT:].ctypes.data % 64 == 0


def test_a_host_without_a_compiler_says_what_is_missing(monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(KernelUnavailableError) as raised:
        load_kernel("compiled", 8)
    assert raised.value.code == "compiler-missing"
    assert "no-such-compiler" in str(raised.value)


def test_a_compiler_that_fails_says_why(monkeypatch):
    monkeypatch.setenv("CC", "false")
    with pytest.raises(KernelUnavailableError) as raised:
        load_kernel("compiled", 8)
    assert raised.value.code == "compiler-failed"
    assert "false" in str(raised.value)


@pytest.mark.more
def test_a_cache_that_others_may_write_to_is_not_used(monkeypatch, tmp_path):
    needed("compiled")
    (tmp_path / "apples-jacobi2d").mkdir(mode=0o700)
    (tmp_path / "apples-jacobi2d").chmod(0o777)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    check(load_kernel("compiled", 9), strip(3, 9, 1), False, 1, 4)
    assert not list((tmp_path / "apples-jacobi2d").iterdir())


@pytest.mark.more
def test_a_library_that_others_may_write_to_is_not_loaded(monkeypatch, tmp_path):
    needed("compiled")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    load_kernel("compiled", 9)
    (library,) = (tmp_path / "apples-jacobi2d").glob("*.so")
    library.chmod(0o777)
    with pytest.raises(KernelUnavailableError) as raised:
        load_kernel("compiled", 9)
    assert raised.value.code == "cache-unusable"
    assert str(library) in str(raised.value)


def test_an_unknown_implementation_is_answered_with_the_known_ones():
    with pytest.raises(KernelUnavailableError) as raised:
        load_kernel("fortran", 8)
    assert raised.value.code == "implementation-unknown"
    assert "'fortran'" in str(raised.value)
    assert all(name in str(raised.value) for name in ("numpy", "numba", "compiled"))
