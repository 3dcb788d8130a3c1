"""``apples``: finds the command, runs it, and turns errors into one clear line and an exit code.

Exit codes: 0 ok, 2 usage or bad input, 3 no feasible plan, 4 resources or launch failed, 5 application
failed, 6 verification failed, 7 time-out, 130 interrupted.
"""

from __future__ import annotations

from collections.abc import Mapping

from apples.cli.program import Entry, run

COMMANDS: Mapping[str, Entry] = {
    "plan": Entry("apples.cli.plan:plan", "Choose hosts and strips for an application."),
    "run": Entry("apples.cli.run:run", "Plan, run, and check the prediction."),
    "jobs": Entry("apples.cli.jobs:jobs", "Show detached jobs."),
    "resize": Entry("apples.cli.jobs:resize", "Move a running job to other hosts or weights."),
    "migrate": Entry("apples.cli.jobs:migrate", "Move a running job from one host to another."),
    "rebalance": Entry("apples.cli.jobs:rebalance", "Share a running job's rows out anew."),
    "wait": Entry("apples.cli.jobs:wait", "Wait for a job and print its run."),
    "cancel": Entry("apples.cli.jobs:cancel", "End a job."),
    "restart": Entry("apples.cli.jobs:restart", "Continue a job from its last commit."),
    "demo": Entry("apples.cli.demo:demo", "The four methods of the paper on this machine."),
    "calibrate": Entry("apples.cli.calibrate:calibrate", "Measure the application's own kernel."),
    "simulate": Entry("apples.cli.simulate:simulate", "Run a scheduling policy over a log."),
    "sweep": Entry("apples.cli.sweep:sweep", "Simulate a grid of logs, policies and seeds."),
    "report": Entry("apples.cli.report:report", "Draw the page of a simulation."),
    "topology": Entry("apples.cli.topology:commands", "Machines, and CPUs for a job."),
    "topologyd": Entry("apples.cli.topologyd:topologyd", "The topology daemon of this host."),
    "exec": Entry("apples.cli.exec:exec_command", "Run a command on CPUs of its own."),
    "logs": Entry("apples.cli.logs:app", "What a job said; or the archive of workload logs."),
    "hosts": Entry("apples.cli.hosts:commands", "Check host lists."),
    "lab": Entry("apples.cli.lab:commands", "Emulate a cluster on this machine."),
    "doctor": Entry("apples.cli.doctor:doctor", "Check this machine, or a program."),
    "schema": Entry("apples.cli.files:schema", "Print a JSON Schema."),
}

EPILOG = (
    "Exit codes: 0 ok, 2 bad input, 3 no feasible plan, 4 resources or launch failed, "
    "5 application failed, 6 verification failed, 7 time-out, 130 interrupted. "
    "Start with: apples demo"
)


def main() -> None:
    """Run the command line and exit."""
    run("apples", COMMANDS, "Application-level scheduling of one parallel program.", EPILOG)
