"""What the topology daemon is put through: kills at random steps, bad jobs, a second daemon, swaps.

    python tests/soak_topologyd.py kills|cycles|pairs|ledger|swaps|sharing|all --n N

Each part prints one JSON line {"part", "trials", "failures", ..} and exits 1 on any failure, 77 if this
machine cannot do it. `make soak N=10000` gives the figures of the guarantees.
"""

import argparse
import asyncio
import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent / "topology"))
sys.path.insert(0, str(Path(__file__).parent / "io"))

import test_folder
import test_recovery
import test_two_daemons
from bad_jobs import BAD_JOBS, Started
from daemons import CPUSETS, Daemon, quick_folder

from apples.errors import ApplesError
from apples.io import Folder, JournalError
from apples.topology import (
    NO_CPUS,
    CpuAllocation,
    CpuSet,
    DaemonOptions,
    DryRun,
    NodeLedger,
    TopologyRequestHandler,
    Unsatisfied,
    arrive,
    find_backend,
    leave,
    parse_request,
    synthetic,
    taken,
    violations,
)

SKIPPED = 77
VERBS = ("allocate", "allocate", "allocate", "deallocate", "suspend", "resume", "resize", "attach")


def script(seed):
    """Return requests of a random life of a daemon; those it refuses are left out."""
    chance = random.Random(seed)
    requests = []
    for _ in range(14):
        job = f"j{chance.randrange(4)}"
        fields = {"verb": chance.choice(VERBS), "job": job}
        if fields["verb"] == "allocate":
            count = chance.randint(1, 6)
            least = chance.randint(0, count)
            share = bool(least) and chance.random() < 0.7
            fields |= {"count": count, "least": least, "share": share, "until": "told"}
        elif fields["verb"] == "resize":
            fields["count"] = chance.randint(1, 6)
        elif fields["verb"] == "attach":
            fields["requirement"] = f"MAX_RADIUS={chance.randrange(4, 50)}"
        requests.append(parse_request(json.dumps(fields).encode()))
    return asyncio.run(accepted(requests))


async def accepted(requests):
    home = new_home()
    handler = test_recovery.opened(home)
    handler.start()
    kept = []
    for request in requests:
        try:
            await handler.answer(test_recovery.CALLER, request)
        except ApplesError:
            continue
        kept.append(request)
    shutil.rmtree(home)
    return kept


def new_home():
    home = quick_folder()
    (home / "state").mkdir(mode=0o700)
    return home


def kills(count, first=0):
    """Kill a daemon at a random step of a random life; recover, compare, go on to the end."""
    failures, steps_seen = [], 0
    for seed in range(first, first + count):
        requests = script(seed)
        home = new_home()
        expected, steps = test_recovery.snapshots(home, requests)
        shutil.rmtree(home)
        steps_seen += steps
        step = random.Random(seed).randint(1, steps)
        home = new_home()
        try:
            answered = test_recovery.killed_at(home, step, requests)
            test_recovery.recovered(home, requests, answered, expected)
        except Exception as error:  # noqa: BLE001 - a trial that failed, with its seed
            failures.append({"seed": seed, "step": step, "error": repr(error)[:200]})
        shutil.rmtree(home, ignore_errors=True)
    return {"failures": failures, "steps": steps_seen}


def cycles(count, _=0):
    """Start and end jobs that do all they can to stay."""
    if os.geteuid() != 0 or not os.access(CPUSETS / "cgroup.procs", os.W_OK):
        print("cycles: needs root and a writable cpuset tree of version 1", file=sys.stderr)
        sys.exit(SKIPPED)
    isolation, _ = find_backend("cpuset-v1")
    cpus, _ = isolation.universe()
    bystander = subprocess.Popen(["/bin/sleep", "100000"])
    failures, slowest, quarantined = [], 0.0, 0
    options = DaemonOptions(ignored=("*",), kill_seconds=2.0, watch_seconds=0.2)
    with Daemon(synthetic(f"core:{max(cpus) + 1} pu:1"), isolation, options) as daemon:
        whole = daemon.ask("status")["free"]
        with daemon.client() as asking:
            for cycle in range(count):
                kind = list(BAD_JOBS)[cycle % len(BAD_JOBS)]
                job = f"cycle{cycle}"
                asking.ask("allocate", job=job, count=1, until="told")
                process = Started(daemon.socket, job, "sh", "-c", BAD_JOBS[kind])
                container = asking.ask("jobs", job=job)["jobs"][0]["pen"]
                while not isolation.processes(container) and not process.over():
                    os.sched_yield()
                begin = time.monotonic()
                try:
                    asking.ask("deallocate", job=job)
                except ApplesError as error:  # late: in quarantine, which has to end by itself
                    quarantined += 1
                    if not gone_within(asking, job, 60.0):
                        failures.append({"cycle": cycle, "kind": kind, "error": str(error)})
                slowest = max(slowest, time.monotonic() - begin)
                process.wait()
        left = [n for n in isolation.names() if n.startswith(f"topologyd-{daemon.node.mark}-")]
        if left or daemon.ask("status")["free"] != whole:
            failures.append({"left": left, "free": daemon.ask("status")["free"]})
    if bystander.poll() is not None:
        failures.append({"killed": "a process that was none of ours"})
    bystander.kill()
    bystander.wait()
    late = {"quarantined": quarantined, "slowest_release_seconds": round(slowest, 3)}
    return {"failures": failures, **late}


def gone_within(asking, job, seconds):
    """Whether a job is gone after a while."""
    deadline = time.monotonic() + seconds
    while asking.ask("jobs", job=job)["jobs"]:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def pairs(count, first=0):
    """Start two daemons over and over by all that their directories may be called; on cpusets too."""
    real = os.geteuid() == 0 and os.access(CPUSETS / "cgroup.procs", os.W_OK)
    found, failures = {}, []
    for kernel in (False, True) if real else (False,):
        try:
            said = test_two_daemons.pairs(count, first, real=kernel)
            found["on_cpusets" if kernel else "on_a_stand_in"] = said
        except (AssertionError, ApplesError, OSError) as error:
            failures.append({"real": kernel, "error": repr(error)[:300]})
    return {"failures": failures, **found}


def ledger(count, first=0):
    """Ask one daemon for so many things, journal and all; look at its ledger every thousand."""
    home = new_home()
    machine = synthetic("package:2 core:32 pu:1")
    with Folder.open(home / "state") as state:
        node = NodeLedger(
            machine, DryRun(machine.cpus), state, test_recovery.IDENTITY, test_recovery.OPTIONS
        )
        found = asyncio.run(asked_for(TopologyRequestHandler(node), count, random.Random(first)))
        if wrong := list(violations(node.state.jobs, node.universe)):
            found["failures"].append({"at": "the end", "wrong": wrong[:2]})
    shutil.rmtree(home)
    return found


async def asked_for(handler, count, chance):
    """Make `count` requests of which the ledger does most."""
    handler.start()
    failures, done = [], 0
    for number in range(count):
        job = f"j{chance.randrange(24)}"
        there = job in handler.node.state.jobs
        verb = chance.choice(["resize", "deallocate", "post"]) if there else "allocate"
        fields = {"verb": verb, "job": job}
        if verb == "allocate":
            fields |= {"count": chance.randint(1, 6), "least": 1, "share": chance.random() < 0.3}
            fields["until"] = "told"
        elif verb == "resize":
            fields["count"] = chance.randint(1, 6)
        elif verb == "post":
            fields["text"] = "x" * chance.randrange(50)
        try:
            request = parse_request(json.dumps(fields).encode())
            await handler.answer(test_recovery.CALLER, request)
            done += 1
        except ApplesError:
            continue
        if number % 1000 == 0:
            await test_recovery.settled(handler)
            wrong = list(violations(handler.node.state.jobs, handler.node.universe))
            if wrong:
                failures.append({"at": number, "wrong": wrong[:2]})
    await test_recovery.settled(handler)
    return {"failures": failures, "done": done, "jobs": len(handler.node.state.jobs)}


def swaps(count, _=0):
    """Work in a directory in which a user exchanges everything for links, as fast as it goes."""
    home = quick_folder()
    ours, theirs = home / "ours", home / "theirs"
    for each in (ours, theirs, ours / "group"):
        each.mkdir()
    (theirs / "file").write_bytes(test_folder.SECRET)
    child = os.fork()
    if child == 0:
        test_folder.swap_until_killed(ours, theirs)
    done = refused = 0
    with Folder.open(ours) as folder:
        for _ in range(count):
            for act in (
                lambda: folder.write("group/cpuset.cpus", "0"),
                lambda: test_folder.journal_in(folder),
            ):
                try:
                    act()
                    done += 1
                except (OSError, JournalError):
                    refused += 1
    os.kill(child, 9)
    os.waitpid(child, 0)
    same = (theirs / "file").read_bytes() == test_folder.SECRET
    escapes = [] if same and list(theirs.iterdir()) == [theirs / "file"] else ["an escape"]
    shutil.rmtree(home)
    return {"failures": escapes, "done": done, "refused": refused}


def sharing(count, first_seed=0):
    """Random arrivals, exits and crashes of malleable jobs on one node."""
    machine = synthetic("package:2 core:8 pu:2")
    failures = []
    for seed in range(first_seed, first_seed + count):
        chance, jobs, first = random.Random(seed), {}, {}
        for number in range(60):
            if jobs and chance.random() < 0.45:
                name = chance.choice(list(jobs))
                jobs = {n: j for n, j in {**jobs, **leave(jobs, name)}.items() if n != name}
                first.pop(name, None)
            else:
                jobs |= arrived(machine, jobs, first, chance, f"j{number}")
            wrong = list(violations(jobs, machine.cpus))
            guests = [j for j in jobs.values() if j.holds - j.owns]
            for name, mask in first.items():
                if not any(g.holds & mask for g in guests) and not mask <= jobs[name].holds:
                    wrong.append(f"{name} has not its first mask back")
            if wrong:
                failures.append({"seed": seed, "step": number, "wrong": wrong[:2]})
                break
        for name in list(jobs):
            jobs = {n: j for n, j in {**jobs, **leave(jobs, name)}.items() if n != name}
        if machine.cpus - taken(jobs.values()) != machine.cpus:
            failures.append({"seed": seed, "wrong": "CPUs are lost"})
    return {"failures": failures}


def arrived(machine, jobs, first, chance, name):
    """Return the jobs that change when one more comes, or none if it cannot."""
    free = machine.cpus - taken(jobs.values())
    count = chance.randint(1, 24)
    job = CpuAllocation(name, 1, "uid:1", least=chance.randint(1, count), count=count)
    if len(free) >= count:
        mask = CpuSet.of(list(free)[:count])
        first[name] = mask
        return {name: job.change(owns=mask, holds=mask)}
    found = arrive(machine, jobs, job, free, chance.choice([0.25, 0.5, 0.75]))
    if isinstance(found, Unsatisfied):
        return {}
    first[name] = found[name].owns or NO_CPUS
    return found


PARTS = {
    "kills": (kills, 1.0),
    "cycles": (cycles, 1.0),
    "pairs": (pairs, 1.0),
    "ledger": (ledger, 100.0),
    "swaps": (swaps, 10.0),
    "sharing": (sharing, 1.0),
}


def main():
    """Run the parts asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=[*PARTS, "all"])
    parser.add_argument("--n", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    options = parser.parse_args()
    if options.part == "all":
        codes = []
        for part, (_, share) in PARTS.items():
            count = str(max(4, round(options.n * share)))
            codes.append(subprocess.call([sys.executable, __file__, part, "--n", count]))
        return int(any(code not in {0, SKIPPED} for code in codes))
    begin = time.monotonic()
    found = PARTS[options.part][0](options.n, options.first)
    failures = found.pop("failures")
    said = {"part": options.part, "trials": options.n, "failures": len(failures), **found}
    said |= {"seconds": round(time.monotonic() - begin, 1), "first": failures[:5]}
    print(json.dumps(said), flush=True)
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
