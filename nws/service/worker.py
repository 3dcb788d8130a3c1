"""One thread for all work with the forecasters, shared out in slices among those that wait for it."""

import logging
import time
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future
from threading import Condition, Thread
from typing import Any, Final, TypeVar

SLICE_SECONDS: Final = 0.002
"""How long one job runs before the next one gets a turn."""

_log = logging.getLogger(__name__)

Result = TypeVar("Result")
Job = Generator[None, None, Result]


class SlicedWorker:
    """Runs jobs in one thread, in turns: a job is a generator that yields where another may go on.

    Only this thread uses the objects of the jobs, so they need no lock.

    Parameters
    ----------
    background
        Called for a slice whenever no job waits, and between two rounds of jobs, once at the start and
        after each `wake`; returns whether more is left to do.

    Examples
    --------
    >>> def job():
    ...     yield
    ...     return 7
    >>> worker = SlicedWorker(lambda: False)
    >>> worker.run(job())
    7
    >>> worker.close()
    """

    def __init__(self, background: Callable[[], bool]) -> None:
        self._background = background
        self._jobs: deque[tuple[Job[Any], Future[Any]]] = deque()
        self._changed = Condition()
        self._awake = True
        self._closing = False
        self._thread = Thread(target=self._run, name="nws forecasters", daemon=True)
        self._thread.start()

    def submit(self, job: Job[Result]) -> "Future[Result]":
        """Queue a job; RuntimeError after `close`."""
        future: Future[Result] = Future()
        with self._changed:
            if self._closing:
                raise RuntimeError("the forecasters are being closed")
            self._jobs.append((job, future))
            self._changed.notify()
        return future

    def run(self, job: Job[Result]) -> Result:
        """Return the result of a job, or raise its error."""
        return self.submit(job).result()

    def wake(self) -> None:
        """Have the background work done."""
        if not self._awake:
            with self._changed:
                self._awake = True
                self._changed.notify()

    def close(self) -> None:
        """End once the jobs that wait are done."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not (self._jobs or self._awake or self._closing):
                    self._changed.wait()
                waiting = len(self._jobs)
                if self._closing and not waiting:
                    return
                work, self._awake = self._awake, False
            for _ in range(waiting):
                self._turn(*self._jobs.popleft())
            if work and self._more_to_do():
                self._awake = True

    def _more_to_do(self) -> bool:
        """Do background work; an error ends neither it nor the thread, which callers wait for."""
        try:
            return self._background()
        except Exception:  # noqa: BLE001 - see above
            _log.exception("the background work of the forecasters failed")
            return False

    def _turn(self, job: Job[Any], future: "Future[Any]") -> None:
        """Run a job for a slice; queue it again if it is not done."""
        if future.cancelled():
            job.close()
            return
        stop = time.perf_counter() + SLICE_SECONDS
        try:
            while time.perf_counter() < stop:
                next(job)
        except StopIteration as end:
            if future.set_running_or_notify_cancel():
                future.set_result(end.value)
        except BaseException as error:  # noqa: BLE001 - the waiting caller gets it
            if future.set_running_or_notify_cancel():
                future.set_exception(error)
        else:
            self._jobs.append((job, future))
