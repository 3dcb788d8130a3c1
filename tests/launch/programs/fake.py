"""A program of the protocol without MPI, so that it starts at once; `how` says in what way it fails."""

import json
import os
import signal
import sys
import time
from pathlib import Path

RANK = int(os.environ["PMI_RANK"])
TASK = json.loads(Path(os.environ["APPLES_TASK"]).read_text())
PARAMETERS = TASK["parameters"]
HOW = PARAMETERS.get("how", "")


def say(event, **fields):
    os.write(1, (json.dumps({"event": event, **fields}) + "\n").encode())


def wait():
    time.sleep(600)  # until it is ended: the tests that come here end it


def record():
    """Write down what this rank was started with."""
    path = Path(PARAMETERS["record"]) / f"{RANK}.json"
    facts = {
        "arguments": sys.argv[1:],
        "cpus": sorted(os.sched_getaffinity(0)),
        "directory": str(Path.cwd()),
        "cgroups": Path("/proc/self/cgroup").read_text(),
        "environment": dict(os.environ),
        "task": TASK,
        "node": os.uname().nodename,
    }
    path.write_text(json.dumps(facts))


def before_ready():
    if HOW == "refuses":
        say("error", message="no parameter 'depth'", rank=RANK)
        sys.exit(1)
    if HOW == "dies early":
        sys.exit("no licence")
    if HOW == "never ready":
        wait()
    if "record" in PARAMETERS:
        record()


def complain(*_):
    say("error", message="asked to end by SIGTERM", rank=RANK)
    sys.exit(1)


def work(hosts):
    if HOW == "complains":  # when it is ended, as programs do that clear up
        signal.signal(signal.SIGTERM, complain)
        wait()
    if HOW in ("silent", "hungry"):
        wait()
    if HOW == "babbles":
        for line in (
            "x" * 200_000,
            "\x1b[31mred",
            '{"event": "weather"}',
            '{"event": 3}',
            "[]",
            "{",
        ):
            os.write(1, line.encode() + b"\n")
        os.write(1, b"\xff\xfe\n\n")
    if HOW == "wrong field":
        say("progress", iteration=1, iterations=2, seconds="soon", hosts=hosts)
        wait()
    if HOW == "foreign host":
        say(
            "progress", iteration=1, iterations=2, seconds=0.1, hosts=[{**hosts[0], "host": "eve"}]
        )
        wait()
    say("progress", iteration=1, iterations=2, seconds=0.1, hosts=hosts, residual=0.5)
    if HOW == "no done":
        sys.exit(0)


def main():
    before_ready()
    if RANK != 0:
        if HOW == "hungry" and sum(e["ranks"] for e in TASK["partition"]) - 1 == RANK:
            bytearray(1 << 30)
        if HOW not in ("", "no done", "no result", "babbles"):
            wait()  # as a rank of MPI does, for the others
        return
    ranks = sum(entry["ranks"] for entry in TASK.get("partition", [{"ranks": 1}]))
    say("ready", protocol=PARAMETERS.get("protocol", 1), program="fake", version="2", ranks=ranks)
    hosts = [
        {"host": entry["host"], "compute_seconds": 0.1, "communicate_seconds": 0.02}
        for entry in TASK["partition"]
    ]
    work(hosts)
    if HOW != "no result":
        say(
            "result",
            iterations=2,
            seconds=0.3,
            startup_seconds=0.01,
            sha256="0f" * 32,
            hosts=hosts,
        )
    say("done")
    if HOW == "lingers":
        wait()


main()
