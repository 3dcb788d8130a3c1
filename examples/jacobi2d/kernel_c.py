"""The kernels in C, built by this host's compiler for this host's CPU at first use."""

import ctypes
import hashlib
import math
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from cache import cache_directory, demand_own
from kernels import HALO, LEFT, LINE, Grid, Kernel, KernelUnavailableError, allocate, pitch_of

SOURCE = Path(__file__).with_name("stencil.c")
# No contraction and no fast-math: the bits must be those of the other kernels.
FLAGS = (
    "-O3",
    "-march=native",
    "-ffp-contract=off",
    "-fno-trapping-math",
    "-std=gnu11",
    "-shared",
    "-fPIC",
)
BY_THREADS = ("-fopenmp",)
BUILD_SECONDS = 60.0
# As in stencil.c.
RING, TILE = 4, 2048
BANDS, BAND = 4, 128
"""Bands a thread, and the rows of a band unless it must be thinner."""

# From this size of the two arrays on, writing past the caches pays: 1000 x 1000 (16 MB) 122 %
# of memcpy against 114 %, 700 x 700 (8 MB) 157 % against 182 % (32 MiB of shared L3).
STREAMING_BYTES = 12 << 20


class CompiledKernel(Kernel):
    """`stencil.c` through ctypes."""

    more_flags: tuple[str, ...] = ()

    def __init__(self, columns: int) -> None:
        super().__init__(columns)
        self.pitch = pitch_of(columns)
        self.largest = np.zeros(columns)
        self.library = load_library(*self.more_flags)
        self.call = self.library.sweep
        pointer, index = ctypes.c_void_p, ctypes.c_ssize_t
        self.call.argtypes = [pointer] * 4 + [index] * 4 + [ctypes.c_int]
        self.call.restype = None

    def sweep(self, now: Grid, new: Grid, forcing: Grid | None, first: int, last: int) -> None:
        """Make the rows of `new`."""
        self._call(now, new, forcing, None, (first, last))

    def sweep_residual(
        self, now: Grid, new: Grid, forcing: Grid | None, first: int, last: int
    ) -> float:
        """Make the rows of `new` and return the largest absolute change of a point."""
        self.largest[...] = 0.0
        self._call(now, new, forcing, self.largest.ctypes.data, (first, last))
        return float(self.largest.max())

    def _call(
        self,
        now: Grid,
        new: Grid,
        forcing: Grid | None,
        largest: int | None,
        rows: tuple[int, int],
    ) -> None:
        self.call(
            _first_unknown(now),
            _first_unknown(new),
            _first_unknown(forcing),
            largest,
            self.pitch,
            self.columns,
            *rows,
            _beyond_caches(now),
        )


class _StripInC(ctypes.Structure):
    """`struct strip` of `stencil.c`."""

    _fields_: ClassVar[Sequence[Any]] = (
        *((name, ctypes.c_void_p) for name in ("now", "above", "below")),
        *((name, ctypes.c_void_p) for name in ("forcing", "forcing_above", "forcing_below")),
        *((name, ctypes.c_void_p) for name in ("new", "largest", "ring")),
        *((name, ctypes.c_ssize_t) for name in ("pitch", "columns", "rows")),
        *((name, ctypes.c_int) for name in ("sweeps", "streaming")),
    )


class WavefrontKernel(CompiledKernel):
    """Several sweeps in one pass over the strip, blocked in time.

    More than eight sweeps a pass gain nothing: 4, 8, 12 and 16 sweeps a pass ran at 127, 151, 150 and 145 % of
    memcpy, made a row at a time. The tiles of `stencil.c` allow nine.
    """

    most_sweeps = HALO

    def __init__(self, columns: int) -> None:
        super().__init__(columns)
        self.passing = self.library.sweep_wavefront
        self.passing.argtypes = [ctypes.POINTER(_StripInC)]
        self.passing.restype = None
        # Rows of this many columns lie RING_PITCH apart.
        self.ring = self._new_ring()

    def _new_ring(self) -> Grid:
        return allocate(RING * (self.most_sweeps - 1), TILE + 2 * LINE)

    def several_sweeps(
        self,
        now: Grid,
        new: Grid,
        forcing: Grid | None,
        beside: tuple[bool, bool],
        sweeps: int,
        checked: bool,
    ) -> float:
        """Make all rows of `new` as they are after several sweeps."""
        if not 1 <= sweeps <= self.most_sweeps:
            raise ValueError(f"{sweeps} sweeps, not 1 to {self.most_sweeps}")
        self.largest[...] = 0.0
        above, below = beside
        end = len(now) - 1
        self._pass(
            _StripInC(
                now=_first_unknown(now),
                above=_first_unknown(now) if above else None,
                below=_first_unknown(now, end) if below else None,
                forcing=_first_unknown(forcing),
                forcing_above=_first_unknown(forcing) if above else None,
                forcing_below=_first_unknown(forcing, end) if below else None,
                new=_first_unknown(new),
                largest=self.largest.ctypes.data if checked else None,
                ring=self.ring.ctypes.data,
                pitch=self.pitch,
                columns=self.columns,
                rows=len(now) - 2,
                sweeps=sweeps,
                streaming=_beyond_caches(now),
            )
        )
        return float(self.largest.max()) if checked else math.nan

    def _pass(self, strip: _StripInC) -> None:
        self.passing(strip)


class ThreadsKernel(WavefrontKernel):
    """The same with threads that share the strip, cut into bands of rows as ranks would have them as strips.

    A band reads its neighbours' rows in the strip itself, so that it copies and sends nothing. There are more
    bands than threads, unless the bands become too thin for the rows that two of them both compute.
    """

    more_flags: tuple[str, ...] = BY_THREADS

    def __init__(self, columns: int, threads: int) -> None:
        # A thread that waits for others must leave its CPU to them: spinning threads took 30 times as long beside
        # other work. OpenMP reads this when it is loaded.
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
        super().__init__(columns)
        self.threads = threads
        rings = [self.ring, *(self._new_ring() for _ in range(1, threads))]
        self.maxima = np.zeros((BANDS * threads, columns))
        self.together = self.library.sweep_bands
        pointer = ctypes.c_void_p
        self.together.argtypes = [ctypes.POINTER(_StripInC), ctypes.c_int, pointer, ctypes.c_int]
        self.together.restype = None
        self.rings = (pointer * threads)(*(one.ctypes.data for one in rings))
        self._kept = rings

    def processor_seconds(self) -> float:
        """Return the mean of the threads' processor time."""
        return time.process_time() / self.threads

    def _pass(self, strip: _StripInC) -> None:
        """Make the bands; each has at least as many rows as sweeps, which its neighbours need, or it is alone."""
        count = min(max(self.threads, strip.rows // BAND), BANDS * self.threads)
        count = max(1, min(count, strip.rows // strip.sweeps))
        ends = [strip.rows * k // count for k in range(count + 1)]
        self.maxima[:count] = 0.0
        bands = (_StripInC * count)(*(self._band(strip, k, ends) for k in range(count)))
        self.together(bands, count, self.rings, self.threads)
        if strip.largest:
            np.max(self.maxima[:count], axis=0, out=self.largest)

    def _band(self, strip: _StripInC, k: int, ends: Sequence[int]) -> _StripInC:
        """Return rows `ends[k]` to `ends[k + 1]` of the strip as a strip."""
        first, last = ends[k], ends[k + 1]

        def row(start: int | None, of: int) -> int | None:
            return None if start is None else start + 8 * of * self.pitch

        band = _StripInC(
            now=row(strip.now, first),
            new=row(strip.new, first),
            forcing=row(strip.forcing, first),
            above=strip.above,
            below=strip.below,
            forcing_above=strip.forcing_above,
            forcing_below=strip.forcing_below,
            largest=self.maxima[k].ctypes.data if strip.largest else None,
            pitch=self.pitch,
            columns=self.columns,
            rows=last - first,
            sweeps=strip.sweeps,
            streaming=strip.streaming,
        )
        if first > 0:
            band.above, band.forcing_above = row(strip.now, first), row(strip.forcing, first)
        if last < strip.rows:
            band.below = row(strip.now, last + 1)
            band.forcing_below = row(strip.forcing, last + 1)
        return band


def _first_unknown(grid: Grid | None, row: int = 0) -> int | None:
    """Return the address of the first unknown of a row."""
    return None if grid is None else grid.ctypes.data + row * grid.strides[0] + 8 * LEFT


def _beyond_caches(grid: Grid) -> bool:
    return 2 * grid.nbytes > STREAMING_BYTES


def load_library(*more_flags: str) -> ctypes.CDLL:
    """Return the library for this CPU, built unless the cache has it.

    Raises
    ------
    KernelUnavailableError
        The compiler is missing or fails; permanent on this host.
    """
    compiler = shlex.split(os.environ.get("CC", "cc"))
    if shutil.which(compiler[0]) is None:
        raise KernelUnavailableError(
            f"the implementation compiled needs a C compiler: no {compiler[0]}",
            "compiler-missing",
        )
    try:
        directory = cache_directory()
    except OSError:
        # A missing cache does no harm: the library stays loaded when its file is gone.
        with tempfile.TemporaryDirectory(prefix="apples-jacobi2d-") as temporary:
            return ctypes.CDLL(str(_build(compiler, Path(temporary) / "stencil.so", more_flags)))
    library = directory / f"{_fingerprint(compiler, more_flags)}.so"
    if not library.exists():
        _build(compiler, library, more_flags)
    try:
        demand_own(library)
    except PermissionError as error:
        raise KernelUnavailableError(str(error), "cache-unusable") from error
    return ctypes.CDLL(str(library))


def _build(compiler: list[str], library: Path, more_flags: Sequence[str]) -> Path:
    """Compile beside the library and rename, so that ranks can build at the same time."""
    part = library.with_name(f".{library.name}.{os.getpid()}")
    command = [*compiler, *FLAGS, *more_flags, str(SOURCE), "-o", str(part)]
    try:
        subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=BUILD_SECONDS, umask=0o077
        )
        part.replace(library)
    except subprocess.CalledProcessError as error:
        text = f"{command[0]} fails: {error.stderr}"
        raise KernelUnavailableError(text, "compiler-failed") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        text = f"stencil.c cannot be built: {error}"
        raise KernelUnavailableError(text, "compiler-failed") from error
    return library


def _fingerprint(compiler: list[str], more_flags: Sequence[str]) -> str:
    """Return a name that depends on everything that the library depends on, because hosts may share a home."""
    digest = hashlib.sha256(SOURCE.read_bytes())
    digest.update(
        repr((compiler, (*FLAGS, *more_flags), platform.machine(), platform.libc_ver())).encode()
    )
    digest.update(_cpu().encode())
    return digest.hexdigest()[:32]


def _cpu() -> str:
    """Return the kernel's description of the CPU, in particular of its instruction set."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()
    wanted = ("model name", "flags", "Features", "CPU part")
    first = text.split("\n\n", 1)[0].splitlines()
    return "\n".join(line for line in first if line.startswith(wanted))
