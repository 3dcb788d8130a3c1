"""The agent's connections to its host agents: read reports, return lines by source, send orders."""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from apples.io.json_lines import LineError, encode
from apples.launch import ssh
from apples.launch.hostd import HostReports, output_lines
from apples.launch.hydra import LaunchCommand
from apples.launch.remote import bootstrap
from apples.launch.remote.connection import HostConnection

SERVE = "apples.launch.host_agent:serve"
"""The host agent on another machine."""
MAX_RANK = 10**9
RANK_END = re.compile(r"|exit code [0-9]{1,3}|killed by [ -~]{1,200}")
"""The end of a rank in a report (`apples.launch.rank_ends`); empty if unknown."""

SourcedLine = tuple[str, bytes]


@dataclass
class HostChannel:
    r"""The reports of the host agent on one host, as lines by source.

    Parameters
    ----------
    host
        Name of the host; empty: this machine, which runs the launcher.

    Attributes
    ----------
    cleared
        Whether the host agent reported that its host has no process of the run any more.
    ended
        Whether the connection was closed.
    broken
        Why further reports are ignored; empty: they are read.

    Examples
    --------
    >>> channel = HostChannel("ada")
    >>> channel.feed(b'Welcome!\napples.host/1\n{"report":"output","lines":["hi"]}\n{"report":"rank","rank":2}\n')
    [('output', b'hi'), ('report', b'rank 2')]
    >>> channel.feed(b'{"report":"clear"}\n'), channel.cleared
    ([], True)
    """

    host: str = ""
    cleared: bool = False
    ended: bool = False
    broken: str = ""
    _reports: HostReports = field(default_factory=HostReports)

    @property
    def heard(self) -> bool:
        """Whether the host agent has started; then it must also report the end of its cleanup."""
        return self._reports.heard

    def feed(self, data: bytes) -> list[SourcedLine]:
        """Return the lines of the reports that `data` completes; invalid data sets `broken`."""
        lines: list[SourcedLine] = []
        if self.broken:
            return lines
        try:
            for report in self._reports.feed(data):
                lines += self._lines_of(report)
        except LineError as error:
            self.broken = f"it sent an invalid host agent report: {error}"
        return lines

    def _lines_of(self, report: dict[str, Any]) -> Iterator[SourcedLine]:
        kind = report["report"]
        if kind == "output":
            yield from (("output", line) for line in output_lines(report))
        elif kind == "error":
            source = f"error-{_rank_of(report)}" if "rank" in report else "error"
            yield from ((source, line) for line in output_lines(report))
        elif kind == "rank":
            what = report.get("what", "")
            if isinstance(what, str) and RANK_END.fullmatch(
                what
            ):  # a program may write to the pipe
                yield "report", f"rank {_rank_of(report)} {what}".rstrip().encode()
        elif kind == "messages":
            try:
                yield (
                    "messages",
                    binascii.a2b_base64(str(report.get("data", "?")), strict_mode=True),
                )
            except ValueError:
                raise LineError("a report of no counts") from None
        elif kind == "exit" and not self.host:
            yield "report", f"exit {report['code']}".encode()
        elif kind == "clear":
            self.cleared = True


def _rank_of(report: dict[str, Any]) -> int:
    rank = report.get("rank")
    if type(rank) is not int or not 0 <= rank < MAX_RANK:
        raise LineError("a report of no rank")
    return rank


class RemoteHosts:
    """The host agents of one run on other machines, each behind an open connection.

    Parameters
    ----------
    command
        The command of the run (`apples.launch.ssh.command`).
    connections
        A connection to each host, in the order of `apples.launch.ssh.remote_hosts`; each waits for a program.
    """

    def __init__(self, command: LaunchCommand, connections: Sequence[HostConnection]) -> None:
        self.connections = connections
        self.channels = [HostChannel(connection.host) for connection in connections]
        program = bootstrap.Program(SERVE)
        for connection, config in zip(connections, ssh.host_orders(command), strict=True):
            connection.write(program.parcel(config))

    def order(self, number: int, order: str, **fields: object) -> None:
        """Send an order to one host agent. If it is gone, `HostChannel` notices the end of its reports."""
        self.connections[number].write(encode({"order": order, **fields}))

    def order_all(self, order: str) -> None:
        """Send an order to every host agent."""
        for number in range(len(self.connections)):
            self.order(number, order)

    @property
    def over(self) -> bool:
        """Whether every host agent finished its cleanup or is gone."""
        return all(channel.cleared or channel.ended for channel in self.channels)

    def uncertain(self) -> list[str]:
        """Return the hosts with a host agent that started and did not report its cleanup; each host only once."""
        uncertain = [channel for channel in self.channels if channel.heard and not channel.cleared]
        for channel in uncertain:
            channel.cleared = True
        return [channel.host for channel in uncertain]
