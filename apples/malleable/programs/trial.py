"""A trial: a program that only sleeps is checkpointed and restarted, which says more than CRIU's own check."""

from __future__ import annotations

import os
import select
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from apples.malleable.job_file import Place
from apples.malleable.programs.keepers import KeeperPipe

TRIAL_SECONDS = 20.0
SLEEP = (sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)")


def tried() -> str:
    """Return why a process cannot be moved on this machine, empty if it can."""
    with tempfile.TemporaryDirectory(prefix="apples-") as folder:
        try:
            keeper = KeeperPipe(Place("here", 1, SLEEP, sys.executable, "", ""))
        except OSError as error:
            return str(error)
        try:
            return _moved(keeper, Path(folder))
        finally:
            keeper.close()


def _moved(keeper: KeeperPipe, folder: Path) -> str:
    seat: dict[str, Any] = {"cpus": [], "cgroup": ""}
    start = {
        "do": "start",
        "argv": list(SLEEP),
        "directory": "/",
        "environment": {},
        "output": os.devnull,
        "errors": os.devnull,
    }
    checkpoint = {"do": "checkpoint", "folder": str(folder / "checkpoint")}
    begun = _asked(keeper, {**start, **seat})
    if begun["said"] != "started":
        return _why(begun)
    written = _asked(keeper, {**checkpoint, "signal": 0, "signal_seconds": 0.0})
    if written["said"] != "written":
        return _why(written)
    known = {name: written[name] for name in ("pid", "stopped")}
    again = _asked(keeper, {"do": "restart", "folder": checkpoint["folder"], **known, **seat})
    return "" if again["said"] == "restarted" else _why(again)


def _asked(keeper: KeeperPipe, command: dict[str, Any]) -> dict[str, Any]:
    keeper.tell(command)
    until = time.monotonic() + TRIAL_SECONDS
    while (left := until - time.monotonic()) > 0:
        select.select([keeper.file], [], [], left)
        answers = keeper.read()
        if answers is None:
            return {"said": "gone", "reasons": ["the keeper ended"]}
        for answer in answers:
            if answer.get("to") == command["do"]:
                return answer
    return {"said": "late", "reasons": [f"no answer in {TRIAL_SECONDS:g} s"]}


def _why(answer: dict[str, Any]) -> str:
    return "; ".join(map(str, answer["reasons"]))
