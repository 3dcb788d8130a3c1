"""Run Figures 3 to 5 of Kale et al. 2002: two malleable jobs use a processor in turn.

    python experiments/kale_two_jobs.py [--seconds 15] [--grid 1500]

Four CPUs, which `taskset -c 0-3` selects on a larger machine. The first job, Jacobi2D, has all of them; the second
gets two and ends; the first has all again. The load monitor measures the CPU time of both jobs on a shared host.

Result: `benchmarks/results/kale_two_jobs.json`.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kale_live import OVER, SOLVER, Site, end_at_sigterm, on_cpus

from apples.agent.session.spec import RunSpec
from apples.jobs.spec import JobSpec
from apples.resources import read_host_list
from apples.weather.load.monitor import LoadMonitor
from apples.weather.load.remote import load_slaves
from apples.weather.load.snapshot import NodeSnapshot

HOSTS = 4
EVERY = 0.5
"""Seconds between two snapshots."""
BARS = " ▁▂▃▄▅▆▇█"
Series = list[tuple[float, float]]
"""Moments, in seconds since the first job was submitted, and what was then."""


def submission(folder: Path, name: str, grid: int, iterations: int) -> dict[str, Any]:
    """Return a job for one host to all of them."""
    sets = {"grid": str(grid), "iterations": str(iterations), "digest": "0"}
    blueprint = "minimum_execution_time"
    spec = RunSpec(folder / "hosts.toml", SOLVER, None, sets, blueprint, "static", verify="none")
    return {
        "minimum": 1, "maximum": 4, "kind": "malleable", "requested": 3600.0, "name": name,
        "work": JobSpec(spec).document(),
    }  # fmt: skip


class Watcher:
    """What is seen of two jobs while they run.

    Attributes
    ----------
    marks
        Of each job, by its number, what its processes bear.
    used
        Host -> of the first and of the second job, what part of its processor their ranks used up to a moment.
    rate
        Iterations a second of the first job.
    """

    def __init__(self, site: Site) -> None:
        self.site, self.began = site, time.time()
        self.used: dict[str, tuple[Series, Series]] = {}
        self.rate: Series = []
        self.marks: dict[int, str] = {}
        self._before: dict[str, NodeSnapshot] = {}
        self._iteration: tuple[float, int] | None = None

    def snapshot(self, one: NodeSnapshot) -> None:
        """Take up what a processor was used for since the last one."""
        used = self.used.setdefault(one.host, ([], []))
        if (last := self._before.get(one.host)) is not None and one.time > last.time:
            for number, series in enumerate(used, 1):
                now, then = (self._seconds(each, number) for each in (one, last))
                series.append(
                    (one.time - self.began, max(0.0, now - then) / (one.time - last.time))
                )
        self._before[one.host] = one

    def _seconds(self, one: NodeSnapshot, number: int) -> float:
        mark = self.marks.get(number)
        return sum(has.cpu_seconds for (job, _), has in one.ranks.items() if job == mark)

    def jobs(self) -> list[dict[str, Any]]:
        """Return the jobs, and take up how far the first is."""
        found: list[dict[str, Any]] = self.site.client.ask("GET", "/v1/queue")["jobs"]
        if len(self.marks) < len(found):  # an attempt's processes bear the name of its folder
            folders = {one.name for one in (self.site.folder / "apples" / "jobs").glob("*/")}
            for mark in folders - set(self.marks.values()):
                self.marks[len(found)] = mark
        now, iteration = time.time(), found[0].get("iteration") or 0
        if self._iteration is None or iteration < self._iteration[1]:
            self._iteration = now, iteration
        elif now - self._iteration[0] >= EVERY and iteration > self._iteration[1]:
            then, before = self._iteration
            self.rate.append((now - self.began, (iteration - before) / (now - then)))
            self._iteration = now, iteration
        return found

    def until(
        self, holds: Callable[[list[dict[str, Any]]], bool], seconds: float = 120.0
    ) -> float:
        """Return the moment at which something of the jobs holds; what does not come ends the program."""
        deadline = time.monotonic() + seconds
        while not holds(found := self.jobs()):
            if time.monotonic() > deadline:
                raise SystemExit(f"it did not come true in {seconds:g} s: {found}")
            time.sleep(EVERY / 10)
        return time.time() - self.began

    def look(self, seconds: float) -> None:
        """Watch for a while."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.jobs()
            time.sleep(EVERY / 5)


def mean(series: Series, start: float, end: float) -> float:
    """Return the mean of what was between two moments."""
    return statistics.fmean([value for at, value in series if start < at <= end] or [float("nan")])


def drawn(series: Series, end: float, most: float) -> str:
    """Return a bar a second."""
    each = [mean(series, second, second + 1) for second in range(int(end))]
    return "".join(
        BARS[0] if math.isnan(value) else BARS[min(8, round(8 * min(1.0, value / most)))]
        for value in each
    )


@contextlib.contextmanager
def watched(folder: Path) -> Iterator[Watcher]:
    """Yield who watches a scheduler of four hosts, which is there meanwhile."""
    site = Site(folder / "site", "equipartition", on_cpus(HOSTS))
    try:
        hosts = read_host_list(site.folder / "hosts.toml")
        one = Watcher(site)
        slaves = load_slaves(hosts, (), EVERY)
        with LoadMonitor(slaves, lambda _: None, each=one.snapshot):
            yield one
    finally:
        site.close()


def main() -> int:
    """Run two jobs, and print what the three figures show."""
    end_at_sigterm()
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=15.0, help="that each state is looked at")
    parser.add_argument("--grid", type=int, default=1500)
    parser.add_argument("--second", type=int, default=6000, help="iterations of the second job")
    asked = parser.parse_args()
    if (cpus := len(os.sched_getaffinity(0))) < HOSTS:
        print(f"skipped: {HOSTS} CPUs are needed, one a host; there are {cpus}")
        return 0
    with (
        tempfile.TemporaryDirectory(prefix="k-", dir="/tmp") as place,
        watched(Path(place)) as one,
    ):
        load = os.getloadavg()[0]
        one.site.submit(submission(one.site.folder, "first", asked.grid, 10**7))
        first = one.until(
            lambda jobs: jobs[0]["iteration"] is not None and len(jobs[0]["hosts"]) == 4
        )
        one.look(asked.seconds)
        came = time.time() - one.began
        one.site.submit(submission(one.site.folder, "second", asked.grid, asked.second))
        ordered = one.until(lambda jobs: len(jobs[0]["hosts"]) == 2)
        started = one.until(lambda jobs: bool(jobs[1]["iteration"]))
        host = one.jobs()[1]["hosts"][0]
        ended = one.until(lambda jobs: jobs[1]["state"] in OVER, 600.0)
        grown = one.until(lambda jobs: len(jobs[0]["hosts"]) == 4)
        one.look(asked.seconds)
        last = time.time() - one.began
        used, most = one.used[host], max(value for _, value in one.rate)
        print(f"a bar a second; load before {load:.0f}")
        print(f"Figure 4  processor of {host}, first job   {drawn(used[0], last, 1.0)}|")
        print(f"          processor of {host}, second job  {drawn(used[1], last, 1.0)}|")
        print(f"Figure 5  throughput of the first job  {drawn(one.rate, last, most)}|")
        both = [min(a, b) * EVERY for (_, a), (_, b) in zip(*used, strict=True)]
        print(
            f"the second job came at {came:.1f} s; the first had left two hosts {ordered - came:.2f} s later, the"
            f" second computed {started - came:.2f} s later; it ended at {ended:.1f} s, the first had grown"
            f" {grown - ended:.2f} s later\n"
            f"both used the processor at once: {sum(both):.2f} s of it in all"
        )
        left = mean(used[0], ordered + 1, ended - 1)
        print(
            f"Figure 3  load on the processor of the job that had left it: {left:.1%}"
            " (the paper: near 0, with peaks of about 2 %, of a process that stays)"
        )
        four, two, again = (
            mean(one.rate, *span)
            for span in ((first, came), (started + 1, ended - 1), (grown + 1, last))
        )
        print(
            f"          {four:.0f} iterations a second on four hosts, {two:.0f} on two, {again:.0f} on four"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
