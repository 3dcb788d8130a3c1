"""A program of the protocol without MPI that says digests of its rows, and may be wrong in some of them.

Its parameters: `fault` is ``partition`` (the first row of the second rank is wrong from the second iteration on),
``late`` (likewise, but only after 1000 iterations), ``alone`` (it refuses to run as one process), ``several`` (it
refuses to run as more) or ``uncalibrated`` (it does not calibrate); `each` is what it claims an iteration takes.
It calibrates at 5 ns a point.
"""

import hashlib
import json
import os
import sys
import time
from pathlib import Path

HOSTS = "".join(f'[[host]]\nname = "{n}"\nseconds_per_point = 1e-9\n' for n in ("ada", "bob"))


def template(fault="", each=0.0, iterations=10, structure=""):
    return (
        f'name = "rowed"\nprogram = ["{{python}}", "-S", "{__file__}"]\n{structure}'
        f"[parameters.grid]\ndefault = 30\n[parameters.iterations]\ndefault = {iterations}\n"
        f'[parameters.fault]\ndefault = "{fault}"\n[parameters.each]\ndefault = {each}\n'
    )


def say(event, **fields):
    os.write(1, (json.dumps({"event": event, **fields}) + "\n").encode())


def row(number, iterations, wrong):
    return hashlib.sha256(f"{number} {iterations} {wrong}".encode()).hexdigest()[:8]


def main():
    task = json.loads(Path(os.environ["APPLES_TASK"]).read_text())
    parameters = task["parameters"]
    if task["mode"] == "calibrate" and parameters["fault"] != "uncalibrated":
        say("ready", protocol=1, program="rowed", version="1", ranks=1)
        for rows in task["sizes"]:
            say("calibration", rows=rows, seconds_per_point=5e-9, error=0.0, repeats=1)
        say("done")
        return
    partition = task["partition"]
    iterations, fault = int(parameters["iterations"]), parameters["fault"]
    if fault == "alone" and len(partition) == 1:
        say("error", message="one process is not enough", rank=0)
        sys.exit(1)
    if fault == "several" and len(partition) > 1:
        say("error", message="it is not parallel", rank=0)
        sys.exit(1)
    say("ready", protocol=1, program="rowed", version="1", ranks=len(partition))
    if parameters["each"]:
        say("progress", iteration=1, iterations=iterations, seconds=parameters["each"], hosts=[])
    after = {"partition": 1, "late": 1000}.get(fault, iterations)
    whole = hashlib.sha256()
    for rank, piece in enumerate(partition):
        first = piece["first_row"]
        digests = [
            row(one, iterations, rank == 1 and one == first and iterations > after)
            for one in range(first, first + piece["rows"])
        ]
        whole.update("".join(digests).encode())
        say("rows", first_row=first, host=piece["host"], rank=rank, digests="".join(digests))
    hosts = [
        {"host": piece["host"], "compute_seconds": 0.1, "communicate_seconds": 0.0}
        for piece in partition
    ]
    say(
        *("result",),
        iterations=iterations,
        seconds=0.2,
        startup_seconds=0.01,
        sha256=whole.hexdigest(),
        hosts=hosts,
    )
    say("done")


if __name__ == "__main__":
    over = Path(os.environ["APPLES_TASK"] + ".over")
    if os.environ["PMI_RANK"] == "0":
        main()
        over.touch()
    else:
        deadline = time.monotonic() + 60.0
        while not over.exists():  # as a rank of MPI waits for the others
            if time.monotonic() > deadline:
                sys.exit("rank 0 did not end in 60 s")
            time.sleep(0.01)
