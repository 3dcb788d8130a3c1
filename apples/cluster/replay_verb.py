"""``apples queue --replay``: replay the log of a scheduler on this machine."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from apples.cluster.documents import ReplayDocument
from apples.cluster.host_preference import HostPreference
from apples.cluster.inputs import BEGUN
from apples.cluster.log import JOURNAL
from apples.cluster.replay import replayed
from apples.errors import UsageError, unusable
from apples.io.folder import Folder
from apples.io.journal import parse
from apples.resources import HostList, read_host_list
from apples.scheduling.loading import is_of_user, load_policy
from apples.scheduling.passes import name_of
from apples.weather.load.nodes import known_nodes

MAX_LIST_BYTES: Final = 1 << 18
"""A longer host list is not recorded, and its scheduler's log cannot be replayed."""


def replay_settings(policy: str, options: Mapping[str, str], hosts: Path) -> dict[str, Any]:
    """Return the settings that a scheduler's log needs for a replay; empty: it cannot be replayed.

    A user's own policy answers between two passes, and the log does not have the time of the answer.
    """
    text = hosts.read_text()
    if len(text) > MAX_LIST_BYTES or is_of_user(policy):
        return {}
    return {"policy": policy, "options": dict(options), "hosts": text}


def replay_document(directory: Path) -> ReplayDocument:
    """Return the replay of a scheduler's log since the scheduler's last start.

    Raises
    ------
    UsageError
        The log cannot be replayed. Permanent.
    LaunchError
        The log cannot be read.
    """
    try:
        with Folder.open(directory, links=True) as folder:
            records, _, _ = parse(folder.read(JOURNAL))
    except OSError as error:
        raise unusable(str(directory), error) from None
    begun = next((record for record in reversed(records) if record.get("do") == BEGUN), {})
    settings = begun.get("with")
    if not settings:
        raise UsageError(
            f"{directory}: this log cannot be replayed: its scheduler was started with --slurm, with a policy "
            "of its user's own or by an older version, or the log was rewritten since",
            code="log-not-replayable", file=directory,
        )  # fmt: skip
    policy = load_policy(str(settings["policy"]), settings["options"])
    hosts = _host_list(str(settings["hosts"]))
    found = replayed(records, policy, HostPreference.of(hosts), known_nodes(hosts))
    parting, name, wall = found.parting, str(begun["name"]), found.wall
    return {
        "schema": "apples.replay/1",
        "name": name,
        "policy": name_of(policy),
        "since": wall + found.since,
        "decisions": [
            {
                "time": wall + each.record["at"],
                "decision": each.record["do"],
                "job": f"{name}.{each.record['job']}",
                "hosts": list(each.record["is"].get("wanted") or each.record["is"].get("hosts", ())),
                "reason": each.reason,
                "runner_up": each.runner_up,
            }
            for each in found.explained
        ],
        "logged": found.decisions,
        "reproduced": found.alike,
        "difference": "" if parting is None else f"the log has {parting[0]}, the replay {parting[1]}"[:1000],
    }  # fmt: skip


def _host_list(text: str) -> HostList:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "hosts.toml"
        file.write_text(text)
        return read_host_list(file)
