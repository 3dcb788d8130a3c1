"""Checks of a request before its route: limits of head, Host and body; a bearer token; a scope.

Starlette's authentication middleware asks for the token, and each route declares its scope as a
dependency of FastAPI (`scope`), which the OpenAPI document shows.
"""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

from fastapi import Depends, Request, Security
from fastapi.security import HTTPBearer, SecurityScopes
from starlette.authentication import (
    AuthCredentials,
    AuthenticationBackend,
    AuthenticationError,
    BaseUser,
)
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nws.errors import CodedError
from nws.service.tokens import Token, TokenFile, TokenFileError

PUBLIC: Final = frozenset({"/healthz"})
"""Paths that need no token."""

REFUSAL_CODES: Final = {
    400: "request-invalid",
    401: "token-invalid",
    403: "scope-missing",
    404: "route-unknown",
    405: "method-not-allowed",
    408: "body-timeout",
    413: "message-too-long",
    415: "encoding-unsupported",
    421: "host-header-unknown",
    422: "request-invalid",
    431: "message-too-long",
    503: "file-invalid",
}
"""The code of each status with which a request is refused."""
MAX_BODY: Final = 8 << 20
MAX_HEAD: Final = 16 << 10
BODY_SECONDS: Final = 20.0


class RefusedRequestError(CodedError):
    """A request that is refused.

    Attributes
    ----------
    status
        HTTP status of the answer.
    code, fields
        As of a `CodedError`; by default the code of the status (`REFUSAL_CODES`).
    """

    code = "request-refused"

    def __init__(
        self,
        status: int,
        reason: str,
        *,
        code: str = "",
        **fields: object,
    ) -> None:
        super().__init__(reason, code=code or REFUSAL_CODES.get(status, ""), **fields)
        self.status = status


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """Limits of one request's body: bytes, and seconds until it has arrived."""

    body: int = MAX_BODY
    seconds: float = BODY_SECONDS


class RequestLimits:
    """ASGI middleware: the Host header, the bytes of the head, and bytes and time of the body.

    Parameters
    ----------
    app
        The application.
    hosts
        Accepted Host headers, ports aside: a page in a browser that was sent here under another name
        (DNS rebinding) is refused.
    limits
        Of size and time.
    """

    def __init__(
        self, app: ASGIApp, hosts: Collection[str], limits: BodyLimits | None = None
    ) -> None:
        self._app = app
        self._hosts = frozenset(host.lower() for host in hosts)
        self._limits = limits or BodyLimits()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer why not."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False
        body = BoundedBody(receive, self._limits)

        async def watched(message: Message) -> None:
            nonlocal started
            if body.refusal is None or started:
                started = True
                await send(message)

        try:
            self._check(scope)
            await self._app(scope, body.receive, watched)
        except RefusedRequestError as refusal:
            body.refusal = refusal
        if body.refusal is not None and not started:
            await refusal_of(body.refusal)(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        headers = scope["headers"]
        size = len(scope["raw_path"]) + len(scope["query_string"])
        if size + sum(len(key) + len(value) for key, value in headers) > MAX_HEAD:
            raise RefusedRequestError(
                431,
                f"a head has at most {MAX_HEAD} bytes",
                code="message-too-long",
                bound=MAX_HEAD,
            )
        named = (_header(headers, b"host") or b"").decode("latin-1").lower()
        host = named.rpartition(":")[0] if named.rpartition(":")[2].isdigit() else named
        if host not in self._hosts:
            # 421, not 400: so an operator can distinguish a misconfigured proxy from a malformed request.
            raise RefusedRequestError(
                421,
                "this service does not answer to that Host; start it with --server-name NAME to accept it",
                code="host-header-unknown",
            )
        if _header(headers, b"content-encoding") not in {None, b"identity", b""}:
            raise RefusedRequestError(
                415, "a body must not be compressed", code="encoding-unsupported"
            )
        length = _header(headers, b"content-length")
        if length is not None and (not length.isdigit() or int(length) > self._limits.body):
            raise _too_long(self._limits)


class NotAdmittedError(AuthenticationError):
    """A request without a valid token; `refusal` becomes the response."""

    def __init__(self, refusal: RefusedRequestError) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


class TokenUser(BaseUser):
    """The sender of a request, by its token."""

    def __init__(self, token: Token, tokens: TokenFile) -> None:
        self.token = token
        self._tokens = tokens

    @property
    def is_authenticated(self) -> bool:
        """Whether the token is good now, too; False if the file of tokens cannot be trusted."""
        try:
            return self._tokens.still_good(self.token)
        except TokenFileError:
            return False

    @property
    def display_name(self) -> str:
        """The token's name."""
        return self.token.name


class TokenBackend(AuthenticationBackend):
    """Admits the bearers of the tokens in a file."""

    def __init__(self, tokens: TokenFile) -> None:
        self._tokens = tokens

    async def authenticate(self, conn: HTTPConnection) -> tuple[AuthCredentials, BaseUser] | None:
        """Return the scopes and the sender of a request; NotAdmittedError without a good token."""
        if conn.url.path in PUBLIC:
            return None
        kind, _, secret = conn.headers.get("authorization", "").partition(" ")
        token = None
        try:
            if kind.lower() == "bearer" and len(secret) < 200:
                token = self._tokens.find(secret.strip())
        except TokenFileError as error:
            raise NotAdmittedError(
                RefusedRequestError(503, str(error), code=error.code)
            ) from error
        if token is None:
            raise NotAdmittedError(
                RefusedRequestError(
                    401, "the request needs a bearer token that is valid now", code="token-invalid"
                )
            )
        return AuthCredentials(token.scopes), TokenUser(token, self._tokens)


def not_admitted(_: HTTPConnection, error: Exception) -> Response:
    """Return the answer to a request that is not admitted."""
    refusal = error.refusal if isinstance(error, NotAdmittedError) else None
    return refusal_of(refusal or RefusedRequestError(401, str(error)))


async def check_scope(
    scopes: SecurityScopes,
    request: Request,
    _: Annotated[Any, Depends(HTTPBearer(auto_error=False))],
) -> None:
    """Refuse a request if its token lacks the scope of the route."""
    for needed in scopes.scopes:
        if needed not in request.auth.scopes:
            raise RefusedRequestError(
                403,
                f"this token does not have the scope {needed}",
                code="scope-missing",
                scope=needed,
            )


def scope(name: str) -> Any:
    """Return the dependency of a route that needs a scope.

    Examples
    --------
    >>> scope("read").scopes
    ['read']
    """
    return Security(check_scope, scopes=[name])


class BoundedBody:
    """A request's body, counted and timed while it comes.

    The time limit is of the whole body, from the first call of `receive` on.

    Attributes
    ----------
    refusal
        Why no more of it was received; None while all is well.
    """

    def __init__(self, receive: Receive, limits: BodyLimits) -> None:
        self._receive = receive
        self._limits = limits
        self._size = 0
        self._whole = False
        self._deadline: float | None = None
        self.refusal: RefusedRequestError | None = None

    async def receive(self) -> Message:
        """Return the next part; `RefusedRequestError` where it is too much, or too late."""
        if self._whole:
            return await self._receive()  # waits for the end of the connection
        try:
            return await self._next()
        except RefusedRequestError as refusal:
            self.refusal = refusal
            raise

    async def _next(self) -> Message:
        if self._deadline is None:
            self._deadline = asyncio.get_running_loop().time() + self._limits.seconds
        try:
            async with asyncio.timeout_at(self._deadline):  # `wait_for` would start a task
                message = await self._receive()
        except TimeoutError:
            reason = f"the body did not come within {self._limits.seconds} s"
            raise RefusedRequestError(
                408, reason, code="body-timeout", seconds=self._limits.seconds
            ) from None
        self._size += len(message.get("body", b""))
        if self._size > self._limits.body:
            raise _too_long(self._limits)
        self._whole = not message.get("more_body", False)
        return message


CLOSING: Final = frozenset({408, 413, 431})
"""Statuses after which the connection is closed: the rest of the request was not read."""


TRANSIENT: Final = frozenset({408, 429, 503, 507})
"""Statuses of requests that may succeed later."""


def refusal_of(refusal: RefusedRequestError, headers: Mapping[str, str] | None = None) -> Response:
    """Return the answer to a refused request."""
    transient = refusal.status in TRANSIENT
    answer = {
        "reason": str(refusal),
        "transient": transient,
        "code": refusal.code,
        "fields": dict(refusal.fields),
    }
    headers = dict(headers or {})
    if refusal.status in CLOSING:
        headers["connection"] = "close"
    if refusal.status == 401:
        headers["www-authenticate"] = "Bearer"
    if transient:
        headers["retry-after"] = "1"
    return JSONResponse(answer, refusal.status, headers)


async def refused_request(_: Request, error: Exception) -> Response:
    """Return the answer to a `RefusedRequestError` of a route."""
    if not isinstance(error, RefusedRequestError):
        raise error
    return refusal_of(error)


def _too_long(limits: BodyLimits) -> RefusedRequestError:
    return RefusedRequestError(
        413, f"a body has at most {limits.body} bytes", code="message-too-long", bound=limits.body
    )


def _header(headers: list[tuple[bytes, bytes]], name: bytes) -> bytes | None:
    return next((value for key, value in headers if key == name), None)
