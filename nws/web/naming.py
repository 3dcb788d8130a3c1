"""The routes of the name service: leases, and the cliques of those that are there."""

from typing import Annotated, Any

from fastapi import FastAPI, HTTPException, Path, Request

from nws.leases import Registration
from nws.tokens import Token
from nws.web.desk import Desk
from nws.web.messages import (
    NAME,
    CliqueAnswer,
    CliqueList,
    LeaseAnswer,
    LeaseList,
    ProbingAnswer,
    Refusal,
    Registering,
)

ABSENT: dict[int | str, dict[str, Any]] = {404: {"model": Refusal}}
TAKEN: dict[int | str, dict[str, Any]] = {409: {"model": Refusal}}
PathName = Annotated[str, Path(pattern=NAME, max_length=128)]


def add_naming_routes(router: FastAPI, desk: Desk) -> None:
    """Add the routes, bound to one service."""

    @router.put("/v1/sensors/{name}", tags=["names"], responses=TAKEN)
    async def register(name: PathName, body: Registering, request: Request) -> LeaseAnswer:
        """Register, or renew: do it again before the lease runs out."""
        token: Token = request.state.token
        registration = Registration(
            name,
            body.kind,
            body.host,
            body.site,
            body.address,
            tuple(body.resources),
            owner=token.name,
        )
        now = desk.monotonic()
        return desk.registered(desk.leases.renew(registration, body.seconds, now), now)

    @router.delete(
        "/v1/sensors/{name}",
        tags=["names"],
        responses={404: {"model": Refusal}, 409: {"model": Refusal}},
    )
    async def leave(name: PathName, request: Request) -> LeaseList:
        """End a lease before it runs out; the answer is who is left."""
        token: Token = request.state.token
        now = desk.monotonic()
        if not desk.leases.end(name, token.name, now):
            raise HTTPException(404, f"{name} is not registered")
        return _everyone(desk)

    @router.get("/v1/sensors", tags=["names"])
    async def sensors() -> LeaseList:
        """Return everyone who is there."""
        return _everyone(desk)

    @router.get("/v1/cliques", tags=["names"])
    async def cliques() -> CliqueList:
        """Return the names of the cliques."""
        return CliqueList(cliques=sorted(desk.cliques()))

    @router.get("/v1/cliques/{name}", tags=["names"], responses=ABSENT)
    async def clique(name: PathName) -> CliqueAnswer:
        """Return a clique and its members."""
        found = desk.cliques().get(name)
        if found is None:
            raise HTTPException(404, f"there is no clique {name}")
        return found

    @router.get("/v1/probing", tags=["names"])
    async def probing() -> ProbingAnswer:
        """Return the secret that a host needs to probe and to be probed."""
        return ProbingAnswer(secret=desk.secret)


def _everyone(desk: Desk) -> LeaseList:
    now = desk.monotonic()
    alive = desk.leases.alive(now)
    return LeaseList(registrations=[desk.registered(alive[name], now) for name in sorted(alive)])
