"""Counts the way of a resize through the code: functions and modules that `apples resize` runs, here.

    python benchmarks/house_paths.py [--json] [--repository FOLDER]

A job of the sample is submitted, and resized by the command under a profile; what runs before the command is
sent to the job counts as its way to the send. What importing a module runs is not counted, nor is the side of the
job.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

COUNTED = """
import contextlib, io, json, sys
OURS = ("apples", "nws", "hat", "blueprints")
ran, sent, importing = {}, [], 0
def watch(frame, event, argument):
    global importing
    code = frame.f_code
    if code.co_name == "<module>" and event in ("call", "return"):
        importing += 1 if event == "call" else -1
    module = frame.f_globals.get("__name__", "")
    is_function = code.co_flags & 1  # a class body is run like a function, and is none
    if event != "call" or importing or not is_function or module.split(".")[0] not in OURS:
        return
    if code.co_name == "resize" and module.startswith("apples.malleable.") and not sent:
        sent.append(len(ran))
    ran.setdefault((module, code.co_qualname), len(ran))
from apples.__main__ import main
sys.argv = ["apples", *sys.argv[1:]]
code = 0
sys.setprofile(watch)
with contextlib.redirect_stdout(io.StringIO()):
    try:
        main()
    except SystemExit as stop:
        code = stop.code
sys.setprofile(None)
before = [name for name, place in ran.items() if place < sent[0]]
print(json.dumps({
    "exit_code": code,
    "functions": len(ran),
    "functions_to_the_send": len(before),
    "modules": len({module for module, _ in ran}),
    "modules_to_the_send": len({module for module, _ in before}),
    "modules_loaded": len([m for m in sys.modules if m.split(".")[0] in OURS]),
    "to_the_send": sorted({module for module, _ in before}),
}))
"""
FILES = ("--hosts", "hosts.toml", "--template", "template.toml", "--user", "user.toml")
LONG = ("--weather", "static", "--no-verify", "--set", "grid=400", "--set", "iterations=2000000")


def counted(words: list[str], repository: Path, environment: dict[str, str]) -> dict[str, object]:
    """Return what one command line runs, counted in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", COUNTED, *words], cwd=repository / "examples" / "jacobi2d",
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return dict(json.loads(done.stdout.splitlines()[-1]))


def resize_figures(repository: Path) -> dict[str, object]:
    """Return the figures of one resize of the sample, static weather, this machine."""
    with tempfile.TemporaryDirectory(prefix="house-") as state:
        environment = {**os.environ, "PYTHONPATH": str(repository), "XDG_STATE_HOME": state}

        def apples(*words: str) -> str:
            return subprocess.run(
                [sys.executable, "-m", "apples", *words], cwd=repository / "examples" / "jacobi2d",
                env=environment, capture_output=True, text=True, check=True,
            ).stdout  # fmt: skip

        job = json.loads(apples("run", "--detach", "--json", *FILES, *LONG))["id"]
        try:
            return counted(["resize", job, "--hosts", "ada,bob=0.5"], repository, environment)
        finally:
            apples("cancel", job)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--repository", type=Path, default=Path(__file__).resolve().parents[1])
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    figures = resize_figures(given.repository.resolve())
    if given.json:
        print(json.dumps(figures, indent=2))
        return
    for name, figure in figures.items():
        print(f"{name}: {figure}")


if __name__ == "__main__":
    main()
