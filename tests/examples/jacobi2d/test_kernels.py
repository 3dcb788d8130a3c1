import shutil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels import LEFT, NAMES, KernelUnavailableError, allocate, load_kernel, pitch_of

SIZES = st.tuples(st.integers(1, 12), st.integers(1, 70))


def needed(name):
    if name == "numba":
        pytest.importorskip("numba", reason="numba is in the fast extra")
    if name == "compiled" and shutil.which("cc") is None:
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
    kernel.sweep(now, new, given_forcing, first, last)
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
    assert np.array_equal(new[first:last, inside], expected)
    assert change == np.abs(expected - now[first:last, inside]).max()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("forced", [False, True])
def test_every_kernel_gives_the_bits_of_the_formula_and_touches_nothing_else(name, forced):
    needed(name)

    @settings(max_examples=15, deadline=None)
    @given(size=SIZES, data=st.data(), seed=st.integers(0, 999))
    def claim(size, data, seed):
        rows, columns = size
        first = data.draw(st.integers(1, rows), "first")
        last = data.draw(st.integers(first + 1, rows + 1), "last")
        kernel = load_kernel(name, columns)
        check(kernel, strip(rows, columns, seed), forced, first, last)

    claim()


@pytest.mark.parametrize("name", NAMES)
def test_blocks_of_a_large_strip_join_without_a_seam(name):
    needed(name)
    check(load_kernel(name, 1501), strip(160, 1501, 1), True, 1, 161)


@pytest.mark.parametrize("forced", [False, True])
def test_writing_past_the_caches_changes_no_bit(monkeypatch, forced):
    needed("compiled")
    import kernel_c

    monkeypatch.setattr(kernel_c, "STREAMING_BYTES", 0)
    for columns in (1, 7, 8, 9, 64, 71):
        check(load_kernel("compiled", columns), strip(5, columns, columns), forced, 1, 6)


def test_a_row_of_unknowns_begins_on_a_cache_line_and_never_a_page_apart():
    for columns in range(1, 1100):
        assert pitch_of(columns) % 8 == 0
        assert pitch_of(columns) % 512
        assert pitch_of(columns) >= LEFT + columns + 1
    for _ in range(20):
        assert allocate(3, 17)[1, LEFT:].ctypes.data % 64 == 0


def test_a_host_without_a_compiler_says_what_is_missing(monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(KernelUnavailableError, match="no-such-compiler"):
        load_kernel("compiled", 8)


def test_a_compiler_that_fails_says_why(monkeypatch):
    monkeypatch.setenv("CC", "false")
    with pytest.raises(KernelUnavailableError, match="false fails"):
        load_kernel("compiled", 8)


def test_a_cache_that_others_may_write_to_is_not_used(monkeypatch, tmp_path):
    needed("compiled")
    (tmp_path / "apples-jacobi2d").mkdir(mode=0o700)
    (tmp_path / "apples-jacobi2d").chmod(0o777)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    check(load_kernel("compiled", 9), strip(3, 9, 1), False, 1, 4)
    assert not list((tmp_path / "apples-jacobi2d").iterdir())


def test_a_library_that_others_may_write_to_is_not_loaded(monkeypatch, tmp_path):
    needed("compiled")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    load_kernel("compiled", 9)
    (library,) = (tmp_path / "apples-jacobi2d").glob("*.so")
    library.chmod(0o777)
    with pytest.raises(KernelUnavailableError, match="others may write"):
        load_kernel("compiled", 9)


def test_an_unknown_implementation_is_answered_with_the_known_ones():
    with pytest.raises(KernelUnavailableError, match="numpy, numba, compiled"):
        load_kernel("cuda", 8)
