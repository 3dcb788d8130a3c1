"""A launcher of one file: every rank a child of this program, no mpiexec. What a user's own can look like."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from apples import Actuator, LaunchCommand
from apples.launch import RankGroup, Run, RunExecution, run_task


class ForkActuator(Actuator):
    """Speaks to nobody: starts ranks as its own children, on this machine."""

    def __init__(self, output=None, *, save=False):
        self.output, self.save = output, save

    def command(self, plan):
        ranks = [strip.program.local for strip in plan.strips for _ in range(strip.ranks)]
        task = run_task(plan, output=self.output, save=self.save)
        files = {"task.json": json.dumps(task), "ranks.json": json.dumps(ranks)}
        itself = str(Path(__file__).absolute())
        return LaunchCommand((sys.executable, itself), {"APPLES_TASK": "task.json"}, files)

    def actuate(self, plan):
        groups = [RankGroup(s.host.name, s.ranks, s.program.local) for s in plan.strips]
        run = Run(self.command(plan), groups, silence_seconds=plan.silence_seconds)
        run.until_ready()
        return RunExecution(run)


class LateExecution(RunExecution):
    """A run whose ranks are started when somebody asks what came of it."""

    def outcome(self):
        (self.directory / "asked").touch()
        return super().outcome()


class ForgetfulActuator(ForkActuator):
    """Says that all is ready before there is a rank."""

    def command(self, plan):
        order = super().command(plan)
        return LaunchCommand((*order.argv, "when asked"), order.environment, order.files)

    def actuate(self, plan):
        groups = [RankGroup(s.host.name, s.ranks, s.program.local) for s in plan.strips]
        return LateExecution(Run(self.command(plan), groups))


class ReversedActuator(ForkActuator):
    """Tells the program another order than the plan's."""

    def command(self, plan):
        order = super().command(plan)
        task = json.loads(order.files["task.json"])
        task["partition"].reverse()
        files = {**order.files, "task.json": json.dumps(task)}
        return LaunchCommand(order.argv, order.environment, files)


def main():
    while sys.argv[1:] and not Path("asked").exists():
        time.sleep(0.01)  # between looks
    ranks = json.loads(Path("ranks.json").read_text())
    children = [
        subprocess.Popen(words, env={**os.environ, "PMI_RANK": str(rank)})
        for rank, words in enumerate(ranks)
    ]
    return max(child.wait() for child in children)


if __name__ == "__main__":
    sys.exit(main())
