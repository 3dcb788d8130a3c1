"""Counts the way of a plan or of a resize through the code: functions and modules of ours that a command runs.

    python benchmarks/house_paths.py [plan | resize] [--json] [--names] [--repository FOLDER]
`plan`: `apples plan --weather static` for two hosts; bars: 180 functions, 35 modules, exit code 1 if a bar is
exceeded. `resize`: a job of the sample is submitted, and resized by the command under a profile. The functions
before the command is sent to the job count as its way to the send; the side of the job does not count.

A function counts once, even if it runs often. Functions that only run while a module is imported do not count,
nor do comprehensions, lambdas and the methods that `dataclasses` makes, which are parts of a function or of a
class. A module counts if at least one of its functions runs; `modules_loaded` counts all imported modules.
where at least one of its functions runs; `modules_loaded` counts all that were imported.
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
    if code.co_name.startswith("<") or code.co_filename == "<string>":
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
figures = {
    "exit_code": code,
    "functions": len(ran),
    "modules": len({module for module, _ in ran}),
    "modules_loaded": len([m for m in sys.modules if m.split(".")[0] in OURS]),
    "names": [f"{module}: {name}" for module, name in ran],
}
if sent:
    before = {module for (module, _), place in ran.items() if place < sent[0]}
    figures |= {"functions_to_the_send": sent[0], "modules_to_the_send": len(before)}
    figures["to_the_send"] = sorted(before)
print(json.dumps(figures))
"""
FILES = ("--hosts", "hosts.toml", "--template", "template.toml", "--user", "user.toml")
LONG = ("--weather", "static", "--no-verify", "--set", "grid=400", "--set", "iterations=2000000")


BARS = {"functions": 180, "modules": 35}
"""Limits of a plan."""
TWO_HOSTS = """
[[host]]
name = "ada"
seconds_per_point = 9.0e-9
cpu = 0.97
free_memory = "4 GB"

[[host]]
name = "bob"
seconds_per_point = 9.0e-9
cpu = 0.61
free_memory = "2 GB"

[[link]]
between = ["local", "local"]
latency = 2.0e-4
bandwidth = 110e6
"""


def counted(words: list[str], repository: Path, environment: dict[str, str]) -> dict[str, object]:
    """Return the functions and modules that one command line runs, counted in a separate process."""
    done = subprocess.run(
        [sys.executable, "-c", COUNTED, *words], cwd=repository / "examples" / "jacobi2d",
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return dict(json.loads(done.stdout.splitlines()[-1]))


def plan_figures(repository: Path) -> dict[str, object]:
    """Return the figures of one static plan of the sample for two hosts."""
    with tempfile.TemporaryDirectory(prefix="house-") as folder:
        hosts = Path(folder) / "hosts.toml"
        hosts.write_text(TWO_HOSTS, encoding="utf-8")
        environment = {**os.environ, "PYTHONPATH": str(repository), "XDG_STATE_HOME": folder}
        words = ["plan", "--weather", "static", "--hosts", str(hosts), *FILES[2:]]
        return counted(words, repository, environment)


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
            return counted(["resize", job, "--on", "ada,bob=0.5"], repository, environment)
        finally:
            apples("cancel", job)


def main() -> int:
    """Print the figures; return 1 where a plan misses a bar."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("way", nargs="?", choices=("plan", "resize"), default="resize")
    parser.add_argument("--repository", type=Path, default=Path(__file__).resolve().parents[1])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--names", action="store_true", help="every function that was run")
    given = parser.parse_args()
    figures_of = plan_figures if given.way == "plan" else resize_figures
    figures = figures_of(given.repository.resolve())
    names = figures.pop("names")
    missed = [name for name, bar in BARS.items() if figures[name] > bar]
    if given.json:
        print(json.dumps({**figures, "names": names} if given.names else figures, indent=2))
    else:
        for name, figure in figures.items():
            bar = f"  bar {BARS[name]}" if given.way == "plan" and name in BARS else ""
            print(f"{name}: {figure}{bar}")
        print("\n".join(names) if given.names else "")
    return int(given.way == "plan" and bool(missed))


if __name__ == "__main__":
    sys.exit(main())
