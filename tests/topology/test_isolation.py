"""Isolation backends: one contract, run on each; the kernel's own where this machine lets us."""

import contextlib
import errno
import os
import resource
import shlex
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from bad_jobs import BAD_JOBS
from daemons import CPUSETS, needs_cpusets
from waiting import until

from apples.io import Folder
from apples.topology import (
    BACKENDS,
    ISOLATION_CHECKS,
    MARK,
    Affinity,
    CgroupV1Freezer,
    CgroupV2Freezer,
    CpuContainer,
    CpuSet,
    CpusetV1,
    CpusetV2,
    DryRun,
    Guarantee,
    IsolationError,
    SystemdScope,
    attach,
    change,
    find_backend,
    hierarchies,
    partial_sets,
    signal_members,
    start_scope,
    unified,
    with_controller,
)
from apples.topology import probe_isolation as probe

NODE = CpuSet.of([0])
SLEEP = [sys.executable, "-c", "import time; time.sleep(1000)"]
SAY_AND_SLEEP = ["sh", "-c", "echo here; exec sleep 1000"]


def name(number=1):
    return f"topologyd-{os.getpid():08x}-test-{number}"


def container(cpus, number=1, exclusive=False):
    return CpuContainer(name(number), CpuSet.parse(cpus), NODE, exclusive)


def kernel_backend(freezer):
    def make():
        needs_cpusets()
        tree = Folder.open(CPUSETS)
        if freezer is None:
            return CpusetV1(tree, tree)
        place, kind = freezer
        if not (place / "cgroup.procs").exists():
            pytest.skip(f"{place} is not mounted")
        return CpusetV1(tree, tree, (), kind(Folder.open(place)))

    return make


UNIFIED, FREEZER = Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup/freezer")
REAL = [
    pytest.param(kernel_backend(None), id="cpuset and signals", marks=pytest.mark.cgroup),
    pytest.param(
        kernel_backend((UNIFIED, CgroupV2Freezer)), id="cpuset and kill", marks=pytest.mark.cgroup
    ),
    pytest.param(
        kernel_backend((FREEZER, CgroupV1Freezer)),
        id="cpuset and freezer",
        marks=pytest.mark.cgroup,
    ),
    pytest.param(Affinity, id="affinity"),
]


@pytest.fixture
def started():
    """Start processes that end with the test."""
    running = []

    def start(command=SLEEP, **more):
        running.append(subprocess.Popen(command, **more))
        return running[-1]

    yield start
    for process in running:
        with process:
            process.kill()


@pytest.mark.parametrize("check", ISOLATION_CHECKS)
@pytest.mark.parametrize(
    "make", [*REAL, pytest.param(lambda: DryRun(CpuSet.parse("0-1")), id="dry")]
)
def test_every_backend_keeps_the_public_contract(make, check):
    made = make()
    check(lambda: made)


class Forgetful(DryRun):
    """A backend of a user's with a mistake: whoever is removed is gone, whoever is inside."""

    def remove(self, name):
        self.inside.pop(name, None)
        return super().remove(name)


class Lenient(DryRun):
    """Another: every CPU is given, and every process may enter."""

    def fit(self, container):
        self.containers[container.name] = container
        return Guarantee.NONE

    def admit(self, name, process):
        self.inside.setdefault(name, set()).add(process)


@pytest.mark.parametrize("wrong", [Forgetful, Lenient])
def test_the_public_checks_find_a_backend_that_breaks_a_promise(wrong):
    broken = []
    for check in ISOLATION_CHECKS:
        try:
            check(lambda: wrong(CpuSet.parse("0-1")))
        except AssertionError as error:
            broken.append(str(error))
    assert broken


@pytest.mark.parametrize(
    "make", [*REAL, pytest.param(lambda: DryRun(CpuSet.parse("0-1")), id="dry")]
)
def test_a_container_is_made_changed_and_removed_and_all_may_be_repeated(make):
    isolation = make()
    for cpus in ("0", "0-1", "1", "1"):
        if CpuSet.parse(cpus) <= isolation.universe()[0]:
            assert isolation.fit(container(cpus)) in Guarantee
            assert str(isolation.cpus(name())) == cpus
    assert name() in isolation.names()
    assert isolation.processes(name()) == frozenset()
    assert isolation.remove(name())
    assert isolation.remove(name())
    assert name() not in isolation.names()
    assert not isolation.cpus(name())


@pytest.mark.parametrize("make", REAL)
def test_whoever_enters_runs_there_whatever_mask_the_launcher_had(make, started):
    isolation = make()
    universe, _ = isolation.universe()
    first, last = min(universe), max(universe)  # the same where there is one alone
    isolation.fit(container(f"{last}"))
    try:
        process = started(["taskset", "-c", str(first), *SAY_AND_SLEEP], stdout=subprocess.PIPE)
        assert process.stdout.readline() == b"here\n"
        assert os.sched_getaffinity(process.pid) == {first}  # its launcher pinned it there
        isolation.admit(name(), process.pid)
        assert os.sched_getaffinity(process.pid) == {last}
        isolation.fit(container(f"{first},{last}"))
        until(lambda: os.sched_getaffinity(process.pid) == {first, last})
        isolation.fit(container(f"{first}"))
        assert os.sched_getaffinity(process.pid) == {first}
        assert process.pid in isolation.processes(name())
        assert not isolation.remove(name())
        assert not isolation.strays(container(f"{first}"))
    finally:
        isolation.kill(name())
        until(lambda: isolation.remove(name()))


@pytest.mark.parametrize("make", REAL)
def test_frozen_processes_do_nothing_until_thawed_and_die_when_killed(make, started, tmp_path):
    isolation = make()
    ours, others = tmp_path / "ours", tmp_path / "others"
    program = "while :; do echo x >>$0; sleep 0.002; done"
    isolation.fit(container("0"))
    try:
        process = started(["sh", "-c", program, ours], env={**os.environ, MARK: name()})
        started(["sh", "-c", program, others])
        isolation.admit(name(), process.pid)
        until(ours.exists)
        isolation.freeze(name())
        written = after_some_beats(others) and ours.stat().st_size
        after_some_beats(others)
        assert ours.stat().st_size == written
        isolation.thaw(name())
        until(lambda: ours.stat().st_size > written)
        isolation.freeze(name())
        isolation.kill(name())
        until(lambda: process.poll() is not None)
    finally:
        isolation.kill(name())
        until(lambda: isolation.remove(name()))


def after_some_beats(path):
    """Return when another process, which is not frozen, has written ten times."""
    until(path.exists)
    size = path.stat().st_size
    until(lambda: path.stat().st_size >= size + 20)
    return True


@pytest.mark.cgroup
@pytest.mark.parametrize("kind", BAD_JOBS)
def test_a_bad_job_is_gone_within_the_kill_loop_and_its_neighbour_is_not(kind, started):
    needs_cpusets()
    isolation, _ = find_backend("cpuset-v1")
    neighbour = started()
    isolation.fit(container("0"))
    program = 'read _; exec sh -c "$0"'  # nothing of it before it is in its container
    job = started(["sh", "-c", program, BAD_JOBS[kind]], stdin=subprocess.PIPE)
    isolation.admit(name(), job.pid)
    job.stdin.close()
    deadline = time.monotonic() + 120
    while not isolation.remove(name()):
        isolation.kill(name())
        assert time.monotonic() < deadline
    assert neighbour.poll() is None


def test_a_number_that_was_given_to_a_stranger_is_not_killed(started):
    job, stranger = started(), started()
    asked = iter([frozenset({job.pid, stranger.pid}), frozenset({job.pid})])
    signal_members(lambda: next(asked))
    assert job.wait(120) == -9
    assert stranger.poll() is None


@pytest.mark.cgroup
def test_the_kernels_refusal_is_said_in_words():
    needs_cpusets()
    isolation, _ = find_backend("cpuset-v1")
    with pytest.raises(IsolationError) as raised:
        isolation.fit(container("5000"))
    assert raised.value.code == "isolation-refused"
    assert raised.value.fields["cpus"] == "5000"
    assert raised.value.fields["reason"] in {"ERANGE", "EACCES"}
    isolation.remove(name())


def test_a_backend_that_does_not_hold_says_why_and_the_next_is_taken(tmp_path):
    (tmp_path / "proc/self").mkdir(parents=True)
    isolation, levels = find_backend(root=tmp_path)
    assert isolation.title == "affinity"
    assert [level.title for level in levels] == list(BACKENDS)[:4]
    assert all(level.why_not for level in levels[:3])
    assert levels[-1].guarantee is Guarantee.ADVISORY
    with pytest.raises(IsolationError) as raised:
        find_backend("cpuset-v1", tmp_path)
    assert raised.value.code == "isolation-unavailable"
    assert list(raised.value.fields["reasons"]) == ["cpuset-v1"]
    with pytest.raises(IsolationError) as raised:
        find_backend("magic")
    assert raised.value.code == "isolation-unknown"
    assert raised.value.fields["value"] == "magic"
    assert raised.value.fields["known"] == ["auto", *BACKENDS]


def test_sets_above_us_and_sets_of_everything_reserve_nothing(tmp_path):
    #  0-7 --- docker 0-7 --- web 2-3      --- boot 0-1      --- ours 0-5 --- us
    for path, cpus in {
        ".": "0-7",
        "docker": "0-7",
        "docker/web": "2-3",
        "boot": "0-1",
        "ours": "0-5",
        "ours/us": "0-5",
        "empty": "",
    }.items():
        (tmp_path / path).mkdir(exist_ok=True)
        (tmp_path / path / "cpuset.cpus").write_text(cpus)
    found = partial_sets(Folder.open(tmp_path), ("ours", "us"))
    assert {path: str(cpus) for path, cpus in found.items()} == {
        "docker/web": "2-3",
        "boot": "0-1",
    }


def test_our_own_groups_are_found_in_both_kinds_of_tree(tmp_path):
    proc = tmp_path / "proc/self"
    proc.mkdir(parents=True)
    (proc / "cgroup").write_text("3:cpuset:/lab/ada\n1:name=systemd:/\n0::/user.slice\n")
    (proc / "mountinfo").write_text(
        "35 31 0:32 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
        "36 31 0:33 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
        "37 31 0:34 /lab /mnt/lab rw - cgroup cgroup rw,cpuset\n"
    )
    found = hierarchies(tmp_path)
    assert with_controller(found, "cpuset").own == tmp_path / "sys/fs/cgroup/cpuset/lab/ada"
    assert unified(found).own == tmp_path / "sys/fs/cgroup/unified/user.slice"
    assert found[2].own == tmp_path / "mnt/lab/ada"


def test_a_service_that_systemd_could_not_start_again_beside_its_jobs_takes_another_level(
    tmp_path,
):
    proc, service = tmp_path / "proc/self", "system.slice/apples-topologyd.service"
    proc.mkdir(parents=True)
    (proc / "mountinfo").write_text("36 31 0:33 / /cg rw - cgroup2 cgroup2 rw\n")
    (tmp_path / "cg" / service / "topologyd").mkdir(parents=True)
    (tmp_path / "cg" / service / "cgroup.subtree_control").write_text("cpuset")
    (proc / "cgroup").write_text(f"0::/{service}\n")
    assert "DelegateSubgroup=topologyd" in probe("cpuset-v2", tmp_path).why_not
    (proc / "cgroup").write_text(f"0::/{service}/topologyd\n")
    assert "DelegateSubgroup" not in probe("cpuset-v2", tmp_path).why_not


class FakeTree(Folder):
    """A directory that behaves as a delegated version 2 tree: what is written is in effect at once."""

    FILES = ("cgroup.procs", "cpuset.mems", "cpuset.cpus", "cgroup.kill", "cgroup.freeze")

    def make(self, name):
        super().make(name)
        for file in (
            *self.FILES,
            "cpuset.cpus.effective",
            "cgroup.events",
            "cpuset.cpus.exclusive",
        ):
            os.close(self.open_file(f"{name}/{file}", os.O_WRONLY | os.O_CREAT))
        Path(self.name, name, "cpuset.cpus.partition").write_text("member")

    def drop(self, name):
        for file in Path(self.name, name).iterdir():
            file.unlink()
        super().drop(name)

    def write(self, name, text):
        super().write(name, text)
        if name.endswith("/cpuset.cpus"):
            super().write(f"{name}.effective", text)

    def below(self, name):
        return FakeTree(super().below(name).descriptor, f"{self.name}/{name}")


def fake_tree(tmp_path, controllers="cpuset cpu", inside=True):
    files = {
        "cgroup.controllers": controllers,
        "cgroup.subtree_control": "",
        "cgroup.procs": "123",
        "cpuset.cpus.effective": "0-3",
        "cpuset.mems.effective": "0",
    }
    for file, text in files.items():
        (tmp_path / file).write_text(text)
    tree = FakeTree(Folder.open(tmp_path).descriptor, str(tmp_path))
    return CpusetV2(tree, tree, ("app.slice",) if inside else (), CpuSet.parse("0-7"))


def test_version_2_puts_the_daemon_into_a_leaf_and_jobs_beside_it(tmp_path):
    isolation = fake_tree(tmp_path)
    assert (tmp_path / "topologyd/cgroup.procs").read_text() == "123"
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+cpuset"
    assert str(isolation.universe()[0]) == "0-3"
    assert isolation.fit(container("1-2")) is Guarantee.CONTAINED
    assert str(isolation.cpus(name())) == "1-2"
    assert isolation.fit(container("1-3", exclusive=True)) is Guarantee.ISOLATED
    assert (tmp_path / name() / "cpuset.cpus.partition").read_text() == "root"
    assert isolation.fit(container("1")) is Guarantee.CONTAINED
    assert (tmp_path / name() / "cpuset.cpus.partition").read_text() == "member"
    isolation.kill(name())
    assert (tmp_path / name() / "cgroup.kill").read_text() == "1"
    assert isolation.names() == {name()}
    assert isolation.remove(name())


def test_version_2_without_the_controller_or_delegation_says_so(tmp_path):
    with pytest.raises(IsolationError) as raised:
        fake_tree(tmp_path, controllers="memory pids")
    assert raised.value.code == "cgroup-controller-missing"
    assert raised.value.fields["controller"] == "cpuset"


def test_version_2_notices_that_the_kernel_gives_other_cpus(tmp_path):
    class Narrow(FakeTree):
        def write(self, name, text):
            Folder.write(self, name, text)
            if name.endswith("/cpuset.cpus"):
                Folder.write(self, f"{name}.effective", "0")

    isolation = fake_tree(tmp_path)
    isolation.own = Narrow(isolation.own.descriptor, isolation.own.name)
    with pytest.raises(IsolationError) as raised:
        isolation.fit(container("1-2"))
    fields = raised.value.fields
    assert raised.value.code == "cpus-not-granted"
    assert (fields["container"], fields["cpus"], fields["value"]) == (name(), "1-2", "0")


FAKE_SYSTEMD = """import json, os, sys
state = {state!r}
known = json.load(open(state)) if os.path.exists(state) else {{}}
words = sys.argv[1:]
with open(state + ".log", "a") as log:
    log.write(json.dumps([os.path.basename(sys.argv[0]), *words]) + "\\n")
unit = next((w for w in words if w.endswith(".scope")), None)
if "StartTransientUnit" in words:
    known[unit] = {{"procs": [words[words.index("PIDs") + 3]]}}
elif "show" in words:
    print("/user/" + unit if unit in known else "")
elif "stop" in words:
    known.pop(unit, None)
elif "list-units" in words:
    print("\\n".join(u + " loaded active" for u in known))
elif "set-property" in words and unit not in known:
    sys.exit("Unit " + unit + " not found.")
for each in known:
    os.makedirs(os.path.join({groups!r}, "user", each), exist_ok=True)
    open(os.path.join({groups!r}, "user", each, "cgroup.procs"), "w").write("")
json.dump(known, open(state, "w"))
"""


@pytest.fixture
def no_descriptors():
    """Return a context in which this process can open no file."""

    @contextlib.contextmanager
    def limited():
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        lowest = os.dup(0)
        os.close(lowest)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    return limited


def test_shortage_of_descriptors_is_not_taken_for_an_ended_process(started, no_descriptors):
    process = started().pid
    isolation = Affinity()
    isolation.fit(CpuContainer(name(), CpuSet.of([max(os.sched_getaffinity(0))]), NODE))
    with no_descriptors(), pytest.raises(IsolationError) as raised:
        isolation.admit(name(), process)
    assert raised.value.__cause__.errno == errno.EMFILE
    isolation.admit(name(), process)
    assert process in isolation.processes(name())


def test_signal_that_cannot_be_sent_for_want_of_descriptors_is_an_error(started, no_descriptors):
    process = started()
    with no_descriptors(), pytest.raises(OSError, match="Too many open files"):
        signal_members(lambda: frozenset({process.pid}))
    assert process.poll() is None
    signal_members(lambda: frozenset({process.pid}))
    assert process.wait() == -signal.SIGKILL


class ShortOfDescriptors(type(Path())):
    """Files that cannot be opened now."""

    def read_text(self, *_, **__):
        raise OSError(errno.EMFILE, "short of descriptors")


def test_systemd_is_asked_by_argument_lists_and_its_refusals_are_errors(
    tmp_path, monkeypatch, started
):
    for program in ("busctl", "systemctl"):
        path, fake = tmp_path / program, tmp_path / "fakes" / program
        fake.parent.mkdir(exist_ok=True)
        fake.write_text(
            FAKE_SYSTEMD.format(state=str(tmp_path / "known"), groups=str(tmp_path / "groups"))
        )
        # Through a shell: the path of an interpreter in a first line may hold no space.
        path.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, "-IS", str(fake)])} "$@"\n')
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    isolation = SystemdScope(tmp_path / "groups", CpuSet.parse("0-1"))
    with pytest.raises(IsolationError) as raised:
        isolation.fit(container("1-2"))
    assert raised.value.code == "cpus-not-ours"
    assert (raised.value.fields["cpus"], raised.value.fields["known"]) == ("1-2", "0-1")
    assert isolation.names() == set()
    assert isolation.fit(container("0")) is Guarantee.CONTAINED
    isolation.admit(name(), started().pid)
    assert isolation.names() == {name()}
    with pytest.raises(OSError, match="short"):  # not: it is empty
        SystemdScope(ShortOfDescriptors(tmp_path / "groups"), CpuSet()).processes(name())
    assert isolation.fit(container("0-1", exclusive=True)) is Guarantee.EXCLUSIVE
    isolation.kill(name())
    assert isolation.remove(name())
    with pytest.raises(IsolationError) as raised:
        isolation.admit(name(2), 1)
    assert raised.value.code == "container-unknown"
    assert raised.value.fields["container"] == name(2)
    said = (tmp_path / "known.log").read_text()
    assert '"AllowedCPUs=0-1", "AllowedMemoryNodes=0"' in said


def test_masks_go_to_systemd_as_bytes_lowest_first():
    wide = CpuContainer("topologyd-00000000-a-1", CpuSet.parse("0,9"), NODE)
    words = start_scope(wide, 77, user=True)
    at = words.index("AllowedCPUs")
    assert words[at : at + 5] == ["AllowedCPUs", "ay", "2", "1", "2"]
    assert attach("p", 5, user=False)[-2:] == ["1", "5"]
    assert change(wide, user=False)[-2:] == ["AllowedCPUs=0,9", "AllowedMemoryNodes=0"]


def test_every_backend_of_this_machine_is_tried_or_says_why_not():
    levels = {title: probe(title) for title in BACKENDS}
    assert levels["affinity"].guarantee is Guarantee.ADVISORY
    assert levels["dry-run"].guarantee is Guarantee.NONE
    assert all((level.isolation is None) == bool(level.why_not) for level in levels.values())
