"""A job manager that takes its commands from a file: ``scripted_manager.py JOB_FILE MAPS STOP STRIKES``.

STRIKES are the arguments of `strikes.Strike`, as JSON: what is struck in this process's loop, stage by stage.
"""

import json
import sys
import time
from pathlib import Path

from apples.malleable import HostShare, JobManager, ScriptedControl, loads

sys.path.append(str(Path(__file__).parents[2]))
from strikes import Strike, strike_in_loop


class Telling(ScriptedControl):
    """Says what happens."""

    def notify(self, notice):
        super().notify(notice)
        words = (getattr(notice, name, "") for name in ("state", "reason"))
        print(f"notice {type(notice).__name__} {' '.join(words)}", flush=True)


def maps(hosts):
    yield from [[HostShare(host) for host in one] for one in hosts]
    Path(sys.argv[3]).touch()


job = loads(Path(sys.argv[1]).read_text())
manager = JobManager(job, Telling(maps(json.loads(sys.argv[2]))), events=False)
told = [""]
beyond = 0.0


def trace(engine):
    """Say which stage the engine is in, when it changes; keep how far one was beyond its limit."""
    global beyond  # noqa: PLW0603 - a program
    beyond = max(beyond, time.monotonic() - engine.change.phase_started - engine.stage_limit)
    if engine.stage != told[-1]:
        told.append(engine.stage)
        print(f"stage {told[-1]}", flush=True)


def struck(one):
    """Say what was struck."""
    print(f"struck {one.stage} {one}", flush=True)


strikes = [Strike(**arguments) for arguments in json.loads(sys.argv[4])]
strike_in_loop(manager, strikes, struck, trace)
tick = manager.engine.tick
manager.engine.tick = lambda: (tick(), trace(manager.engine))
ended = manager.run()
print(f"beyond {beyond:.3f}", flush=True)
sys.exit(0 if ended.state == "finished" else 5)
