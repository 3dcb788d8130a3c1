"""The far end of a link, and how a prober gets to talk to it.

1. `Channel`: a connection on which all waiting together has one deadline.
2. `greeting`: both sides prove that they know the same secret, without sending it.
3. `Endpoint`: echoes small messages and swallows large ones, within bounds, for those who know.
4. `probing`: the prober's side, as a context manager that fails with a `SensorError`.

An endpoint must not be an open traffic generator: it listens on loopback unless told otherwise,
does nothing before the greeting, never sends more than it received, and every connection has a
limit of bytes and of seconds.
"""

from nws.tcp.channel import Channel
from nws.tcp.endpoint import Endpoint
from nws.tcp.greeting import ECHO, SINK, TELL
from nws.tcp.prober import probing

__all__ = ["ECHO", "SINK", "TELL", "Channel", "Endpoint", "probing"]
