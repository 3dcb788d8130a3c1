"""Redistribution over TCP against a plain MPI Send of 64 MiB over the same link, in the same job.

Run as root: python benchmarks/resize_tcp.py [--repeats N] [--constant]. Two hosts of a lab, a network of their
own between them, not shaped; an array of 128 MiB, half on each, is gathered on one host and spread again. The
plain Send goes between the same two ranks beforehand, into memory that was touched. Exit code 1 where the bar is
missed.

With --constant one host has a link of 40 MB/s, ten elevenths of the array are another one that nothing writes, and
how long the job stands still is told where the program says so (`constant=True`) and where it does not.
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
CHANGING, LINK = COLUMNS // 11, 40e6
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
[parameters.constant]
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

    parameters = json.loads(Path(os.environ["APPLES_TASK"]).read_text())["parameters"]
    stop, said = Path(parameters["stop"]), parameters["constant"]
    with Job() as job:
        width = CHANGING if said else COLUMNS
        array = job.array("array", (ROWS, width), fill=lambda first, rows: rows.fill(first))
        if said:
            job.array("constant", (ROWS, COLUMNS - CHANGING), constant=said == "constant",
                      fill=lambda first, rows: rows.fill(first))  # fmt: skip
        state = job.state(iteration=0, stop=0, said=0)
        while not state.stop:
            if job.safepoint():
                if not state.said and job.rank == 0:
                    say("ready", protocol=1, program="holding", version="1", ranks=job.size)
                state.said = 1
                assert np.ptp(array.own.mean(axis=1) - array.own[:, 0]) == 0
                if job.size == 2 and not said:
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


def measure(folder, repeats, said=""):
    """Return the phases of each gathering and each spreading, and seconds of each plain Send."""
    from apples import MalleableActuator, lab, load_information  # noqa: PLC0415
    from apples.agent import host_survey, launch_plan  # noqa: PLC0415
    from apples.launch import SshActuator  # noqa: PLC0415
    from apples.resources.schedule import Allocation, Schedule  # noqa: PLC0415

    (folder / "lab.toml").write_text(LAB + (f"bandwidth = {LINK}\n" if said else ""))
    (folder / "template.toml").write_text(TEMPLATE)
    (folder / "user.toml").write_text("")
    stop = folder / "stop"
    made = lab.up(folder / "lab.toml")
    try:
        pool = load_information(made.hosts, folder / "template.toml", folder / "user.toml",
                                settings={"stop": str(stop), "constant": said},
                                weather="static")  # fmt: skip
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
            gathered.append(execution.resize(one).phases)
            spread.append(execution.resize(both).phases)
        time.sleep(2.0)
        stop.touch()
        execution.outcome()
        plain = stop.with_suffix(".plain")
        plain = [float(line) for line in plain.read_text().split()] if plain.exists() else []
    finally:
        lab.down(Path(made.folder))
    return gathered, spread, plain


def constant(repeats):
    """Print how long the job stands still, said and unsaid, in turns."""
    found = {}
    for said in ("unsaid", "constant"):
        with tempfile.TemporaryDirectory(prefix="apples-") as folder:
            os.environ["XDG_STATE_HOME"] = folder
            gathered, spread, _ = measure(Path(folder), repeats, said)
        for name, changes in (("gathered", gathered), ("spread", spread)):
            stood = [sum(one[p] for p in ("join", "redistribute", "rebuild")) for one in changes]
            ahead = statistics.median(one.get("ahead", 0.0) for one in changes)
            found[name, said] = statistics.median(stood)
            print(f"{name}, {said}: stands still {found[name, said]:.3f} s, {ahead:.3f} s ahead")
    for name in ("gathered", "spread"):
        print(f"{name}: ratio {found[name, 'constant'] / found[name, 'unsaid']:.3f}")
    print(f"load {os.getloadavg()[0]:.1f}")


def main():
    repeats = int(sys.argv[sys.argv.index("--repeats") + 1]) if "--repeats" in sys.argv else 10
    if "--constant" in sys.argv:
        constant(repeats)
        return
    with tempfile.TemporaryDirectory(prefix="apples-") as folder:
        os.environ["XDG_STATE_HOME"] = folder
        *changes, plain = measure(Path(folder), repeats)
    gathered, spread = ([one["redistribute"] for one in way] for way in changes)
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
