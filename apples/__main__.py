"""``apples``: finds the command, runs it, and turns errors into one clear line and an exit code.

Exit codes: 0 ok, 2 usage or bad input, 3 no feasible plan, 4 resources or launch failed, 5 application
failed, 6 verification failed, 7 time-out, 130 interrupted.
"""

from __future__ import annotations

from collections.abc import Mapping

try:
    from apples.ui.command_line import Entry, run
except KeyboardInterrupt:  # Ctrl-C while Python imports; `run` handles a later one
    raise SystemExit(130) from None

SECTIONS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "Plan and run": {
        "plan": (
            "apples.jobs.commands.plan:plan",
            "Choose hosts for an application of any model.",
        ),
        "run": ("apples.jobs.commands.run:run", "Plan, run, and check the prediction."),
        "run-program": (
            "apples.jobs.commands.program:run_program",
            "Run an unmodified program that can be moved.",
        ),
        "demo": (
            "apples.jobs.demo.commands:demo",
            "The four methods of the paper on this machine.",
        ),
        "calibrate": (
            "apples.agent.commands.calibrate:calibrate",
            "Measure the program's speed; show or forget learned state.",
        ),
    },
    "Runs and jobs": {
        "report": (
            "apples.jobs.commands.report:report",
            "Write the page of a run, job or simulation; compare runs.",
        ),
        "serve": ("apples.ui.web.serve:serve", "Serve pages of runs, jobs, hosts and files."),
        "jobs": ("apples.jobs.commands.jobs:jobs", "List runs and jobs with their states."),
        "resize": (
            "apples.jobs.commands.jobs:resize",
            "Move a running job, or balance its rows.",
        ),
        "wait": ("apples.jobs.commands.jobs:wait", "Wait for a job and print its run."),
        "cancel": ("apples.jobs.commands.jobs:cancel", "End a job."),
        "restart": ("apples.jobs.commands.jobs:restart", "Continue a job from its last commit."),
        "logs": ("apples.jobs.commands.jobs:logs", "Print the output of a job or a run."),
    },
    "Cluster": {
        "scheduler": (
            "apples.cluster.commands.scheduler:scheduler",
            "Schedule jobs on hosts, live.",
        ),
        "submit": ("apples.cluster.commands.queue:submit", "Submit a job to the scheduler."),
        "queue": ("apples.cluster.commands.queue:queue", "Show the scheduler's hosts and jobs."),
        "drain": ("apples.cluster.commands.queue:drain", "Stop scheduling jobs on a host."),
        "undrain": (
            "apples.cluster.commands.queue:undrain",
            "Schedule jobs on a drained host again.",
        ),
    },
    "Simulate": {
        "simulate": (
            "apples.simulation.commands.simulate:simulate",
            "Run policies over logs; fetch logs.",
        ),
        "workloads": (
            "apples.simulation.commands.workloads:commands",
            "Convert logs of batch systems.",
        ),
    },
    "Machines": {
        "topology": (
            "apples.cluster.commands.topology:commands",
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
        "check": ("apples.applications.commands:check", "Check files, or print a JSON Schema."),
        "doctor": ("apples.agent.commands.doctor:doctor", "Check this machine, or a program."),
        "forget": (
            "apples.jobs.commands.forget:forget",
            "Remove all records, measurements and learned speeds.",
        ),
        "config": ("apples.ui.config:config", "Print settings of apples.toml with their sources."),
        "help": (
            "apples.ui.help_topics:help_command",
            "List the pages of documentation, or print one page.",
        ),
    },
}
COMMANDS = {
    name: Entry(place, words, section)
    for section, commands in SECTIONS.items()
    for name, (place, words) in commands.items()
}
PAGES = ("apples.cluster.routes", "apples.jobs.routes", "apples.applications.routes")
"""Modules with a function ``add(app, site)`` that adds pages to ``apples serve``, topmost package first."""
DOCUMENTS = {
    "apples.topics": "apples.ui.help_topics:TopicsDocument",
    "apples.config": "apples.ui.config:ConfigDocument",
    "apples.help": "apples.ui.help_topics:HelpDocument",
    "apples.plan": "apples.agent.documents:PlanDocument",
    "apples.run": "apples.jobs.documents:RunDocument",
    "apples.demo": "apples.jobs.documents:DemoDocument",
    "apples.job": "apples.jobs.documents:JobDocument",
    "apples.jobs": "apples.jobs.documents:JobsDocument",
    "apples.submitted": "apples.cluster.documents:SubmittedDocument",
    "apples.prediction": "apples.cluster.documents:PredictionDocument",
    "apples.queue": "apples.cluster.documents:QueueDocument",
    "apples.scheduled": "apples.cluster.documents:ScheduledDocument",
    "apples.waiting": "apples.cluster.documents:WaitingDocument",
    "apples.what-if": "apples.cluster.documents:WhatIfDocument",
    "apples.history": "apples.cluster.documents:HistoryDocument",
    "apples.replay": "apples.cluster.documents:ReplayDocument",
    "apples.monitor": "apples.weather.documents:MonitorDocument",
    "apples.forget": "apples.jobs.documents:ForgetDocument",
    "apples.joblog": "apples.jobs.documents:JobLogDocument",
    "apples.error": "apples.ui.documents:ErrorDocument",
    "apples.compare": "apples.jobs.documents:CompareDocument",
    "apples.compare-plans": "apples.jobs.documents:ComparePlansDocument",
    "apples.doctor": "apples.launch.documents:DoctorDocument",
    "apples.calibration": "apples.agent.documents:CalibrationDocument",
    "apples.learned": "apples.agent.documents:LearnedDocument",
    "apples.forgotten": "apples.agent.documents:ForgottenDocument",
    "apples.hosts": "apples.applications.documents:HostsDocument",
    "apples.lab": "apples.lab.documents:LabStatusDocument",
    "apples.topology": "apples.topology.documents:TopologyDocument",
    "apples.host-topologies": "apples.cluster.documents:HostTopologiesDocument",
    "apples.fit": "apples.topology.documents:FitDocument",
    "apples.why": "apples.topology.documents:WhyDocument",
    "apples.fences": "apples.topology.documents:FencesDocument",
    "apples.topologyd": "apples.topology.documents:TopologydDocument",
    "apples.simulation": "apples.simulation.documents:SimulationDocument",
    "apples.explained_waits": "apples.simulation.documents:ExplainedWaitsDocument",
    "apples.sweep": "apples.simulation.documents:SweepDocument",
    "apples.parameter-sweep": "apples.applications.documents:ParameterSweepDocument",
    "apples.pipeline": "apples.applications.documents:PipelineDocument",
    "apples.master-worker": "apples.applications.documents:MasterWorkerDocument",
    "apples.report": "apples.jobs.documents:ReportDocument",
    "apples.log": "apples.simulation.documents:LogDocument",
    "apples.logs": "apples.simulation.documents:LogsDocument",
    "apples.converted": "apples.simulation.documents:ConvertedDocument",
    "hat.check": "apples.applications.documents:CheckDocument",
    "hat.new": "apples.applications.documents:NewDocument",
    "nws.forecast": "apples.weather.service_documents:ForecastDocument",
    "nws.query": "apples.weather.service_documents:QueryDocument",
    "nws.extract": "apples.weather.service_documents:ExtractDocument",
    "nws.status": "apples.weather.service_documents:StatusDocument",
    "nws.top": "apples.weather.service_documents:TopDocument",
    "nws.doctor": "apples.weather.documents:ServiceCheckDocument",
    "nws.import": "apples.weather.documents:ImportDocument",
    "nws.token-list": "apples.weather.documents:TokensDocument",
    "nws.backtest": "apples.weather.documents:BacktestDocument",
    "nws.weather": "apples.weather.documents:WeatherDocument",
}
"""The type of each JSON document that a command prints, by its schema without the number."""

RENAMED: dict[str, str] = {
    "parameter-sweep": "apples run --template sweep.toml",
    "master-worker": "apples run --template master-worker.toml",
    "pipeline": "apples plan --template pipeline.toml",
    "run --program": "apples run-program -- COMMAND ..",
    "simulate --calibrate": "apples simulate LOG --explain-waits",
    "runs": "apples jobs",
    "compare": "apples report RUN RUN ..",
    "migrate": "apples resize JOB --from HOST --to HOST",
    "rebalance": "apples resize JOB --balance",
    "why": "apples queue JOB",
    "monitor": "nws load",
    "sweep": "apples simulate --grid FILE LOG ..",
    "workloads fetch": "apples simulate --fetch NAME",
    "workloads list": "apples simulate --list-logs",
    "shepherd": "apples scheduler --run-my-jobs",
    "what-if": "apples queue --what-if",
    "history": "apples queue --all",
    "resume": "apples undrain HOST",
    "learned": "apples calibrate --learned",
    "hosts": "apples check hosts.toml",
    "hosts import": "hat import slurm",
    "schema": "apples check --schema NAME",
}
"""By a dropped COMMAND, COMMAND SUB-COMMAND or COMMAND --OPTION: the command line that replaces it."""

EPILOG = (
    "Exit codes: 0 ok, 2 bad input, 3 no feasible plan, 4 resources or launch failed, "
    "5 application failed, 6 verification failed, 7 time-out, 130 interrupted. "
    "Start with: apples demo"
)


def main() -> None:
    """Run the command line and exit."""
    summary = "Application-level scheduling of one parallel program."
    run("apples", COMMANDS, summary, EPILOG, {"pages": PAGES, "documents": DOCUMENTS}, RENAMED)


if __name__ == "__main__":
    main()
