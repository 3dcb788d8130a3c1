"""`RunExecution`: an execution that speaks the application protocol, however its processes were started."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from apples.errors import ApplesError, ApplicationError
from apples.launch.actuator import Execution, Outcome, Progress
from apples.launch.run import Run


class RunExecution(Execution):
    """A run that said ``ready``. A context manager: leaving it ends the run.

    Attributes
    ----------
    warnings
        What is not as planned: one line each.
    """

    def __init__(self, run: Run, warnings: tuple[str, ...] = ()) -> None:
        self.warnings = warnings
        self._run = run
        self._outcome: Outcome | None = None
        self._failure: ApplesError | None = None
        self._over = False

    def monitor(self) -> Iterator[Progress]:
        """Yield progress until the run ends; to be called from one thread at a time."""
        if self._failure:
            raise self._failure
        if self._over:
            return
        try:
            yield from self._progress()
        except ApplesError as error:
            self._failure = error
            raise
        self._over = True
        if not self._run.cancelled:
            self._run.finish()

    def _progress(self) -> Iterator[Progress]:
        for event in self._run.events():
            if isinstance(event, Progress):
                yield event
            elif isinstance(event, Outcome):
                startup = self._run.ready_after
                self._outcome = replace(event, startup_seconds=startup or event.startup_seconds)

    def outcome(self) -> Outcome | None:
        """Return what was measured, waiting for the end; the same each time."""
        for _ in self.monitor():
            pass
        if self._run.cancelled:
            raise ApplicationError("the run was cancelled")
        if self._outcome is None:
            raise ApplicationError("the program said 'done' without a 'result'")
        return self._outcome

    def cancel(self) -> None:
        """End the run."""
        self._run.cancel()

    def __enter__(self) -> RunExecution:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the run, if it has not ended."""
        if not self._over:
            self.cancel()
