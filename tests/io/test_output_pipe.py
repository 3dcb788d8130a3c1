"""A loop that writes to a pipe which nobody reads goes on, and the reader gets all of it later."""

import os
import selectors
import socket

import pytest

from apples.io import OutputPipe

LINES = b"".join(b"%d\n" % number for number in range(200_000))


@pytest.fixture
def pipe():
    reading, writing = os.pipe()
    yield reading, writing
    for end in (reading, writing):
        try:
            os.close(end)
        except OSError:
            continue


def test_full_pipe_holds_up_no_writer_and_loses_nothing(pipe):
    reading, writing = pipe
    with selectors.DefaultSelector() as selector:
        output = OutputPipe(writing, selector)
        output.write(LINES)
        assert output.waiting > 0
        assert os.get_blocking(writing)
        received = b""
        while len(received) < len(LINES):
            received += os.read(reading, 1 << 16)
            for key, _ in selector.select(0):
                key.data()
        assert (received, output.waiting) == (LINES, 0)
        assert not selector.get_map()
        output.close()


def test_output_that_has_no_reader_any_more_is_dropped(pipe):
    reading, writing = pipe
    with selectors.DefaultSelector() as selector:
        output = OutputPipe(writing, selector)
        output.write(LINES)
        os.close(reading)
        for key, _ in selector.select():
            key.data()
        assert output.waiting == 0
        output.close()


def test_socket_is_refused():
    one, other = socket.socketpair()
    with one, other, selectors.DefaultSelector() as selector, pytest.raises(OSError, match="fd"):
        OutputPipe(one.fileno(), selector)
