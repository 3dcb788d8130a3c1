"""A job manager that takes its commands from a file: ``scripted_manager.py JOB_FILE MAPS STOP``."""

import json
import sys
from pathlib import Path

from apples.malleable.control.command import HostShare
from apples.malleable.control.job_file import loads
from apples.malleable.manager.job_manager import JobManager
from apples.testing.rehearsal import ScriptedControl


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
anchor = JobManager(job, Telling(maps(json.loads(sys.argv[2]))))
told = [""]


def trace():
    """Say which stage the engine is in, when it changes."""
    if anchor.engine.stage != told[-1]:
        told.append(anchor.engine.stage)
        print(f"stage {told[-1]}", flush=True)


tick = anchor.engine.tick
anchor.engine.tick = lambda: (trace(), tick(), trace())
ended = anchor.run()
sys.exit(0 if ended.state == "finished" else 5)
