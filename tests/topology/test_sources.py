"""hwloc XML: what is read, what is refused, and that nothing hostile is believed or built."""

import random
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import Machine, random_machine, said_by

from apples.topology import (
    MOST_BYTES,
    MOST_DEPTH,
    MOST_ELEMENTS,
    CpuSet,
    TopologyFileError,
    load_topology,
    read_hwloc_xml,
    synthetic,
)

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
    "format 1": (
        '<topology><object type="Machine"/></topology>',
        "format-unsupported",
        {"value": "1"},
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
    "deep": ("<a>" * (MOST_DEPTH + 1), "file-too-deep", {}),
    "wide": (machine("<i/>" * (MOST_ELEMENTS + 1)), "file-too-large", {}),
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
        file.truncate(MOST_BYTES + 10)
    with pytest.raises(TopologyFileError) as raised:
        load_topology(tmp_path / "huge")
    assert (raised.value.code, raised.value.fields["bound"]) == ("file-too-large", MOST_BYTES)


def test_a_synthetic_string_may_stand_in_a_file_or_for_one(tmp_path):
    (tmp_path / "m").write_text("package:2 numa:2 l3:1 core:3 pu:2\n")
    topology = load_topology(tmp_path / "m")
    assert (len(topology.cpus), len(topology.cores), len(topology.packages), len(topology.nodes)) == (
        24, 12, 2, 4,
    )  # fmt: skip
    assert len(load_topology("package:2 core:3 pu:2").cpus) == 12


@given(st.text(st.sampled_from("packorenumdil 0123456789:[]()"), max_size=40))
def test_a_synthetic_string_is_read_or_refused_in_one_line(text):
    assert "\n" not in said_by(synthetic, text)
