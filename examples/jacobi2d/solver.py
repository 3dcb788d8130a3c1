"""Jacobi2D: relaxation of a square grid in strips over MPI ranks, of any heights.

Started as ``mpiexec -n RANKS python solver.py`` with the environment variable ``APPLES_TASK``
naming a task file (docs/reference/protocol.md); it knows no more of who starts it. The result, the
iteration a tolerance stops at included, is the same bit for bit whatever the partition.
"""

import os
import signal
import sys
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from types import FrameType

import numpy as np
from calibrate import calibrate
from events import emit, emit_error, emit_ready, finite_or_none, no_room
from iterate import Iteration, Outcome
from kernels import KernelUnavailableError, load_kernel
from mpi4py import MPI
from patience import Patience, StalledError
from picture import Picture
from stream import Digest, NpyFile, RowChecksums, Sink, stream_rectangles, stream_rows
from strip import Strip
from task import Task, TaskError, read_task

ENTRY = time.perf_counter()
LAST_WORDS_SECONDS = 1.0
"""Between an error event and the abort: hydra drops what a rank said just before it."""


class TerminatedError(RuntimeError):
    """The process was asked to end."""

    code = "terminated"


CODED = (TaskError, KernelUnavailableError, TerminatedError, StalledError)
"""Errors that have a code."""


def main() -> int:
    """Do the task; any failure of any rank ends all of them."""
    comm = MPI.COMM_WORLD
    signal.signal(signal.SIGTERM, _terminate)
    try:
        work(comm)
    except SystemExit:
        raise  # this rank's host leaves a malleable run
    except BaseException as error:  # noqa: BLE001  # the others wait for this rank: end them too
        name = "" if isinstance(error, TaskError) else f"{type(error).__name__}: "
        with suppress(OSError):  # nobody may be listening any more
            code = getattr(error, "code", "") if isinstance(error, CODED) else ""
            emit_error(name + str(error), comm.Get_rank(), code, resources=no_room(error))
        with suppress(TerminatedError):  # heard sooner: they were last words
            time.sleep(LAST_WORDS_SECONDS)
        comm.Abort(1)
    # From here on only MPI's own farewell is left, which no Python handler interrupts.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    return 0


def work(comm: MPI.Intracomm) -> None:
    """Read the task and do it. Collective."""
    task = share_task(comm)
    if task.mode == "calibrate":
        if comm.Get_size() != 1:
            text = f"calibrate runs as one process, not {comm.Get_size()}"
            raise TaskError(text, code="program-ranks-differ")
        calibrate(task)
        emit("done")
        return
    if hosts_may_change():
        from adaptive import run_adaptive  # noqa: PLC0415  # needs apples, which a rigid run does not

        run_adaptive(task)
        return
    run(task, comm)


def hosts_may_change() -> bool:
    """Whether a job manager runs this rank; where there is no apples, there is none."""
    if find_spec("apples") is None:
        return False
    from apples import program  # noqa: PLC0415  # see above

    return program.hosts_may_change()


def share_task(comm: MPI.Intracomm) -> Task:
    """Return the task that rank 0 reads, on every rank. Collective."""
    text = np.empty(0, np.uint8)
    size = np.zeros(1, np.int64)
    if comm.Get_rank() == 0:
        text = np.frombuffer(_task_text(), np.uint8).copy()
        read_task(text.tobytes())  # complain here, once, before the others hear of it
        size[0] = len(text)
    comm.Bcast(size, 0)
    if comm.Get_rank() != 0:
        text = np.empty(int(size[0]), np.uint8)
    comm.Bcast(text, 0)
    return read_task(text.tobytes())


def run(task: Task, comm: MPI.Intracomm) -> None:
    """Iterate, then stream the result. Collective."""
    rank, parameters = comm.Get_rank(), task.parameters
    if comm.Get_size() != len(task.strips):
        text = f"the partition has {len(task.strips)} ranks, MPI {comm.Get_size()}"
        raise TaskError(text, code="program-ranks-differ")
    if rank == 0 and task.save:
        # Better now than when all the work is done.
        prepare_output(str(task.output))
    patience = Patience(parameters.stall_seconds)
    strip = Strip.begin(parameters, task.strips[rank])
    name = task.kernel_of(rank)
    kernel = load_kernel(name, strip.columns, task.threads)
    if task.of_rectangles and kernel.strips_only:
        text = f"the implementation {name} takes strips alone, no rectangles"
        raise TaskError(text, code="rectangles-undeclared")
    kernel.take(*strip.grids)
    iteration = Iteration(task, strip, kernel, comm, patience)
    iteration.barrier()
    if rank == 0:
        emit_ready(len(task.strips))
    startup = seconds_since_start()
    iteration.run()
    conclude(iteration, startup)


def conclude(iteration: Iteration, startup: float) -> None:
    """Deliver the grid and say the result. Collective."""
    outcome, comm = iteration.outcome, iteration.comm
    iteration.kernel.settle()
    digest, files = deliver(iteration.task, iteration.strip, outcome, comm, iteration.patience)
    iteration.barrier()
    if comm.Get_rank() == 0:
        emit(
            "result",
            iterations=outcome.iterations,
            seconds=outcome.seconds,
            startup_seconds=round(startup, 6),
            residual=finite_or_none(outcome.residual),
            sha256=digest,
            files=files,
            hosts=outcome.hosts,
            borders=outcome.borders,
            **outcome.clipped,
        )
        emit("done")


def deliver(
    task: Task, strip: Strip, outcome: Outcome, comm: MPI.Intracomm, patience: Patience
) -> tuple[str, list[str]]:
    """Stream the grid for its digest and, if asked, its files; rank 0 gets both. Collective."""
    if not (task.parameters.digest or task.save):
        return "", []
    inside = strip.inside(outcome.turn)
    digest = Digest()
    sinks: list[Sink] = [digest]
    if (
        not task.of_rectangles
    ):  # a row of rectangles has several owners, and none of them can be blamed for it
        sinks.append(RowChecksums(task.strips, task.hosts))
    files: list[str] = []
    if task.save and task.output is not None:
        extremes = np.array([-inside.min(), inside.max()])
        bounds = np.empty(2)
        patience.wait(comm.Iallreduce(extremes, bounds, MPI.MAX).Test)
        if comm.Get_rank() == 0:
            directory, grid = Path(task.output), task.parameters.grid
            sinks.append(NpyFile(directory / "result.npy", grid))
            low, high = -float(bounds[0]), float(bounds[1])
            sinks.append(Picture(directory / "result.png", grid, low, high))
            files = [str(directory / "result.npy"), str(directory / "result.png")]
    stream = stream_rectangles if task.of_rectangles else stream_rows
    stream(inside, task.strips, sinks, comm, patience)
    return digest.hexadecimal, files


def prepare_output(output: str) -> None:
    """Make the directory for the files, or raise TaskError if they will not go there."""
    directory = Path(output)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TaskError(f"output cannot be made: {error}", code="output-unwritable") from None
    if not os.access(directory, os.W_OK | os.X_OK):
        raise TaskError(f"output {output} cannot be written to", code="output-unwritable")


def seconds_since_start() -> float:
    """Return the age of this process by the kernel's account, or else the time since importing."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        started = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        return time.clock_gettime(time.CLOCK_BOOTTIME) - started
    except (OSError, AttributeError, IndexError, ValueError):
        return time.perf_counter() - ENTRY


def _task_text() -> bytes:
    path = os.environ.get("APPLES_TASK")
    if not path:
        raise TaskError(
            "the environment variable APPLES_TASK names no task file", code="task-unreadable"
        )
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise TaskError(f"the task cannot be read: {error}", code="task-unreadable") from None


def _terminate(_number: int, _frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    raise TerminatedError("asked to end by SIGTERM")


if __name__ == "__main__":
    sys.exit(main())
