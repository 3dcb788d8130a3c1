"""A test program for actuators: it follows the application protocol without MPI. Standard library only.

Every rank writes its process id and task to a file; rank 0 sends ``ready`` when all files exist. The parameter
``how`` selects the rest: the program ``finishes``, ``waits`` until it is ended, ``refuses`` its task, or ``dies``
before it is ready.
"""

import json
import os
import sys
import time
from pathlib import Path

RANK_VARIABLES = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")
MAX_SECONDS = 60.0
"""Time limit of each wait; after it the rank ends by itself."""


def main() -> int:
    """Run one rank; return its exit code."""
    rank = int(next((os.environ[name] for name in RANK_VARIABLES if name in os.environ), "0"))
    task = json.loads(Path(os.environ["APPLES_TASK"]).read_text(encoding="utf-8"))
    parameters, strips = task["parameters"], task["partition"]
    ranks = sum(strip["ranks"] for strip in strips)
    folder = Path(parameters["record"])
    write(folder, f"rank-{rank}.json", {**this_process(), "rank": rank, "task": task})
    if parameters["how"] == "dies":
        return 1
    if parameters["how"] == "refuses":
        say("error", message="this program refuses every task", rank=rank)
        return 1
    if rank:
        wait_for(folder, "done" if parameters["how"] == "finishes" else "never", 1)
        return 0
    wait_for(folder, "rank-*.json", ranks)
    say("ready", protocol=1, program="checked", version="1", ranks=ranks)
    if parameters["how"] == "waits":
        wait_for(folder, "never", 1)
    times = [
        {"host": s["host"], "compute_seconds": 0.1, "communicate_seconds": 0.0} for s in strips
    ]
    for iteration in (1, 2):
        say("progress", iteration=iteration, iterations=2, seconds=0.1 * iteration, hosts=times)
    said = {
        "iterations": 2,
        "seconds": 0.2,
        "startup_seconds": 0.1,
        "sha256": "0" * 64,
        "files": [],
    }
    say("result", **said, hosts=times)
    say("done")
    write(folder, "done", {})
    return 0


def say(event: str, **fields: object) -> None:
    """Write one event to standard output."""
    os.write(1, (json.dumps({"event": event, **fields}) + "\n").encode())


def this_process() -> dict[str, object]:
    """Return an identity of this process that no other process on any machine ever has."""
    return {"pid": os.getpid(), "began": began(os.getpid()), "machine": machine()}


def began(pid: int) -> str:
    """Return the start time of a process in clock ticks of its machine; empty if it ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def machine() -> str:
    """Return the boot id, which all processes of a machine share until it restarts."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def write(folder: Path, name: str, document: dict[str, object]) -> None:
    """Write a JSON file in the folder atomically."""
    part = folder / f".{name}.{os.getpid()}"
    part.write_text(json.dumps(document), encoding="utf-8")
    part.rename(folder / name)


def wait_for(folder: Path, pattern: str, count: int) -> None:
    """Wait until `count` files match the pattern, at most `MAX_SECONDS`."""
    deadline = time.monotonic() + MAX_SECONDS
    while len(list(folder.glob(pattern))) < count and time.monotonic() < deadline:
        time.sleep(0.01)


if __name__ == "__main__":
    sys.exit(main())
