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
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from cache import cache_directory, demand_own
from kernels import LEFT, LINE, GhostRows, Grid, Kernel, KernelUnavailableError, allocate, pitch_of

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
BUILD_SECONDS = 60.0
# As in stencil.c.
RING, TILE = 4, 2048

# From this size of the two arrays on, writing past the caches pays: 1000 x 1000 (16 MB) 122 %
# of memcpy against 114 %, 700 x 700 (8 MB) 157 % against 182 % (32 MiB of shared L3).
STREAMING_BYTES = 12 << 20


class CompiledKernel(Kernel):
    """`stencil.c` through ctypes."""

    def __init__(self, columns: int) -> None:
        super().__init__(columns)
        self.pitch = pitch_of(columns)
        self.largest = np.zeros(columns)
        self.library = load_library()
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

    More than eight gain nothing: 4, 8, 12 and 16 sweeps a pass ran at 127, 151, 150 and 145 % of
    memcpy, made a row at a time. The tiles of `stencil.c` allow nine.
    """

    most_sweeps = 8

    def __init__(self, columns: int) -> None:
        super().__init__(columns)
        self.passing = self.library.sweep_wavefront
        self.passing.argtypes = [ctypes.POINTER(_StripInC)]
        self.passing.restype = None
        # Rows of this many columns lie RING_PITCH apart.
        self.ring = allocate(RING * (self.most_sweeps - 1), TILE + 2 * LINE)

    def several_sweeps(
        self,
        now: Grid,
        new: Grid,
        forcing: Grid | None,
        ghosts: GhostRows,
        sweeps: int,
        checked: bool,
    ) -> float:
        """Make all rows of `new` as they are after several sweeps."""
        if not 1 <= sweeps <= self.most_sweeps:
            raise ValueError(f"{sweeps} sweeps, not 1 to {self.most_sweeps}")
        self.largest[...] = 0.0
        self.passing(
            _StripInC(
                now=_first_unknown(now),
                above=_last_row(ghosts.above),
                below=_first_unknown(ghosts.below, 1),
                forcing=_first_unknown(forcing),
                forcing_above=_last_row(ghosts.forcing_above),
                forcing_below=_first_unknown(ghosts.forcing_below, 1),
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


def _first_unknown(grid: Grid | None, row: int = 0) -> int | None:
    """Return the address of the first unknown of a row."""
    return None if grid is None else grid.ctypes.data + row * grid.strides[0] + 8 * LEFT


def _last_row(grid: Grid | None) -> int | None:
    """Return the address of the first unknown of the last row that has unknowns."""
    return None if grid is None else _first_unknown(grid, len(grid) - 2)


def _beyond_caches(grid: Grid) -> bool:
    return 2 * grid.nbytes > STREAMING_BYTES


def load_library() -> ctypes.CDLL:
    """Return the library for this CPU, built unless the cache has it.

    Raises
    ------
    KernelUnavailableError
        There is no compiler, or it fails; permanent on this host.
    """
    compiler = shlex.split(os.environ.get("CC", "cc"))
    if shutil.which(compiler[0]) is None:
        raise KernelUnavailableError(
            f"the implementation compiled needs a C compiler: no {compiler[0]}"
        )
    try:
        directory = cache_directory()
    except OSError:
        # No cache, no harm: the library stays loaded when its file is gone.
        with tempfile.TemporaryDirectory(prefix="apples-jacobi2d-") as temporary:
            return ctypes.CDLL(str(_build(compiler, Path(temporary) / "stencil.so")))
    library = directory / f"{_fingerprint(compiler)}.so"
    if not library.exists():
        _build(compiler, library)
    try:
        demand_own(library)
    except PermissionError as error:
        raise KernelUnavailableError(str(error)) from error
    return ctypes.CDLL(str(library))


def _build(compiler: list[str], library: Path) -> Path:
    """Compile beside the library and rename, so that ranks that build at once do no harm."""
    part = library.with_name(f".{library.name}.{os.getpid()}")
    command = [*compiler, *FLAGS, str(SOURCE), "-o", str(part)]
    try:
        subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=BUILD_SECONDS, umask=0o077
        )
        part.replace(library)
    except subprocess.CalledProcessError as error:
        raise KernelUnavailableError(f"{command[0]} fails: {error.stderr}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise KernelUnavailableError(f"stencil.c cannot be built: {error}") from error
    return library


def _fingerprint(compiler: list[str]) -> str:
    """Return a name that differs where the library might: a home may be shared by hosts."""
    digest = hashlib.sha256(SOURCE.read_bytes())
    digest.update(repr((compiler, FLAGS, platform.machine(), platform.libc_ver())).encode())
    digest.update(_cpu().encode())
    return digest.hexdigest()[:32]


def _cpu() -> str:
    """Return what the kernel says of the CPU, and of its instruction set above all."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()
    wanted = ("model name", "flags", "Features", "CPU part")
    first = text.split("\n\n", 1)[0].splitlines()
    return "\n".join(line for line in first if line.startswith(wanted))
