"""Reads what `probe` printed on another machine: hostile until it was checked."""

from __future__ import annotations

import base64
import json
import re
import tempfile
import zlib
from pathlib import Path

from apples.errors import LaunchError, UsageError
from apples.topology.cpus import CpuSet
from apples.topology.machine import Topology
from apples.topology.probe import SCHEMA
from apples.topology.restricting import restricted
from apples.topology.sysfs import read_sysfs

MOST_BYTES = 32 * 2**20
MOST_FILE = 2**16
_NAME = re.compile(
    r"(cpu|node)/(online|present|(cpu|node)\d{1,5}/((topology|cache/index\d{1,2})/)?[a-z_]{1,40})"
)


def read_packed(word: str, host: str) -> Topology:
    """Return a host's topology from what `probe.packed` gave there.

    Raises
    ------
    LaunchError
        As of `read_probe`.
    """
    try:
        text = zlib.decompressobj().decompress(
            base64.b64decode(word, validate=True), MOST_BYTES + 1
        )
    except (ValueError, zlib.error) as error:
        raise LaunchError(f"{host}: no answer of the topology probe: {error}") from error
    return read_probe(text, host)


def read_probe(text: str | bytes, host: str) -> Topology:
    """Return a host's topology from what the probe printed there, with what it may use alone.

    Raises
    ------
    LaunchError
        It is no answer of the probe's; names the host.
    """
    if len(text) > MOST_BYTES:
        raise LaunchError(f"{host}: its topology takes {len(text)} bytes, at most {MOST_BYTES}")
    try:
        document = json.loads(text)
        schema = document["schema"]
        cpus, memory = CpuSet.of(document["cpus"]), CpuSet.parse(document["memory"])
        files = {str(name): str(held) for name, held in document["files"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, UsageError) as error:
        raise LaunchError(f"{host}: no answer of the topology probe: {error}") from error
    if schema != SCHEMA:
        raise LaunchError(f"{host}: the topology probe answers {SCHEMA}, not '{str(schema)[:30]}'")
    wrong = [
        name for name, held in files.items() if not _NAME.fullmatch(name) or len(held) > MOST_FILE
    ]
    if wrong:
        raise LaunchError(f"{host}: the topology probe does not send '{wrong[0][:60]}'")
    with tempfile.TemporaryDirectory(prefix="apples-topology-") as folder:
        for name, held in files.items():
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(held, encoding="utf-8")
        topology = read_sysfs(Path(folder))
    return restricted(topology, cpus, memory or None)
