"""Kills and power cuts of a live scheduler at random moments, and what its log has afterwards.

    python tests/soak_scheduler_log.py kills=10000 power=2000 [--seed S] [--planted NAME]

The scheduler is a process of its own with its real log on a real disk; clients, jobs and hosts are simulated in
this one and go on when it dies. It is killed (-9), or the power of its ext4 file system is cut (root), while it
takes in what was said, writes or answers; another takes up what is there. After each: every submission that was
acknowledged is in the log under its number, nothing is on a host that the log has as free, no host has two
jobs, no job two attempts; every forty the jobs come to their end. What the scheduler says after the power was
cut does not count. `--planted` plants a fault of `planted_live.py` first: then it has to fail. Prints a JSON
line a part; exit code 1 where a promise is broken. At SIGTERM it ends after the trial under way.
"""

import argparse
import contextlib
import fcntl
import json
import os
import random
import secrets
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from functools import partial
from multiprocessing import Pipe
from pathlib import Path

from adversaries.live_scheduler import SimulatedJobs
from adversaries.protocol.network import Clockwork
from adversaries.protocol.simulation import BrokenPromiseError
from planted_live import FAULTS, plant
from soak_nws import (
    EXT4_IOC_SHUTDOWN,
    NO_LOG_FLUSH,
    CannotError,
    Telling,
    own_disk,
    ran,
)

from apples.cluster import (
    AttemptPhase,
    JobHistory,
    JobSubmission,
    LiveScheduler,
    QueueLimits,
    SchedulerLog,
    read_state,
)
from apples.cluster import log as scheduler_log
from apples.errors import ApplesError
from apples.io import Folder
from apples.scheduling import Equipartition, JobKind

HOSTS = tuple(f"h{k}" for k in range(6))
WALL = 1e9
WORLD = 40
"""Trials on one log."""
ENDING = 2000
"""Exchanges within which all jobs of a world have to be over."""
asked_to_end = threading.Event()


def schedule(directory, link):
    """Be the scheduler: take in what comes, and answer when it is on the disk."""
    now = link.recv()
    log = SchedulerLog.open(directory)
    one = LiveScheduler(
        log, Equipartition(), HOSTS, now, WALL + now, partial(secrets.token_hex, 4),
        limits=QueueLimits(ended=8),
    )  # fmt: skip
    answers = []
    while True:
        orders = one.turn()
        over = not one.state.holders and all(job.is_over for job in one.state.jobs.values())
        link.send(([] if one.trouble else answers, orders, over))
        now, reports, submissions, cancelled = link.recv()
        answers = []
        for report in reports:
            one.report(now, report)
        for request, submission in submissions:
            answers.append((request, one.submit(now, submission, request)))
        for number in cancelled:
            if number in one.state.jobs:
                one.cancel(now, number)
        one.tick(now)


def child(directory):
    """Fork a scheduler; return its id and the link to it."""
    here, there = Pipe()
    process = os.fork()
    if process == 0:
        here.close()
        try:
            schedule(directory, there)
        except Exception as error:  # noqa: BLE001 - it is told why, if anybody listens still
            with contextlib.suppress(OSError):
                there.send(f"{type(error).__name__}: {error}")
        finally:
            os._exit(3)
    there.close()
    return process, here


class World:
    """Clients, jobs and hosts, which know nothing of schedulers that die.

    Attributes
    ----------
    directory
        Of the schedulers' log.
    """

    def __init__(self, directory, seed):
        self.directory = directory
        self.chance = random.Random(seed)
        self.clock, self.said = Clockwork(), []
        self.jobs = SimulatedJobs(self.clock, self.chance, self.said.append, self.chance)
        self.acknowledged, self.requests, self.over = {}, {}, False

    def tell(self, link, submits=True):
        """Let some time pass, and say what has happened and what is asked for; some of it again."""
        chance = self.chance
        until = self.clock.now + chance.uniform(0.0, 3.0 if submits else 20.0)
        self.clock.run(until, lambda: None, lambda: False)
        self.clock.now = until
        asked = []
        if submits and chance.random() < 0.4:
            most = chance.randint(1, len(HOSTS))
            kind = chance.choice((JobKind.RIGID, JobKind.MALLEABLE, JobKind.MALLEABLE))
            least = most if kind is JobKind.RIGID else chance.randint(1, most)
            name = f"r{len(self.requests)}"
            self.requests[name] = JobSubmission(least, most, kind, chance.uniform(1.0, 200.0))
            asked.append((name, self.requests[name]))
        if submits and self.requests and chance.random() < 0.2:
            asked.append(chance.choice([*self.requests.items()]))
        known = list(self.acknowledged.values())
        cancelled = [chance.choice(known)] if known and chance.random() < 0.05 else []
        reports, self.said[:] = list(self.said), []
        link.send((self.clock.now, reports, asked, cancelled))

    def take(self, answer):
        """Take in what a scheduler has said."""
        if isinstance(answer, str):
            raise BrokenPromiseError(f"the scheduler ended: {answer}")
        answers, orders, self.over = answer
        for request, number in answers:
            if (known := self.acknowledged.setdefault(request, number)) != number:
                raise BrokenPromiseError(f"{request} is job {known}, and then {number}")
        for order in orders:
            self.jobs.carry_out(order)
            held = Counter(host for one in self.jobs.attempts.values() for host in one.on)
            alive = Counter(
                one.job
                for one in self.jobs.attempts.values()
                if one.phase is not AttemptPhase.ENDED
            )
            for what, found in (("host", held), ("job", alive)):
                twice = [key for key, count in found.items() if count > 1]
                if twice:
                    raise BrokenPromiseError(f"{what} {twice[0]} has two attempts at once")

    def check(self):
        """Check what the log has."""
        try:
            with Folder.open(self.directory, links=True) as folder:
                state = read_state(folder)
            there = {*state.jobs, *JobHistory(self.directory).documents()}
        except (OSError, ApplesError):
            state, there = None, set()
        lost = set(self.acknowledged.values()) - there
        if lost:
            raise BrokenPromiseError(f"jobs {sorted(lost)} were acknowledged and are not there")
        for one in self.jobs.attempts.values():
            for host in one.on:
                holders = state.holders.get(host, ()) if state else ()
                if one.job not in holders and not (state and host in state.quarantined):
                    raise BrokenPromiseError(f"{host} has job {one.job}, in the log {holders}")

    def finish(self):
        """Have all jobs come to their end."""
        process, link = child(self.directory)
        try:
            link.send(self.clock.now)
            for _ in range(ENDING):
                self.take(link.recv())
                if self.over:
                    return
                self.tell(link, submits=False)
            raise BrokenPromiseError("not all is done long after the last kill")
        finally:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
            link.close()


class Soak:
    """Trials one after the other, on worlds of forty."""

    def __init__(self, part, count, seed):
        self.part, self.count, self.seed = part, count, seed
        self.acknowledged = self.orders = self.inside = 0
        self._seconds = 0.002

    def run(self, directory, trial):
        """Try so often; return what came of it, and the first promise that was broken."""
        telling, world, done = Telling(self.part, self.count), None, 0
        for number in range(self.count):
            if asked_to_end.is_set():
                break
            try:
                if number % WORLD == 0:
                    if world is not None:
                        self._end(world)
                    place = directory / str(
                        number
                    )  # what was removed may come back with the power
                    place.mkdir(mode=0o700, parents=True)
                    world = World(place, f"{self.seed} {self.part} {number}")
                trial(world)
            except BrokenPromiseError as broken:
                return {"trial": number, "broken": str(broken), **self._counts(number, world)}
            done += 1
            telling(number, [], self.acknowledged + len(world.acknowledged))
        if world is not None:
            self._end(world)
        return {"trials": self.count, "failures": 0, **self._counts(done, None)}

    def _end(self, world):
        world.finish()
        shutil.rmtree(world.directory)
        self.acknowledged += len(world.acknowledged)
        self.orders += len(world.jobs.attempts)

    def _counts(self, trials, world):
        more = len(world.acknowledged) if world else 0
        return {
            "done": trials, "acknowledged": self.acknowledged + more, "attempts": self.orders,
            "while_it_worked": self.inside,
        }  # fmt: skip

    def until_struck(self, world, strike):
        """Have a scheduler work for a time, and end it while it does something."""
        process, link = child(world.directory)
        try:
            link.send(world.clock.now)
            for _ in range(random.randint(0, 12)):
                begun = time.monotonic()
                answer = link.recv()
                self._seconds += 0.1 * (time.monotonic() - begun - self._seconds)
                world.take(answer)
                world.tell(link)
            time.sleep(random.uniform(0.0, self._seconds))  # the moment is what is tried
            heard = strike(process, link)
        finally:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
            link.close()
        for answer in heard:
            world.take(answer)
        self.inside += not heard


def waiting(link):
    """Return what a scheduler has said and nobody has heard."""
    found = []
    with contextlib.suppress(EOFError, OSError):
        while link.poll():
            found.append(link.recv())
    return [one for one in found if not isinstance(one, str)]


def kills(count, home, seed):
    """Kill -9 the scheduler."""
    soak, directory = Soak("kills", count, seed), home / "kills"

    def strike(process, link):
        os.kill(process, signal.SIGKILL)
        os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT)
        return waiting(link)

    def trial(world):
        soak.until_struck(world, strike)
        world.check()

    return soak.run(directory, trial)


def power(count, home, seed):
    """Cut the power of the file system under it."""
    image, mount = own_disk(home)
    soak, directory = Soak("power", count, seed), mount / "log"

    def strike(_, link):
        root = os.open(mount, os.O_RDONLY)
        heard = waiting(link)
        fcntl.ioctl(root, EXT4_IOC_SHUTDOWN, NO_LOG_FLUSH.to_bytes(4, "little"))
        os.close(root)
        return heard

    def trial(world):
        soak.until_struck(world, strike)
        ran("umount", str(mount))
        ran("mount", "-o", "loop", str(image), str(mount))
        world.check()

    ran("mount", "-o", "loop", str(image), str(mount))
    try:
        return soak.run(directory, trial)
    finally:
        ran("umount", str(mount))


PARTS = {"kills": kills, "power": power}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="+", metavar="PART=TRIALS", help=", ".join(PARTS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--planted", choices=sorted(FAULTS))
    asked = parser.parse_args()
    # Small, so that the log is often written anew, and jobs often go to the history.
    scheduler_log.SPARE_LINES = 40
    if asked.planted:
        plant(asked.planted)
    signal.signal(signal.SIGTERM, lambda *_: asked_to_end.set())
    well = True
    for word in asked.parts:
        part, _, count = word.partition("=")
        if part not in PARTS or not count.isdigit():
            parser.error(f"{word}: {', '.join(PARTS)} and =TRIALS")
        random.seed(f"{asked.seed} {part}")
        home = Path(tempfile.mkdtemp(prefix=f"soak-{part}-"))
        began = time.monotonic()
        said = {"part": f"log {part}", "seed": asked.seed}
        try:
            found = PARTS[part](int(count), home, asked.seed)
        except CannotError as reason:
            found = {"skipped": str(reason)}
        finally:
            shutil.rmtree(home, ignore_errors=True)
        said |= {"seconds": round(time.monotonic() - began, 1), **found}
        print(json.dumps(said), flush=True)
        well &= "broken" not in found
    return int(not well)


if __name__ == "__main__":
    sys.exit(main())
