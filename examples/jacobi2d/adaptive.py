"""Jacobi2D as a malleable job: the same sweeps on hosts that come, go and change their shares.

The grid is the same bit for bit as the rigid run's, whatever happens to the hosts meanwhile.
"""

import time
from collections.abc import Callable
from dataclasses import replace

from events import emit_ready
from iterate import Clock, Iteration, Outcome, Reports
from kernels import Grid, Kernel, load_kernel, pitch_of
from mpi4py import MPI
from patience import Patience
from solver import conclude, prepare_output, seconds_since_start
from strip import Strip, fill_first, fill_forcing, set_sides
from task import Parameters, RankStrip, Task

from apples import malleable


def run_adaptive(task: Task) -> None:
    """Iterate on the hosts there are. Collective, also over ranks that join later."""
    parameters = task.parameters
    if task.save:
        prepare_output(str(task.output))
    with malleable.Job() as job:
        grids = declare(job, parameters)
        state = job.state(iteration=0, turn=0, residual=float("nan"), seconds=0.0, done=False)
        kernel = load_kernel(task.implementations.get(job.host, "numpy"), parameters.grid)
        startup = seconds_since_start()
        leg: Leg | None = None
        while not state.done:
            change = job.safepoint(leg.halo.free if leg else None, collect=kernel.settle)
            if change:
                leg = Leg(job, task, grids, kernel, state, change, leg)
            assert leg is not None  # noqa: S101  # for the type checker: the first safe point is a change
            leg.step()
        if leg is not None:
            leg.end(startup)


def declare(job: malleable.Job, parameters: Parameters) -> tuple[malleable.RowArray, ...]:
    """Declare the two arrays that take turns, and the forcing if there is a source."""
    shape = (parameters.grid, pitch_of(parameters.grid))

    def first(fill: Callable[[Grid, Parameters, RankStrip], None]) -> Callable[[int, Grid], None]:
        return lambda row, rows: fill(rows, parameters, RankStrip(0, row, len(rows) - 2))

    contents = {"even": fill_first, "odd": set_sides}
    if parameters.source != "":
        contents["forcing"] = fill_forcing
    return tuple(
        job.array(name, shape, halo=1, fill=first(fill)) for name, fill in contents.items()
    )


class Sweeps(Iteration):
    """An iteration whose reduction carries the safe point's question along."""

    def __init__(self, job: malleable.Job, task: Task, strip: Strip, kernel: Kernel) -> None:
        super().__init__(task, strip, kernel, job.comm, Patience(task.parameters.stall_seconds))
        self.job = job

    def largest(self, change: float) -> float:
        """Return the largest change of all ranks. Collective."""
        return self.job.allreduce(change, MPI.MAX)


class Leg:
    """The iterations between two changes of hosts."""

    def __init__(
        self,
        job: malleable.Job,
        task: Task,
        grids: tuple[malleable.RowArray, ...],
        kernel: Kernel,
        state: malleable.State,
        change: malleable.Change | malleable.Rollback,
        before: "Leg | None",
    ) -> None:
        self.state, self.job = state, job
        self.began: float
        even, odd, *forcing = (grid.local for grid in grids)
        strip = Strip(task.parameters.grid, (even, odd), forcing[0] if forcing else None)
        kernel.take(*strip.grids)
        self.sweeps = Sweeps(job, with_members(task, job), strip, kernel)
        self.sweeps.clock = before.sweeps.clock if before else Clock()
        self.sweeps.outcome = Outcome(state.iteration, residual=state.residual, turn=state.turn)
        self.halo = self.sweeps.new_halo()
        began = before.began if before else time.perf_counter() - state.seconds
        if isinstance(change, malleable.Change) and change.kind == "started" and job.rank == 0:
            emit_ready(job.size)
        self.sweeps.transfers.compare_clocks()
        self.sweeps.barrier()
        elapsed = job.allreduce(time.perf_counter() - began, MPI.MAX)
        self.began = time.perf_counter() - elapsed
        self.reports = Reports(self.sweeps, self.began, elapsed)

    def step(self) -> None:
        """Exchange edges and sweep; what the next leg must know goes into the state."""
        last = self.sweeps.step(self.halo)
        if not last:
            self.reports.report_if_due()
        outcome, state = self.sweeps.outcome, self.state
        state.iteration, state.turn = outcome.iterations, outcome.turn
        state.residual, state.done = outcome.residual, last
        state.seconds = time.perf_counter() - self.began

    def end(self, startup: float) -> None:
        """Say the result. Collective."""
        self.sweeps.barrier()
        self.reports.conclude()
        self.halo.free()
        conclude(self.sweeps, startup)


def with_members(task: Task, job: malleable.Job) -> Task:
    """Return the task with the strips there are now."""
    hosts = tuple(member.host for member in job.members)
    strips = (RankStrip(hosts.index(host), rows.first, len(rows)) for host, rows in job.layout)
    return replace(task, hosts=hosts, strips=tuple(strips))
