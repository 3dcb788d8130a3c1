"""The iteration: exchange edges, sweep once or several times, now and then the residual and a report."""

import math
import time
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from disturbances import KernelCounters, Spikes
from events import emit, finite_or_none
from kernels import Grid, Kernel
from mpi4py import MPI
from patience import Patience
from strip import Halo, Strip, ghost_rows
from task import Task
from transfers import Transfers

# Between two reports the number of iterations at most grows by this factor: the first are
# counted from a rate that a cold start may have got wrong.
FASTEST_GROWTH = 16

# The columns of a gathered row after compute, processor, communicate and wait seconds: since the first
# barrier; what it took to compare clocks; of compute and processor the timing spikes; seconds without a CPU and
# throttled, and major page faults; and of the border with each neighbour of a higher rank, the seconds of a
# transfer and of a small message.
ELAPSED, COMPARING, SPIKES, BORDERS = 4, 5, 6, 11
# Hosts of which a report has the kernel's counters, too: an event has 64 KiB.
MOST_DETAILED_HOSTS = 128
# Clocks are compared again when that takes no more than this share of the time since.
COMPARED = 0.005


@dataclass
class Clock:
    """Seconds of one rank in the kernel and in exchanging, from the first barrier on.

    `processor` is what `compute` cost in processor time: less where others had the CPU meanwhile.
    `exchange` is in neither of the last two yet: what of it was waiting is known at the next report.
    """

    compute: float = 0.0
    processor: float = 0.0
    communicate: float = 0.0
    wait: float = 0.0
    exchange: float = 0.0
    spikes: Spikes = field(default_factory=Spikes)
    kernel: KernelCounters = field(default_factory=KernelCounters)

    def settle(self, transfer: float) -> None:
        """Enter the exchanges of which nobody knew yet what part was transfer and what waiting."""
        self.communicate += transfer * self.exchange
        self.wait += (1.0 - transfer) * self.exchange
        self.exchange = 0.0


@dataclass
class Outcome:
    """What the loop came to; `turn` says which of the strip's arrays holds the result."""

    iterations: int = 0
    seconds: float = 0.0
    residual: float = math.nan
    turn: int = 0
    hosts: list[dict[str, object]] = field(default_factory=list)
    borders: list[dict[str, object]] = field(default_factory=list)
    clipped: dict[str, float] = field(default_factory=dict)


class Iteration:
    """The loop of one rank. All ranks take every decision from the same numbers."""

    def __init__(
        self, task: Task, strip: Strip, kernel: Kernel, comm: MPI.Intracomm, patience: Patience
    ) -> None:
        self.task = task
        self.strip = strip
        self.kernel = kernel
        self.comm = comm
        self.patience = patience
        self.clock = Clock()
        self.outcome = Outcome()
        self.contacts = task.contacts(comm.Get_rank()) if task.of_rectangles else []
        beside = [one.rank for one in self.contacts] if task.of_rectangles else None
        self.transfers = Transfers(comm, patience, beside=beside)
        self.sweeps = 1

    def new_halo(self) -> Halo:
        """Agree how many sweeps follow an exchange, and return the exchange. Collective.

        As many as every rank's kernel makes in a pass, and every strip has rows for its neighbours; of rectangles
        one, for several would need the neighbours' corners too.
        """
        if self.task.of_rectangles:
            place = self.task.strips[self.comm.Get_rank()]
            return Halo.of_rectangle(self.strip, self.comm, place, self.contacts)
        mine, agreed = np.array([min(self.kernel.most_sweeps, self.strip.rows)]), np.empty(1, int)
        self.patience.wait(self.comm.Iallreduce(mine, agreed, MPI.MIN).Test)
        self.sweeps = int(agreed[0])
        if self.sweeps == 1:
            return Halo(self.strip, self.comm)
        place = self.task.strips[self.comm.Get_rank()]
        ghosts = ghost_rows(self.task.parameters, place, self.sweeps)
        return Halo(self.strip, self.comm, self.sweeps, ghosts)

    def run(self) -> Outcome:
        """Iterate until the number of iterations or the tolerance is reached. Collective."""
        halo = self.new_halo()
        self.transfers.compare_clocks()
        self.barrier()
        reports = Reports(self, time.perf_counter())
        while not self.step(halo):
            reports.report_if_due()
        self.barrier()
        reports.conclude()
        halo.free()
        return self.outcome

    def barrier(self) -> None:
        """Wait for all ranks, with patience."""
        self.patience.wait(self.comm.Ibarrier().Test)

    def step(self, halo: Halo) -> bool:
        """Exchange edges once and do as many iterations as that allows; return whether it was the last step.

        The sweep begins when the halo is there. Sweeping the inner rows meanwhile gained 1 % or
        nothing at 1000 and 4000 rows, over shared memory and TCP, and a sum is what a planner
        can predict.
        """
        parameters, turn = self.task.parameters, self.outcome.turn
        sweeps, checked = self._next_sweeps()

        begin = time.perf_counter()
        halo.start(turn)
        self.patience.wait(lambda: halo.done(turn))
        arrived = time.perf_counter()
        spent = self.kernel.processor_seconds()
        change = self._sweep(halo, sweeps, checked)
        used = self.kernel.processor_seconds() - spent
        swept = time.perf_counter()
        self.clock.processor += used
        self.clock.spikes.add(swept - arrived, used)
        self.outcome.iterations, self.outcome.turn = self.outcome.iterations + sweeps, 1 - turn
        last = self.outcome.iterations == parameters.iterations
        if checked:
            self.outcome.residual = self.largest(change)
            last = last or self.outcome.residual <= parameters.tolerance > 0
        self.clock.compute += swept - arrived
        self.clock.exchange += arrived - begin
        self.transfers.record(halo.began, halo.ended)
        self.clock.wait += time.perf_counter() - swept
        return last

    def _next_sweeps(self) -> tuple[int, bool]:
        """Return how many sweeps the next step makes, and whether the change of the last of them is looked at.

        A step ends where the change is to be looked at; the steps up to there are as equal as can be.
        """
        parameters, done = self.task.parameters, self.outcome.iterations
        end, every = parameters.iterations, parameters.residual_every
        if every > 0:
            end = min(end, done - done % every + every)
        steps = -(-(end - done) // self.sweeps)
        sweeps = -(-(end - done) // steps)
        return sweeps, done + sweeps == end

    def _sweep(self, halo: Halo, sweeps: int, checked: bool) -> float:
        """Sweep the strip and return its largest change in the last sweep, if it is to be checked."""
        turn = self.outcome.turn
        now, new = self.strip.arrays[turn], self.strip.arrays[1 - turn]
        forcing, end = self.strip.forcing, self.strip.rows + 1
        if self.sweeps > 1:
            return self.kernel.several_sweeps(now, new, forcing, halo.ghosts, sweeps, checked)
        if checked:
            return self.kernel.sweep_residual(now, new, forcing, 1, end)
        self.kernel.sweep(now, new, forcing, 1, end)
        return math.nan

    def largest(self, change: float) -> float:
        """Return the largest change of all ranks. Collective."""
        mine, largest = np.array([change]), np.empty(1)
        self.patience.wait(self.comm.Iallreduce(mine, largest, MPI.MAX).Test)
        return float(largest[0])


class Reports:
    """Progress events from rank 0, about every `progress_seconds`.

    All ranks gather all ranks' times, and so agree without a further message
    at which iteration the next report is due: from nothing that one rank alone has measured.

    Parameters
    ----------
    begin
        When the loop began, by this rank's clock.
    elapsed
        Seconds since then, the same number on all ranks.
    """

    def __init__(self, iteration: Iteration, begin: float, elapsed: float = 0.0) -> None:
        self.iteration = iteration
        self.begin = begin
        self.period = iteration.task.progress_seconds
        self.last_seconds = elapsed
        self.last_iteration = iteration.outcome.iterations
        self.compared_seconds = elapsed
        self.due = self.last_iteration + 1 if self.period > 0 else 0
        self.pairs = self._pairs()

    def _pairs(self) -> list[tuple[int, int, int]]:
        """Return every border: the lower rank, the higher rank, and the points of it; the lower ranks in order."""
        task, count = self.iteration.task, self.iteration.comm.Get_size()
        if not task.of_rectangles:
            return [(rank, rank + 1, task.parameters.grid) for rank in range(count - 1)]
        return [
            (rank, one.rank, one.points)
            for rank in range(count)
            for one in task.contacts(rank)
            if one.rank > rank
        ]

    def gather(self) -> Grid:
        """Return the seconds of every rank: see the columns above. Collective.

        Of the elapsed ones the largest counts: ranks leave the first barrier and come here at
        slightly different times, and a host's times must fit into the time that passed.
        """
        clock, comm, transfers = (
            self.iteration.clock,
            self.iteration.comm,
            self.iteration.transfers,
        )
        clock.settle(transfers.settle())
        elapsed = time.perf_counter() - self.begin
        spent = [clock.compute, clock.processor, clock.communicate, clock.wait]
        borders = [seconds for one in transfers.later for seconds in (one.mean, one.latency)]
        asking = Counter(rank for rank, _, _ in self.pairs)
        counted, spikes = clock.kernel.since_begin(), clock.spikes
        if counted[0] >= 0:
            spikes.explain(counted[0] + counted[1])
        mine = np.zeros(BORDERS + 2 * max(asking.values(), default=0))
        mine[:SPIKES] = (*spent, elapsed, transfers.comparing)
        mine[SPIKES:BORDERS] = (spikes.unexplained, spikes.processor_excess, *counted)
        mine[BORDERS : BORDERS + len(borders)] = borders
        every = np.empty((comm.Get_size(), len(mine)))
        self.iteration.patience.wait(comm.Iallgather(mine, every).Test)
        return every

    def report_if_due(self) -> None:
        """Report where an iteration to report at is reached. Collective then."""
        if 0 < self.due <= self.iteration.outcome.iterations:
            self.report(self.iteration.outcome.iterations)

    def conclude(self) -> None:
        """Enter the loop's time and every host's in the outcome. Collective."""
        every = self.gather()
        self.iteration.outcome.seconds = float(every[:, ELAPSED].max())
        self.iteration.outcome.hosts = self.hosts(every)
        self.iteration.outcome.clipped = self.clipped(every)
        self.iteration.outcome.borders = self.borders(every)

    def report(self, iteration: int) -> None:
        """Say how far the run is and settle the next report. Collective."""
        start = time.perf_counter()
        every = self.gather()
        outcome = self.iteration.outcome
        seconds = float(every[:, ELAPSED].max())
        done = iteration - self.last_iteration
        rate = done / max(seconds - self.last_seconds, 1e-9)
        self.due = iteration + max(1, min(int(self.period * rate), done * FASTEST_GROWTH))
        self.last_iteration, self.last_seconds = iteration, seconds
        if self.iteration.comm.Get_rank() == 0:
            emit(
                "progress",
                iteration=iteration,
                iterations=self.iteration.task.parameters.iterations,
                seconds=round(seconds, 6),
                residual=finite_or_none(outcome.residual),
                hosts=self.hosts(every),
                borders=self.borders(every),
                **self.clipped(every),
            )
        if seconds - self.compared_seconds > float(every[:, COMPARING].max()) / COMPARED:
            self.iteration.transfers.compare_clocks()
            self.compared_seconds = seconds
        self.iteration.clock.wait += time.perf_counter() - start

    def hosts(self, every: Grid) -> list[dict[str, object]]:
        """Return each host's times, the mean over its ranks."""
        task = self.iteration.task
        owner = np.array([strip.host for strip in task.strips])
        hosts: list[dict[str, object]] = []
        for index, name in enumerate(task.hosts):
            compute, processor, communicate, wait = every[owner == index, :ELAPSED].mean(axis=0)
            hosts.append(
                {
                    "host": name,
                    "compute_seconds": round(float(compute), 6),
                    "processor_seconds": round(float(processor), 6),
                    "communicate_seconds": round(float(communicate), 6),
                    "wait_seconds": round(float(wait), 6),
                    **(
                        disturbed(every[owner == index])
                        if len(task.hosts) <= MOST_DETAILED_HOSTS
                        else {}
                    ),
                }
            )
        return hosts

    @staticmethod
    def clipped(every: Grid) -> dict[str, float]:
        """Return the seconds of the loop without the timing spikes of its ranks, where there were any.

        One rank's spike delays all. Those of several in one iteration overlap, but no rank computes for longer
        than the loop takes.
        """
        spikes = float(every[:, SPIKES].sum())
        longest = float((every[:, 0] - every[:, SPIKES]).max())
        seconds = max(float(every[:, ELAPSED].max()) - spikes, longest)
        return {"clipped_seconds": round(seconds, 6)} if spikes > 0 else {}

    def borders(self, every: Grid) -> list[dict[str, object]]:
        """Return what one transfer takes at each border between two hosts, in the order of the lower ranks.

        Where several ranks of two hosts share a border, the one with most points.
        """
        task, told = self.iteration.task, Counter[int]()
        found: dict[tuple[int, int], dict[str, object]] = {}
        most: dict[tuple[int, int], int] = {}
        for rank, other, points in self.pairs:
            seconds, latency = every[rank, BORDERS + 2 * told[rank] :][:2].tolist()
            told[rank] += 1
            here, there = task.strips[rank].host, task.strips[other].host
            if here != there and points > most.get((here, there), 0):
                most[here, there] = points
                found[here, there] = {
                    "hosts": [task.hosts[here], task.hosts[there]],
                    "bytes": every.itemsize * points * self.iteration.sweeps,
                    "seconds": round(seconds, 9),
                    "latency_seconds": round(latency, 9),
                }
        return list(found.values())


def disturbed(ranks: Grid) -> dict[str, object]:
    """Return what disturbed the ranks of a host; what is zero, or not counted, is left out."""
    spikes, own, wait, throttled, faults = ranks[:, SPIKES:BORDERS].mean(axis=0).tolist()
    found: dict[str, object] = {}
    if spikes > 0 or own > 0:
        compute, processor = ranks[:, :2].mean(axis=0).tolist()
        found["clipped_compute_seconds"] = round(compute - spikes, 6)
        found["clipped_processor_seconds"] = round(processor - own, 6)
    if wait >= 0:
        found["cpu_wait_seconds"] = round(wait, 6)
    if throttled > 0:
        found["throttled_seconds"] = round(throttled, 6)
    if faults > 0:
        found["major_faults"] = round(faults * len(ranks))
    return found
