"""GPUs, network interfaces and memory of a machine: what is read, and what a job may ask of them."""

from pathlib import Path

import pytest
from commands import command
from hypothesis import given
from hypothesis import strategies as st
from machines import text_of

from apples.errors import UsageError
from apples.topology import (
    AMOUNTS,
    CpuSet,
    Fit,
    Satisfiability,
    fit,
    load_topology,
    parse,
    requirement_of,
    restricted,
    synthetic,
)

FILE = Path(__file__).with_name("devices.xml")
MACHINE = load_topology(FILE)


def asked(text, count=1, machine=MACHINE, free="0-3"):
    return fit(machine, CpuSet.parse(free), requirement_of(parse(text), count))


def test_a_gpu_is_one_device_however_many_runtimes_name_it_and_a_boards_display_is_none():
    found = [(d.name, d.kind.value, str(CpuSet(d.cpus))) for d in MACHINE.devices]
    assert found == [
        ("cuda0", "gpu", "0-1"),
        ("ens1", "nic", "2-3"),
        ("mlx5_0", "nic", "2-3"),
        ("0000:b0:00.0", "gpu", "2-3"),
    ]
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
        "ngpus": 2, "nnics": 2, "ncpus": 4, "ncores": 4,
        "maxmem": 144_000_000_000, "hbm": 16_000_000_000,
    }  # fmt: skip
    assert tuple(MACHINE.amounts()) == AMOUNTS
    assert synthetic("package:2 core:2 pu:1").amounts()["maxmem"] is None


def test_what_may_not_be_used_is_near_to_nothing_and_the_device_stays():
    rest = restricted(MACHINE, CpuSet.parse("0-1"))
    assert [str(CpuSet(d.cpus)) for d in rest.devices] == ["0-1", "", "", ""]


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


def test_a_machine_whose_source_knows_no_devices_has_none():
    refused = asked("select[ngpus>=1]", machine=synthetic("package:2 core:2 pu:1"))
    assert (refused.key, refused.found, refused.needed) == ("SELECT", 0, 1)
    unknown = asked("select[maxmem>=1GB]", machine=synthetic("package:2 core:2 pu:1"))
    assert (unknown.key, unknown.found, unknown.needed) == ("SELECT", 0, 10**9)


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
    requirement = requirement_of(parse(f"select[{chosen}] CPUSET[{rest}]"))
    assert len(requirement.select) == len(conditions)
    assert requirement_of(parse(text_of(requirement))) == requirement


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
        requirement_of(parse(text))
    assert raised.value.code == code
    assert fields.items() <= raised.value.fields.items()


def test_devices_are_shown_and_are_in_the_documents():
    shown = command("apples", "topology", "show", FILE)
    gpu = next(line for line in shown.out.splitlines() if "cuda0" in line)
    assert all(value in gpu for value in ("Tesla V100", "16.5 GB", "0-1"))
    document = command("apples", "topology", "show", FILE, "--json").document
    assert [one["name"] for one in document["devices"]] == [d.name for d in MACHINE.devices]
    fitted = command("apples", "topology", "fit", FILE, "--require", "NEAR=mlx5_0", "--json")
    assert fitted.document["devices"] == ["ens1", "mlx5_0", "0000:b0:00.0"]
