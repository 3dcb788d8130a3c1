"""The routes of probe turns: a sensor asks for a turn and ends it (`nws.clique.turns`)."""

import ipaddress
from typing import Annotated

from fastapi import APIRouter, FastAPI, Path, Query, Request
from pydantic import BaseModel, Field

from nws.clique.sites import MAX_MEMBERS, cliques_of
from nws.clique.turns import Turn
from nws.service.authorisation import RefusedRequestError, scope
from nws.service.handler import RequestHandler
from nws.service.messages import STRICT, ErrorAnswer, Name
from nws.service.registry import Registration
from nws.service.tokens import PROBE

TurnId = Annotated[str, Path(pattern=r"^[0-9a-f]{32}$")]
Probed = Annotated[list[Name], Query(max_length=MAX_MEMBERS)]


class AskedTurn(BaseModel):
    """A request for a turn of a registered host."""

    model_config = STRICT
    host: Name


class TurnPeer(BaseModel):
    """A host to probe, and the address of its endpoint."""

    name: str
    address: str


class TurnAnswer(BaseModel):
    """A turn, or null and the time after which to ask again."""

    turn: str | None = Field(None, description="Id of the turn; null: none now.")
    clique: str | None = Field(None, description="Clique of the host and its peers.")
    seconds: float = Field(0.0, description="Length of the turn, from before it was asked for.")
    peers: list[TurnPeer] = Field([], description="Peers, least recently probed first.")
    retry_after: float | None = Field(None, description="Seconds until the next request.")


class EndedTurn(BaseModel):
    """The end of a turn."""

    ended: bool = Field(description="Whether the turn still ran.")


def add_turn_routes(app: FastAPI, handler: RequestHandler) -> None:
    """Add the routes, bound to one service."""
    router = APIRouter(dependencies=[scope(PROBE)])

    @router.post("/v1/turns", tags=["turns"], responses={409: {"model": ErrorAnswer}})
    async def ask(body: AskedTurn, request: Request) -> TurnAnswer:
        """Ask for the right to probe the links of a host for a bounded time."""
        token = request.user.token
        now = handler.monotonic()
        hosts = {
            name: lease.registration
            for name, lease in handler.leases.alive(now).items()
            if _can_be_probed(lease.registration)
        }
        asking = hosts.get(body.host)
        if asking is not None and asking.owner != token.name:
            raise RefusedRequestError(
                409,
                f"{body.host} is registered by another token",
                code="name-taken",
                value=body.host,
            )
        cliques = cliques_of({name: registration.site for name, registration in hosts.items()})
        turn = handler.turns.ask(
            body.host, cliques, now, lambda host, peer: _reaches(hosts[host], hosts[peer])
        )
        if not isinstance(turn, Turn):
            return TurnAnswer(retry_after=turn)
        peers = [TurnPeer(name=peer, address=hosts[peer].address) for peer in turn.peers]
        return TurnAnswer(turn=turn.id, clique=turn.clique, seconds=turn.seconds, peers=peers)

    @router.delete("/v1/turns/{turn}", tags=["turns"])
    async def end(turn: TurnId, probed: Probed = []) -> EndedTurn:  # noqa: B006 - FastAPI copies it
        """End a turn after its probes, with the names of the peers that were probed."""
        return EndedTurn(ended=handler.turns.end(turn, probed, handler.monotonic()))

    app.include_router(router)


def _can_be_probed(registration: Registration) -> bool:
    return _ip_of(registration.address) is not None


def _reaches(host: Registration, peer: Registration) -> bool:
    """Return whether a host can reach the endpoint of a peer: one on loopback only from its own machine."""
    address = _ip_of(peer.address)
    if address is None:
        return False
    return not address.is_loopback or (host.machine == peer.machine and bool(host.machine))


def _ip_of(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the IP address of ``address:port``; None where it is a name, or missing."""
    try:
        return ipaddress.ip_address(address.rpartition(":")[0].strip("[]"))
    except ValueError:
        return None
