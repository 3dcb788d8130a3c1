"""The supervisor of one detached job: plans, starts, listens, verifies, and keeps the job's record.

Started by ``apples run --detach`` as ``python -m apples.cli.supervise FOLDER FD`` in a session of its own. Over
the descriptor it says one JSON line, when the job runs or why it does not; then it owns the job until its
end. If it is killed, the run's watchdog ends every process, and the record says so to whoever reads it next.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from apples.agent.coordinator import Coordinator
from apples.agent.information import InformationPool, at_a_glance
from apples.agent.monitoring import Watched
from apples.agent.rescheduling import Tended
from apples.cli import deciding, unmodified
from apples.cli.actuating import (
    actuator_of,
    malleable_of,
    others_of,
    remembering,
    weather_of,
)
from apples.cli.choosing import choose
from apples.cli.job_face import placed
from apples.cli.program import say
from apples.cli.run import carry_out, same, starting
from apples.errors import ApplesError, ApplicationError
from apples.jobs.store import Record, StoredJob
from apples.launch.actuator import Actuator, Execution, Outcome, Progress

WRITE_SECONDS = 0.2
"""How often, at most, the record is written while the job runs."""
STATUS_SECONDS = 1.0
"""How often the job is asked where it is; and how long its answer is waited for."""
ANSWER_SECONDS = 0.5
SHOWN_DECISIONS = 20
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class CancelledError(ApplicationError):
    """The user cancelled the job."""


class Supervisor:
    """Owns one job."""

    def __init__(self, job: StoredJob, told: Callable[[Record], None]) -> None:
        self.job = job
        self.record = job.record()
        self._told = told
        self._written = self._asked = 0.0
        self._watched = Watched()

    def run(self) -> int:
        """Do everything; return the exit code the job ends with."""
        try:
            document = self._carried_out()
        except CancelledError:
            return self._over("cancelled", "", 0)
        except ApplesError as error:
            return self._over("failed", str(error), error.exit_code)
        except Exception as error:  # noqa: BLE001 - whatever it is, the record must say so
            problems = getattr(error, "problems", None)
            return self._over("failed", str(error), 2 if problems else 1)
        self.job.write_result(document)
        if document["verified"] is False:
            return self._over("failed", "the result differs from the sequential run's", 6)
        return self._over("finished", "", 0)

    def _carried_out(self) -> Record:
        order = self.job.order()
        os.chdir(order["directory"])
        if "program" in order:
            return self._program(order)
        through = order["actuator"]
        others, sky = partial(others_of, through), weather_of(through, order["weather"])
        information = deciding.information_of(
            Path(order["hosts"]), Path(order["template"]), Path(order["user"]),
            order["settings"], sky, order["model"], others,
        )  # fmt: skip
        information = information if sky == order["weather"] else remembering(information)
        name, method = deciding.blueprint_of(order["blueprint"], information)
        moving = partial(
            malleable_of, through, self._output(order), information, f"--blueprint {name}"
        )
        choice = choose(
            name, method, information, self._actuator(order, information), moving,
            planner=order["planner"], distance=order["distance"],
        )  # fmt: skip
        chosen = choice.plan["chosen"]
        self._note(
            hosts=chosen["hosts"], rows=chosen["rows"], name=information.template.name,
            iterations=information.application.iterations, malleable=information.template.malleable,
        )  # fmt: skip
        fresh = partial(at_a_glance, others=others) if sky == "live" else same
        if choice.starter.queues:
            self._told({})  # it may be in the queue for days
        return carry_out(
            choice.plan,
            starting(choice, fresh),
            verify=order["verify"],
            learn=order["weather"] != "static",
            watch=self._watch,
        )

    def _program(self, order: Record) -> Record:
        """Run a program that knows nothing of us; what it writes it writes to files of its own."""
        name = Path(order["program"][0]).name
        self._note(hosts=[order["on"]], rows=[0], name=name, iterations=1, malleable=True)
        execution = unmodified.started(order, self.job)
        outcome = self._follow(execution, execution.monitor())
        if outcome is None:
            raise ApplicationError("the program said nothing of its end")
        self.record["hosts"] = [times.host for times in outcome.hosts]
        return unmodified.result_of(order, outcome)

    def _actuator(self, order: Record, information: InformationPool) -> Actuator:
        output, through = self._output(order), order["actuator"]
        rigid = actuator_of(through, output, order["slurm"])
        if rigid.queues or not information.template.malleable:
            return rigid
        return malleable_of(
            through,
            output,
            information,
            "--detach",
            talk=say,
            folder=self.job.folder,
            job=self.job.id,
            commits=self.job.commits,
            commit_seconds=order["commit_seconds"],
            warm=order["warm"],
            engine=order["engine"],
        )

    def _output(self, order: Record) -> Path | None:
        return Path(order["output"]) if order["output"] else None

    # ------------------------------------------------------------------------ watching
    def _watch(self, coordinator: Coordinator, execution: Execution, _name: str) -> Outcome | None:
        return self._follow(execution, coordinator.monitor(execution))

    def _follow(self, execution: Execution, progressing: Iterable[Progress]) -> Outcome | None:
        """Keep the record while the job runs; end it when asked to."""
        try:
            self._note(state="running")
            self._told({})
            for progress in progressing:
                self._progress(execution, progress)
            outcome = execution.outcome()
            if outcome is not None:
                self.record["iteration"] = outcome.iterations
        except BaseException:
            for number in ENDING:  # once is enough
                signal.signal(number, signal.SIG_IGN)
            execution.cancel()
            raise
        return outcome

    def _progress(self, execution: Execution, progress: Progress) -> None:
        now = time.monotonic()
        self._watched.see(progress)
        self.record["iteration"] = progress.iteration
        self.record["iterations"] = progress.iterations
        if now - self._asked >= STATUS_SECONDS:
            self._asked = now
            self._position(execution)
        if now - self._written >= WRITE_SECONDS:
            self._note()

    def _position(self, execution: Execution) -> None:
        """Take in where the job is; one that does not answer just now is asked again later."""
        if not (execution.movable and self.job.announce.exists()):
            return
        with suppress(ApplesError):
            news = placed(execution.position(ANSWER_SECONDS))
            if news["epoch"] != self.record["epoch"]:
                self._watched.moved()
            self.record.update(news)
        if isinstance(execution, Tended):
            last = execution.decisions[-SHOWN_DECISIONS:]
            self.record["redistributions"] = [one.document() for one in last]
        pace = self._watched.pace()
        if pace is not None:
            rows = dict(zip(self.record["hosts"], self.record["rows"], strict=True))
            self.record["measured"] = {
                "rows": rows,
                "iteration_seconds": pace.iteration_seconds,
                "compute_seconds": {h: s for h, s in pace.compute_seconds.items() if h in rows},
            }

    def _note(self, **news: Any) -> None:
        self.record.update(news)
        self._written = time.monotonic()
        self.job.write(self.record)

    def _over(self, state: str, reason: str, code: int) -> int:
        self._note(state=state, reason=reason, exit_code=code, ended=time.time())
        if reason:
            say(f"apples: {reason}")
        self._told({"error": reason or state, "code": code} if code else {})
        return code


def _cancel(number: int, _frame: object) -> None:
    raise CancelledError(f"cancelled by signal {number}")


def teller(handle: int) -> Callable[[Record], None]:
    """Return what tells the command that waits, once."""

    def tell(news: Record) -> None:
        nonlocal handle
        if handle >= 0:
            with suppress(OSError):
                os.write(handle, json.dumps(news).encode() + b"\n")
            os.close(handle)
            handle = -1

    return tell


def main() -> int:
    """Supervise the job in the folder of the first argument."""
    job = StoredJob(Path(sys.argv[1]))
    os.set_inheritable(int(sys.argv[2]), False)
    for number in ENDING:
        signal.signal(number, _cancel)
    with job.supervising():
        return Supervisor(job, teller(int(sys.argv[2]))).run()


if __name__ == "__main__":
    sys.exit(main())
