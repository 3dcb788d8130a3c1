"""A picture of the grid, drawn while its rows pass by; PNG with the standard library alone."""

import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

MAX_PIXELS = 800

# Dark blue to pale yellow through grey, monotone in lightness and readable without red and
# green, in nine steps that are interpolated.
RAMP = (
    (0, 32, 81),
    (18, 53, 112),
    (59, 73, 108),
    (87, 93, 109),
    (112, 113, 115),
    (138, 134, 120),
    (166, 157, 117),
    (197, 182, 102),
    (253, 234, 69),
)


class Picture:
    """Draws the grid at most 800 pixels wide, each pixel the mean of its points.

    Parameters
    ----------
    low, high
        The grid's smallest and largest value. They are given beforehand, so that a line of pixels can
        be coloured, compressed and dropped as soon as its rows are complete.
    """

    def __init__(self, path: Path, grid: int, low: float, high: float) -> None:
        self.path = path
        self.grid = grid
        self.low = low
        self.scale = 255.0 / (high - low) if high > low else 0.0
        self.pixels = min(grid, MAX_PIXELS)
        self.edges = np.arange(self.pixels + 1) * grid // self.pixels
        self.line = 0
        self.row = 0
        self.sums = np.zeros(self.pixels)
        self.compressor = zlib.compressobj(6)
        self.data = bytearray()

    def take(self, data: bytes) -> None:
        """Add some rows to the lines of pixels they belong to; write the file after the last row."""
        rows = np.frombuffer(data).reshape(-1, self.grid)
        while len(rows):
            stop = int(self.edges[self.line + 1])
            now, rows = rows[: stop - self.row], rows[stop - self.row :]
            self.sums += np.add.reduceat(now.sum(axis=0), self.edges[:-1])
            self.row += len(now)
            if self.row == stop:
                self._finish_line()
        if self.row == self.grid:
            self._write()

    def _write(self) -> None:
        self.data += self.compressor.flush()
        header = struct.pack(">IIBBBBB", self.pixels, self.pixels, 8, 3, 0, 0, 0)
        with self.path.open("wb") as file:
            file.write(b"\x89PNG\r\n\x1a\n")
            for kind, body in (
                (b"IHDR", header),
                (b"PLTE", _palette().tobytes()),
                (b"IDAT", bytes(self.data)),
                (b"IEND", b""),
            ):
                file.write(struct.pack(">I", len(body)) + kind + body)
                file.write(struct.pack(">I", zlib.crc32(kind + body)))

    def _finish_line(self) -> None:
        height = self.edges[self.line + 1] - self.edges[self.line]
        means = self.sums / (height * np.diff(self.edges))
        colours = np.clip((means - self.low) * self.scale, 0, 255).astype(np.uint8)
        self.data += self.compressor.compress(b"\0" + colours.tobytes())
        self.sums[...] = 0.0
        self.line += 1


def _palette() -> NDArray[np.uint8]:
    places = np.linspace(0, 255, len(RAMP))
    columns = [np.interp(np.arange(256), places, channel) for channel in np.array(RAMP).T]
    return np.stack(columns, axis=1).round().astype(np.uint8)
