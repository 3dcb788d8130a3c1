"""Policies that do what a policy must not, one class a kind; `tests/scheduling/test_guard.py` asks them all."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from apples.scheduling import (
    Hold,
    Migrate,
    Reject,
    Requeue,
    Reserve,
    Resize,
    SchedulingPolicy,
    Start,
    Wait,
    Wake,
)


def opened():
    """Return the numbers of all open files: who forked this process may have had many, so that they are high."""
    return sorted(int(entry.name) for entry in Path("/proc/self/fd").iterdir())


class Policy(SchedulingPolicy):
    """First come, first served, once `trouble` has been had."""

    def decide(self, cluster):
        yield from self.trouble(cluster) or ()

    def trouble(self, cluster):
        return ()


class Raises(Policy):
    def trouble(self, cluster):
        return [1 // 0]


class RaisesLate(Policy):
    def decide(self, cluster):
        yield Start(cluster.queue[0].id, 1)
        raise KeyError("late")


class RaisesNoException(Policy):
    def trouble(self, cluster):
        raise BaseException("no exception")  # noqa: TRY002


class RaisesWithoutText(Policy):
    def trouble(self, cluster):
        class SilentError(Exception):
            def __str__(self):
                raise ValueError

        raise SilentError


class Interrupts(Policy):
    def trouble(self, cluster):
        raise KeyboardInterrupt


class Leaves(Policy):
    def trouble(self, cluster):
        sys.exit(0)


class LeavesAtOnce(Policy):
    def trouble(self, cluster):
        os._exit(0)


class KillsItself(Policy):
    def trouble(self, cluster):
        os.kill(os.getpid(), signal.SIGKILL)


class KillsItsParent(Policy):
    def trouble(self, cluster):
        os.kill(os.getppid(), signal.SIGKILL)


class Crashes(Policy):
    def trouble(self, cluster):
        return ctypes.string_at(0)


class Recurses(Policy):
    def trouble(self, cluster):
        return self.trouble(cluster)


class Loops(Policy):
    def trouble(self, cluster):
        while True:
            pass


class LoopsWhateverComes(Policy):
    def trouble(self, cluster):
        signal.signal(signal.SIGABRT, signal.SIG_IGN)
        while True:
            with suppress(BaseException):
                time.sleep(0)


class Sleeps(Policy):
    def trouble(self, cluster):
        time.sleep(1000)


class LoopsInC(Policy):
    def trouble(self, cluster):
        return [sum(range(10**12))]


class EndsNever(Policy):
    def decide(self, cluster):
        while True:
            yield Wake(cluster.time + 1)


class AMillion(Policy):
    def decide(self, cluster):
        for _ in range(10**6):
            yield Reserve(cluster.queue[0].id, cluster.time + 1)


class EatsMemory(Policy):
    def trouble(self, cluster):
        return [b"x" * (1 << 40)]


class EatsMemoryInBites(Policy):
    def trouble(self, cluster):
        eaten = []
        while True:
            eaten.append((ctypes.c_char * (256 << 20))())


class Forks(Policy):
    def trouble(self, cluster):
        os.fork()
        return ()


class StartsPrograms(Policy):
    def trouble(self, cluster):
        subprocess.run(["sleep", "1000"], check=False)  # noqa: S607
        return ()


class AsksTheShell(Policy):
    def trouble(self, cluster):
        os.system("sleep 1000")  # noqa: S605, S607
        return ()


class BecomesAnother(Policy):
    def trouble(self, cluster):
        os.execv("/bin/true", ["true"])  # noqa: S606


class Silent(Policy):
    def decide(self, cluster):
        return None


class Answers(Policy):
    def decide(self, cluster):
        return 42


class NoDecision(Policy):
    def decide(self, cluster):
        yield "start job 1"


class NotDecisions(Policy):
    def decide(self, cluster):
        yield Start
        yield cluster


class UnknownJob(Policy):
    def decide(self, cluster):
        yield Start(10**9, 1)


class OthersJob(Policy):
    def decide(self, cluster):
        yield Resize(cluster.queue[0].id, 1)


class NegativeNodes(Policy):
    def decide(self, cluster):
        yield Start(cluster.queue[0].id, -3)


class HalfANode(Policy):
    def decide(self, cluster):
        yield Start(cluster.queue[0].id, 0.5)


class NoNumber(Policy):
    def decide(self, cluster):
        yield Start(cluster.queue[0].id, float("nan"))


class NumberOfAnotherKind(Policy):
    def decide(self, cluster):
        yield Start(cluster.queue[0].id, "4")


class JobOfAnotherKind(Policy):
    def decide(self, cluster):
        yield Start([], 4)


class TooMany(Policy):
    def decide(self, cluster):
        for job in cluster.queue:
            yield Start(job.id, cluster.nodes_for(job.processors))
        yield Start(cluster.queue[0].id, cluster.nodes)


class Twice(Policy):
    def decide(self, cluster):
        job = cluster.queue[0]
        yield Start(job.id, cluster.nodes_for(job.processors))
        yield Start(job.id, cluster.nodes_for(job.processors))


class NodesThatAreNot(Policy):
    def decide(self, cluster):
        yield Migrate(cluster.queue[0].id, frozenset({-1, 10**9}))


class Past(Policy):
    def decide(self, cluster):
        yield Reserve(cluster.queue[0].id, cluster.time - 1)


class WakesInThePast(Policy):
    def decide(self, cluster):
        yield Wake(float("-inf"))


class RequeuesWhatDoesNotRun(Policy):
    def decide(self, cluster):
        yield Requeue(cluster.queue[0].id)


class HoldsWithoutReason(Policy):
    def decide(self, cluster):
        yield Hold(cluster.queue[0].id, None)


class ReasonsAtLength(Policy):
    def decide(self, cluster):
        yield Wait(cluster.queue[0].id, "because " * 10**6)


class RejectsWithAPicture(Policy):
    def decide(self, cluster):
        yield Reject(cluster.queue[0].id, object())


class ChangesTheState(Policy):
    def trouble(self, cluster):
        cluster.free = 999


class ChangesTheRunning(Policy):
    def trouble(self, cluster):
        cluster.running[1] = None


class ChangesTheQueue(Policy):
    def trouble(self, cluster):
        cluster.queue.clear()


class ChangesAJob(Policy):
    def trouble(self, cluster):
        cluster.queue[0].processors = 1


class ChangesAJobByForce(Policy):
    def decide(self, cluster):
        for job in cluster.queue:
            object.__setattr__(job, "processors", 1)
        for job in cluster.queue:
            yield Start(job.id, 1)


class ClosesEverything(Policy):
    def trouble(self, cluster):
        for number in opened():
            with suppress(OSError):
                os.close(number)


class WritesToEverything(Policy):
    def trouble(self, cluster):
        for number in opened():
            if number > 2:
                with suppress(OSError):
                    os.write(number, b"\xff\xff\xff\xff")


class Reads(Policy):
    def trouble(self, cluster):
        return [input("how many? ")]


class Threads(Policy):
    def trouble(self, cluster):
        threading.Thread(target=lambda: time.sleep(1000)).start()
        raise RuntimeError("with a thread")


class Idle(Policy):
    """Never starts anything."""


class PromisesOnly(Policy):
    def decide(self, cluster):
        for job in cluster.queue:
            yield Reserve(job.id, cluster.time + 10)


class HoldsAll(Policy):
    def decide(self, cluster):
        for job in cluster.queue[1:]:
            yield Wait(job.id, "no hurry", cluster.time + 5)
