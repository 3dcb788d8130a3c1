"""The sealed conversation: JSON lines that only the two ends of one session can have written, each good for once.

Both ends know the job's secret and never send it. Each challenges the other with random bytes; from the
secret and both challenges they derive the keys of this session, one for each direction. Every later line carries
its number and an HMAC over number and content. So a line of another session, of the other direction, changed, or
received before is no line of this session.

The HMAC is over the parsed content in one spelling (keys sorted, no spaces, ASCII), not over the bytes that came.
"""

from __future__ import annotations

import hmac
import json
from dataclasses import dataclass
from typing import Any

from apples.io.json_lines import LineError, decode

SECRET_BYTES = 32

Body = dict[str, Any]

LINE_LIMIT = 1 << 20
"""Bytes of one line; a longer one ends its session."""
UNAUTHENTICATED_LINE_LIMIT = 512
"""Bytes of a line from a peer that has not proved that it knows the secret."""
CHALLENGE_BYTES = 32
DEPTH_LIMIT = 8
"""How deep a body may nest."""


class ForgeryError(Exception):
    """A line that is not the next one of this session: malformed, forged, or heard before.

    Attributes
    ----------
    code
        Names the condition, for example ``message-invalid``.
    field
        The field of the line's body that is wrong; empty: the line itself.
    """

    def __init__(self, message: str, *, code: str = "message-invalid", field: str = "") -> None:
        super().__init__(message)
        self.code, self.field = code, field


def canonical(body: object) -> bytes:
    """Return the one spelling of a body that is authenticated.

    Examples
    --------
    >>> canonical({"b": 1.5, "a": ["x"]})
    b'{"a":["x"],"b":1.5}'
    """
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.encode("ascii")


def parse(line: bytes, limit: int = LINE_LIMIT) -> Body:
    """Return the JSON object that a line is.

    Raises
    ------
    ForgeryError
        It is none, or too long, or too deep.
    """
    try:
        return decode(line, limit, DEPTH_LIMIT)
    except LineError as error:
        raise ForgeryError(str(error)) from None


def text_of(body: Body, key: str, limit: int = 256) -> str:
    """Return a text of a body; raises `ForgeryError` where it is none or longer than `limit`."""
    value = body.get(key)
    if not isinstance(value, str) or len(value) > limit:
        raise ForgeryError(f"'{key}' must be a text of at most {limit} characters", field=key)
    return value


def challenge_of(body: Body) -> str:
    """Return the challenge in a body of the handshake."""
    challenge = text_of(body, "challenge", 2 * CHALLENGE_BYTES)
    if len(challenge) != 2 * CHALLENGE_BYTES or set(challenge) - set("0123456789abcdef"):
        raise ForgeryError(
            f"'challenge' must be {CHALLENGE_BYTES} bytes in hexadecimal", field="challenge"
        )
    return challenge


def _mac(key: bytes, *parts: str | bytes) -> str:
    joined = b"\0".join(p.encode() if isinstance(p, str) else p for p in parts)
    return hmac.digest(key, joined, "sha256").hex()


@dataclass(frozen=True, slots=True)
class Proof:
    """The values that only the two ends of a session can derive: answers to the challenges, and keys.

    Attributes
    ----------
    job
        Id of the job: a secret that were used twice would still tell its jobs apart.
    responder, requester
        Challenges of the job's end and of the agent's, in hexadecimal.
    """

    secret: bytes
    job: str
    responder: str
    requester: str

    def of(self, side: str) -> str:
        """Return the answer by which `side` shows that it knows the secret."""
        return _mac(self.secret, "apples-answer", side, self.job, self.responder, self.requester)

    def shown(self, side: str, answer: str) -> bool:
        """Whether `answer` is that of `side`; the comparison takes the same time however wrong it is."""
        return hmac.compare_digest(self.of(side).encode(), answer.encode("utf-8", "replace"))

    def key(self, side: str) -> bytes:
        """Return the key with which `side` seals its lines in this session."""
        sealed = _mac(self.secret, "apples-key", side, self.job, self.responder, self.requester)
        return bytes.fromhex(sealed)


class Sealer:
    """Seals the lines of one direction of one session, numbered from 1."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._number = 0

    def seal(self, body: Body) -> bytes:
        """Return `body` as the next line, without its end."""
        self._number += 1
        mac = _mac(self._key, str(self._number), canonical(body))
        return canonical({"n": self._number, "mac": mac, "body": body})


class Opener:
    """Opens the lines of one direction of one session: each once, in order, gaps allowed."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._number = 0

    def open(self, line: bytes) -> Body:
        """Return the body of a line.

        Raises
        ------
        ForgeryError
            It is not of this session and direction, or not later than the last.
        """
        sealed = parse(line)
        number, body = sealed.get("n"), sealed.get("body")
        if type(number) is not int or not isinstance(body, dict):
            raise ForgeryError("no sealed line")
        mac = _mac(self._key, str(number), canonical(body))
        if not hmac.compare_digest(
            mac.encode(), text_of(sealed, "mac").encode("utf-8", "replace")
        ):
            raise ForgeryError("the seal is not of this session", code="seal-invalid")
        if number <= self._number:
            raise ForgeryError(f"line {number} was received before", code="line-repeated")
        self._number = number
        return body
