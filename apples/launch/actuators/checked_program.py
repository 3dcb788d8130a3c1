"""A program of the application protocol without MPI, which actuators are checked with. Standard library only.

Every rank writes down who it is; rank 0 says ``ready`` when all have. The parameter ``how`` says what then
happens: ``finishes``, ``waits`` for its end, ``refuses`` its task, or ``dies`` before it is ready.
"""

import json
import os
import sys
import time
from pathlib import Path

RANK_VARIABLES = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")
MAX_SECONDS = 60.0
"""A rank that waits for others, or for its end, ends by itself after so long."""


def main() -> int:
    """Be one rank."""
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
    """Write one event."""
    os.write(1, (json.dumps({"event": event, **fields}) + "\n").encode())


def this_process() -> dict[str, object]:
    """Return what tells this process from all others there ever are on any machine."""
    return {"pid": os.getpid(), "began": began(os.getpid()), "machine": machine()}


def began(pid: int) -> str:
    """Return when a process began, in ticks of its machine; empty when it is gone or dead."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def machine() -> str:
    """Return what is the same for all processes of one machine until it starts again."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def write(folder: Path, name: str, document: dict[str, object]) -> None:
    """Write a file of the folder at once."""
    part = folder / f".{name}.{os.getpid()}"
    part.write_text(json.dumps(document), encoding="utf-8")
    part.rename(folder / name)


def wait_for(folder: Path, pattern: str, count: int) -> None:
    """Wait until so many files are there, at most `MAX_SECONDS`."""
    deadline = time.monotonic() + MAX_SECONDS
    while len(list(folder.glob(pattern))) < count and time.monotonic() < deadline:
        time.sleep(0.01)


if __name__ == "__main__":
    sys.exit(main())
