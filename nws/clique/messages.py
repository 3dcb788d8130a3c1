"""The messages that members of a clique send each other, and their text on the wire."""

import json
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple

from nws.errors import InputError


class Epoch(NamedTuple):
    """A term of one leader: the higher counter wins, the later name breaks a tie."""

    counter: int
    leader: str


@dataclass(frozen=True, slots=True)
class CliqueToken:
    """The right to have a turn in cycle `cycle` of `epoch`.

    `visited` had theirs, or could not be reached; `home` is on its way back to the leader.
    """

    sender: str
    epoch: Epoch
    cycle: int
    visited: tuple[str, ...]
    home: bool


@dataclass(frozen=True, slots=True)
class Received:
    """The token of `cycle` of `epoch` has arrived."""

    sender: str
    epoch: Epoch
    cycle: int


@dataclass(frozen=True, slots=True)
class Stale:
    """The token received was of an old epoch; `epoch` is the newest known."""

    sender: str
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class GrantRequest:
    """Asks for the right to probe for `seconds` from when this was sent; `number` counts such requests."""

    sender: str
    life: str
    number: int
    seconds: float
    roster: str


@dataclass(frozen=True, slots=True)
class Grant:
    """The sender grants the right to probe and will grant it to no other member meanwhile."""

    sender: str
    number: int


@dataclass(frozen=True, slots=True)
class Release:
    """The sender gives a grant back before its time."""

    sender: str
    life: str
    number: int


Message = CliqueToken | Received | Stale | GrantRequest | Grant | Release
KINDS: Final[dict[str, type[Any]]] = {
    "Token": CliqueToken,
    "Received": Received,
    "Stale": Stale,
    "Ask": GrantRequest,
    "Grant": Grant,
    "Release": Release,
}
"""The kind of a message on the wire and its class; the kinds are part of the protocol and stay."""
KIND_OF: Final = {kind: name for name, kind in KINDS.items()}


def encode(clique: str, message: Message) -> bytes:
    """Return a message of a clique as text."""
    fields = {"clique": clique, "kind": KIND_OF[type(message)], **asdict(message)}
    return json.dumps(fields).encode()


def decode(data: bytes) -> tuple[str, Message]:
    """Return the clique and the message in a text; ValueError if it is none.

    Examples
    --------
    >>> decode(encode("lab", Grant("ada", 3)))
    ('lab', Grant(sender='ada', number=3))
    """
    try:
        fields = json.loads(data)
        clique, kind = str(fields.pop("clique")), KINDS[fields.pop("kind")]
        if "epoch" in fields:
            counter, leader = fields["epoch"]
            fields["epoch"] = Epoch(int(counter), str(leader))
        if "visited" in fields:
            fields["visited"] = tuple(map(str, fields["visited"]))
        for name, value in fields.items():
            _check(name, value)
        message: Message = kind(**fields)
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        ArithmeticError,
        RecursionError,
    ) as error:
        raise InputError(
            f"not a message of a clique: {error}", code="message-invalid", reason=str(error)
        ) from error
    return clique, message


_TYPES: Final[dict[str, type | tuple[type, ...]]] = {
    "sender": str,
    "life": str,
    "roster": str,
    "cycle": int,
    "number": int,
    "seconds": (int, float),
    "home": bool,
}


def _check(name: str, value: object) -> None:
    if name in _TYPES and not isinstance(value, _TYPES[name]):
        raise TypeError(f"{name} is {value!r:.40}")
