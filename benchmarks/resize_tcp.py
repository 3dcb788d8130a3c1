"""Redistribution over TCP against a plain MPI Send of 64 MiB over the same link, in the same job.

Run as root: python benchmarks/resize_tcp.py [--repeats N]. Two hosts of a lab, a network of their own between
them, not shaped; an array of 128 MiB, half on each, is gathered on one host and spread again. The plain Send
goes between the same two ranks beforehand, into memory that was touched. Exit code 1 where the bar is missed.
"""

import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve()
BAR = 0.7
ROWS, COLUMNS = 1024, 16384  # a row is 128 KiB
SENT = 64 << 20
LAB = """
name = "resize"
ssh = true
[[site]]
name = "here"
[[host]]
name = "ada"
site = "here"
cpu = 1.0
[[host]]
name = "bob"
site = "here"
cpu = 1.0
"""
TEMPLATE = f"""
name = "holding"
program = ["{{python}}", "{HERE}", "job"]
malleable = true
[parameters.stop]
default = ""
[structure]
rows = "{ROWS}"
columns = "{COLUMNS}"
iterations = "1"
"""


def say(event, **fields):
    os.write(1, (json.dumps({"event": event, **fields}) + "\n").encode())


def job_main():
    """Hold the rows until told to stop; whenever there are two ranks, say how fast a plain Send is."""
    from apples.malleable import Job  # noqa: PLC0415 - a rank's part of this file

    stop = Path(json.loads(Path(os.environ["APPLES_TASK"]).read_text())["parameters"]["stop"])
    with Job() as job:
        array = job.array("array", (ROWS, COLUMNS), fill=lambda first, rows: rows.fill(first))
        state = job.state(iteration=0, stop=0, said=0)
        while not state.stop:
            if job.safepoint():
                if not state.said and job.rank == 0:
                    say("ready", protocol=1, program="holding", version="1", ranks=job.size)
                state.said = 1
                assert np.ptp(array.own.mean(axis=1) - array.own[:, 0]) == 0
                if job.size == 2:
                    seconds = plain_send(job.comm, job.rank)
                    if job.rank == 0:
                        with stop.with_suffix(".plain").open("a") as stream:
                            stream.write(f"{seconds}\n")
            time.sleep(0.001)
            state.iteration += 1
            state.stop = int(job.comm.bcast(stop.exists()))
        if job.rank == 0:
            hosts = [
                {"host": m.host, "compute_seconds": 0.0, "communicate_seconds": 0.0}
                for m in job.members
            ]
            say("result", iterations=1, seconds=1.0, startup_seconds=0.0, hosts=hosts)
            say("done")


def plain_send(comm, rank):
    """Return seconds of one Send of 64 MiB between two ranks, median of 5, its receipt acknowledged."""
    data, word, samples = np.ones(SENT, np.uint8), np.zeros(1), []
    for _ in range(6):
        comm.Barrier()
        begin = time.perf_counter()
        if rank == 1:
            comm.Send(data, 0)
            comm.Recv(word, 0)
        else:
            comm.Recv(data, 1)
            comm.Send(word, 1)
        samples.append(time.perf_counter() - begin)
    return statistics.median(samples[1:])


def measure(folder, repeats):
    """Return seconds of each gathering, each spreading, and each plain Send."""
    from apples import MalleableActuator, lab, load_information  # noqa: PLC0415
    from apples.agent import host_survey, launch_plan  # noqa: PLC0415
    from apples.launch import SshActuator  # noqa: PLC0415
    from apples.schedule import Allocation, Schedule  # noqa: PLC0415

    (folder / "lab.toml").write_text(LAB)
    (folder / "template.toml").write_text(TEMPLATE)
    (folder / "user.toml").write_text("")
    stop = folder / "stop"
    made = lab.up(folder / "lab.toml")
    try:
        pool = load_information(made.hosts, folder / "template.toml", folder / "user.toml",
                                settings={"stop": str(stop)}, weather="static")  # fmt: skip
        ada, bob = pool.hosts
        both = Schedule(
            (Allocation(ada, ROWS // 2, "default"), Allocation(bob, ROWS // 2, "default"))
        )
        one = Schedule((Allocation(ada, ROWS, "default"),))
        actuator = MalleableActuator(through=SshActuator())
        known = pool.with_findings(actuator.look(host_survey(pool)))
        execution = actuator.actuate(launch_plan(both, known))
        gathered, spread = [], []
        for _ in range(repeats):
            time.sleep(2.0)
            gathered.append(execution.resize(one).phases["redistribute"])
            spread.append(execution.resize(both).phases["redistribute"])
        time.sleep(2.0)
        stop.touch()
        execution.outcome()
        plain = [float(line) for line in stop.with_suffix(".plain").read_text().split()]
    finally:
        lab.down(Path(made.folder))
    return gathered, spread, plain


def main():
    repeats = int(sys.argv[sys.argv.index("--repeats") + 1]) if "--repeats" in sys.argv else 10
    with tempfile.TemporaryDirectory(prefix="apples-") as folder:
        os.environ["XDG_STATE_HOME"] = folder
        gathered, spread, plain = measure(Path(folder), repeats)
    send = statistics.median(plain)
    print(f"plain Send of 64 MiB: {SENT / send / 1e6:.0f} MB/s ({len(plain)} times 5)")
    missed = False
    for name, seconds in (("gathered on one host", gathered), ("spread over two", spread)):
        share = send / statistics.median(seconds)
        missed |= share < BAR
        print(
            f"{'ok  ' if share >= BAR else 'MISS'}  {name}: {SENT / statistics.median(seconds) / 1e6:.0f} MB/s, "
            f"{share:.0%} of it (at least {BAR:.0%})"
        )
    sys.exit(missed)


if __name__ == "__main__":
    job_main() if sys.argv[1:] == ["job"] else main()
