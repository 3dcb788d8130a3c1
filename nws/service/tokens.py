"""Authentication and scopes: bearer tokens, kept as hashes in a file that only its owner reads."""

import hashlib
import hmac
import json
import os
import secrets
import time
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from nws.errors import CodedError, InputError
from nws.private import NotPrivateError, read_secret

READ: Final = "read"
WRITE: Final = "write"
PROBE: Final = "probe"
SCOPES: Final = (READ, WRITE, PROBE)
PREFIX: Final = "nws_"
MAX_TOKENS: Final = 1000
SCHEMA: Final = "nws.tokens/1"


class TokenFileError(CodedError):
    """The file of tokens cannot be trusted: not ours, readable by others, or damaged. Permanent."""

    code = "file-invalid"


@dataclass(frozen=True, slots=True)
class Token:
    """A token's entry in the file: never the token itself.

    Attributes
    ----------
    name
        Name of the owner.
    hash
        SHA-256 of the token. A token has 256 random bits and needs no salt.
    scopes
        The scopes that it grants.
    expires
        Seconds since the epoch; None for never.
    """

    name: str
    hash: str
    scopes: tuple[str, ...]
    expires: float | None = None
    revoked: bool = False


class TokenFile:
    """The tokens of one service. The file is read again whenever it has changed.

    Parameters
    ----------
    path
        The file; made by the first `issue`.
    clock
        Seconds since the epoch.
    scopes
        The scopes of the service.

    Examples
    --------
    >>> import tempfile
    >>> tokens = TokenFile(Path(tempfile.mkdtemp(), "tokens.json"))
    >>> secret = tokens.issue("ada", ["read"])
    >>> tokens.find(secret).name, tokens.find("nws_wrong")
    ('ada', None)
    """

    def __init__(
        self,
        path: Path,
        clock: Callable[[], float] = time.time,
        scopes: Collection[str] = SCOPES,
    ) -> None:
        self.path = path
        self.scopes = tuple(scopes)
        self._clock = clock
        self._seen: tuple[int, ...] | None = None
        self._tokens: tuple[Token, ...] = ()

    def issue(self, name: str, scopes: Collection[str], seconds: float | None = None) -> str:
        """Return a new token; only its hash is stored."""
        wrong = set(scopes) - set(self.scopes)
        if wrong or not scopes:
            raise InputError(
                f"scopes are {', '.join(self.scopes)}, not {sorted(wrong)}",
                code="scope-unknown",
                value=sorted(wrong),
                known=list(self.scopes),
            )
        tokens = self.tokens()
        if len(tokens) >= MAX_TOKENS:
            raise InputError(
                f"{self.path}: there are {MAX_TOKENS} tokens already",
                code="too-many-tokens",
                file=str(self.path),
                bound=MAX_TOKENS,
            )
        secret = PREFIX + secrets.token_urlsafe(32)
        expires = None if seconds is None else self._clock() + seconds
        ordered = tuple(scope for scope in self.scopes if scope in scopes)
        self._write((*tokens, Token(name, digest(secret), ordered, expires)))
        return secret

    def revoke(self, name: str) -> int:
        """Revoke all tokens of `name`; return their number."""
        tokens = self.tokens()
        kept = tuple(replace(t, revoked=True) if t.name == name else t for t in tokens)
        self._write(kept)
        return sum(token.name == name and not token.revoked for token in tokens)

    def find(self, secret: str) -> Token | None:
        """Return the token that `secret` is, if it is good now; all are compared, always."""
        return self._good(digest(secret))

    def still_good(self, token: Token) -> bool:
        """Return whether a token that was found is good now, too."""
        return self._good(token.hash) is not None

    def _good(self, wanted: str) -> Token | None:
        found = None
        for token in self.tokens():
            if hmac.compare_digest(token.hash, wanted):
                found = token
        if found is None or found.revoked:
            return None
        expired = found.expires is not None and found.expires <= self._clock()
        return None if expired else found

    def tokens(self) -> tuple[Token, ...]:
        """Return all tokens, as the file has them now.

        Raises
        ------
        TokenFileError
            Permanent: it is not ours, others may read or write it, or it is damaged.
        """
        try:
            found = self.path.stat()
        except FileNotFoundError:
            self._seen, self._tokens = None, ()
            return ()
        mark = (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)
        if mark != self._seen:
            self._tokens, self._seen = _read(self.path), mark
        return self._tokens

    def _write(self, tokens: Collection[Token]) -> None:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        document = {"schema": SCHEMA, "tokens": [asdict(token) for token in tokens]}
        write_secret(self.path, json.dumps(document, indent=1))


def digest(secret: str) -> str:
    """Return the hash of a token."""
    return hashlib.sha256(secret.encode()).hexdigest()


def write_secret(path: Path, text: str) -> None:
    """Write a file that only its owner can ever read, in place of an old file."""
    fresh = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except BaseException as error:
        fresh.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)  # an error of writing has no file name
        raise


def _read(path: Path) -> tuple[Token, ...]:
    try:
        document = json.loads(read_secret(path))
        entries = document["tokens"] if document["schema"] == SCHEMA else document[SCHEMA]
        return tuple(Token(**{**t, "scopes": tuple(t["scopes"])}) for t in entries)
    except NotPrivateError as error:
        raise TokenFileError(str(error), code=error.code, **error.fields) from error
    except (ValueError, KeyError, TypeError) as error:
        raise TokenFileError(f"{path}: not a file of tokens: {error}", file=str(path)) from error
