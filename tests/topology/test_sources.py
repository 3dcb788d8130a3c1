"""hwloc XML: what is read, what is refused, and that nothing hostile is believed or built."""

import bz2
import gzip
import lzma
import random
import shutil
import subprocess
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import Machine, random_machine, said_by

from apples.errors import UsageError
from apples.topology import (
    MAX_BYTES,
    MAX_DEPTH,
    MAX_ELEMENTS,
    CpuSet,
    TopologyFileError,
    load_topology,
    read_hwloc_xml,
    synthetic,
)

LSTOPO = shutil.which("lstopo-no-graphics")
TWO = Machine(
    ("Machine", 0, [("Package", 0, [("Core", 0, [0, 4])]), ("Package", 1, [("Core", 1, [1, 5])])]),
    nodes={0: {0, 4}, 2: {1, 5}},
    matrix={(0, 0): 10, (2, 2): 10, (0, 2): 21, (2, 0): 31},
)
PU = '<object type="PU" os_index="0" cpuset="0x1"/>'


def read(text):
    return read_hwloc_xml(text.encode(), "m.xml")


def machine(inside, after="", version="2.0"):
    return (
        f'<topology version="{version}"><object type="Machine">{inside}</object>{after}</topology>'
    )


@given(st.integers(0, 2**32))
def test_every_machine_is_read_as_it_is(seed):
    drawn = random_machine(random.Random(seed))
    drawn.format = random.Random(seed).choice(["2.0", "3.0"])
    topology = read(drawn.xml())
    rng = random.Random(seed)
    assert sorted(drawn.cpus) == list(topology.cpus)
    assert {n.number: set(CpuSet(n.cpus)) for n in topology.nodes} == drawn.nodes
    assert topology.latencies.distinct == tuple(sorted(set(drawn.matrix.values())))
    for _ in range(20):
        a, b = rng.choice(drawn.cpus), rng.choice(drawn.cpus)
        assert topology.hops(a, b) == pytest.approx(drawn.hops(a, b))


def test_what_may_not_be_used_is_left_out_and_what_is_left_keeps_its_place():
    limited = Machine(TWO.tree, TWO.nodes, TWO.matrix, allowed={1, 4, 5})
    topology = read(limited.xml())
    assert (str(topology.cpus), str(topology.disallowed)) == ("1,4-5", "0")
    assert [str(core) for core in topology.cores] == ["1,5", "4"]


def test_a_package_without_cpus_counts_while_its_memory_may_be_used():
    limited = Machine(TWO.tree, TWO.nodes, TWO.matrix, allowed={1, 5})
    topology = read(limited.xml())
    assert [str(package) for package in topology.packages] == ["1,5", ""]
    assert [(n.number, n.cpus) for n in topology.nodes] == [(0, 0), (2, 0b100010)]
    assert len(topology.cores) == 1


def test_of_two_directions_the_farther_counts_and_all_values_are_ranked():
    topology = read(TWO.xml())
    assert topology.latencies.distinct == (10, 21, 31)
    assert topology.hops(0, 1) == topology.hops(1, 0) == 2
    assert topology.hops(0, 4) == 1 / 4


def test_cpus_of_no_memory_node_are_behind_everything_known():
    text = TWO.xml().replace("</object>\n", '<object type="PU" os_index="7"/></object>\n', 1)
    text = text.replace('allowed_cpuset="0x00000033"', "")
    topology = read(text)
    assert topology.hops(0, 7) == topology.hops(1, 7) == 3
    assert topology.hops(7, 7) == 0


def test_the_matrix_of_other_things_is_not_the_latency_of_memory():
    other = '<distances2 type="NUMANode" nbobjs="1" kind="5" name="Bandwidth" indexing="os"/>'
    assert read(machine(PU, other)).latencies.distinct == ()


def test_a_matrix_may_name_its_nodes_by_identity():
    nodes = (
        '<object type="NUMANode" os_index="1" cpuset="0x1" gp_index="77"/>'
        '<object type="NUMANode" os_index="0" cpuset="0x0" gp_index="78"/>'
    )
    matrix = (
        '<distances2 type="NUMANode" nbobjs="2" kind="5" indexing="gp"><indexes>77 78</indexes>'
        "<u64values>10 20</u64values><u64values>30 40</u64values></distances2>"
    )
    latencies = read(machine(PU + nodes, matrix)).latencies
    assert (latencies.nodes, latencies.values) == ((0, 1), ((40, 30), (20, 10)))


LAUGHS = '<!DOCTYPE t [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;">]><topology version="2.0">&b;</topology>'
HUGE_BITMAP = f'<object type="PU" os_index="0" cpuset="{"0xffffffff," * 5000}0x1"/>'
SHORT_MATRIX = '<distances2 type="NUMANode" nbobjs="2" kind="5" name="NUMALatency"/>'
HUGE_MATRIX = '<distances2 type="NUMANode" nbobjs="99999" kind="5" name="NUMALatency"/>'
FAR = (
    '<topology><object type="Machine"><distances nbobjs="2"><latency value="far"/></distances>'
    '<object type="NUMANode" os_index="0"><object type="PU" os_index="0"/></object>'
    '<object type="NUMANode" os_index="1"><object type="PU" os_index="1"/></object>'
    "</object></topology>"
)
HOSTILE = {
    "entity": ('<!DOCTYPE t [<!ENTITY a "b">]><topology version="2.0"/>', "xml-entity", {}),
    "laughs": (LAUGHS, "xml-entity", {}),
    "outside": (
        '<!DOCTYPE t [<!ENTITY a SYSTEM "file:///etc/passwd">]><t>&a;</t>',
        "xml-entity",
        {},
    ),
    "undeclared": ("<topology>&x;</topology>", "xml-invalid", {}),
    "cut off": ('<topology version="2.0">\n<object', "xml-invalid", {"line": 2}),
    "not XML": ("<", "xml-invalid", {}),
    "another document": ("<html/>", "file-invalid", {"element": "html"}),
    "format 1 of no CPU": (
        '<topology><object type="Machine"/></topology>',
        "cpus-missing",
        {"element": "Machine"},
    ),
    "format 1 of no numbers": (
        FAR,
        "value-type",
        {"element": "NUMANode"},
    ),
    "format 9": ('<topology version="9.0"/>', "format-unsupported", {"value": "9.0"}),
    "no machine": ('<topology version="2.0"/>', "topology-invalid", {"element": "topology"}),
    "no CPU": (machine(""), "cpus-missing", {"element": "Machine"}),
    "two CPUs of one number": (machine(PU + PU), "index-repeated", {"element": "PU 0"}),
    "no number": (machine('<object type="PU"/>'), "field-missing", {"element": "PU"}),
    "negative": (
        machine('<object type="PU" os_index="-1"/>'),
        "value-type",
        {"element": "PU -1"},
    ),
    "a million CPUs": (
        machine('<object type="PU" os_index="1000000"/>'),
        "value-range",
        {"element": "PU 1000000"},
    ),
    "no bitmap": (
        machine('<object type="PU" os_index="0" cpuset="pi"/>'),
        "bitmap-invalid",
        {"element": "PU 0"},
    ),
    "huge bitmap": (machine(HUGE_BITMAP), "value-range", {"element": "PU 0"}),
    "no type": (machine("<object/>"), "field-missing", {"element": "object"}),
    "deep": ("<a>" * (MAX_DEPTH + 1), "file-too-deep", {}),
    "wide": (machine("<i/>" * (MAX_ELEMENTS + 1)), "file-too-large", {}),
    "short matrix": (machine(PU, SHORT_MATRIX), "matrix-size-invalid", {"element": "NUMANode"}),
    "huge matrix": (machine(PU, HUGE_MATRIX), "value-range", {"element": "NUMANode"}),
    "unknown encoding": ('<?xml version="1.0" encoding="klingon"?><topology/>', "xml-invalid", {}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_no_topology_is_refused_in_one_line_with_file_and_line(name):
    text, code, fields = HOSTILE[name]
    with pytest.raises(TopologyFileError) as raised:
        read(text)
    assert raised.value.code == code
    assert {"file": "m.xml", "line": 1, **fields}.items() <= raised.value.fields.items()
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 300
    assert raised.value.exit_code == 2


def test_a_hostile_file_costs_little_memory():
    tracemalloc.start()
    for text, *_ in (HOSTILE["laughs"], HOSTILE["deep"], HOSTILE["huge matrix"]):
        with pytest.raises(TopologyFileError):
            read(text)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10e6


@given(st.data())
def test_a_damaged_file_is_read_or_refused_never_anything_else(data):
    text = bytearray(TWO.xml().encode())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text) - 1))
        if data.draw(st.booleans()):
            text[at] = data.draw(st.integers(0, 255))
        else:
            del text[at : at + data.draw(st.integers(1, 40))]
    try:
        topology = read_hwloc_xml(bytes(text), "damaged")
        topology.hops.centre(topology.cpus.mask)
    except TopologyFileError:
        pass


def test_what_is_no_file_is_refused(tmp_path):
    for name, code in (
        (tmp_path / "absent.xml", "file-missing"),
        ("a\0b", "file-unreadable"),
        (tmp_path / ("x" * 5000), "file-unreadable"),
    ):
        with pytest.raises(TopologyFileError) as raised:
            load_topology(name)
        assert (raised.value.code, raised.value.fields["file"]) == (code, str(name)[:200])
    (tmp_path / "text").write_bytes(b"\xff\xfe machine")
    with pytest.raises(TopologyFileError) as raised:
        load_topology(tmp_path / "text")
    assert raised.value.code == "file-invalid"
    assert raised.value.fields["file"] == str(tmp_path / "text")
    with (tmp_path / "huge").open("wb") as file:
        file.write(b"<")
        file.truncate(MAX_BYTES + 10)
    with pytest.raises(TopologyFileError) as raised:
        load_topology(tmp_path / "huge")
    assert (raised.value.code, raised.value.fields["bound"]) == ("file-too-large", MAX_BYTES)


def test_a_synthetic_string_may_stand_in_a_file_or_for_one(tmp_path):
    (tmp_path / "m").write_text("package:2 numa:2 l3:1 core:3 pu:2\n")
    topology = load_topology(tmp_path / "m")
    assert (len(topology.cpus), len(topology.cores), len(topology.packages), len(topology.nodes)) == (
        24, 12, 2, 4,
    )  # fmt: skip
    assert len(load_topology("package:2 core:3 pu:2").cpus) == 12


FORMAT_1 = """<topology>
<object type="Machine" os_index="0" cpuset="0x3f" online_cpuset="0x1f" allowed_cpuset="0x1f">
 <distances nbobjs="2" relative_depth="1" latency_base="10.0">
  <latency value="1.000000"/><latency value="2.100000"/><latency value="2.100000"/><latency value="1.000000"/>
 </distances>
 <object type="NUMANode" os_index="0" cpuset="0x07" nodeset="0x1" local_memory="4096">
  <object type="Socket" os_index="0"><object type="Cache" depth="3" cache_type="0">
   <object type="Core" os_index="0"><object type="PU" os_index="0"/><object type="PU" os_index="1"/></object>
   <object type="Core" os_index="1"><object type="PU" os_index="2"/></object>
  </object></object>
  <object type="Bridge"><object type="PCIDev" pci_type="0200 [8086:1528] [8086:1528] 01">
   <object type="OSDev" name="eth0" osdev_type="2"/></object></object>
 </object>
 <object type="NUMANode" os_index="1" cpuset="0x38" nodeset="0x2" local_memory="8192">
  <object type="Socket" os_index="1">
   <object type="Core" os_index="0"><object type="PU" os_index="3"/><object type="PU" os_index="4"/></object>
   <object type="Core" os_index="1"><object type="PU" os_index="5"/></object>
  </object>
 </object>
</object></topology>"""


def test_a_file_of_format_1_is_the_same_machine():
    topology = read(FORMAT_1)
    assert [str(core) for core in topology.cores] == ["0-1", "2", "3-4"]
    assert [str(package) for package in topology.packages] == ["0-2", "3-4"]
    assert [(n.number, str(CpuSet(n.cpus)), n.memory) for n in topology.nodes] == [
        (0, "0-2", 4096), (1, "3-4", 8192),
    ]  # fmt: skip
    assert topology.latencies.distinct == (10, 21)
    assert (topology.hops(0, 3), topology.near("eth0")) == (1, 0b111)
    assert 0 < topology.hops(0, 1) < topology.hops(0, 2) < 1


@pytest.mark.skipif(not LSTOPO, reason="hwloc is not installed")
@pytest.mark.parametrize(
    "text",
    [
        "package:2 [numa] l3:2 core:2 pu:2", "package:2 numa:2 core:2 pu:2", "numa:2 package:2 core:3 pu:1",
        "package:1 core:4 pu:2", "group:2 package:2 numa:2 l2:2 core:1 pu:2",
    ],
)  # fmt: skip
def test_what_hwloc_writes_in_format_1_or_as_a_string_is_the_same_machine(text):
    def written(*words):
        program = [LSTOPO, "-i", text, *words]
        return subprocess.run(program, capture_output=True, check=True, timeout=60).stdout

    new = read_hwloc_xml(written("--of", "xml", "-"), "new")
    old = read_hwloc_xml(written("--export-xml-flags", "1", "--of", "xml", "-"), "old")
    again = synthetic(written("--of", "synthetic", "-").decode())
    for one in (old, again):
        assert one.cpus == new.cpus
        assert set(one.cores) == set(new.cores)
        assert set(one.packages) == set(new.packages)
        assert [(n.number, n.cpus) for n in one.nodes] == [(n.number, n.cpus) for n in new.nodes]
        assert all(one.hops(0, cpu) == new.hops(0, cpu) for cpu in new.cpus)


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_packed_xml_is_read_and_what_is_damaged_is_refused(tmp_path, pack):
    path = tmp_path / "machine.xml.packed"
    path.write_bytes(pack(TWO.xml().encode()))
    assert str(load_topology(path).cpus) == "0-1,4-5"
    text = TWO.xml().encode()
    path.write_bytes(pack(text[:200]) + pack(b"") + b"\0" * 8 + pack(text[200:]) + b"\0" * 4)
    assert str(load_topology(path).cpus) == "0-1,4-5"
    path.write_bytes(pack(TWO.xml().encode())[:-30])
    with pytest.raises(TopologyFileError) as raised:
        load_topology(path)
    assert raised.value.fields["file"] == str(path)
    path.write_bytes(pack(text[:200]) + pack(text[200:])[:-30])
    with pytest.raises(TopologyFileError) as raised:
        load_topology(path)
    assert raised.value.code == "file-damaged"
    path.write_bytes(pack(b"<" + b" " * MAX_BYTES) + pack(b" "))
    with pytest.raises(TopologyFileError) as raised:
        load_topology(path)
    assert (raised.value.code, raised.value.fields["bound"]) == ("file-too-large", MAX_BYTES)


def test_a_synthetic_string_has_the_attributes_that_hwloc_writes():
    topology = synthetic(
        "Package:2 [NUMANode(memory=1073741824)] L3Cache:1(size=33554432) Core:2 PU:2(indexes=2*4:1*2)"
    )
    assert [str(core) for core in topology.cores] == ["0,4", "1,5", "2,6", "3,7"]
    assert [node.memory for node in topology.nodes] == [2**30, 2**30]
    assert str(synthetic("core:2 pu:1(indexes=5,3)").cpus) == "3,5"
    for wrong in ("core:2 pu:1(indexes=3,3)", "core:2 pu:1(indexes=1)", "pu:2(indexes=core:pu)",
                  "pu:4(indexes=\u00b2,1,2,3)", "pu:2(indexes=\u0661*2)", "pu:\u0662"):  # fmt: skip
        with pytest.raises(UsageError) as raised:
            synthetic(wrong)
        assert raised.value.code == "topology-invalid"


@given(st.text(st.sampled_from("packorenumdil 0123456789:[]()=,*\u00b2\u0661"), max_size=40))
def test_a_synthetic_string_is_read_or_refused_in_one_line(text):
    assert "\n" not in said_by(synthetic, text)
