"""The kernel in C, built by this host's compiler for this host's CPU at first use."""

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from cache import cache_directory, demand_own
from kernels import LEFT, Grid, Kernel, KernelUnavailableError, pitch_of

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

# From this size of the two arrays on, writing past the caches pays: 1000 x 1000 (16 MB) 122 %
# of memcpy against 114 %, 700 x 700 (8 MB) 157 % against 182 % (32 MiB of shared L3).
STREAMING_BYTES = 12 << 20


class CompiledKernel(Kernel):
    """`stencil.c` through ctypes."""

    def __init__(self, columns: int) -> None:
        super().__init__(columns)
        self.pitch = pitch_of(columns)
        self.largest = np.zeros(columns)
        self.call = load_library().sweep
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
        skip = 8 * LEFT
        force = None if forcing is None else forcing.ctypes.data + skip
        streaming = now.nbytes + new.nbytes > STREAMING_BYTES
        self.call(
            now.ctypes.data + skip,
            new.ctypes.data + skip,
            force,
            largest,
            self.pitch,
            self.columns,
            *rows,
            streaming,
        )


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
