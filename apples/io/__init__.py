"""Input and output: files that survive a crash, JSON lines between processes, and users' code.

Files: `documents` (a file that is replaced whole, and its lock), `journal` (lines with checksums, durable when
they are acknowledged), `folder` (a directory used by descriptor only), `state` (the JSON documents of the state
directory), `identity` (the identity of a state directory), `record_folders` (the folders of this user's records),
`naming` (the path in errors of a full disk). Processes: `json_lines` (bytes cut into lines of bounded length, a
line checked and decoded, an object encoded), `connection` (one end of a stream socket), `tls` and
`credentials` (which peer is at the other end), `sockets` (UNIX sockets in folders with long paths).
`plugins` loads users' code.

Programs that run without site packages import `json_lines` and `connection`: these need the standard library
only.
"""

from apples import lazy

__getattr__, __dir__, __all__ = lazy(__name__, __file__)
