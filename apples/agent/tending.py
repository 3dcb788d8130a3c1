"""`Tending`: the verbs of a coordinator for an application that runs: monitor its contract, weigh, resize."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any, Self

from apples.agent.contract import Contract
from apples.agent.estimator import PerformanceEstimator
from apples.agent.information import InformationPool, as_measured
from apples.agent.monitoring import Watched
from apples.agent.rescheduling import Move, Redistribution, Tended
from apples.agent.weighing import weighed
from apples.errors import LaunchError, UsageError
from apples.launch.actuator import Execution, Resized
from apples.schedule import Estimate

TendingPolicy = Callable[[Any, Tended], None]
"""Called with the coordinator and the run, after each progress."""


class Tending:
    """What `Coordinator` can do for an application that runs; its attributes are the coordinator's."""

    information: InformationPool
    estimator: PerformanceEstimator
    fresh: Callable[[InformationPool], InformationPool]
    clock: Callable[[], float]
    deliberation: Any
    tell: Callable[[Redistribution], None] | None = None

    def tend(self, execution: Execution, policy: TendingPolicy) -> Execution:
        """Have a policy look after an execution until its end; it sees every progress first."""
        record = self.deliberation
        record.policy = policy
        if record.chosen is None or not execution.movable:
            return execution
        return Tended(
            execution,
            lambda run: policy(self, run),
            Contract.of(record.chosen),
            Watched(clock=self.clock),
            tell=self.tell or _nobody,
        )

    def breach(self, run: Tended) -> str:
        """Return who breaks the contract of a running application, in words; empty when nobody does."""
        pace = run.watched.pace()
        return "" if pace is None else run.contract.breach(pace)

    def occasion(self, run: Tended, around: float) -> str:
        """Return why to look for a move now, in words; empty where there is no reason. Notes what it doubts.

        The contract is broken, and was found so twice: the first window may hold what was before, or a
        hiccup. Or nobody looked for `around` seconds; or a look found a move that pays, and one looks again.
        """
        if not run.measured:
            return ""
        broken = self.breach(run)
        if broken and not run.doubted:
            run.doubted = True
            run.watched.doubted()
            return ""
        run.doubted = bool(broken)
        patience = run.watched.window if run.proposed else around
        return broken or ("a look around" if run.rested >= patience else "")

    def now(self, run: Tended) -> Self:
        """Return a coordinator that decides from what there is at this moment for a running application.

        Where it runs, it takes what it was measured to take; elsewhere what the weather says.
        """
        run.looked = run.watched.clock()
        pace, rows = run.watched.pace(), run.rows()
        seconds = {} if pace is None else pace.compute_seconds
        sky = self.fresh(self.information)
        run.learn(as_measured(sky, rows, seconds), rows)
        measured = as_measured(sky, rows, seconds, run.paces, run.bias)
        other = copy(self)
        other.information, other.deliberation = measured, type(self.deliberation)()
        vars(other).pop("_alone_seconds", None)
        return other

    def weigh(self, run: Tended, candidate: Estimate) -> Move | None:
        """Return what moving a running application to a candidate would bring and cost.

        To be asked of the coordinator that `now` returned. None where nothing was measured yet, or the
        candidate is what it has.
        """
        return weighed(run, candidate, self.information, self.estimator)

    def go(self, run: Tended, move: Move) -> None:
        """Carry a move out and record it; what the job refuses is recorded too."""
        try:
            done = self.resize(run, move.estimate)
        except (UsageError, LaunchError) as refusal:
            run.content()
            run.decide(move, f"stays, though {move.explained()}: {refusal}")
            return
        run.proposed = run.doubted = False
        # The move has shown what the model leaves out: that is part of the new promise.
        factor = move.next_seconds / move.estimate.iteration_seconds
        run.contract = replace(
            run.contract, iteration_seconds=run.contract.iteration_seconds * factor
        )
        run.decide(move, f"moves: {move.explained()}", done)

    def stay(self, run: Tended, move: Move | None) -> None:
        """Leave it where it is; what is measured now is what is expected from now on.

        Recorded where there was a move, which does not pay; None: what it has is the best there is.
        """
        run.content()
        if move is not None:
            run.decide(move, f"stays: {move.explained()}")

    def resize(self, execution: Execution, estimate: Estimate) -> Resized:
        """Move a running application to the hosts and rows of an estimate; returns when it is there.

        Raises
        ------
        UsageError, LaunchError
            It refused, or tried in vain, and goes on as it was.
        """
        done = execution.resize(estimate.schedule)
        if isinstance(execution, Tended):
            execution.contract = Contract.of(estimate)
        return done


def _nobody(_: Redistribution) -> None:
    """Nobody wants to be told."""
