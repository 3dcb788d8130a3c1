"""The common door of the benchmarks: settings, result rows, and the exception that skips.

A benchmark is a module with ``PARTS``: by name, functions that take `Settings` and yield `Row`. Its first part
may have the empty name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

DATA = Path("benchmarks/data")
LOG = "`apples simulate --fetch {0} --folder benchmarks/data/swf` copies it from the Parallel Workloads Archive"
SOURCES = {
    "swf/KTH-SP2-1996-2.swf.gz": LOG.format("KTH-SP2-1996-2"),
    "swf/RICC-2010-2.swf.gz": LOG.format("RICC-2010-2"),
    "swf/CEA-Curie-2011-sample.swf.gz": "an excerpt of 29,998 jobs in 23 days of "
    "CEA-Curie-2011-2.1-cln (Parallel Workloads Archive)",
    "nws/series.npz": "32 arrays cut from the Numenta Anomaly Benchmark (realAWSCloudwatch), the PlanetLab "
    "traces of beloglazov/planetlab-workload-traces, uccmisl/5Gdataset, the HSDPA logs of thu-media/Comyco "
    "and uofa-rzhu3/NetLatency-Data",
}
"""Where to get a data file that a clone does not have."""


class Skipped(Exception):  # noqa: N818 - a reason, not an error
    """A benchmark cannot run here; the text is the reason and the remedy."""


@dataclass(frozen=True)
class Row:
    """One measured figure.

    Attributes
    ----------
    name
        Unique within its part.
    low, high
        The 95 % interval or the range of repeats.
    at_most, at_least
        The bar: the limits that the value must keep.
    peer, paper
        The figure of a comparable program, and the figure in the paper.
    """

    name: str
    measures: str
    value: float
    unit: str = ""
    low: float | None = None
    high: float | None = None
    at_most: float | None = None
    at_least: float | None = None
    peer: str = ""
    paper: str = ""

    @property
    def bar(self) -> str:
        """Return the limits as text."""
        limits = ((">=", self.at_least), ("<=", self.at_most))
        return ", ".join(f"{sign} {number(limit)}" for sign, limit in limits if limit is not None)

    @property
    def verdict(self) -> str:
        """Return "met" or "missed"; empty without a bar."""
        if not self.bar:
            return ""
        low = self.at_least is None or self.value >= self.at_least
        high = self.at_most is None or self.value <= self.at_most
        return "met" if low and high else "missed"

    @property
    def shown(self) -> str:
        """Return the value with its unit and its interval."""
        text = f"{number(self.value)} {self.unit}".rstrip()
        if self.low is None or self.high is None:
            return text
        return f"{text} ({number(self.low)} to {number(self.high)})"


def number(value: float) -> str:
    """Return a number with three or four significant digits."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) >= 10 else f"{value:.4g}"


@dataclass
class Settings:
    """How to run a part.

    Attributes
    ----------
    quick
        Run a small case that shows only that the benchmark works.
    data
        The folder with data files.
    raw
        The part's raw measurements, for the JSON file.
    pictures
        SVG pictures of the part by name.
    """

    quick: bool = False
    data: Path = DATA
    raw: dict[str, Any] = field(default_factory=dict)
    pictures: dict[str, str] = field(default_factory=dict)

    def pick(self, full: Any, quick: Any) -> Any:
        """Return the value for this size of run."""
        return quick if self.quick else full

    def file(self, name: str) -> Path:
        """Return the path of a data file.

        Raises
        ------
        Skipped
            The file is not in the data folder.
        """
        path = self.data / name
        if not path.exists():
            raise Skipped(f"{name} is not in the data folder (--data): {SOURCES[name]}")
        return path


Part = Callable[[Settings], Iterator[Row]]


def need_root() -> None:
    """Raise `Skipped` unless this process may bring up a lab."""
    if os.geteuid():
        raise Skipped("needs root, for the network namespaces of a lab")


def milliseconds(values: list[float]) -> float:
    """Return the median of seconds, in milliseconds."""
    return 1e3 * median(values)
