"""Cliques: which host may probe the network when, so that probes never measure each other.

1. `sites`: which hosts form a clique, and turns where one asker plans all probes.
2. `messages`: what members send each other.
3. `grants`: the right to probe, from a majority, for a bounded time; the times of a clique.
4. `member`: a member as a pure state machine: token, leader, turns.
5. `simulation`: a clique on a simulated network with loss, partitions, crashes and skewed clocks.

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
