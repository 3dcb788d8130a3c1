"""A live scheduler that listens in this process, and whose jobs are played."""

import threading
import time

from apples.cluster import (
    LAST,
    AttemptPhase,
    EndOrder,
    HostLeft,
    JobExecutor,
    JobReport,
    LiveScheduler,
    PlannerClient,
    ResizeOrder,
    SchedulerLog,
    SchedulerService,
    StartOrder,
    planner_command,
    serve,
)
from apples.jobs import SchedulerClient, home
from apples.scheduling import FirstFit


class PlayedJobs(JobExecutor):
    """Has every job do at once what it is ordered to; `iterate` says how far one is."""

    def __init__(self):
        self.wake, self._said = (lambda: None), []

    def carry_out(self, orders):
        for one in orders:
            if isinstance(one, StartOrder):
                self._say(JobReport(one.job, one.attempt, AttemptPhase.RUNNING, hosts=one.hosts))
            elif isinstance(one, ResizeOrder):
                self._say(JobReport(one.job, one.attempt, AttemptPhase.RUNNING, one.epoch, hosts=one.hosts))  # fmt: skip  # noqa: E501
            elif isinstance(one, EndOrder):
                over = JobReport(one.job, one.attempt, AttemptPhase.ENDED, state="cancelled", exit_code=130)  # fmt: skip  # noqa: E501
                self._say(
                    over, *(HostLeft(one.job, one.attempt, host, LAST) for host in one.hosts)
                )

    def iterate(self, job, iteration, iterations=90):
        self._say(
            JobReport(
                job, 1, AttemptPhase.RUNNING, iteration=iteration, iterations=iterations
            )
        )  # fmt: skip

    def _say(self, *reports):
        self._said += reports
        self.wake()

    def reports(self):
        said, self._said = self._said, []
        return said

    def close(self):
        pass


class LiveSite:
    """A scheduler of this user in this process.

    Parameters
    ----------
    planned
        Whether it foretells its queue, by a process of its own.
    """

    def __init__(self, hosts, name="lab", *, planned=False):
        self.name, self.hosts, self.planned = name, hosts, planned
        self.folder = home() / name
        self.folder.mkdir(parents=True, mode=0o700, exist_ok=True)
        self.client = SchedulerClient(self.folder)
        self.begin()

    def begin(self):
        self.jobs = PlayedJobs()
        planner = PlannerClient(planner_command("first_fit", {})) if self.planned else None
        one = LiveScheduler(
            SchedulerLog.open(self.folder), FirstFit(), self.hosts, time.monotonic(), time.time(),
            lambda: "0badcafe", name=self.name,
        )  # fmt: skip
        self.service = SchedulerService(one, time.monotonic, planner)
        self.jobs.wake = self.service.wake
        listens = threading.Event()
        self.thread = threading.Thread(
            target=serve, args=(self.service, self.jobs, self.folder, lambda _: listens.set())
        )
        self.thread.start()
        assert listens.wait(30)

    def end(self):
        self.service.stop()
        self.thread.join()

    def submit(self, hosts=1, name="heat", **others):
        body = {"minimum": hosts, "maximum": hosts, "kind": "rigid", "work": {}, "name": name}
        answer = self.client.ask("POST", "/v1/jobs", {"submission": {**body, **others}})
        return answer["job"]

    def job(self, number):
        return self.client.ask("GET", f"/v1/jobs/{number}")
