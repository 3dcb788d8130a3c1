"""Run-time AppLeS that goes on deciding: while the application runs, it is moved whenever that pays."""

from apples import Coordinator, Execution, Tended

MINIMUM_DWELL = 4.0
"""Seconds the application stays where it is, whatever happens."""
LOOK_AROUND = 15.0
"""Seconds after which one looks though nobody breaks the contract: others may have become free."""
HYSTERESIS = 0.12
"""By what part an iteration must become shorter: less is within the errors of the forecasts."""
ERRORS = 3.0
"""And by so many standard errors of what was measured."""
TIMES_THE_COST = 2.0
"""How many times its cost a move must bring in the iterations that are left."""


def redistribute(coordinator: Coordinator) -> Execution:
    """Try every viable resource set; run on the one predicted best, and hold it to the contract."""

    def keep_to_the_contract(coordinator: Coordinator, run: Tended) -> None:
        """Plan anew by what was measured, and measured again; move if that pays."""
        if run.dwell < MINIMUM_DWELL or not coordinator.occasion(run, LOOK_AROUND):
            return
        now = coordinator.now(run)
        move = now.weigh(run, now.best(now.candidates()))
        if move is None or not move.pays(HYSTERESIS, ERRORS, TIMES_THE_COST):
            coordinator.stay(run, move)
        elif run.doubted or run.proposed:
            coordinator.go(run, move)
        else:
            run.proposed = True  # said once; done when it is said again

    execution = coordinator.actuate(coordinator.best(coordinator.candidates()))
    return coordinator.tend(execution, keep_to_the_contract)
