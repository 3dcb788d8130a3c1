"""The protocol over failing connections: a job, its agents and a careless peer. One seed, one history.

`SimulatedControl.run` checks after every event what must hold whatever happens:

- an epoch is made once, and one after another;
- what an agent was told is true: ``done`` was carried out once, on the hosts it asked for; ``nack`` never;
- the job carries out nothing but what an honest agent asked for;
- sessions and memory are bounded.

And some time after the last fault every agent that lives has its answer.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass, field

from adversaries.protocol.careless_peer import CarelessPeer
from adversaries.protocol.exchange import Exchange
from adversaries.protocol.network import Clockwork, NetworkFaults, SimulatedNetwork

from apples.malleable import (
    MAX_SESSIONS,
    CommandOutcome,
    CommandRequest,
    HostLimits,
    HostShare,
    OpenConnection,
    Requester,
    ResizeCommand,
    ResizeLedger,
    Responder,
    SendLine,
)

HOSTS = ("ada", "bob", "cleo", "dan", "eva", "fay")
TICK_SECONDS = 0.5
REQUEST_SECONDS = 40.0
"""An agent's longest deadline for one command."""
SETTLING_SECONDS = 400.0
"""Time for every agent to send what requests it has left, one after another."""


class BrokenPromiseError(AssertionError):
    """Something that must hold does not."""


@dataclass
class SimulatedAgent:
    """One who requests, as the simulation sees it.

    Attributes
    ----------
    session
        The connection that is open, 0 for none; lines of older ones are not heard.
    """

    name: int
    requester: Requester | None = None
    session: int = 0
    alive: bool = True
    requests: int = 0


@dataclass
class ProtocolRecord:
    """What really happened, for comparison with what was said."""

    asked: dict[str, CommandRequest] = field(default_factory=dict)
    carried_out: dict[str, int] = field(default_factory=dict)
    begun: dict[str, CommandRequest] = field(default_factory=dict)
    told: dict[str, str] = field(default_factory=dict)
    epochs: list[int] = field(default_factory=list)


class SimulatedControl:
    """One job, some agents, a careless peer.

    Parameters
    ----------
    seed
        Of everything.
    agents
        How many request at once.
    requests
        How many commands each sends, one after another.

    Attributes
    ----------
    trace
        What happened, a line an event.
    """

    def __init__(
        self, seed: int, agents: int = 3, requests: int = 5, faults: NetworkFaults | None = None
    ) -> None:
        self.chance = random.Random(seed)
        self.faults = faults or NetworkFaults()
        self.clock = Clockwork()
        self.network = SimulatedNetwork(self.clock, self.chance, self.faults)
        self.record = ProtocolRecord()
        self.trace: list[bytes] = []
        limits = HostLimits(1, 4, frozenset(HOSTS[:5]))
        self.ledger = ResizeLedger(limits)
        self.responder = Responder("job1", self.ledger, dict)
        self.exchange = Exchange(self.clock, self.network, self.responder, self.note)
        self.requests = requests
        self.agents = [SimulatedAgent(number) for number in range(agents)]
        self._checked = (0, 0, 0)
        for agent in self.agents:
            self.clock.after(self.chance.uniform(0, 5), lambda a=agent: self._request(a))  # type: ignore[misc]
        self.clock.after(0.5, self._safe_point)
        self.clock.after(1.0, CarelessPeer(self.chance, self.exchange, self.faults.stop).act)
        self.clock.after(TICK_SECONDS, self._tick)

    # ------------------------------------------------------------------------ running
    def run(self) -> None:
        """Let time pass until everybody has an answer, and check after every event.

        Raises
        ------
        BrokenPromiseError
            What must hold does not, or `SETTLING_SECONDS` after the last fault somebody still waits.
        """
        limit = self.faults.stop + SETTLING_SECONDS
        self.clock.run(limit, self._check, lambda: self.settled)
        if not self.settled:
            raise BrokenPromiseError(f"an agent waits {SETTLING_SECONDS:g} s after the last fault")

    @property
    def digest(self) -> str:
        """The history as one number."""
        return hashlib.sha256(b"\n".join(self.trace)).hexdigest()

    @property
    def settled(self) -> bool:
        """Whether every agent that lives has sent all its requests and knows what became of them."""
        return all(
            not a.alive or (a.requests >= self.requests and a.requester is None)
            for a in self.agents
        )

    def note(self, *words: object) -> None:
        """Write a line of the trace."""
        self.trace.append(f"{self.clock.now:.9f} {' '.join(map(str, words))}".encode())

    # ------------------------------------------------------------------------- agents
    def _request(self, agent: SimulatedAgent) -> None:
        """Begin a request, planned on what the agent believes the epoch is."""
        agent.requests += 1
        hosts = tuple(
            self.chance.sample(HOSTS[: self.chance.choice((5, 5, 6))], self.chance.randint(1, 5))
        )
        belief = self.ledger.epoch + self.chance.choice((0, 0, 0, 0, 0, -1))
        shares = tuple(HostShare(host, float(self.chance.randint(1, 9))) for host in hosts)
        request = CommandRequest(
            self.chance.randbytes(8).hex(), ResizeCommand(max(1, belief + 1), shares)
        )
        self.record.asked[request.id] = request
        deadline = self.clock.now + self.chance.uniform(0.5, REQUEST_SECONDS)
        requester = Requester("job1", request, deadline)
        agent.requester = requester
        self.note("request", agent.name, request.id, request.command.epoch, *hosts)
        self._act(agent, requester.start(self.clock.now))

    def _act(self, agent: SimulatedAgent, effects: list[OpenConnection | SendLine]) -> None:
        for effect in effects:
            if isinstance(effect, OpenConnection):
                self._connect(agent)
            else:
                self.exchange.to_job(agent.session, effect.line)
        self._learn(agent)

    def _connect(self, agent: SimulatedAgent) -> None:
        self.exchange.hang_up(agent.session)

        def heard(line: bytes) -> None:
            if agent.session == session and agent.requester is not None and agent.alive:
                self._act(agent, agent.requester.received(line, self.clock.now))

        def hung_up() -> None:
            if agent.session == session and agent.requester is not None and agent.alive:
                self._act(agent, agent.requester.closed(self.clock.now))

        session = agent.session = self.exchange.session(heard, hung_up)
        self.exchange.connect(session)

    def _learn(self, agent: SimulatedAgent) -> None:
        """Note the outcome, and request again."""
        requester = agent.requester
        if requester is not None and requester.error is not None:
            raise BrokenPromiseError(f"an agent cannot read the job: {requester.error}")
        if requester is None or requester.outcome is None:
            return
        outcome = requester.outcome
        self.record.told[outcome.id] = outcome.kind
        self.note("told", agent.name, outcome.id, outcome.kind, outcome.reason)
        agent.requester = None
        if agent.requests < self.requests:
            self.clock.after(self.chance.uniform(0, 20), lambda: self._request(agent))

    # ---------------------------------------------------------------------------- job
    def _safe_point(self) -> None:
        """Be at a safe point: carry out what waits, lose a host, change the limits, or go on."""
        command, effects = self.responder.begin()
        self.exchange.carry_out(effects)
        if command is not None and self.ledger.begun is not None:
            request = self.ledger.begun
            self.note("begin", request.id)
            self.record.begun[request.id] = request
            self.clock.after(self.chance.uniform(0.05, 5.0), lambda: self._finish(request))
            return
        dice = self.chance.random()
        if dice < 0.02:
            self._taken(self.ledger.rolled_back(self.ledger.epoch + 1, "bob was lost", 7))
        elif dice < 0.05:
            low = self.chance.randint(1, 2)
            self.ledger.limits = HostLimits(low, low + 3, self.ledger.limits.known)
        self.clock.after(self.chance.uniform(0.01, 2.0), self._safe_point)

    def _finish(self, request: CommandRequest) -> None:
        dice = self.chance.random()
        if dice < 0.1:
            self._taken(self.ledger.failed("the spawn failed"))
        elif dice < 0.15:
            self._taken(self.ledger.rolled_back(self.ledger.epoch + 1, "bob was lost", 7))
        else:
            seen = self.record.carried_out
            seen[request.id] = seen.get(request.id, 0) + 1
            self._taken(self.ledger.done(1.0, {"wait": self.chance.random()}))
        self.clock.after(self.chance.uniform(0.01, 2.0), self._safe_point)

    def _taken(self, outcome: CommandOutcome | None) -> None:
        """Note that an epoch was taken, and tell who asked."""
        self.record.epochs.append(self.ledger.epoch)
        self.note("epoch", self.ledger.epoch)
        self.exchange.carry_out(self.responder.send_outcome(outcome))

    def _tick(self) -> None:
        now = self.clock.now
        for agent in self.agents:
            if agent.requester is None or not agent.alive:
                continue
            if now < self.faults.stop and self.chance.random() < self.faults.crashes * 0.02:
                agent.alive, agent.requester = False, None
                self.note("crash", agent.name)
                continue
            self._act(agent, agent.requester.tick(now))
        self.clock.after(TICK_SECONDS, self._tick)

    # ---------------------------------------------------------------------- promises
    def _check(self) -> None:
        record = self.record
        if len(self.responder.sessions) > MAX_SESSIONS:
            raise BrokenPromiseError(f"{len(self.responder.sessions)} sessions are held")
        happened = (len(record.epochs), len(record.told), len(record.begun))
        if happened == self._checked:
            return
        self._checked = happened
        if record.epochs != list(range(1, len(record.epochs) + 1)):
            raise BrokenPromiseError(f"epochs {record.epochs[-5:]} are not one after another")
        if any(record.asked.get(name) != request for name, request in record.begun.items()):
            raise BrokenPromiseError("the job does what nobody asked for")
        for identifier, kind in record.told.items():
            times = record.carried_out.get(identifier, 0)
            if times != (kind == "done") or (kind == "nack" and identifier in record.begun):
                raise BrokenPromiseError(f"{identifier}: told {kind}, carried out {times} times")
        if max(record.carried_out.values(), default=0) > 1:
            raise BrokenPromiseError("a command was carried out twice")
