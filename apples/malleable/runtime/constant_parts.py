"""Prefetch of constant parts before a change of hosts: their new ranks fetch them while the program computes.

The program never writes constant arrays, so they can be read at any time. Every member serves its parts in threads
of its own, and every rank that needs parts fetches them in another thread (`ConstantParts`), over plain sockets.
MPI is not used: it would move data only while the program calls it, and the loss of a newcomer would leave the
library of all members unusable. With sockets such a loss only ends a connection. If a rank's prefetch is
incomplete when the change begins, the rank gets its constant parts in the change, with the other data.
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
from apples.malleable.runtime.row_memory import Bytes, pieces
from apples.malleable.runtime.tiles import transfers

PIECE_BYTES = 1 << 20
PIECE_SECONDS = 20.0
"""Time limit of the peer for a piece, and for the proof that it is a rank of the change."""
ADDRESS_SECONDS = 5.0
"""Time limit of a connection attempt. The kernel of a busy host answers, too."""
PROOF = 32
STRANGERS = 16
"""Number of permitted connections in addition to one for each rank."""

Source = tuple[list[str], int]
"""Addresses and port where a rank serves its parts."""


class ConstantParts:
    """The constant parts that one rank serves and fetches before one change.

    Parameters
    ----------
    arrays
        The constant arrays, located.
    old, new
        Every rank's strip before and after.
    rank
        Number of this rank among all old and new ranks.
    secret
        Secret of the change. Both ends of a connection prove that they know it.

    Attributes
    ----------
    received
        Bytes that have arrived; 0 if the fetch failed.
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
        """Begin to serve parts to the ranks that prove to be part of the change; return the addresses.

        If this host does not permit listening, the list of addresses is empty.
        """
        hosts = addresses(os.environ.get("UCX_NET_DEVICES", ""))
        try:  # with one address only, listen on that one
            where = (hosts[0] if len(hosts) == 1 else "", 0)
            self._listener = socket.create_server(where, backlog=64)
        except OSError:
            return [], 0
        self._start(self._listen)
        return hosts, self._listener.getsockname()[1]

    def fetch(self, sources: Sequence[Source], done: Callable[[bool], None]) -> None:
        """Begin to fetch parts in a thread, which then calls `done` with whether all have arrived.

        Parameters
        ----------
        sources
            Addresses and port of every old rank.
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
            with contextlib.suppress(
                OSError
            ):  # the supervisor is gone, and this process ends soon
                done(whole)

        self._start(run)

    def close(self) -> None:
        """End all threads: stop serving and fetching."""
        self._closed = True
        for connection in (self._listener, *list(self._connections)):
            if connection is not None:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        if self._listener is not None:
            self._listener.close()

    def forget(self) -> None:
        """End all threads, and free the memory of the parts that have arrived."""
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
        """Send a rank its parts, if it proves to be one."""
        with contextlib.suppress(OSError), self._open(connection):
            connection.settimeout(PIECE_SECONDS)
            hello = _received(connection, 4 + PROOF)
            rank = int.from_bytes(hello[:4], "big")
            if rank >= len(self._giving) or not self._proves(hello[4:], "fetch", rank):
                return
            connection.sendall(self._proof("give", rank))
            for part in self._giving[rank]:
                for piece in pieces(part, PIECE_BYTES):
                    connection.sendall(np.ascontiguousarray(piece).data)

    def _fetch(self, source: Source, parts: Sequence[Bytes]) -> None:
        """Fetch parts from one rank; raise `OSError` if that fails."""
        hosts, port = source
        for address in hosts:
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
        raise OSError("no address of the rank answers, or the rank has stopped")

    def _take(self, connection: socket.socket, parts: Sequence[Bytes]) -> None:
        """Receive parts from a rank that has proved to be one."""
        for part in parts:
            for piece in pieces(part, PIECE_BYTES):
                into = piece if piece.flags.c_contiguous else np.empty(piece.shape, np.uint8)
                _receive(connection, into)
                if into is not piece:
                    piece[...] = into
                self.received += piece.size

    @contextlib.contextmanager
    def _open(self, connection: socket.socket) -> Iterator[socket.socket]:
        """Register a connection, so that `close` shuts it down; close it at the end of the block."""
        self._connections.add(connection)
        try:
            if self._closed:  # before the connection was registered
                raise OSError("the prefetch has ended")
            yield connection
        finally:
            connection.close()
            self._connections.discard(connection)

    def _proof(self, word: str, rank: int) -> bytes:
        return hmac.digest(self._secret, f"{word} {rank}".encode(), "sha256")

    def _proves(self, proof: bytes, word: str, rank: int) -> bool:
        return hmac.compare_digest(proof, self._proof(word, rank))


def locations(arrays: Sequence[DistributedArray]) -> Mapping[str, Any]:
    """Return the locations of parts, as a document, for arrays with parts that do not follow from the strips."""
    located = {array.name: array.located() for array in arrays}
    return {name: places for name, places in located.items() if places is not None}


def _received(connection: socket.socket, size: int) -> bytes:
    data = np.empty(size, np.uint8)
    _receive(connection, data)
    return data.tobytes()


def _receive(connection: socket.socket, into: Bytes) -> None:
    """Fill a contiguous array; raise `OSError` if the other end stops."""
    left = into.reshape(-1).data
    while left:
        count = connection.recv_into(left)
        if not count:
            raise OSError("the connection has ended")
        left = left[count:]
