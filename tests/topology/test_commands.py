"""`apples topology`: the documents that outside checks read, the codes, and what a person sees."""

import re

import pytest
from commands import command, refused
from machines import Machine

MACHINE = Machine(
    ("Machine", 0, [("Package", p, [("Core", c, [2 * p + c]) for c in (0, 1)]) for p in range(4)]),
    nodes={p: {2 * p, 2 * p + 1} for p in range(4)},
    matrix={(a, b): 10 + 10 * abs(a - b) for a in range(4) for b in range(4)},
)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "machine.xml"
    path.write_text(MACHINE.xml())
    return path


def document(*words):
    done = command("apples", "topology", *words, "--json")
    return done.code, done.document


def test_show_counts_what_there_is(file):
    code, found = document("show", file)
    assert code == 0
    assert {k: found[k] for k in ("schema", "pus", "cores", "packages", "numa_nodes", "latencies")} == {
        "schema": "apples.topology/1", "pus": 8, "cores": 8, "packages": 4, "numa_nodes": 4,
        "latencies": [10, 20, 30, 40],
    }  # fmt: skip
    assert document("show", "package:2 core:2 pu:2")[1]["latencies"] == []


def test_fit_gives_cpus_radius_centre_and_total(file):
    code, found = document("fit", file, "--count", "3", "--free", "0-1,4,6-7")
    assert code == 0
    assert found["schema"] == "apples.fit/1"
    assert (found["cpus"], found["radius"], found["centre"]) == ([4, 6, 7], 1.0, 4)
    assert found["total"] == pytest.approx(1 + 1 + 2 / 4)
    assert found["bindings"]["taskset"] == "taskset --cpu-list 4,6-7"


@pytest.mark.parametrize(
    ("words", "verdict", "numbers"),
    [
        (["--count", "9"], "never", ["8", "9"]),
        (["--count", "4", "--free", "0-2"], "not now", ["3", "4"]),
        (["--count", "4", "--require", "CPUSET[MAX_RADIUS=0]"], "never", ["0"]),
    ],
)
def test_a_fit_without_enough_cpus_is_refused_with_both_numbers(file, words, verdict, numbers):
    failure = refused("apples", "topology", "fit", file, *words)
    assert (failure["exit_code"], failure["code"]) == (3, "cpus-unsatisfied")
    assert failure["fields"]["value"] == verdict
    assert {*re.findall(r"\d+", failure["fields"]["reason"])} >= {*numbers}


@pytest.mark.parametrize(
    ("words", "code", "fields"),
    [
        (["--count", "32", "--require", "CPU_LIST=24-39,48-53"], "cpu-list-too-short", {}),
        (["--count", "1", "--require", "CPUSET_NAME=boot"], "field-unknown", {"field": "CPUSET_NAME"}),
        (["--count", "0"], "value-range", {"value": 0}),
        (["--count", "1", "--free", "x"], "cpu-list-invalid", {"value": "x"}),
        (["--count", "1", "--source", "sys"], "option-not-applicable", {"option": "--source"}),
        (["--count", "1", "--ranks", "0"], "value-range", {"option": "--ranks", "value": 0}),
    ],
)  # fmt: skip
def test_a_fit_of_bad_input_is_2(file, words, code, fields):
    failure = refused("apples", "topology", "fit", file, *words)
    assert (failure["exit_code"], failure["code"]) == (2, code)
    assert failure["fields"].items() >= fields.items()


def test_why_asks_every_machine_and_ranks_those_that_can(file):
    words = ["why", file, f"{file}=0,7", "package:1 core:2 pu:1", "--count", "4"]
    code, found = document(*words, "--require", "MAX_RADIUS=1")
    assert code == 0
    assert [host["verdict"] for host in found["hosts"]] == ["yes", "not now", "never"]
    assert re.findall(r"\d+", found["hosts"][1]["reason"]) == ["2", "4"]
    assert len(found["ranking"]) == 1
    assert command("apples", "topology", "why", "pu:2", "--count", "3").code == 3


@pytest.mark.parametrize(
    "words",
    [["show"], ["show", "x.xml"], ["show", "x.xml", "--live"], ["why"], ["show", "a:b"],
     ["show", "--live", "--source", "x"], ["why", "pu:2", "--require", "GPU[A=1]"]],
)  # fmt: skip
def test_what_is_asked_wrongly_ends_with_2_and_one_line(words):
    assert refused("apples", "topology", *words)["exit_code"] == 2


@pytest.mark.more
def test_this_machine_can_be_shown_and_asked():
    assert document("show", "--live")[1]["pus"] >= 1
    assert document("fit", "--live", "--count", "1")[0] == 0
    assert document("why", "--live", "--count", "1")[1]["ranking"] == ["this machine"]


def test_a_person_sees_the_cpus_first_and_what_to_type(file):
    done = command("apples", "topology", "fit", file, "--count", "2", "--ranks", "2")
    assert done.code == 0
    first, *_, taskset, hwloc, srun, places, affinity = map(str.strip, done.out.splitlines())
    assert "0-1" in first
    assert (taskset, hwloc) == ("taskset --cpu-list 0-1", "hwloc-bind 0x00000003 --")
    assert srun == "srun --ntasks=2 --cpu-bind=mask_cpu:0x1,0x2"
    assert (places, affinity) == ("OMP_PLACES='{0},{1}'", "GOMP_CPU_AFFINITY='0-1'")
    done = command("apples", "topology", "show", file)
    counts = re.findall(r"\d+", done.out.splitlines()[0])
    assert counts == ["8", "8", "4", "4", "4", "10", "10", "20", "30", "40"]
    assert "apples topology fit" in done.err
