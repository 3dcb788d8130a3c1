"""The disposer's side: a cluster that carries decisions out, or says why it does not."""

from __future__ import annotations

from apples.errors import UsageError
from apples.scheduling.jobs import Decision, Job, JobKind, Migrate, Reject, Reserve, Resize, Start
from apples.scheduling.policy import ClusterState, RunningJob


class DecisionError(UsageError):
    """A policy decided what the machine or the job cannot do; permanent, the policy is wrong."""


class Cluster:
    """A cluster's state and the steps that change it, each checked.

    Parameters
    ----------
    nodes, cores_per_node
        The machine.
    keep_places
        Whether to say which nodes a job has, not only how many; the lowest free ones are given.

    Attributes
    ----------
    state
        What policies see.
    rejected
        Job -> reason.
    """

    def __init__(self, nodes: int, cores_per_node: int = 1, keep_places: bool = False) -> None:
        self._queue: list[Job] = []
        self._waiting: dict[int, Job] = {}
        self._running: dict[int, RunningJob] = {}
        self._reservations: dict[int, float] = {}
        self._places = keep_places
        self._left: set[int] = set()
        self.rejected: dict[int, str] = {}
        self.state = ClusterState(
            nodes,
            cores_per_node,
            free=nodes,
            queue=self._queue,
            running=self._running,
            reservations=self._reservations,
            free_places=list(range(nodes)) if keep_places else (),
        )

    def submit(self, job: Job) -> None:
        """Add a job at the end of the queue."""
        self._queue.append(job)
        self._waiting[job.id] = job

    def withdraw(self, job: int) -> None:
        """Take a waiting job out of the queue."""
        self._leave_queue(job)
        self.settle()

    def apply(self, decision: Decision) -> tuple[int, ...]:
        """Carry a decision out; return the running jobs whose speed may have changed.

        The queue keeps what left it until `settle`.

        Raises
        ------
        DecisionError
            The decision breaks a limit; the state is as before.
        """
        if isinstance(decision, Start):
            return self._start(decision)
        if isinstance(decision, Resize):
            return self._resize(decision)
        if isinstance(decision, Reserve):
            self._waiting_job(decision, decision.job)
            if not decision.time >= self.state.time:
                raise self._refusal(decision, "the time is past")
            self._reservations[decision.job] = decision.time
            return ()
        if isinstance(decision, Reject):
            self._waiting_job(decision, decision.job)
            self._leave_queue(decision.job)
            self.rejected[decision.job] = decision.reason
            return ()
        if isinstance(decision, Migrate):
            return self._migrate(decision)
        raise self._refusal(decision, "no decision")

    def settle(self) -> None:
        """Take those out of the queue that left it in this pass."""
        if self._left:
            self._queue[:] = [job for job in self._queue if job.id not in self._left]
            for job in self._left:
                self._reservations.pop(job, None)
            self._left.clear()

    def _leave_queue(self, number: int) -> None:
        del self._waiting[number]
        self._left.add(number)

    def finish(self, number: int) -> tuple[int, ...]:
        """End a running job; return the jobs whose speed may have changed.

        If its owner goes first, a guest has those nodes to itself from then on; when a guest goes,
        its mates get their cores back.
        """
        ended = self._running.pop(number)
        if ended.limit > self.state.time:
            self.state.early_release = True
        if ended.guest is not None:
            guest = self._running[ended.guest]
            guest.mates = tuple(mate for mate in guest.mates if mate != number)
            guest.shared -= ended.nodes
            return (guest.job.id,)
        for mate in ended.mates:
            self._running[mate].guest = None
        self._give_back(ended, ended.nodes - ended.shared)
        return ended.mates

    # ------------------------------------------------------------------ decisions

    def _refusal(self, decision: Decision, reason: str) -> DecisionError:
        return DecisionError(f"at {self.state.time!r} s: {decision}: {reason}")

    def _waiting_job(self, decision: Decision, number: int) -> Job:
        if number not in self._waiting:
            raise self._refusal(decision, "that job is not waiting")
        return self._waiting[number]

    def _start(self, decision: Start) -> tuple[int, ...]:
        state = self.state
        job = self._waiting_job(decision, decision.job)
        if decision.nodes != int(decision.nodes):
            raise self._refusal(decision, "nodes are whole")
        need = state.nodes_for(job.processors)
        flexible = job.kind is not JobKind.RIGID
        least = state.nodes_for(job.minimum) if flexible else need
        most = state.nodes_for(job.maximum) if flexible else need
        if not least <= decision.nodes <= most:
            raise self._refusal(decision, f"it can run on {least} to {most} nodes")
        if len(set(decision.mates)) < len(decision.mates):
            raise self._refusal(decision, "a mate is named twice")
        mates = [self._mate(decision, number) for number in decision.mates]
        shared = sum(mate.nodes for mate in mates)
        taken = decision.nodes - shared
        if taken < 0:
            raise self._refusal(decision, f"its mates have {shared} nodes")
        if taken > state.free:
            raise self._refusal(decision, f"{state.free} nodes are free, not {taken}")
        if mates and not (0 < decision.share < 1 and job.malleable):
            raise self._refusal(decision, "only a malleable job can be guest, with a part")
        share = decision.share if mates else 1.0
        running = RunningJob(
            job,
            state.time,
            decision.nodes,
            state.time + job.requested / share,
            delay=job.requested / share - job.requested if mates else 0.0,
            mates=decision.mates,
            shared=shared,
            share=share,
        )
        if decision.places and (
            len(decision.places) != taken or not decision.places <= set(state.free_places)
        ):
            raise self._refusal(decision, f"needs {taken} nodes that are free")
        self._take(running, taken, decision.places)
        for mate in mates:
            mate.guest = job.id
            mate.limit += job.requested
            mate.delay += job.requested
            running.places |= mate.places
        self._running[job.id] = running
        self._leave_queue(job.id)
        return (*decision.mates, job.id)

    def _mate(self, decision: Start, number: int) -> RunningJob:
        mate = self._running.get(number)
        if mate is None or not mate.can_be_mate:
            raise self._refusal(decision, f"job {number} cannot be a mate")
        return mate

    def _resize(self, decision: Resize) -> tuple[int, ...]:
        running = self._running.get(decision.job)
        if running is None:
            raise self._refusal(decision, "that job is not running")
        job = running.job
        if job.kind not in (JobKind.MALLEABLE, JobKind.EVOLVING):
            raise self._refusal(decision, f"the job is {job.kind}")
        if running.guest is not None or running.shared:
            raise self._refusal(decision, "the job shares nodes")
        least, most = self.state.nodes_for(job.minimum), self.state.nodes_for(job.maximum)
        if not least <= decision.nodes <= most:
            raise self._refusal(decision, f"it can run on {least} to {most} nodes")
        if decision.nodes != int(decision.nodes):
            raise self._refusal(decision, "nodes are whole")
        more = decision.nodes - running.nodes
        if more > self.state.free:
            raise self._refusal(decision, f"{self.state.free} nodes are free, not {more}")
        if more > 0:
            self._take(running, more)
        else:
            self._give_back(running, -more)
        running.nodes = decision.nodes
        if running.wanted == decision.nodes:
            running.wanted = None
        return (job.id,)

    def _migrate(self, decision: Migrate) -> tuple[int, ...]:
        running = self._running.get(decision.job)
        if running is None or not self._places:
            raise self._refusal(decision, "the job does not run, or places are not kept")
        free = set(self.state.free_places) | running.places
        if len(decision.nodes) != running.nodes or not decision.nodes <= free:
            raise self._refusal(decision, f"needs {running.nodes} nodes that are free")
        running.places = decision.nodes
        self.state.free_places = sorted(free - decision.nodes)
        return (decision.job,)

    # -------------------------------------------------------------------- nodes

    def _take(self, running: RunningJob, nodes: int, places: frozenset[int] = frozenset()) -> None:
        self.state.free -= nodes
        if self._places:
            chosen = places or frozenset(self.state.free_places[:nodes])
            running.places |= chosen
            self.state.free_places = [p for p in self.state.free_places if p not in chosen]

    def _give_back(self, running: RunningJob, nodes: int) -> None:
        self.state.free += nodes
        if self._places and nodes:
            gone = self._own_places(running)[-nodes:]
            running.places -= frozenset(gone)
            self.state.free_places = sorted([*self.state.free_places, *gone])

    def _own_places(self, running: RunningJob) -> list[int]:
        lent: set[int] = set()
        for mate in running.mates:
            lent |= self._running[mate].places
        return sorted(running.places - lent)

    def lose(self, node: int) -> int | None:
        """Take a node out of service; return the job that ran on it, which has to be ended.

        Needs places.
        """
        state = self.state
        if node in state.free_places:
            state.free_places = [place for place in state.free_places if place != node]
            state.free -= 1
            state.nodes -= 1
            return None
        owners = [one for one in self._running.values() if node in one.places]
        return owners[0].job.id

    def repair(self, node: int) -> None:
        """Put a node back into service."""
        state = self.state
        state.nodes += 1
        state.free += 1
        state.free_places = sorted([*state.free_places, node])

    def requeue(self, job: Job) -> None:
        """Put a job whose run was lost back into the queue, in its old place."""
        self.submit(job)
        self._queue.sort(key=lambda one: (one.submit, one.id))
