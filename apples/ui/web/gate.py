"""The checks of every request before a page is made: Host, session, and for a post origin and token.

The pages give one user the same powers as the command line. The terminal with ``apples serve`` prints a link that
admits one browser once. From then on a cookie identifies the browser; no script can read it and no other site can
send it (HttpOnly, SameSite=Strict). The Host check stops a page of another site that resolves to this address
(DNS rebinding). The Origin check stops a form of another site, and so does a token that only our own pages have.

Starlette's middleware does not replace these checks. TrustedHostMiddleware answers 400 in plain text, without the
code and the page that a refusal has here. SessionMiddleware keeps the session in a signed cookie, which the
server cannot end before it expires. Starlette has no check of Origin or of a form's token.
"""

from __future__ import annotations

import hmac
import math
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from urllib.parse import parse_qsl

from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nws import BodyLimits, BoundedBody, RefusedRequestError

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
ENTER = "/enter"
PUBLIC = (ENTER, "/style.css", "/script.js")
"""Paths that need no session."""
MAX_SESSIONS = 32
MAX_FIELDS = 2000
FORM_BYTES = 4 << 20
"""Bytes of a form: it has a file's text twice, and a line end takes six bytes there."""
SIGN_IN_BYTES = 16 << 10
"""Bytes of a sign-in form. Anyone may send it, its key is short, and reading it slows admitted users."""
POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Mapping[str, str] = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # with no-referrer a form's Origin would be null
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
"""Default headers of every response."""


@dataclass
class Session:
    """An admitted browser.

    Attributes
    ----------
    token
        Included in every form of its pages; a post without it is refused.
    said
        Result of the last action, for the next page: kind and text.
    holds
        Returns whether the credential that admitted the browser is still valid.
    since
        Time of the admission on the monotonic clock.
    """

    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    said: tuple[str, str] | None = None
    holds: Callable[[], bool] = lambda: True
    since: float = field(default_factory=time.monotonic)

    def take_said(self) -> tuple[str, str] | None:
        """Return the result of the last action, once."""
        said, self.said = self.said, None
        return said


class Sessions:
    """The sessions of admitted browsers, in memory only.

    Parameters
    ----------
    on_link
        Called with the key of the next one-time link, at the start and after each use of a link.
    seconds
        Seconds for which a browser stays admitted.
    holds
        `Session.holds` of the sessions that a link opens.
    """

    def __init__(
        self,
        on_link: Callable[[str], None],
        seconds: float = math.inf,
        holds: Callable[[], bool] = lambda: True,
    ) -> None:
        self._on_link, self._seconds, self._holds = on_link, seconds, holds
        self._open: OrderedDict[str, Session] = OrderedDict()
        self._key = secrets.token_urlsafe(24)

    def announce(self) -> None:
        """Call `on_link` with the key of the current link."""
        self._on_link(self._key)

    def enter(self, key: str) -> str | None:
        """Return the secret of a new session for the key of an unused link; else None."""
        if not hmac.compare_digest(key.encode(), self._key.encode()):
            return None
        self._key = secrets.token_urlsafe(24)
        self.announce()
        return self.open(self._holds)

    def open(self, holds: Callable[[], bool]) -> str:
        """Return the secret of a new session, which is valid while `holds` returns True."""
        secret = secrets.token_urlsafe(32)
        self._open[_digest(secret)] = Session(holds=holds)
        while len(self._open) > MAX_SESSIONS:
            self._open.popitem(last=False)
        return secret

    def find(self, secret: str) -> Session | None:
        """Return the session of a cookie; None if it does not exist or has ended."""
        name = _digest(secret)
        session = self._open.get(name)
        if session is None:
            return None
        if time.monotonic() - session.since < self._seconds and session.holds():
            return session
        del self._open[name]
        return None


def _digest(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()


class Gate:
    """An ASGI application around another: only admitted requests reach the inner application.

    Parameters
    ----------
    application
        The inner application; it finds ``session`` and, for a post, ``form`` in the request's state.
    sessions
        The sessions of admitted browsers.
    hosts
        Allowed Host headers, without ports.
    refuse
        Makes the page of a refusal from a status and a sentence.
    secure
        Whether the server is reached only by HTTPS.
    limits
        Limits of a form: bytes, and seconds until it has arrived.
    command
        Command that prints the links, for users without one.
    sign_in
        Opens a session for a key that a user typed (``key`` of a form sent to `ENTER`) and returns its secret, or
        refuses. None: only links admit.
    """

    def __init__(
        self,
        application: ASGIApp,
        sessions: Sessions,
        refuse: Callable[[int, str], Response],
        hosts: Collection[str] = LOOPBACK,
        *,
        secure: bool = False,
        limits: BodyLimits | None = None,
        command: str = "apples serve",
        sign_in: Callable[[str], str] | None = None,
    ) -> None:
        self._command, self._sign_in = command, sign_in
        self.application, self._sessions, self._refuse = application, sessions, refuse
        self._hosts = frozenset(host.lower() for host in hosts)
        self._secure = secure
        self._limits = limits or BodyLimits(FORM_BYTES)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it with the reason of its refusal."""
        if scope["type"] == "lifespan":
            await self.application(scope, receive, send)
            return
        if scope["type"] != "http":
            raise RuntimeError(f"the server accepts HTTP only, not {scope['type']}")

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name.lower() for name, _ in message["headers"]}
                message["headers"] += [
                    (name.encode(), value.encode())
                    for name, value in HEADERS.items()
                    if name.encode() not in given
                ]
            await send(message)

        try:
            answer = await self._admit(scope, receive)
        except RefusedRequestError as refusal:
            answer = self._refuse(refusal.status, f"{refusal} [{refusal.code}]")
            answer.headers["connection"] = "close"
        await (answer or self.application)(scope, receive, guarded)

    async def _admit(self, scope: Scope, receive: Receive) -> Response | None:
        """Return the response to a request that is refused or that enters; None: the request may pass."""
        request = Request(scope)
        host = request.headers.get("host", "").lower()
        name, _, port = host.rpartition(":")
        if (name if port.isdigit() else host) not in self._hosts:
            raise RefusedRequestError(421, "This server does not answer to that Host.")
        if scope["path"] == ENTER and scope["method"] == "GET":
            return self._entered(request, self._by_link(request))
        if scope["path"] == ENTER and scope["method"] == "POST" and self._sign_in is not None:
            self._check_origin(request)
            form = await self._form(request, receive, replace(self._limits, body=SIGN_IN_BYTES))
            return self._entered(request, self._sign_in(form.get("key", [""])[-1][:200].strip()))
        if scope["path"] in PUBLIC:
            return None
        session = self._sessions.find(request.cookies.get(cookie_name(request), ""))
        if session is None:
            raise RefusedRequestError(
                401,
                f"Open the link that {self._command} printed last in its terminal.",
                code="session-missing",
            )
        state = scope.setdefault("state", {})
        state["session"] = session
        if scope["method"] not in {"GET", "HEAD"}:
            self._check_origin(request)
            state["form"] = await self._form(request, receive, self._limits)
            sent = state["form"].pop("token", [""])[-1]
            if not hmac.compare_digest(sent.encode(), session.token.encode()):
                raise RefusedRequestError(
                    403,
                    "This form is not from one of these pages as they are now; load the page again.",
                    code="form-token-invalid",
                )
        return None

    def _by_link(self, request: Request) -> str:
        """Return the secret of a session for the first request with the key of the link."""
        secret = self._sessions.enter(request.query_params.get("key", "")[:200])
        if secret is None:
            raise RefusedRequestError(
                401,
                f"This link was used before; {self._command} has printed the next in its terminal.",
                code="link-used",
            )
        return secret

    def _entered(self, request: Request, secret: str) -> Response:
        """Give a browser its cookie.

        Our own page fetches the next page. A redirect would belong to the site on which the link was clicked, and
        the browser would then not send a SameSite=Strict cookie.
        """
        answer = Response(
            '<!DOCTYPE html><html lang="en"><title>apples</title><meta http-equiv="refresh" content="0; url=/">'
            '<p><a href="/">Go on to the pages</a></p></html>',
            media_type="text/html",
        )
        answer.set_cookie(
            cookie_name(request), secret, path="/", httponly=True, samesite="strict", secure=self._secure
        )  # fmt: skip
        return answer

    def _check_origin(self, request: Request) -> None:
        """Refuse a request from a page of another site; a page by HTTPS is ours, also behind a proxy."""
        schemes, own = {request.url.scheme, "https"}, request.headers["host"].lower()
        # Compared as text: a URL parser raises an error for an Origin such as `http://[`, and browsers
        # write the Origin in only one way.
        origin = request.headers.get("origin", "").lower()
        foreign = origin and origin not in {f"{scheme}://{own}" for scheme in schemes}
        site = request.headers.get("sec-fetch-site", "same-origin")
        if foreign or site not in {"same-origin", "none"}:
            raise RefusedRequestError(
                403, "This form was sent from a page of another site.", code="origin-foreign"
            )

    async def _form(
        self, request: Request, receive: Receive, limits: BodyLimits
    ) -> dict[str, list[str]]:
        """Return the fields of a form; its bytes, fields and time are limited."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/x-www-form-urlencoded":
            raise RefusedRequestError(415, "Only forms are accepted.")
        body, text, more = BoundedBody(receive, limits), bytearray(), True
        while more:
            message = await body.receive()
            text += message.get("body", b"")
            more = message["type"] == "http.request" and message.get("more_body", False)
        form: dict[str, list[str]] = {}
        try:
            pairs = parse_qsl(
                text.decode("ascii"), keep_blank_values=True, max_num_fields=MAX_FIELDS
            )
        except ValueError:
            raise RefusedRequestError(400, "The body is not a form.") from None
        for name, value in pairs:
            form.setdefault(name, []).append(value)
        return form


def cookie_name(request: HTTPConnection) -> str:
    """Return the cookie's name. It includes the port, because browsers send cookies to all ports of a host."""
    server = request.scope.get("server") or ("", 0)
    return f"apples-{server[1]}"
