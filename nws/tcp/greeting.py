"""Both sides prove that they know the same secret, without sending it.

    endpoint: nws.endpoint/1 CHALLENGE
    prober:   PROOF CHALLENGE VERB
    endpoint: ok PROOF | busy | no

A challenge is 32 random hexadecimal digits; a proof is HMAC-SHA256, keyed with the secret, over
the prover's side, the verb and both challenges, so that it serves once and for one side only. The
greeting says who is there; what follows is meaningless bytes and is neither signed nor hidden.
"""

import hmac
import secrets
from enum import Enum
from typing import Final

from nws.tcp.channel import Channel

PROTOCOL: Final = "nws.endpoint/1"
ECHO: Final = "echo"
SINK: Final = "sink"
TELL: Final = "tell"


class Answer(Enum):
    """What a prober hears."""

    OK = "ok"
    BUSY = "busy"
    NO = "no"


class StrangerError(Exception):
    """The other side did not prove that it knows the secret. Permanent."""


def prove(secret: str, side: str, verb: str, challenges: tuple[str, str]) -> str:
    """Return what only someone who knows `secret` can answer to the two challenges."""
    text = " ".join((PROTOCOL, side, verb, *challenges))
    return hmac.new(secret.encode(), text.encode(), "sha256").hexdigest()


class Guest:
    """The endpoint's view of one prober: `hear` first, then `admit` it or `turn_away`."""

    def __init__(self, channel: Channel, secret: str) -> None:
        self._channel = channel
        self._secret = secret
        self._proof = ""

    def hear(self) -> str:
        """Return the verb that the prober asks for; tell a stranger no.

        Raises
        ------
        StrangerError
            It does not know the secret, or asks for something else than echo, sink or tell.
        """
        ours = secrets.token_hex(16)
        self._channel.send(f"{PROTOCOL} {ours}\n".encode())
        words = self._channel.receive_line().split(" ")
        proof, theirs, verb = words if len(words) == 3 else ("", "", "")
        if verb not in {ECHO, SINK, TELL} or not _same(
            proof, prove(self._secret, "prober", verb, (ours, theirs))
        ):
            self._channel.send(f"{Answer.NO.value}\n".encode())
            raise StrangerError("a greeting is not one of ours")
        self._proof = prove(self._secret, "endpoint", verb, (ours, theirs))
        return verb

    def admit(self) -> None:
        """Say yes, and prove who we are."""
        self._channel.send(f"{Answer.OK.value} {self._proof}\n".encode())

    def turn_away(self) -> None:
        """Say that another is being served."""
        self._channel.send(f"{Answer.BUSY.value}\n".encode())


def greet(channel: Channel, secret: str, verb: str) -> Answer:
    """Ask the endpoint for `verb` and return its answer.

    Raises
    ------
    StrangerError
        The other side is no endpoint, or does not know the secret, or thinks that of us.
    ConnectionError, TimeoutError
        Transient.
    """
    protocol, _, theirs = channel.receive_line().partition(" ")
    if protocol != PROTOCOL:
        raise StrangerError(f"it speaks {protocol!r}, not {PROTOCOL!r}")
    ours = secrets.token_hex(16)
    proof = prove(secret, "prober", verb, (theirs, ours))
    channel.send(f"{proof} {ours} {verb}\n".encode())
    answer, _, proof = channel.receive_line().partition(" ")
    if answer == Answer.BUSY.value:
        return Answer.BUSY
    if answer == Answer.NO.value:
        raise StrangerError("it does not take our secret")
    if not _same(proof, prove(secret, "endpoint", verb, (theirs, ours))):
        raise StrangerError("it does not know our secret")
    return Answer.OK


def _same(proof: str, wanted: str) -> bool:
    return hmac.compare_digest(proof.encode(), wanted.encode())
