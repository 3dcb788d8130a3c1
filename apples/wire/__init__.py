"""How processes talk: JSON objects, one a line, over pipes and sockets. Standard library only.

`json_lines` is the framing: bytes cut into bounded lines, a line checked and decoded, an object encoded.
`connection` is one end of a stream socket that speaks it, for a caller without an event loop, and one turn of
such a loop. Programs that run without site packages import them, so nothing here may import more than the standard
library.
"""

from apples import lazy

__getattr__, __dir__, __all__ = lazy(__name__, __file__)
