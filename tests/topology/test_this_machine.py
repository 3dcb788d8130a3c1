"""This machine, and machines whose /sys is written into a folder."""

import os
import shutil
import subprocess
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apples.errors import LaunchError, UsageError
from apples.topology import (
    CpuSet,
    live_topology,
    load_topology,
    own_cpus,
    own_memory,
    read_hwloc_xml,
    read_sysfs,
    restricted,
    synthetic,
)

LSTOPO = shutil.which("lstopo-no-graphics")
hwloc = pytest.mark.skipif(not LSTOPO, reason="hwloc is not installed")


@pytest.fixture
def allowed():
    """Put back the CPUs this process may use."""
    before = os.sched_getaffinity(0)
    yield before
    os.sched_setaffinity(0, before)


@pytest.mark.parametrize("source", ["", "sys", pytest.param("lstopo", marks=hwloc)])
def test_this_machine_has_the_cpus_this_process_may_use(source, allowed):
    assert set(live_topology(source).cpus) == allowed
    os.sched_setaffinity(0, {max(allowed)})
    limited = live_topology(source)
    assert list(limited.cpus) == [max(allowed)]
    assert set(limited.disallowed) >= allowed - {max(allowed)}


@hwloc
def test_the_kernel_and_hwloc_describe_the_same_machine():
    ours, theirs = live_topology("sys"), live_topology("lstopo")
    assert ours.cpus == theirs.cpus
    assert set(ours.cores) == set(theirs.cores)
    assert set(ours.packages) == set(theirs.packages)
    assert [(n.number, n.cpus) for n in ours.nodes] == [(n.number, n.cpus) for n in theirs.nodes]
    assert ours.latencies == theirs.latencies


@hwloc
def test_devices_of_this_machine_are_those_that_hwloc_names():
    done = subprocess.run(
        [LSTOPO, "--of", "xml", "-"], capture_output=True, check=True, timeout=120
    )
    theirs = read_hwloc_xml(done.stdout, "lstopo").devices
    ours = live_topology("lstopo").devices
    assert (ours is None) == (theirs is None)
    assert [d.name for d in ours or ()] == [d.name for d in theirs or ()]
    assert b'type="OSDev"' not in done.stdout or ours


def test_a_source_that_is_not_there_is_said():
    with pytest.raises(UsageError) as raised:
        live_topology("magic")
    assert raised.value.code == "source-unknown"
    assert raised.value.fields == {"value": "magic", "known": ["lstopo", "sys"]}


def test_what_is_ours_is_asked_of_the_kernel():
    assert set(own_cpus()) == os.sched_getaffinity(0)
    memory = own_memory()
    assert memory is None or len(memory) >= 1


def write(folder, **files):
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")


def sys_of(folder, *, old=False):
    """A machine of 2 packages x 2 cores x 2 threads, node 1 without CPUs' siblings, one CPU offline."""
    write(folder / "cpu", online="0-6", present="0-7")
    for cpu in range(7):
        package, core = cpu // 2 % 2, cpu % 2
        mates = [c for c in range(8) if c // 2 % 2 == package]
        threads = [c for c in mates if c % 2 == core]
        place = folder / f"cpu/cpu{cpu}/topology"
        names = ("core_siblings", "thread_siblings") if old else ("package_cpus", "core_cpus")
        for name, some in zip(names, (mates, threads), strict=True):
            if old:
                write(place, **{name: f"{sum(1 << c for c in some):08x}"})
            else:
                write(place, **{f"{name}_list": CpuSet.of(some)})
        write(place, physical_package_id=package, core_id=core)
        cache = folder / f"cpu/cpu{cpu}/cache/index0"
        write(cache, level=3, type="Unified", shared_cpu_list=CpuSet.of(mates))
    write(folder / "node", online="0-2")
    for node, cpus in enumerate(["0-1,4-5", "2-3,6-7", ""]):
        place = folder / f"node/node{node}"
        write(
            place, cpulist=cpus, distance=" ".join("10" if n == node else "21" for n in range(3))
        )
        write(place, meminfo=f"Node {node} MemTotal:       1024 kB")
    return folder


@pytest.mark.parametrize("old", [False, True])
def test_a_machine_is_read_from_what_the_kernel_says_old_or_new(tmp_path, old):
    topology = read_sysfs(sys_of(tmp_path, old=old))
    assert (str(topology.cpus), str(topology.offline)) == ("0-6", "7")
    assert [str(p) for p in topology.packages] == ["0-1,4-5", "2-3,6"]
    assert [str(c) for c in topology.cores] == ["0,4", "1,5", "2,6", "3"]
    assert [(n.number, n.memory, len(CpuSet(n.cpus))) for n in topology.nodes] == [
        (0, 2**20, 4), (1, 2**20, 3), (2, 2**20, 0),
    ]  # fmt: skip
    assert topology.latencies.distinct == (10, 21)
    assert topology.hops(0, 2) == 1
    assert 0 < topology.hops(0, 4) < topology.hops(0, 1) < 1


def test_the_kernel_names_the_kinds_of_cores(tmp_path):
    folder = sys_of(tmp_path / "system")
    for cpu in range(7):
        write(folder / f"cpu/cpu{cpu}", cpu_capacity=1024 if cpu < 2 else 500)
    assert read_sysfs(folder).of_kind("performance") == 0b11
    for kind, cpus in (("core", "0-3"), ("atom", "4-7")):
        write(tmp_path / f"cpu_{kind}", cpus=cpus)
    topology = read_sysfs(folder)
    assert topology.of_kind("performance") == 0b1111
    assert topology.of_kind("efficiency") == 0b1110000


def test_a_kernel_that_contradicts_itself_still_gives_a_tree(tmp_path):
    folder = sys_of(tmp_path)
    write(folder / "cpu/cpu0/cache/index1", level=2, type="Unified", shared_cpu_list="1-2")
    topology = read_sysfs(folder)
    assert len(topology.packages) == 2
    assert sorted(cpu for core in topology.cores for cpu in core) == list(range(7))


@pytest.mark.parametrize("above", ["", "sys/devices/system"])
def test_a_stored_sys_is_read_from_its_folder(tmp_path, above):
    sys_of(tmp_path / above)
    assert str(load_topology(tmp_path).cpus) == "0-6"


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_a_stored_sys_is_read_from_its_archive(tmp_path, mode):
    sys_of(tmp_path / "host/sys/devices/system")
    with tarfile.open(tmp_path / "host.tar", mode) as archive:
        archive.add(tmp_path / "host", "host")
    topology = load_topology(tmp_path / "host.tar")
    assert [str(core) for core in topology.cores] == ["0,4", "1,5", "2,6", "3"]
    assert topology.latencies.distinct == (10, 21)


def test_a_folder_or_archive_without_sys_is_refused(tmp_path):
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        archive.add(__file__, "a.py")
    (tmp_path / "empty").mkdir()
    for name in ("a.tar.gz", "empty"):
        with pytest.raises(UsageError) as raised:
            load_topology(tmp_path / name)
        assert raised.value.code == "file-invalid"
        assert raised.value.fields["file"] == str(tmp_path / name)


def test_an_archive_of_chained_headers_is_refused(tmp_path):
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 4
    path = tmp_path / "host.tar"
    path.write_bytes(3000 * (header.tobuf(tarfile.GNU_FORMAT) + b"name".ljust(512, b"\0")))
    with pytest.raises(UsageError) as raised:
        load_topology(path)
    assert (raised.value.code, raised.value.fields["file"]) == ("file-damaged", str(path))


def test_parts_that_nest_without_end_are_refused_in_one_line(tmp_path):
    write(tmp_path / "cpu", online="0-1499", present="0-1499")
    for cpu in range(1500):
        write(tmp_path / f"cpu/cpu{cpu}/topology", core_cpus_list=f"0-{cpu}")
    with pytest.raises(LaunchError) as raised:
        load_topology(tmp_path)
    assert raised.value.code == "kernel-files-too-deep"
    assert str(raised.value).startswith(f"{tmp_path}: its cpu folders name")


def test_a_large_machine_whose_caches_cross_its_cores_is_read_without_those_caches(tmp_path):
    cpus = 1100
    write(tmp_path / "cpu", online=f"0-{cpus - 1}", present=f"0-{cpus - 1}")
    for cpu in range(cpus):
        cache = tmp_path / f"cpu/cpu{cpu}/cache/index0"
        write(cache, level=2, type="Unified", shared_cpu_list=f"{cpu},{(cpu + 7) % cpus}")
        write(
            tmp_path / f"cpu/cpu{cpu}/topology",
            core_cpus_list=f"{cpu // 2 * 2}-{cpu // 2 * 2 + 1}",
        )
    machine = load_topology(tmp_path)
    assert len(machine.cpus) == cpus
    assert {part.kind for part in machine.root.walk()} == {"Machine", "Core", "PU"}


def test_hundreds_of_large_groups_that_cross_others_are_refused(tmp_path):
    cpus = 400
    write(tmp_path / "cpu", online=f"0-{cpus - 1}", present=f"0-{cpus - 1}")
    for cpu in range(cpus):
        others = ",".join(str(other) for other in range(cpus) if other != cpu)
        write(
            tmp_path / f"cpu/cpu{cpu}/cache/index0",
            level=2, type="Unified", shared_cpu_list=others,
        )  # fmt: skip
        core = f"{cpu // 2 * 2}-{cpu // 2 * 2 + 1}"
        write(tmp_path / f"cpu/cpu{cpu}/topology", core_cpus_list=core)
    with pytest.raises(LaunchError) as raised:
        load_topology(tmp_path)
    assert raised.value.code == "kernel-files-crossing"


def test_no_sys_is_said(tmp_path):
    with pytest.raises(LaunchError) as raised:
        read_sysfs(tmp_path)
    assert raised.value.code == "kernel-files-missing"
    assert raised.value.fields["file"].startswith(str(tmp_path))


@given(st.sets(st.integers(0, 23), min_size=1))
def test_what_an_outer_allocation_leaves_is_the_same_machine_with_less_in_it(cpus):
    whole = synthetic("package:2 [numa] l3:2 core:3 pu:2")
    rest = restricted(whole, CpuSet.of(cpus))
    assert set(rest.cpus) == cpus
    assert set(rest.disallowed) == set(whole.cpus) - cpus
    assert {c for p in rest.packages for c in p} == cpus
    for a in list(cpus)[:4]:
        for b in list(cpus)[:4]:
            assert (rest.hops(a, b) == 0) == (a == b)
    assert len(rest.nodes) == 2


def test_none_of_ours_on_the_machine_is_an_error():
    with pytest.raises(LaunchError) as raised:
        restricted(synthetic("pu:4"), CpuSet.parse("99"))
    assert raised.value.code == "cpus-not-ours"
    assert raised.value.fields == {"cpus": "99", "known": "0-3"}
