"""The agent of one trial: a session as `apples run` has it, which says on standard output how far it is.

``session_agent.py FOLDER WEATHER ITERATIONS``: FOLDER has `hosts.toml`. Its exit code is the error's.
"""

import contextlib
import faulthandler
import signal
import sys
import threading
from pathlib import Path

from apples.agent import PhaseTimes, RunSpec, prepare
from apples.errors import ApplesError

EXAMPLE = Path(__file__).parents[3] / "examples" / "jacobi2d"


def say(*words):
    print(*words, flush=True)


class ToldPhases(PhaseTimes):
    """Phases that say when they begin."""

    def __call__(self, phase):
        if phase in ("look", "hosts", "links", "plan", "launch"):
            say("stage", phase)
        super().__call__(phase)


@contextlib.contextmanager
def follow(_, run):
    """Say when the loop begins, and when its result has come and all is to end."""
    say("stage loop")

    def until_the_result():
        while not run.execution.has_result and not over.wait(0.001):
            pass
        say("stage end")

    over = threading.Event()
    watching = threading.Thread(target=until_the_result, daemon=True)
    watching.start()
    try:
        yield lambda _: None
    finally:
        over.set()
        watching.join()


faulthandler.register(signal.SIGUSR1, all_threads=True)  # where it hangs
folder, weather, iterations = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
spec = RunSpec(
    folder / "hosts.toml",
    EXAMPLE / "template.toml",
    EXAMPLE / "user.toml",
    {"grid": 240, "iterations": iterations},
    "blocked",
    weather,
    actuator="ssh",
    verify=False,
)
phases = ToldPhases()
phases("look")
try:
    prepared = prepare(spec, talk=lambda line: say("talk", line), phases=phases)
    say("job", prepared.connections.job)
    result = prepared.execute(talk=lambda line: say("talk", line), follow=follow)
except ApplesError as error:
    say("error", error)
    sys.exit(error.exit_code)
say("done", result.outcome.iterations)
