"""Cliques: who may probe the network now, so that probes never measure each other.

1. `sites`: which hosts form a clique.
2. `messages`: what members say; `timing`: how long they wait.
3. `grants`: the right to probe, from a majority, for a bounded time.
4. `member`: a member as a pure state machine: token, leader, turns.
5. `turns`: whose turn it is where one asker knows of all probes.
6. `simulation`: a clique on a network where everything goes wrong.

Only `nws.sensing` gives it sockets and clocks.
"""

from nws.clique.member import CliqueMember, Effect, ProbePeers, SendMessage
from nws.clique.messages import Message, decode, encode
from nws.clique.simulation import CliqueFaults, DoubleProbeError, SimulatedClique
from nws.clique.sites import cliques_of

__all__ = [
    "CliqueFaults",
    "CliqueMember",
    "DoubleProbeError",
    "Effect",
    "Message",
    "ProbePeers",
    "SendMessage",
    "SimulatedClique",
    "cliques_of",
    "decode",
    "encode",
]
