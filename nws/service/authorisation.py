"""What every request passes before its body is read: Host, bearer token, scope, size, time.

`ACCESS` is the one table of routes and scopes; a route that is not in it is closed.
"""

import asyncio
import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nws.errors import CodedError
from nws.service.tokens import PROBE, READ, WRITE, Token, TokenFile, TokenFileError

PUBLIC: Final = "public"

ACCESS: Final = {
    ("GET", "/healthz"): PUBLIC,
    ("GET", "/openapi.json"): READ,
    ("POST", "/v1/measurements"): WRITE,
    ("GET", "/v1/forecast"): READ,
    ("POST", "/v1/forecasts"): READ,
    ("GET", "/v1/league"): READ,
    ("GET", "/v1/weather"): READ,
    ("GET", "/v1/range"): READ,
    ("GET", "/v1/series"): READ,
    ("GET", "/v1/events"): READ,
    ("GET", "/v1/status"): READ,
    ("GET", "/metrics"): READ,
    ("GET", "/v1/sensors"): READ,
    ("PUT", "/v1/sensors/{name}"): WRITE,
    ("DELETE", "/v1/sensors/{name}"): WRITE,
    ("GET", "/v1/cliques"): READ,
    ("GET", "/v1/cliques/{name}"): READ,
    ("GET", "/v1/probing"): PROBE,
}

_PATTERNS: Final = [
    (method, re.compile(re.sub(r"\{\w+\}", "[^/]+", path)), scope)
    for (method, path), scope in ACCESS.items()
    if "{" in path
]


def methods_of(path: str) -> list[str]:
    """Return the methods that a path knows, for ``Allow``."""
    methods = sorted({method for method, _ in ACCESS})
    return [method for method in methods if scope_of(method, path) is not None]


def scope_of(method: str, path: str) -> str | None:
    """Return the scope that a request needs; None if no route is meant.

    Examples
    --------
    >>> scope_of("GET", "/v1/cliques/lab"), scope_of("GET", "/etc/passwd")
    ('read', None)
    """
    exact = ACCESS.get((method, path))
    if exact is not None:
        return exact
    for known, pattern, scope in _PATTERNS:
        if known == method and pattern.fullmatch(path):
            return scope
    return None


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
MOST_BODY: Final = 8 << 20
MOST_HEAD: Final = 16 << 10
BODY_SECONDS: Final = 20.0


class RefusedRequestError(CodedError):
    """A request that is refused before it reaches a route.

    Attributes
    ----------
    status
        Of the answer.
    headers
        That go with it.
    code, fields
        As of a `CodedError`; by default the code of the status (`REFUSAL_CODES`).
    """

    code = "request-refused"

    def __init__(
        self,
        status: int,
        reason: str,
        headers: tuple[tuple[bytes, bytes], ...] = (),
        *,
        code: str = "",
        **fields: object,
    ) -> None:
        super().__init__(reason, code=code or REFUSAL_CODES.get(status, ""), **fields)
        self.status = status
        self.headers = headers


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """Limits of one request's body: bytes, and seconds until it has arrived."""

    body: int = MOST_BODY
    seconds: float = BODY_SECONDS


class Authorisation:
    """An ASGI application around another.

    Parameters
    ----------
    application
        What is behind the gate.
    tokens
        Who may come in.
    hosts
        What the Host header may say, ports aside: a page in a browser that was sent here under
        another name (DNS rebinding) stays outside.
    limits
        Of size and time.
    """

    def __init__(
        self,
        application: ASGIApp,
        tokens: TokenFile,
        hosts: Collection[str],
        limits: BodyLimits | None = None,
    ) -> None:
        self._application = application
        self._tokens = tokens
        self._hosts = frozenset(host.lower() for host in hosts)
        self._limits = limits or BodyLimits()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request pass, with its token in ``scope["state"]``, or answer why not."""
        if scope["type"] == "lifespan":
            await self._application(scope, receive, send)
            return
        if scope["type"] != "http":
            raise RuntimeError(f"{scope['type']} is not spoken here")
        started = False

        async def watched(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            self._admit(scope)
            body = BoundedBody(receive, self._limits)
            await self._application(scope, body.receive, watched)
        except RefusedRequestError as refusal:
            if not started:
                await _answer(send, refusal)

    def _admit(self, scope: Scope) -> None:
        headers = scope["headers"]
        size = len(scope["raw_path"]) + len(scope["query_string"])
        if size + sum(len(key) + len(value) for key, value in headers) > MOST_HEAD:
            raise RefusedRequestError(
                431,
                f"a head has at most {MOST_HEAD} bytes",
                CLOSE,
                code="message-too-long",
                bound=MOST_HEAD,
            )
        self._check_host(headers)
        wanted = scope_of(scope["method"], scope["path"])
        if wanted != PUBLIC:
            token = self._token(headers)
            if wanted is not None and wanted not in token.scopes:
                raise RefusedRequestError(
                    403,
                    f"this token does not have the scope {wanted}",
                    code="scope-missing",
                    scope=wanted,
                )
            scope.setdefault("state", {})["token"] = token
        _check_encoding(headers)
        length = _header(headers, b"content-length")
        if length is not None and (not length.isdigit() or int(length) > self._limits.body):
            raise _too_long(self._limits)

    def _check_host(self, headers: list[tuple[bytes, bytes]]) -> None:
        named = (_header(headers, b"host") or b"").decode("latin-1").lower()
        host = named.rpartition(":")[0] if named.rpartition(":")[2].isdigit() else named
        if host not in self._hosts:
            # 421, not 400: an operator can tell a misconfigured proxy from a malformed request.
            raise RefusedRequestError(
                421,
                "this service does not answer to that Host; start it with --name NAME to accept it",
                code="host-header-unknown",
            )

    def _token(self, headers: list[tuple[bytes, bytes]]) -> Token:
        kind, _, secret = (_header(headers, b"authorization") or b"").partition(b" ")
        try:
            token = (
                self._tokens.find(secret.strip().decode("latin-1"))
                if kind.lower() == b"bearer" and len(secret) < 200
                else None
            )
        except TokenFileError as error:
            raise RefusedRequestError(503, str(error), code=error.code) from error
        if token is None:
            raise RefusedRequestError(
                401,
                "the request needs a bearer token that is valid now",
                CHALLENGE,
                code="token-invalid",
            )
        return token


class BoundedBody:
    """A request's body, counted and timed while it comes."""

    def __init__(self, receive: Receive, limits: BodyLimits) -> None:
        self._receive = receive
        self._limits = limits
        self._size = 0
        self._whole = False

    async def receive(self) -> Message:
        """Return the next part; `RefusedRequestError` where it is too much, or too late."""
        if self._whole:
            return await self._receive()  # waits for the end of the connection
        try:
            async with asyncio.timeout(self._limits.seconds):  # `wait_for` would start a task
                message = await self._receive()
        except TimeoutError:
            reason = f"the body did not come within {self._limits.seconds} s"
            raise RefusedRequestError(
                408, reason, CLOSE, code="body-timeout", seconds=self._limits.seconds
            ) from None
        self._size += len(message.get("body", b""))
        if self._size > self._limits.body:
            raise _too_long(self._limits)
        self._whole = not message.get("more_body", False)
        return message


CLOSE: Final = ((b"connection", b"close"),)
CHALLENGE: Final = ((b"www-authenticate", b"Bearer"),)


def _too_long(limits: BodyLimits) -> RefusedRequestError:
    return RefusedRequestError(
        413,
        f"a body has at most {limits.body} bytes",
        CLOSE,
        code="message-too-long",
        bound=limits.body,
    )


def _check_encoding(headers: list[tuple[bytes, bytes]]) -> None:
    encoding = _header(headers, b"content-encoding")
    if encoding not in {None, b"identity", b""}:
        raise RefusedRequestError(
            415, "a body must not be compressed", code="encoding-unsupported"
        )


def _header(headers: list[tuple[bytes, bytes]], name: bytes) -> bytes | None:
    return next((value for key, value in headers if key == name), None)


async def _answer(send: Send, refusal: RefusedRequestError) -> None:
    transient = refusal.status in {408, 503}
    document = {"reason": str(refusal), "transient": transient}
    body = json.dumps({**document, "code": refusal.code, "fields": refusal.fields}).encode()
    headers: list[Any] = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        *refusal.headers,
    ]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
