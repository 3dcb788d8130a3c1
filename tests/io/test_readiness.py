"""A turn of a loop calls whoever can read, once, and nobody whom another call has closed meanwhile."""

import selectors
import socket

import pytest

from apples.io import call_ready


@pytest.fixture
def ends():
    """Three sockets from which something can be read; the other ends; and a selector."""
    pairs = [socket.socketpair() for _ in range(3)]
    for _, other in pairs:
        other.send(b"1")
    with selectors.DefaultSelector() as selector:
        yield selector, [one for one, _ in pairs]
    for pair in pairs:
        for one in pair:
            one.close()


def test_everybody_who_can_read_is_called_and_nobody_else(ends):
    selector, sockets = ends
    called = []
    sockets[2].recv(1)
    for number, one in enumerate(sockets):
        selector.register(one, selectors.EVENT_READ, lambda number=number: called.append(number))
    call_ready(selector, 60.0)
    assert sorted(called) == [0, 1]


def test_whom_another_call_has_closed_is_not_called(ends):
    """As when the loss of one host ends the processes on another, whose last words are there too."""
    selector, sockets = ends
    called = []

    def close_others(own):
        called.append(own.recv(1))
        for one in sockets:
            if one is not own:
                selector.unregister(one)
                one.close()

    for one in sockets:
        selector.register(one, selectors.EVENT_READ, lambda one=one: close_others(one))
    call_ready(selector, 60.0)
    assert called == [b"1"]


def test_what_is_registered_anew_under_the_number_of_another_is_not_taken_for_it(ends):
    selector, sockets = ends
    called = []

    def replace(own):
        called.append(own.recv(1))
        for one in sockets:
            if one is not own:
                selector.unregister(one)
                selector.register(one, selectors.EVENT_READ, lambda: called.append("anew"))

    for one in sockets:
        selector.register(one, selectors.EVENT_READ, lambda one=one: replace(one))
    call_ready(selector, 60.0)
    assert called == [b"1"]
    call_ready(selector, 60.0)
    assert called == [b"1", "anew", "anew"]
