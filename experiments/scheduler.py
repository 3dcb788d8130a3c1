"""Measure the live scheduler: rates, restart, passes, memory, latency.

    python experiments/scheduler.py [PART].. [--jobs 20] [--past 100000]

`submits` and `null` use its socket with a log on the disk and jobs that end at their start. `restart`, `passes`
and `selections` measure the state machine with 10,000 jobs. `running` and `freed` start real jobs on this machine.

Result: `benchmarks/results/scheduler.json`.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import random
import resource
import secrets
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from jobs import cpu_of, looked_at, pss
from kale_live import OVER, SOLVER, Experiment, Site, end_at_sigterm, here

from apples.cluster.host_preference import HostPreference
from apples.cluster.listener import serve
from apples.cluster.live_job import JobSubmission
from apples.cluster.log import SchedulerLog
from apples.cluster.orders import (
    LAST,
    AttemptPhase,
    EstimateOrder,
    HostLeft,
    JobExecutor,
    JobReport,
    Order,
    Report,
    RunTimeEstimate,
    StartOrder,
)
from apples.cluster.scheduler import LiveScheduler
from apples.cluster.service import SchedulerService
from apples.jobs.scheduler_client import SchedulerClient
from apples.launch.job_processes import as_child
from apples.scheduling.jobs import JobKind
from apples.scheduling.policies import POLICIES
from apples.scheduling.policy import SchedulingPolicy

LIVE = 10_000
NULL = 400
ONE_AFTER_THE_OTHER = 20
FIRSTS = 9
WATCHED_SECONDS = 30.0
LATER = itertools.count(time.monotonic() + 1.0, 0.1)
"""A clock for a machine that nobody serves: each event some time after the last."""
NULL_JOB = {
    "minimum": 1,
    "maximum": 1,
    "kind": "rigid",
    "requested": 1.0,
    "name": "null",
    "work": {},
}


def over(order: StartOrder) -> list[Report]:
    """Return what is said of a job that is over when it is started."""
    where = order.job, order.attempt
    ended = JobReport(*where, AttemptPhase.ENDED, state="finished", exit_code=0)
    return [ended, *(HostLeft(*where, host, LAST) for host in order.hosts)]


class InstantJobs(JobExecutor):
    """Jobs that are over as soon as they are started."""

    def __init__(self) -> None:
        self._reports: list[Report] = []
        self.news: Callable[[], None] = lambda: None

    def carry_out(self, orders: Sequence[Order]) -> None:
        """Have all that is started be over."""
        for order in orders:
            if isinstance(order, StartOrder):
                self._reports += over(order)
                self.news()

    def reports(self) -> list[Report]:
        """Return what is new."""
        found, self._reports = self._reports, []
        return found

    def close(self) -> None:
        """Do nothing: there is nothing left to say."""


def machine(
    folder: Path, policy: SchedulingPolicy, hosts: int, prefer: HostPreference | None = None
) -> LiveScheduler:
    """Return a scheduler on the log of a folder."""
    names = [f"h{k}" for k in range(hosts)]
    token = partial(secrets.token_hex, 4)
    log = SchedulerLog.open(folder)
    return LiveScheduler(log, policy, names, time.monotonic(), time.time(), token, prefer=prefer)


@contextlib.contextmanager
def serving(folder: Path, hosts: int = 8) -> Iterator[SchedulerClient]:
    """Yield the client of a scheduler in a process of its own."""
    ready, listens = os.pipe()
    process = os.fork()
    if process == 0:
        as_child(lambda: serve_instantly(folder, hosts, listens))
    os.close(listens)
    try:
        os.read(ready, 1)
        os.close(ready)
        yield SchedulerClient(folder)
    finally:
        os.kill(process, signal.SIGTERM)
        os.waitpid(process, 0)


def serve_instantly(folder: Path, hosts: int, listens: int) -> None:
    """Serve until SIGTERM a scheduler whose jobs are over as soon as they are started."""
    jobs = InstantJobs()
    service = SchedulerService(machine(folder, POLICIES["easy"](), hosts), time.monotonic)
    jobs.news = service.wake
    signal.signal(signal.SIGTERM, lambda *_: service.stop())
    serve(service, jobs, folder, lambda _: os.close(listens))


def submit(client: SchedulerClient) -> tuple[str, float]:
    """Submit a null job; return its id, and the seconds until it was acknowledged."""
    begun = time.perf_counter()
    body = {"request": secrets.token_hex(8), "submission": NULL_JOB}
    return client.ask("POST", "/v1/jobs", body)["job"], time.perf_counter() - begun


def submits() -> None:
    """Measure durable submissions, from one client and from eight."""
    for clients, bar, slowest in ((1, 200, None), (8, 700, 50)):
        with tempfile.TemporaryDirectory() as folder, serving(Path(folder)) as client:
            submit(client)
            begun, used = time.perf_counter(), own_cpu()
            with ThreadPoolExecutor(clients) as pool:
                took = [seconds for _, seconds in pool.map(lambda _: submit(client), range(NULL))]
            rate = NULL / (time.perf_counter() - begun)
            late = statistics.quantiles(took, n=100)[98] * 1e3
            limit = "" if slowest is None else f", at most {slowest}"
            show(
                f"durable submissions a second, {clients} clients", rate, f">= {bar}",
                f"99th percentile {late:.0f} ms{limit}; the clients' own CPU {own_cpu() - used:.1f} s",
            )  # fmt: skip


def own_cpu() -> float:
    """Return the CPU seconds of this process so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def end_to_end(folder: Path) -> tuple[float, float]:
    """Return null jobs a second from first submission to last end, and the scheduler's CPU ms each."""
    with serving(folder) as client:
        submit(client)
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        before = children.ru_utime + children.ru_stime
        begun = time.perf_counter()
        for _ in range(NULL):
            job, _ = submit(client)
        while client.ask("GET", f"/v1/jobs/{job}")["state"] not in OVER:
            pass
        rate = NULL / (time.perf_counter() - begun)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return rate, (children.ru_utime + children.ru_stime - before) / NULL * 1e3


def filled(folder: Path, jobs: int) -> None:
    """Have so many jobs be over in a log, by the way that all take."""
    hosts = 1000
    one = machine(folder, POLICIES["fcfs"](), hosts)
    for _ in range(jobs // hosts):
        for _ in range(hosts):
            one.submit(next(LATER), JobSubmission(1, 1, requested=1.0))
        at_once(one)
    one.log.close()


def at_once(one: LiveScheduler, running: bool = False) -> int:
    """Have what waits be started, and run or be over; return how many jobs were started."""
    started = 0
    while orders := _ordered(one):
        started += len(orders)
        for order in orders:
            runs = JobReport(order.job, order.attempt, AttemptPhase.RUNNING, hosts=order.hosts)
            for report in [runs] if running else over(order):
                one.report(next(LATER), report)
    return started


def _ordered(one: LiveScheduler) -> list[StartOrder]:
    one.tick(next(LATER))
    return [order for order in one.turn() if isinstance(order, StartOrder)]


def null(past: int) -> None:
    """Measure null jobs end to end, with an empty history and with a long one."""
    with tempfile.TemporaryDirectory() as empty, tempfile.TemporaryDirectory() as full:
        begun = time.process_time()
        filled(Path(full), past)
        print(f"{past} jobs over in {time.process_time() - begun:.1f} s of CPU")
        rates: dict[str, list[float]] = {empty: [], full: []}
        for _ in range(3):  # in turns, for other work comes and goes
            for folder, found in rates.items():
                rate, used = end_to_end(Path(folder))
                found.append(rate)
                where = f"{past} past jobs" if folder == full else "no past"
                show(f"null jobs a second, {where}", rate, ">= 20", f"{used:.1f} ms of CPU each")
        ratios = [b / a for a, b in zip(rates[empty], rates[full], strict=True)]
        show(f"{past} past jobs against none", statistics.median(ratios), ">= 0.9", "median of 3")


def restart() -> None:
    """Measure how soon a scheduler is there again whose jobs run on 10,000 hosts."""
    with tempfile.TemporaryDirectory() as name:
        folder, policy = Path(name), POLICIES["easy"]
        one = machine(folder, policy(), LIVE)
        for _ in range(LIVE):
            one.submit(next(LATER), JobSubmission(1, 1, requested=3600.0))
        print(f"{at_once(one, running=True)} jobs run")
        one.log.close()
        wall, cpu = time.perf_counter(), time.process_time()
        two = machine(folder, policy(), LIVE)
        two.turn()
        show("restart with 10,000 live jobs, s", time.perf_counter() - wall, "<= 2",
             f"{time.process_time() - cpu:.2f} s of CPU, until every job is asked")  # fmt: skip
        two.log.close()


def passes() -> None:
    """Measure passes after the end of a job, where 10,000 wait."""
    for policy in ("fcfs", "easy", "equipartition", "conservative"):
        with tempfile.TemporaryDirectory() as name:
            chance = random.Random(1)
            one = machine(Path(name), POLICIES[policy](), 1024)
            for number in range(LIVE):
                width = chance.randint(1, 4 if number < 500 else 72)
                kind = JobKind.MALLEABLE if policy == "equipartition" else JobKind.RIGID
                seconds = chance.uniform(3600.0, 260_000.0)
                one.submit(next(LATER), JobSubmission(width, width, kind, seconds))
                if number == 500:
                    at_once(one, running=True)
            at_once(one, running=True)
            found, turns = [], []
            for _ in range(9):
                job = next(job for job in one.state.jobs.values() if job.holds)
                asked = one.passes
                for report in over(StartOrder(job.number, job.attempt, 1, "", job.hosts, {})):
                    one.report(next(LATER), report)
                one.turn()
                begun = time.process_time()
                one.tick(next(LATER))
                found.append(1e3 * (time.process_time() - begun))
                begun = time.process_time()
                one.turn()
                turns.append(1e3 * (time.process_time() - begun))
                assert one.passes > asked
            waiting = one.state.waiting
            show(f"pass of {policy} with {waiting} waiting, ms of CPU", statistics.median(found), "<= 20",
                 f"at most {max(found):.1f}; its records {statistics.median(turns):.1f}")  # fmt: skip
            one.log.close()


def selections() -> None:
    """Measure what it takes to start a job on some of six unequal hosts of 64, with and without its model."""
    for waiting, modelled in itertools.product((1000, 9990), (False, True)):
        with tempfile.TemporaryDirectory() as name:
            unequal = HostPreference({f"h{k}": (f"s{k % 8}", 1.0 + k % 3) for k in range(64)})
            one = machine(Path(name), POLICIES["easy"](), 64, unequal)
            for _ in range(58):
                one.submit(next(LATER), JobSubmission(1, 1, requested=3600.0))
            at_once(one, running=True)
            work = {"template": "t.toml"} if modelled else {}
            for _ in range(waiting):
                one.submit(next(LATER), JobSubmission(5, 5, requested=7200.0, work=work))
            took, whole = [], []
            for _ in range(9):
                steps = list(_started(one))
                took.append(max(steps))
                whole.append(sum(steps))
            show(f"a job started, {one.state.waiting} wait{', by its model' * modelled}, ms of CPU a step",
                 statistics.median(took), "<= 20",
                 f"at most {max(took):.1f}; all steps {statistics.median(whole):.1f}")  # fmt: skip
            one.log.close()


def _started(one: LiveScheduler) -> Iterator[float]:
    """Yield the CPU ms of each step until a job is started, which is over then.

    Its model would rather have the last hosts.
    """
    orders: list[Order] = []
    while not (starts := [order for order in orders if isinstance(order, StartOrder)]):
        begun = time.process_time()
        for order in orders:
            if isinstance(order, EstimateOrder):
                choices = ((order.among[-order.hosts :], 1.0),)
                one.report(next(LATER), RunTimeEstimate(order.job, None, choices))
        one.tick(next(LATER))
        yield 1e3 * (time.process_time() - begun)
        orders = one.turn()
    for report in [said for order in starts for said in over(order)]:
        one.report(next(LATER), report)
    one.turn()


@contextlib.contextmanager
def site(hosts: int) -> Iterator[Site]:
    """Yield a real scheduler on parts of this machine."""
    with tempfile.TemporaryDirectory(prefix="k-", dir="/tmp") as folder:
        made = Site(Path(folder) / "site", "easy", here(hosts))
        try:
            yield made
        finally:
            made.close()


def running(jobs: int) -> None:
    """Measure how soon jobs that are submitted at once run, and what they and their scheduler take of the head."""
    alike = Experiment(1, jobs, 0.5, 1, 1000.0)
    alike.iterations[:] = 100  # of 1000 s / ITERATIONS each: no job ends while it is watched
    with site(jobs) as made:
        begun = time.monotonic()
        for job in range(jobs):
            made.submit(alike.submission(job, made.folder, False))
        while made.states().count("running") < jobs:
            time.sleep(0.1)
        show(f"until {jobs} jobs run, s", time.monotonic() - begun, "<= 8 with 20", "")
        time.sleep(10.0)
        scheduler = made.process.pid
        records = [one["record"] for one in made.client.ask("GET", "/v1/queue")["jobs"]]
        memory, _ = looked_at([made.folder / "apples" / "jobs" / one for one in records])
        before, begun = cpu_of(scheduler), time.monotonic()
        time.sleep(WATCHED_SECONDS)
        used = (cpu_of(scheduler) - before) / (time.monotonic() - begun)
        show(f"scheduler with {jobs} jobs that run, % of a CPU", 100 * used, "<= 1", "")
        head = sum(each for kind, each in memory.items() if kind != "on the host")
        show("a running job on the head, MB", head / jobs, "<= 30",
             f"{', '.join(f'{k} {v / jobs:.1f}' for k, v in sorted(memory.items()))}; "
             f"the scheduler itself {pss(scheduler):.0f} MB")  # fmt: skip


def freed() -> None:
    """Measure how soon a host that a job has left has its next order, and jobs that do nothing."""
    alike = Experiment(1, ONE_AFTER_THE_OTHER, 0.5, 1, 1e-3)
    alike.iterations[:] = 1
    with site(1) as made:
        begun = time.monotonic()
        for job in range(ONE_AFTER_THE_OTHER):
            made.submit(alike.submission(job, made.folder, False))
        while set(made.states()) - OVER:
            time.sleep(0.5)
        took = time.monotonic() - begun
        jobs = made.client.ask("GET", "/v1/history")["jobs"]
        places = [made.folder / "apples" / "jobs" / one["record"] / "job.json" for one in jobs]
        left = [place.stat().st_mtime for place in places]
        gaps = [1e3 * (then["started"] - end) for end, then in zip(left, jobs[1:], strict=False)]
        assert all(one["state"] == "finished" for one in jobs)
        show("from a job's last word to the next one's order, ms", statistics.median(gaps), "<= 100",
             f"at most {max(gaps):.0f}; {len(jobs) / took:.2f} real jobs a second on one host")  # fmt: skip


def first() -> None:
    """Measure `apples submit` of the Jacobi solver on one host, by the clock, to its first recorded iteration."""
    submission = [
        sys.executable,
        "-m",
        "apples",
        "submit",
        "--template",
        SOLVER,
        "--max",
        "1",
        "--json",
    ]
    submission += ["--set", "grid=200", "--set", "iterations=100000000"]
    took = []
    with site(1) as made:
        environment = {**os.environ, "XDG_STATE_HOME": str(made.folder)}
        for _ in range(FIRSTS + 1):
            begun = time.perf_counter()
            said = subprocess.run(
                submission, cwd=made.folder, env=environment, stdout=subprocess.PIPE, check=True
            )
            job = json.loads(said.stdout)["job"]
            while not _has_computed(made):
                time.sleep(0.002)
            took.append(time.perf_counter() - begun)
            made.client.ask("POST", f"/v1/jobs/{job}/cancel", {"request": secrets.token_hex(8)})
            while set(made.states()) - OVER:
                time.sleep(0.1)
    show("from apples submit to the first iteration, s", statistics.median(took[1:]), "<= 1.0",
         f"at most {max(took[1:]):.2f} of {FIRSTS}; the first of all {took[0]:.2f}")  # fmt: skip


def _has_computed(made: Site) -> bool:
    """Whether a job that is not over has an iteration in its record."""
    for one in (made.folder / "apples" / "jobs").glob("*/job.json"):
        record = json.loads(one.read_text())
        if record["state"] == "running" and record["iteration"]:
            return True
    return False


def show(what: str, value: float, bar: str, more: str) -> None:
    """Print a figure beside its bar, and the machine's load."""
    load = os.getloadavg()[0]
    print(f"{what:54} {value:9.2f}  (bar {bar})  {more}  load {load:.0f}", flush=True)


def main() -> int:
    """Measure the parts that were asked for, all without any."""
    end_at_sigterm()
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART")
    parser.add_argument("--jobs", type=int, default=20)
    parser.add_argument("--past", type=int, default=100_000)
    asked = parser.parse_args()
    parts: dict[str, Callable[[], None]] = {
        "submits": submits, "null": partial(null, asked.past), "restart": restart, "passes": passes,
        "selections": selections,
        "running": partial(running, asked.jobs), "freed": freed, "first": first,
    }  # fmt: skip
    if unknown := set(asked.parts) - parts.keys():
        parser.error(f"{min(unknown)!r} is none of {', '.join(parts)}")
    for name in asked.parts or parts:
        parts[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main())
