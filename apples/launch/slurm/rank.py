"""Becomes one rank of a job: with its host's program, in its directory, writing where the agent reads.

Started by srun in the run's folder as ``python -I -S rank.py LAUNCH_FILE``; standard library only, and
copied into that folder, so that the hosts need nothing but an interpreter.
"""

import json
import os
import signal
import sys
from typing import Any

OUTPUT = "output"
"""What the first rank says: the events of the run."""
PLACES = "places.json"
"""The CPUs of each rank, where they were decided."""
CANNOT_START = 127


def main() -> None:
    """Prepare this process and become the program."""
    folder = os.getcwd()  # noqa: PTH109 - pathlib is slow to load
    with open(sys.argv[1], encoding="utf-8") as stream:  # noqa: PTH123
        hosts = json.load(stream)["hosts"]
    rank = int(os.environ["SLURM_PROCID"])
    entry = target(hosts, rank)
    try:
        if rank == 0:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            os.dup2(os.open(OUTPUT, flags, 0o600), 1)
        _place(rank)
        os.environ.update(entry["environment"])
        os.environ["APPLES_TASK"] = os.path.join(folder, "task.json")  # noqa: PTH118
        os.chdir(entry["directory"])
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.execvp(entry["program"][0], entry["program"])  # noqa: S606 - an argument list, no shell
    except OSError as error:
        what = error.filename or entry["program"][0]
        sys.stderr.write(f"apples: cannot start on {entry['host']}: {what}: {error.strerror}\n")
        sys.stderr.flush()
        os._exit(CANNOT_START)


def _place(rank: int) -> None:
    """Go to the CPUs that were decided for this rank, among those its task was given."""
    try:
        with open(PLACES, encoding="ascii") as stream:  # noqa: PTH123
            places = json.load(stream)
    except FileNotFoundError:
        return  # it was said why
    if not places:
        return
    if set(places[rank]) <= os.sched_getaffinity(0):
        os.sched_setaffinity(0, places[rank])
    else:
        sys.stderr.write(f"apples: note: rank {rank} is not bound: Slurm gave it other CPUs now\n")


def target(hosts: list[dict[str, Any]], rank: int) -> dict[str, Any]:
    """Return the entry of the host that has this rank."""
    for entry in hosts:
        if rank < entry["ranks"]:
            return entry
        rank -= entry["ranks"]
    raise SystemExit(f"apples: Slurm started rank {rank} too many")


if __name__ == "__main__":
    main()
