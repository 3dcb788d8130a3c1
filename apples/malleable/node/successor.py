"""A new connection to a supervisor that outlived the one before: ``python -I -m apples.malleable.node.successor``.

It starts at the end of a new login, is told in one line where the supervisor waits, and hands its own standard
streams over to it. A login ends with what it started; so it stays until the supervisor has done with them.
"""

from __future__ import annotations

import json
import os
import socket
import sys

from apples.io.credentials import peer_credentials
from apples.io.json_lines import LineBuffer, decode, encode
from apples.malleable.node.supervisor import HELLO, LINE_LIMIT


def main() -> int:
    """Hand the login over; return 1 where nobody takes it."""
    os.write(1, HELLO)
    lines, buffer = list[bytes](), LineBuffer(LINE_LIMIT)
    while not lines:
        data = os.read(0, LINE_LIMIT)
        if not data:
            return 1
        lines = buffer.feed(data)
    told = decode(lines[0], LINE_LIMIT)
    told["login"] = os.environ.get("SSH_CONNECTION", "")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as channel:
        try:
            channel.connect(told.pop("path"))
        except (FileNotFoundError, ConnectionRefusedError):
            os.write(1, encode({"report": "nobody"}))
            return 1
        # Another user's folder may have the name of one that is gone.
        if peer_credentials(channel)[1] != os.getuid():
            os.write(1, encode({"report": "nobody"}))
            return 1
        socket.send_fds(channel, [json.dumps(told).encode()], [0, 1, 2])
        for number in (0, 1):  # so that the login ends when the supervisor does
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
        channel.recv(1)  # its end
    return 0


if __name__ == "__main__":
    sys.exit(main())
