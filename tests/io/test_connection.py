"""One end of a stream socket: objects in order, bounded, and an end that is noticed after the last of them."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

import apples
from apples.io import LineConnection, LineError


def exceeds(code, bound):
    """Return a check: a `LineError` of this code and bound."""
    return lambda error: (error.code, error.bound) == (code, bound)


@pytest.fixture
def ends():
    near, far = socket.socketpair()
    near.settimeout(20.0)
    connection = LineConnection(near)
    yield connection, far
    connection.close()
    far.close()


def test_objects_arrive_in_order_however_the_bytes_come(ends):
    near, far = ends
    far.sendall(b'{"n":1}\n{"n":')
    assert near.receive(20.0) == {"n": 1}
    assert near.receive(0.0) is None
    far.sendall(b'2}\n{"n":3}\n')
    assert [near.receive(20.0), near.receive(20.0)] == [{"n": 2}, {"n": 3}]


def test_what_arrived_is_returned_before_the_end_is_noticed(ends):
    near, far = ends
    assert near.arrived() == []
    far.sendall(b'{"n":1}\n{"n":2}\n')
    far.close()
    assert near.arrived() == [{"n": 1}, {"n": 2}]
    with pytest.raises(ConnectionResetError):
        near.arrived()


def test_an_end_in_the_middle_of_a_line_is_an_end(ends):
    near, far = ends
    far.sendall(b'{"n":')
    far.close()
    with pytest.raises(ConnectionResetError):
        near.receive(20.0)


def test_what_is_sent_is_one_line(ends):
    near, far = ends
    near.send({"verb": "status"})
    assert far.recv(100) == b'{"verb":"status"}\n'


def test_a_line_that_is_too_long_is_not_sent(ends):
    near, far = ends
    with pytest.raises(LineError, check=exceeds("message-too-long", 1 << 16)):
        near.send({"text": "x" * (1 << 16)})
    far.setblocking(False)
    with pytest.raises(BlockingIOError):
        far.recv(1)


@pytest.mark.parametrize("bad", [b"nothing of ours\n", b"[1]\n", b"x" * (1 << 17)])
def test_a_peer_that_speaks_something_else_is_refused(ends, bad):
    near, far = ends
    far.settimeout(20.0)
    far.sendall(bad)
    with pytest.raises(LineError):
        near.receive(20.0)


def test_the_room_loads_without_site_packages():
    root = Path(apples.__file__).parents[1]
    code = f"import sys; sys.path.append({str(root)!r}); import apples.io.connection"
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True, timeout=60)
