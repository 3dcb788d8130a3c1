"""``apples``: finds the command, runs it, and turns errors into one clear line and an exit code.

Exit codes: 0 ok, 2 usage or bad input, 3 no feasible plan, 4 resources or launch failed, 5 application
failed, 6 verification failed, 7 time-out, 130 interrupted.
"""

from __future__ import annotations

from collections.abc import Mapping

from apples.ui.command_line import Entry, run

SECTIONS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "Plan and run": {
        "plan": ("apples.agent.commands.plan:plan", "Choose hosts and strips for an application."),
        "run": ("apples.jobs.commands.run:run", "Plan, run, and check the prediction."),
        "parameter-sweep": (
            "apples.jobs.commands.applications:parameter_sweep",
            "Run one program at many settings.",
        ),
        "master-worker": (
            "apples.jobs.commands.applications:master_worker",
            "Run units of work under the best master.",
        ),
        "pipeline": (
            "apples.jobs.commands.applications:pipeline",
            "Plan an application of several tasks.",
        ),
        "demo": (
            "apples.jobs.demo.commands:demo",
            "The four methods of the paper on this machine.",
        ),
        "calibrate": (
            "apples.agent.commands.calibrate:calibrate",
            "Measure the application's own kernel.",
        ),
        "learned": (
            "apples.agent.commands.learned:learned",
            "Show the speeds and corrections that runs taught.",
        ),
        "forget": (
            "apples.agent.commands.learned:forget",
            "Remove the learned state of an application or a host.",
        ),
    },
    "Runs and jobs": {
        "runs": ("apples.jobs.commands.runs:runs", "Show what was recorded of runs and jobs."),
        "report": (
            "apples.jobs.commands.runs:report",
            "Write the page of a run, job or simulation.",
        ),
        "compare": ("apples.jobs.commands.runs:compare", "What differs between recorded runs."),
        "serve": ("apples.ui.web.serve:serve", "Serve pages of runs, jobs, hosts and files."),
        "jobs": ("apples.jobs.commands.jobs:jobs", "Show detached jobs."),
        "resize": (
            "apples.jobs.commands.jobs:resize",
            "Move a running job to other hosts or weights.",
        ),
        "migrate": (
            "apples.jobs.commands.jobs:migrate",
            "Move a running job from one host to another.",
        ),
        "rebalance": (
            "apples.jobs.commands.jobs:rebalance",
            "Share a running job's rows out anew.",
        ),
        "wait": ("apples.jobs.commands.jobs:wait", "Wait for a job and print its run."),
        "cancel": ("apples.jobs.commands.jobs:cancel", "End a job."),
        "restart": ("apples.jobs.commands.jobs:restart", "Continue a job from its last commit."),
        "logs": ("apples.jobs.commands.jobs:logs", "What a job or a run said."),
    },
    "Cluster": {
        "scheduler": (
            "apples.cluster.commands.scheduler:scheduler",
            "Schedule jobs on hosts, live.",
        ),
        "shepherd": (
            "apples.cluster.commands.user_runner:shepherd",
            "Run this user's jobs for a scheduler.",
        ),
        "submit": ("apples.cluster.commands.queue:submit", "Submit a job to the scheduler."),
        "queue": ("apples.cluster.commands.queue:queue", "Show the scheduler's hosts and jobs."),
        "why": ("apples.cluster.commands.queue:why", "Why a job waits."),
        "what-if": ("apples.cluster.commands.queue:what_if", "The queue under another policy."),
        "drain": ("apples.cluster.commands.queue:drain", "Have a host get no other job."),
        "resume": ("apples.cluster.commands.queue:resume", "Have a drained host get jobs again."),
        "history": (
            "apples.cluster.commands.queue:history",
            "Show the scheduler's jobs that are over.",
        ),
        "monitor": (
            "apples.weather.load.commands:monitor",
            "What hosts have left, and what jobs use.",
        ),
    },
    "Simulate": {
        "simulate": (
            "apples.simulation.commands.simulate:simulate",
            "Run a scheduling policy over a log.",
        ),
        "sweep": (
            "apples.simulation.commands.sweep:sweep",
            "Simulate a grid of logs, policies and seeds.",
        ),
        "workloads": (
            "apples.simulation.commands.workloads:commands",
            "Fetch logs of the archive.",
        ),
    },
    "Machines": {
        "hosts": ("apples.applications.commands:hosts", "Check host lists."),
        "topology": (
            "apples.topology.commands.topology:commands",
            "Machines, and CPUs for a job.",
        ),
        "topologyd": (
            "apples.topology.daemon.commands:topologyd",
            "The topology daemon of this host.",
        ),
        "exec": (
            "apples.topology.commands.exec:exec_command",
            "Run a command on CPUs of its own.",
        ),
        "lab": ("apples.lab.commands:commands", "Emulate a cluster on this machine."),
    },
    "Set-up": {
        "doctor": ("apples.agent.commands.doctor:doctor", "Check this machine, or a program."),
        "schema": ("apples.applications.commands:schema", "Print a JSON Schema."),
    },
}
COMMANDS = {
    name: Entry(place, words, section)
    for section, commands in SECTIONS.items()
    for name, (place, words) in commands.items()
}
PAGES = ("apples.cluster.routes", "apples.jobs.routes", "apples.applications.routes")
"""The modules whose ``add(app, site)`` adds the pages of a room to ``apples serve``, the topmost room first."""

EPILOG = (
    "Exit codes: 0 ok, 2 bad input, 3 no feasible plan, 4 resources or launch failed, "
    "5 application failed, 6 verification failed, 7 time-out, 130 interrupted. "
    "Start with: apples demo"
)


def main() -> None:
    """Run the command line and exit."""
    summary = "Application-level scheduling of one parallel program."
    run("apples", COMMANDS, summary, EPILOG, {"pages": PAGES})


if __name__ == "__main__":
    main()
