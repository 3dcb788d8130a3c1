"""What is said of a run: how far it is, how much energy it has, where its hosts' time went."""

import time

import numpy as np
from dynamics import Dynamics
from events import emit
from mpi4py import MPI
from task import Task

from apples.malleable import Job, State, wait

FASTEST_GROWTH = 16
"""Between two reports the number of steps at most grows by this factor."""


class Reports:
    """Events of rank 0; all ranks call what is collective as often as the others.

    `state` has what a rank that joins must know: `begin` of the run, when the next report is `due`, when the
    last one was (`told` at `told_seconds`), the first `energy` and the number of `particles`.
    """

    def __init__(self, task: Task, job: Job, dynamics: Dynamics, state: State) -> None:
        self.task, self.job, self.dynamics, self.state = task, job, dynamics, state
        self.error = 0.0

    def first(self) -> None:
        """Note the first energy; from here on time counts. Collective."""
        kinetic, potential, self.state.particles = self.dynamics.energy()
        self.state.energy = kinetic + potential
        self.state.begin = self._agreed(time.time())
        self.state.ready = True

    def progress(self) -> None:
        """Say how far the run is, and settle the next report. Collective."""
        seconds, hosts = self._look()
        iteration = int(self.state.iteration or 0)
        steps = iteration - int(self.state.told or 0)
        pace = steps / max(seconds - float(self.state.told_seconds or 0.0), 1e-9)
        ahead = max(1, min(int(self.task.progress_seconds * pace), iteration * FASTEST_GROWTH))
        self.state.due = iteration + ahead
        self.state.told, self.state.told_seconds = iteration, seconds
        if self.job.rank == 0:
            emit(
                "progress",
                iteration=iteration,
                iterations=self.task.parameters.steps,
                seconds=round(seconds, 6),
                residual=self.error,
                hosts=hosts,
            )

    def result(self) -> None:
        """Say what the run came to. Collective."""
        seconds, hosts = self._look()
        digest = self.dynamics.digest()
        if self.job.rank == 0:
            emit(
                "result",
                iterations=self.state.iteration,
                seconds=seconds,
                startup_seconds=0.0,
                residual=self.error,
                sha256=digest,
                files=[],
                hosts=hosts,
            )

    def _look(self) -> tuple[float, list[dict[str, object]]]:
        """Return seconds since the beginning and each host's mean times; check what must be conserved."""
        kinetic, potential, particles = self.dynamics.energy()
        first = float(self.state.energy or 0.0)
        self.error = abs(kinetic + potential - first) / max(abs(first), 1e-300)
        if particles != self.state.particles:
            raise ArithmeticError(f"{particles} particles are left of {self.state.particles}")
        seconds = self._agreed(time.time()) - float(self.state.begin or 0.0)
        return max(0.0, seconds), self._hosts()

    def _agreed(self, value: float) -> float:
        """Return the largest of all ranks' values. Collective."""
        mine, every = np.array([value]), np.empty(1)
        wait(self.job.comm.Iallreduce(mine, every, MPI.MAX).Test)
        return float(every[0])

    def _hosts(self) -> list[dict[str, object]]:
        """Return each host's times, the mean over its ranks. Collective."""
        clock, comm = self.dynamics.clock, self.job.comm
        mine = np.array([clock.compute, clock.processor, clock.communicate])
        times = np.empty((comm.Get_size(), len(mine)))
        wait(comm.Iallgather(mine, times).Test)
        of = [host for host, _ in self.job.layout]
        hosts: list[dict[str, object]] = []
        for host in dict.fromkeys(of):
            mean = times[[one == host for one in of]].mean(axis=0)
            compute, processor, communicate = (round(float(one), 6) for one in mean)
            hosts.append(
                {
                    "host": host,
                    "compute_seconds": compute,
                    "processor_seconds": processor,
                    "communicate_seconds": communicate,
                }
            )
        return hosts
