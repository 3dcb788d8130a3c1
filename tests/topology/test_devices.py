"""GPUs, network interfaces and memory of a machine: what is read, and what a job may ask of them."""

from pathlib import Path

import pytest
from commands import command
from hypothesis import given
from hypothesis import strategies as st

from apples.errors import UsageError
from apples.topology import (
    AMOUNTS,
    CpuSet,
    Fit,
    Satisfiability,
    fit,
    load_topology,
    parse,
    read_hwloc_xml,
    restricted,
    synthetic,
)

FILE = Path(__file__).with_name("devices.xml")
MACHINE = load_topology(FILE)


def asked(text, count=1, machine=MACHINE, free="0-3"):
    return fit(machine, CpuSet.parse(free), parse(text, count))


def test_a_gpu_is_one_device_however_many_runtimes_name_it_and_a_boards_display_is_none():
    found = [(d.name, d.kind.value, str(CpuSet(d.cpus))) for d in MACHINE.devices]
    assert found == [
        ("cuda0", "gpu", "0-1"),
        ("ens1", "nic", "2-3"),
        ("0000:b0:00.0", "gpu", "2-3"),
    ]
    assert [d.aliases for d in MACHINE.devices] == [("nvml0",), ("mlx5_0",), ()]
    gpu = MACHINE.devices[0]
    assert (gpu.memory, gpu.model) == (16130000 * 1024, "Tesla V100")


def test_in_format_3_network_interfaces_are_known_by_their_addresses(tmp_path):
    text = (
        FILE.read_text().replace('version="2.0"', 'version="3.0"').replace("osdev_type", "types")
    )
    (tmp_path / "three.xml").write_text(text)
    assert [d.name for d in load_topology(tmp_path / "three.xml").devices] == [
        d.name for d in MACHINE.devices
    ]


def test_amounts_are_of_the_whole_machine_and_what_no_source_says_is_not_known():
    assert MACHINE.amounts() == {
        "ngpus": 2, "nnics": 1, "ncpus": 4, "ncores": 4,
        "maxmem": 144_000_000_000, "hbm": 16_000_000_000,
    }  # fmt: skip
    assert tuple(MACHINE.amounts()) == AMOUNTS
    assert synthetic("package:2 core:2 pu:1").amounts()["maxmem"] is None


def test_what_may_not_be_used_is_near_to_nothing_and_the_device_stays():
    rest = restricted(MACHINE, CpuSet.parse("0-1"))
    assert [str(CpuSet(d.cpus)) for d in rest.devices] == ["0-1", "", ""]


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("NEAR=cuda0", {0, 1}), ("NEAR=mlx5_0", {2, 3}), ("NEAR=nic", {2, 3}), ("NEAR=gpu", {0, 1, 2, 3}),
        ("select[ngpus>=1] CPUSET[NEAR=cuda0;WHOLE_CORES=Y]", {0, 1}),
        ("select[ngpus>=1 && maxmem>=64GB && hbm>0]", {0, 1, 2, 3}), ("SELECT[ngpus==2]", {0, 1, 2, 3}),
    ],
)  # fmt: skip
def test_a_job_gets_cpus_near_the_device_it_names_on_a_host_it_selects(text, cpus):
    found = asked(text)
    assert isinstance(found, Fit), found
    assert set(found.cpus) <= cpus
    assert found.devices == (("cuda0",) if set(found.cpus) <= {0, 1} else found.devices)


@pytest.mark.parametrize(
    ("text", "count", "found", "needed", "name"),
    [
        ("select[ngpus>=3]", 1, 2, 3, "ngpus"),
        ("select[maxmem>1TB]", 1, 144_000_000_000, 10**12, "maxmem"),
        ("NEAR=cuda7", 1, 0, 1, "cuda7"),
        ("NEAR=cuda0", 3, 2, 3, "cuda0"),
    ],
)
def test_what_a_host_has_not_it_never_has(text, count, found, needed, name):
    refused = asked(text, count)
    assert refused.verdict is Satisfiability.NEVER
    assert refused.key == text[: len(refused.key)].upper()
    assert (refused.found, refused.needed) == (found, needed)
    assert name in refused.reason


def test_cpus_near_a_device_that_are_taken_are_waited_for():
    refused = asked("NEAR=cuda0", free="1-3", count=2)
    assert refused.verdict is Satisfiability.NOT_NOW
    assert (refused.key, refused.found, refused.needed) == ("NEAR", 1, 2)


def test_devices_that_no_source_looked_for_are_not_known():
    machine = synthetic("package:2 core:2 pu:1")
    assert (machine.amounts()["ngpus"], machine.amounts()["nnics"]) == (None, None)
    refused = asked("select[nnics<1]", machine=machine)
    assert (refused.key, refused.needed) == ("SELECT", 1)
    assert "not known" in refused.reason
    assert "not known" in asked("NEAR=gpu", machine=machine).reason
    unknown = asked("select[maxmem>=1GB]", machine=synthetic("package:2 core:2 pu:1"))
    assert (unknown.key, unknown.found, unknown.needed) == ("SELECT", 0, 10**9)
    assert "its source names no size of memory" in unknown.reason
    assert "lstopo" not in unknown.reason
    assert "lstopo" in refused.reason


@given(
    st.lists(
        st.tuples(
            st.sampled_from(AMOUNTS), st.sampled_from([">=", "<=", "==", "!=", ">", "<", "="]),
            st.integers(0, 10**14), st.sampled_from(["", "MB", "GB", "TB"]),
        ),
        min_size=1, max_size=4,
    ),
    st.sampled_from(["", "MAX_RADIUS=1.0", "NEAR=cuda0"]),
)  # fmt: skip
def test_what_is_written_is_read_as_the_same(conditions, rest):
    chosen = " && ".join("".join(map(str, one)) for one in conditions)
    requirement = parse(f"select[{chosen}] CPUSET[{rest}]")
    assert len(requirement.select) == len(conditions)
    assert parse(str(requirement)) == requirement


@pytest.mark.parametrize(
    ("text", "code", "fields"),
    [
        ("select[ngpus]", "value-invalid", {"field": "SELECT", "position": 8, "value": "ngpus"}),
        ("select[gpus>=1]", "value-invalid", {"position": 8, "value": "gpus>=1"}),
        ("select[ngpus>=1] rusage[mem=4]", "broker-unknown", {"value": "RUSAGE"}),
        ("SELECT=ngpus>=1", "requirement-invalid", {"field": "SELECT", "position": 1}),
        ("select[ngpus>=1", "bracket-unclosed", {"position": 15}),
    ],
)
def test_what_selects_nothing_is_refused_with_its_place(text, code, fields):
    with pytest.raises(UsageError) as raised:
        parse(text, broker="CPUSET")
    assert raised.value.code == code
    assert fields.items() <= raised.value.fields.items()


def test_devices_are_shown_and_are_in_the_documents():
    shown = command("apples", "topology", "show", FILE)
    gpu = next(line for line in shown.out.splitlines() if "cuda0" in line)
    assert all(value in gpu for value in ("Tesla V100", "16.5 GB", "0-1"))
    document = command("apples", "topology", "show", FILE, "--json").document
    assert [one["name"] for one in document["devices"]] == [d.name for d in MACHINE.devices]
    fitted = command("apples", "topology", "fit", FILE, "--require", "NEAR=mlx5_0", "--json")
    assert fitted.document["devices"] == ["ens1", "0000:b0:00.0"]


def with_devices(devices, version="2.0"):
    """A machine of one CPU whose buses hold some devices."""
    return read_hwloc_xml(
        f'<topology version="{version}"><object type="Machine"><object type="PU" os_index="0"/>'
        f'<object type="Bridge">{devices}</object></object></topology>'.encode(),
        "d.xml",
    )


def system(name, kind="5", **infos):
    pairs = "".join(f'<info name="{key}" value="{value}"/>' for key, value in infos.items())
    return f'<object type="OSDev" name="{name}" osdev_type="{kind}">{pairs}</object>'


def pci(*inside):
    return f'<object type="PCIDev" pci_busid="0000:01:00.0">{"".join(inside)}</object>'


@pytest.mark.parametrize(
    ("written", "size"),
    [
        ("16671616KiB", 16671616 * 2**10), ("16671616", 16671616 * 2**10), ("16 GiB", 2**34),
        ("lots", None), ("-1", None), ("9" * 400, None), ("", None),
    ],
)  # fmt: skip
def test_a_size_has_a_unit_and_one_that_is_unreadable_is_unknown(written, size):
    machine = with_devices(pci(system("cuda0", CUDAGlobalMemorySize=written)), version="3.0")
    assert [(d.name, d.memory) for d in machine.devices] == [("cuda0", size)]


def test_a_memory_node_of_unreadable_size_costs_no_machine():
    text = FILE.read_text().replace('local_memory="16000000000"', 'local_memory="16 gigabytes"')
    machine = read_hwloc_xml(text.encode(), "m.xml")
    assert (len(machine.nodes), machine.amounts()["maxmem"]) == (3, 128_000_000_000)


def test_a_partitioned_gpu_is_as_many_as_one_runtime_names():
    parts = [system(f"rsmi{i}", RSMIVRAMSize="1024") for i in range(6)]
    machine = with_devices(pci(*parts, system("opencl0d0"), system("card0", "1")) * 4)
    assert machine.amounts()["ngpus"] == 24
    assert {d.name for d in machine.devices} == {f"rsmi{i}" for i in range(6)}
    loose = with_devices(system("cuda0") + system("nvml0") + system("opencl0d0"))
    assert [(d.name, d.aliases) for d in loose.devices] == [("cuda0", ("nvml0", "opencl0d0"))]
    tiles = with_devices(pci(system("ze0"), system("ze0.0"), system("ze0.1")))
    assert tiles.amounts()["ngpus"] == 1


@pytest.mark.parametrize(
    ("names", "fabrics", "ports"),
    [
        (["hsi0"], [("mlx5_0", 1)], 1),
        (["ib0", "ib1"], [("mlx4_0", 2)], 2),
        ([], [("mlx4_0", 2)], 2),
        (["ib0", "ib0.8001"], [("mlx5_0", 1)], 1),
        (["eth0", "eth1"], [], 2),
        (["eth0"], [("mlx5_0", 1), ("mlx5_1", 1)], 2),
    ],
)
def test_a_port_of_a_network_card_counts_once(names, fabrics, ports):
    inside = [system(name, "2", Address="00:11:22:33:44:55") for name in names]
    for name, count in fabrics:
        infos = {f"Port{i + 1}{what}": "1" for i in range(count) for what in ("State", "LID")}
        inside.append(system(name, "3", NodeGUID="1:2:3:4", **infos))
    for version in ("2.0", "3.0"):
        machine = with_devices(pci(*inside), version)
        assert machine.amounts()["nnics"] == ports
        for name in (*names[:1], *(name for name, _ in fabrics)):
            assert machine.near(name) == 1


def hybrid(*kinds):
    """A machine of 6 CPUs whose cores are of some kinds, as hwloc tells of them: (mask, infos)."""
    units = "".join(f'<object type="PU" os_index="{cpu}"/>' for cpu in range(6))
    told = "".join(
        f'<cpukind cpuset="{mask:#x}">'
        + "".join(f'<info name="{key}" value="{value}"/>' for key, value in infos.items())
        + "</cpukind>"
        for mask, infos in kinds
    )
    text = f'<topology version="2.0"><object type="Machine">{units}</object>{told}</topology>'
    return read_hwloc_xml(text.encode(), "h.xml")


@pytest.mark.parametrize(
    ("kinds", "performance"),
    [
        ([(0b110000, {"CoreType": "IntelAtom"}), (0b1111, {"CoreType": "IntelCore"})], "0-3"),
        ([(0b110000, {"CoreType": "IntelAtom"}), (0b11, {"CoreType": "IntelCore", "FrequencyMaxMHz": "5400"}),
          (0b1100, {"CoreType": "IntelCore", "FrequencyMaxMHz": "5200"})], "0-3"),
        ([(0b11, {"LinuxCapacity": "400"}), (0b111100, {"LinuxCapacity": "1024"})], "2-5"),
        ([(0b111111, {"LinuxCapacity": "1024"})], "0-5"),
        ([(0b11, {"LinuxCapacity": "1009"}), (0b111100, {"LinuxCapacity": "1024"})], "0-5"),
        ([(0b11, {"FrequencyMaxMHz": "1"}), (0b111100, {"FrequencyMaxMHz": "2"})], "0-5"),
        ([], "0-5"),
    ],
)  # fmt: skip
def test_a_job_gets_cores_of_the_kind_it_selects(kinds, performance):
    machine = hybrid(*kinds)
    best = CpuSet.parse(performance)
    assert asked("select[kind=performance]", len(best), machine, "0-5").cpus == best
    if 0 in best:
        refused = asked("select[kind=performance]", len(best), machine, "1-5")
        assert refused.verdict is Satisfiability.NOT_NOW
        assert (refused.found, refused.needed) == (len(best) - 1, len(best))
    rest = machine.cpus - best
    others = asked("select[kind=efficiency] CPUSET[PLACEMENT=first]", 1, machine, "0-5")
    assert others.cpus <= rest if rest else others.verdict is Satisfiability.NEVER


def test_two_kinds_of_core_at_once_are_refused():
    with pytest.raises(UsageError) as raised:
        parse("select[kind=performance && kind=efficiency]")
    assert (raised.value.code, raised.value.fields["field"]) == ("value-invalid", "SELECT")
    assert str(parse("select[kind == performance]")).startswith("select[kind=performance]")
