"""What a sensor process is told."""

import argparse
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nws.budget import Window


@dataclass(frozen=True, slots=True)
class Options:
    """See ``python -m nws.sensing --help``."""

    url: str | None
    token_file: Path | None
    stdout: bool
    certificate: Path | None
    host: str
    site: str
    every: float
    probe_every: float
    disk: Path
    listen: tuple[str, int] | None
    cpu_share: float
    bytes_per_day: float
    windows: tuple[Window, ...]
    rounds: int
    prometheus: str | None


def parse(arguments: Sequence[str]) -> Options:
    """Return the options; SystemExit(2) with a message if they are wrong."""
    parser = argparse.ArgumentParser(
        prog="nws sense", description="Measure this host and report to a service, until stopped."
    )
    add = parser.add_argument
    add("--service", dest="url", help="where the service answers")
    add("--token-file", type=Path, help="a file with the bearer token")
    add("--stdout", action="store_true", help="print the messages, a line each, and send none")
    add("--certificate", type=Path, help="authorities to trust besides the system's")
    add("--host", default=socket.gethostname().partition(".")[0], help="name of this host")
    add("--site", default="local", help="the site it is in")
    add("--every", type=_seconds, default=10.0, help="seconds between measurements")
    add("--probe-every", type=_seconds, default=60.0, help="seconds between CPU probes")
    add("--disk", type=Path, default=Path("/"), help="the file system to watch")
    add("--listen", type=_address, help="HOST:PORT for the probes of others; none: not probed")
    add("--cpu-share", type=float, default=0.005, help="CPU seconds a second for probes")
    add("--bytes-per-day", type=float, default=4e9, help="bytes a day for bandwidth probes")
    add("--window", type=_window, action="append", default=[], help="HH:MM-HH:MM, may be repeated")
    add("--rounds", type=int, default=0, help="stop after so many rounds; 0: never")
    add("--prometheus", help="read the hosts that this server watches instead of measuring")
    found = vars(parser.parse_args(arguments))
    if found["stdout"] == bool(found["url"]) or (found["url"] and not found["token_file"]):
        parser.error("either --stdout, or --service and --token-file")
    if found["stdout"] and found["listen"]:
        parser.error("--stdout takes no part in cliques: --listen needs a service")
    found["windows"] = tuple(found.pop("window"))
    return Options(**found)


def _seconds(text: str) -> float:
    value = float(text)
    if not 0.1 <= value <= 86400:
        raise ValueError(f"{text} is not 0.1 to 86400 seconds")
    return value


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


def _window(text: str) -> Window:
    return Window.parse(text)
