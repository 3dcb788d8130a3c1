"""The prober's side of a connection to an endpoint."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from nws.sensor import SensorError
from nws.tcp.channel import Channel
from nws.tcp.greeting import Answer, StrangerError, greet


@contextmanager
def probing(address: tuple[str, int], secret: str, verb: str, seconds: float) -> Iterator[Channel]:
    """Connect to the endpoint at `address`, greet it, and give the channel to the body.

    Raises
    ------
    SensorError
        Permanent: endpoint and prober do not know the same secret. Transient: nobody answers,
        the connection breaks, another prober is being served, or all this together with the body
        was not done after `seconds`.
    """
    place = f"the endpoint at {address[0]}:{address[1]}"
    try:
        with socket.create_connection(address, timeout=seconds) as connection:
            channel = Channel(connection, seconds)
            if greet(channel, secret, verb) is Answer.BUSY:
                raise SensorError(f"{place} serves another prober", transient=True)
            yield channel
    except StrangerError as error:
        raise SensorError(f"{place} is a stranger: {error}", transient=False) from error
    except TimeoutError as error:
        raise SensorError(f"{place} was not done in {seconds} s", transient=True) from error
    except OSError as error:
        raise SensorError(f"{place} cannot be probed: {error}", transient=True) from error
