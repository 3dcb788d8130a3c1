"""A daemon that is killed, or whose disk or kernel says no, at every single step of what it does."""

import asyncio
import errno
import json
import os
import shutil

import pytest
from adversaries.faulty_folder import KILL, FaultyFolder, FolderFaults
from daemons import CPUSETS, fake_fence, let_go, needs_cpusets, quick_folder

from apples.errors import ApplesError
from apples.io import Folder, Journal
from apples.topology import (
    JOURNAL,
    Caller,
    CpusetV1,
    DaemonOptions,
    NodeLedger,
    TopologyRequestHandler,
    parse_request,
    synthetic,
    violations,
)

MACHINE = synthetic("package:2 core:4 pu:1")
CALLER = Caller("uid:0", operator=True)
OPTIONS = DaemonOptions(ignored=("*",), kill_seconds=0.5)
IDENTITY = "0123456789abcdef" * 2
SCRIPT = [
    {"verb": "allocate", "job": "own", "count": 2, "requirement": "CPU_LIST=0-3"},
    {"verb": "attach", "job": "mate", "requirement": "CPUSET[MAX_RADIUS=3]"},
    {"verb": "allocate", "job": "mate", "count": 6, "least": 2},
    {"verb": "suspend", "job": "own"},
    {"verb": "resume", "job": "own"},
    {"verb": "allocate", "job": "guest", "count": 3, "least": 2, "share": True},
    {"verb": "deallocate", "job": "own"},
    {"verb": "deallocate", "job": "mate"},
    {"verb": "resize", "job": "guest", "count": 5},
    {"verb": "resize", "job": "guest", "count": 2},
    {"verb": "allocate", "job": "own", "count": 1},
    {"verb": "deallocate", "job": "guest"},
]
REQUESTS = [
    parse_request(
        json.dumps(
            {
                **line,
                **({"until": "told"} if line["verb"] == "allocate" else {}),
            }
        ).encode()
    )
    for n, line in enumerate(SCRIPT)
]


def opened(home, faults=None, *, real=False):
    """A request handler on the journal and the control groups in `home`, or on the kernel's."""
    faults = faults or FolderFaults()
    state = FaultyFolder(Folder.open(home / "state"), faults)
    if real:
        tree = FaultyFolder(Folder.open(CPUSETS), faults)
        isolation = CpusetV1(tree, tree)
    else:
        isolation = fake_fence(home / "cpusets", "0-7", faults)
    machine = synthetic("core:2 pu:1") if real else MACHINE
    return TopologyRequestHandler(NodeLedger(machine, isolation, state, IDENTITY, OPTIONS))


def essence(handler):
    """What must be the same whatever happened in between."""
    state = handler.node.state
    jobs = {n: (j.state.value, str(j.owns), str(j.holds), j.least) for n, j in state.jobs.items()}
    return jobs, {name: it.requirement for name, it in state.attached.items()}


def containers(handler):
    node = handler.node
    return {name: str(node.isolation.cpus(name)) for name in node.containers()}


def check(handler):
    """The ledger is sound, and the kernel's containers are exactly those of its jobs."""
    node = handler.node
    assert not violations(node.state.jobs, node.universe)
    jobs = node.state.jobs.values()
    held = {j.name(node.mark): str(j.holds) for j in jobs if j.holds}
    asleep = {
        j.name(node.mark) for j in jobs if not j.holds
    }  # frozen where it was: nothing to check
    assert {name: cpus for name, cpus in containers(handler).items() if name not in asleep} == held
    assert asleep <= node.containers()
    assert not node.unfitted


async def ask_again(handler, request):
    """Repeat a request that may have been done; an allocation that is gone was ended by it."""
    try:
        await handler.answer(CALLER, request)
    except ApplesError as error:
        if (request.verb, error.code) != ("deallocate", "job-unknown"):
            raise


async def settled(handler):
    """Return when what the request handler does by itself is done."""
    while handler.releasing.tasks:
        await asyncio.wait(handler.releasing.tasks.values())
    handler.watch()


def snapshots(home, requests, real=False):
    """What the state is after each request when nothing goes wrong; and how many steps that takes."""
    faults = FolderFaults()

    async def run():
        handler = opened(home, faults, real=real)
        handler.start()
        found = [essence(handler)]
        for request in requests:
            await handler.answer(CALLER, request)
            check(handler)
            found.append(essence(handler))
        return found

    return asyncio.run(run()), len(faults.changes)


def killed_at(home, step, requests, real=False):
    """Run the requests in a process that is killed at a step; return how many were answered."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            handler = opened(home, FolderFaults(step, KILL), real=real)

            async def run():
                handler.start()
                for request in requests:
                    await handler.answer(CALLER, request)
                    os.write(writing, b".")

            asyncio.run(run())
        finally:
            os._exit(1)
    os.close(writing)
    answered = b""
    while piece := os.read(reading, 100):
        answered += piece
    os.close(reading)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), f"step {step} was never reached"
    return len(answered)


def recovered(home, requests, answered, expected, real=False):
    """Recover, compare, go on to the end."""

    async def run():
        handler = opened(home, real=real)
        handler.start()
        await settled(handler)
        check(handler)
        # A request on its way is done or not done, never half.
        assert essence(handler) in expected[answered : answered + 2]
        for request in requests[answered:]:
            await ask_again(handler, request)
            check(handler)
        assert essence(handler) == expected[-1]
        for name in list(handler.node.state.jobs):
            await handler.releasing.release(name)
        assert handler.node.free == handler.node.universe
        assert not handler.node.containers()

    asyncio.run(run())


@pytest.fixture
def places():
    made = []

    def place():
        home = quick_folder()
        (home / "state").mkdir(mode=0o700)
        made.append(home)
        return home

    yield place
    let_go(*made)
    for home in made:
        shutil.rmtree(home, ignore_errors=True)


@pytest.mark.more
def test_killed_at_every_step_no_cpu_is_given_twice_and_none_is_lost(places):
    expected, steps = snapshots(places(), REQUESTS)
    assert steps > 80
    for step in range(1, steps + 1):
        home = places()
        answered = killed_at(home, step, REQUESTS)
        recovered(home, REQUESTS, answered, expected)
        shutil.rmtree(home)


@pytest.mark.more
@pytest.mark.cgroup
def test_killed_at_every_step_the_kernels_own_cpusets_are_right(places):
    needs_cpusets()
    mine = os.sched_getaffinity(0)
    if mine != {0} and not mine >= {0, 1}:
        pytest.skip(f"the machine of this test has CPUs 0 and 1; this process may use {mine}")
    requests = [
        parse_request(json.dumps({**line}).encode())
        for n, line in enumerate(
            [
                {"verb": "allocate", "job": "a", "count": 1, "until": "told"},
                {"verb": "resize", "job": "a", "count": min(2, len(os.sched_getaffinity(0)))},
                {"verb": "deallocate", "job": "a"},
            ]
        )
    ]
    first = places()
    expected, steps = snapshots(first, requests, real=True)
    recovered(first, requests, len(requests), expected, real=True)
    for step in range(1, steps + 1):
        home = places()
        answered = killed_at(home, step, requests, real=True)
        recovered(home, requests, answered, expected, real=True)


def test_an_error_at_any_step_is_an_error_for_the_client_and_asking_again_mends_it(places):
    expected, steps = snapshots(places(), REQUESTS)

    async def run(step):
        faults = FolderFaults(step, errno.EIO)
        home = places()
        refusals = 0
        for attempt in range(2):
            try:
                handler = opened(home, faults if attempt == 0 else FolderFaults())
                handler.start()
                break
            except (ApplesError, OSError):
                assert attempt == 0
        for request in REQUESTS:
            for _ in range(3):
                try:
                    await ask_again(handler, request)
                    break
                except (ApplesError, OSError):
                    refusals += 1
                    await settled(handler)
        await settled(handler)
        check(handler)
        assert essence(handler) == expected[-1]
        assert refusals <= 1
        shutil.rmtree(home)

    for step in range(1, steps + 1):
        asyncio.run(run(step))


def test_a_lost_record_is_made_good_by_what_the_kernel_has(places):
    home = places()

    async def fill():
        handler = opened(home)
        handler.start()
        for request in REQUESTS[:3]:
            await handler.answer(CALLER, request)

    asyncio.run(fill())
    whole = (home / "state/journal").read_bytes().splitlines(keepends=True)
    for lost in range(len(whole)):
        (home / "state/journal").write_bytes(b"".join(whole[:lost] + whole[lost + 1 :]))

        async def again():
            handler = opened(home)
            handler.start()
            assert not violations(handler.node.state.jobs, handler.node.universe)

        asyncio.run(again())


def test_after_a_reboot_nobody_has_anything(places):
    home = places()

    async def fill():
        handler = opened(home)
        handler.start()
        for request in REQUESTS[:3]:
            await handler.answer(CALLER, request)

    asyncio.run(fill())
    shutil.rmtree(home / "cpusets")
    with Folder.open(home / "state") as folder:
        journal = Journal(folder, JOURNAL)
        journal.recover()
        journal.append({"do": "boot", "boot": "another"})
        journal.close()

    async def again():
        handler = opened(home)
        handler.start()
        assert not handler.node.state.jobs
        assert handler.node.free == handler.node.universe
        assert not handler.node.containers()

    asyncio.run(again())
