"""Constant parts go ahead of a change of hosts: to the ranks that are to have them, while the program computes.

What nobody writes may be read at any time. So every member gives its parts away in threads of its own, and every
rank that is to have more fetches that in another (`ConstantParts`), over plain sockets. MPI takes no part: it
would move data only while the program calls it, and a newcomer that is lost meanwhile would leave the library of
all members in a state nobody can trust. As it is, that is the end of a connection. A rank that does not have
everything when the change begins gets it then, with what is not constant.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from apples.launch.this_host import addresses
from apples.malleable.control.strips import RowRange
from apples.malleable.runtime.declared import DistributedArray
from apples.malleable.runtime.row_memory import Bytes
from apples.malleable.runtime.tiles import transfers

PIECE_BYTES = 1 << 20
PIECE_SECONDS = 20.0
"""How long the other end may take for a piece, and to prove that it is a rank of the change."""
ADDRESS_SECONDS = 5.0
"""How long an address is tried: the kernel of a host answers, however busy that is."""
PROOF = 32
STRANGERS = 16
"""Connections that may be open beside one of each rank."""

Source = tuple[list[str], int]
"""Addresses and port where a rank gives its parts away."""


class ConstantParts:
    """The constant parts that one rank gives and fetches ahead of one change.

    Parameters
    ----------
    arrays
        The constant ones, located.
    old, new
        Every rank's strip before and after.
    rank
        Of this one, among all old and new.
    secret
        Of the change: who gives and who fetches prove to each other that they know it.

    Attributes
    ----------
    received
        Bytes that have come; 0 where not all could.
    """

    def __init__(
        self,
        arrays: Sequence[DistributedArray],
        old: Sequence[RowRange],
        new: Sequence[RowRange],
        rank: int,
        secret: str,
    ) -> None:
        self._arrays, self._rank, self._secret = arrays, rank, secret.encode()
        self._giving: list[list[Bytes]] = [[] for _ in new]
        self._coming: dict[int, list[Bytes]] = {}
        self._connections: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._listener: socket.socket | None = None
        self._closed = False
        self.received = 0
        for array in arrays:
            before, after = array.parts(old), array.parts(new)
            owned, needed = [array.owned(t) for t in before], [array.needed(t) for t in after]
            plan, there = transfers(rank, owned, needed), array.expect(after, rank)
            for other, part in plan.receives:
                self._coming.setdefault(other, []).append(there.bytes(part))
            for other, part in plan.sends:
                self._giving[other].append(array.bytes(part))

    def give(self) -> Source:
        """Begin to give parts to whoever proves to be a rank that is to have them; return where.

        Where this host lets nobody listen that is nowhere.
        """
        found = addresses(os.environ.get("UCX_NET_DEVICES", ""))
        try:  # where there is one address, nobody can come by another
            where = (found[0] if len(found) == 1 else "", 0)
            self._listener = socket.create_server(where, backlog=64)
        except OSError:
            return [], 0
        self._start(self._listen)
        return found, self._listener.getsockname()[1]

    def fetch(self, sources: Sequence[Source], told: Callable[[bool], None]) -> None:
        """Begin to fetch what is to come; `told` is called with whether it all has, in a thread.

        Parameters
        ----------
        sources
            Of every old rank.
        """

        def run() -> None:
            try:
                for array in self._arrays:
                    array.keep()
                for other, parts in self._coming.items():
                    self._fetch(sources[other], parts)
                whole = not self._closed
            except OSError:
                whole, self.received = False, 0
            with contextlib.suppress(OSError):  # the supervisor is gone, and this process soon
                told(whole)

        self._start(run)

    def close(self) -> None:
        """End all threads: nothing is given or fetched any more."""
        self._closed = True
        for one in (self._listener, *list(self._connections)):
            if one is not None:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        if self._listener is not None:
            self._listener.close()

    def forget(self) -> None:
        """End all threads, and give back the memory of what has come."""
        self.close()
        for array in self._arrays:
            array.give_up()

    # ------------------------------------------------------------------------------ in threads

    def _start(self, run: Callable[..., None], *given: object) -> None:
        thread = threading.Thread(target=run, args=given, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _listen(self) -> None:
        assert self._listener is not None  # noqa: S101 - `give` has made it
        while not self._closed:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            if len(self._connections) > len(self._giving) + STRANGERS:
                connection.close()
            else:
                self._start(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        """Give a rank its parts, if it is one."""
        with contextlib.suppress(OSError), self._open(connection):
            connection.settimeout(PIECE_SECONDS)
            hello = _received(connection, 4 + PROOF)
            rank = int.from_bytes(hello[:4], "big")
            if rank >= len(self._giving) or not self._proves(hello[4:], "fetch", rank):
                return
            connection.sendall(self._proof("give", rank))
            for part in self._giving[rank]:
                for piece in _pieces(part):
                    connection.sendall(np.ascontiguousarray(piece).data)

    def _fetch(self, source: Source, parts: Sequence[Bytes]) -> None:
        """Fetch parts from one rank; raises `OSError` where that cannot be done."""
        found, port = source
        for address in found:
            with contextlib.suppress(OSError):
                connection = socket.create_connection((address, port), ADDRESS_SECONDS)
                with self._open(connection):
                    connection.settimeout(PIECE_SECONDS)
                    hello = self._rank.to_bytes(4, "big") + self._proof("fetch", self._rank)
                    connection.sendall(hello)
                    if self._proves(_received(connection, PROOF), "give", self._rank):
                        self._take(connection, parts)
                        return
            if self._closed:
                break
        raise OSError("it is at none of its addresses, or has stopped")

    def _take(self, connection: socket.socket, parts: Sequence[Bytes]) -> None:
        """Receive parts from a rank that has proved to be one."""
        for part in parts:
            for piece in _pieces(part):
                into = piece if piece.flags.c_contiguous else np.empty(piece.shape, np.uint8)
                _receive(connection, into)
                if into is not piece:
                    piece[...] = into
                self.received += piece.size

    @contextlib.contextmanager
    def _open(self, connection: socket.socket) -> Iterator[socket.socket]:
        """Have a connection closed at the end, and shut down by `close`."""
        self._connections.add(connection)
        try:
            if self._closed:  # before it was known
                raise OSError("nobody is to have parts any more")
            yield connection
        finally:
            connection.close()
            self._connections.discard(connection)

    def _proof(self, word: str, rank: int) -> bytes:
        return hmac.digest(self._secret, f"{word} {rank}".encode(), "sha256")

    def _proves(self, proof: bytes, word: str, rank: int) -> bool:
        return hmac.compare_digest(proof, self._proof(word, rank))


def locations(arrays: Sequence[DistributedArray]) -> Mapping[str, Any]:
    """Return where the parts of arrays are, of those where it does not follow from the strips: a document."""
    return {one.name: found for one in arrays if (found := one.located()) is not None}


def _pieces(part: Bytes) -> Iterator[Bytes]:
    """Yield a part in pieces of some rows, or in pieces of its bytes where they lie together."""
    whole = part.reshape(-1) if part.flags.c_contiguous else part
    width = 1 if whole.ndim == 1 else whole.shape[1]
    step = max(1, PIECE_BYTES // max(1, width))
    for first in range(0, len(whole), step):
        yield whole[first : first + step]


def _received(connection: socket.socket, size: int) -> bytes:
    data = np.empty(size, np.uint8)
    _receive(connection, data)
    return data.tobytes()


def _receive(connection: socket.socket, into: Bytes) -> None:
    """Fill a contiguous array; raises `OSError` where the other end stops."""
    left = into.reshape(-1).data
    while left:
        count = connection.recv_into(left)
        if not count:
            raise OSError("the connection has ended")
        left = left[count:]
