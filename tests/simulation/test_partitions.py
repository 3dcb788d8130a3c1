"""Machines of partitions: where jobs go, what their limits do, and that nothing else changes."""

import json
import re
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest
from commands import command
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from apples.errors import UsageError
from apples.scheduling import (
    POLICIES,
    Accepted,
    AdvanceReservation,
    ClusterLedger,
    Easy,
    FirstComeFirstServed,
    Job,
    JobKind,
    Refused,
    SchedulingPolicy,
    ShortestJobFirst,
    SlowdownDriven,
    Start,
)
from apples.simulation import (
    Log,
    NodeFailure,
    Partition,
    SimulationConfig,
    by_partition,
    has_kernel,
    mark_malleable,
    read_machine,
    rigid,
    simulate,
    write_swf,
)
from apples.simulation import prepare_simulation as prepare

GIB = 1 << 30
SAME = ("start", "end", "resizes", "guest", "mate", "completed")


def machine(*parts, **more):
    return SimulationConfig(sum(part.nodes for part in parts), partitions=parts, **more)


def jobs(*rows, **attributes):
    """Jobs of (submit, processors, run and request), numbered from 1."""
    submit, width, run = (np.array(column) for column in zip(*rows, strict=True))
    workload = rigid(submit.astype(float), run.astype(float), width, run.astype(float))
    columns = {name: np.array(column, dtype=float) for name, column in attributes.items()}
    return replace(workload, attributes=columns)


def same(first, second):
    return all(
        np.array_equal(getattr(first, name), getattr(second, name), equal_nan=True)
        for name in SAME
    )


# --------------------------------------------------------------------------- what stays as it is

workloads = st.lists(
    st.tuples(
        st.integers(0, 20), st.integers(1, 8), st.integers(1, 12), st.sampled_from([0, 0, 1, 9])
    ),
    min_size=1,
    max_size=14,
)


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=examples(12), deadline=None)
@given(
    rows=workloads,
    engine=st.sampled_from(["kernel", "events"]),
    fraction=st.sampled_from([0.5, 1]),
)
def test_one_partition_is_the_plain_machine_bit_for_bit(name, rows, engine, fraction):
    submit, width, run, slack = (np.array(column) for column in zip(*rows, strict=True))
    workload = rigid(submit.astype(float), run.astype(float), width, (run + slack).astype(float))
    policy = POLICIES[name]()
    if policy.uses_malleable:
        workload = mark_malleable(workload, fraction, 1, most=8)
    plain = simulate(workload, policy, SimulationConfig(4, 2), engine=engine)
    roomy = Partition("all", 1, 4, 2, memory=GIB, gpus=0)
    for part in (Partition("all", 1, 4, 2), roomy):
        parted = simulate(workload, policy, machine(part), engine=engine)
        assert same(parted, plain)
        assert parted.node_seconds == plain.node_seconds


@pytest.mark.parametrize("name", ["easy", "conservative", "slurm", "equipartition", "sd"])
@settings(max_examples=examples(12), deadline=None)
@given(rows=workloads, where=st.lists(st.integers(1, 2), min_size=14, max_size=14),
       ties=st.sampled_from(["instant", "event"]),
       before=st.lists(st.integers(0, 14), min_size=14, max_size=14))  # fmt: skip
def test_two_partitions_are_two_machines_where_nothing_crosses(name, rows, where, ties, before):
    """Jobs wait for others of their own partition only: then there is one clock, and it changes nothing."""
    workload = jobs(*(row[:3] for row in rows), partition=where[: len(rows)])
    number = workload.job.tolist()
    part_of = dict(zip(number, workload.attributes["partition"].tolist(), strict=True))
    waits = {
        job: (first, 2.0)
        for job, first in zip(number, before, strict=False)
        if first < job and part_of.get(first) == part_of[job]
    }
    policy = POLICIES[name]()
    if policy.uses_malleable:
        workload = mark_malleable(workload, 1.0, 1, most=8)
    parts = Partition("a", 1, 4, 2), Partition("b", 2, 4, 2, speed=2.0)
    for dependencies in ({}, waits):
        config = SimulationConfig(12, ties=ties, dependencies=dependencies)
        together = simulate(workload, policy, replace(config, partitions=parts))
        for place, part in enumerate(parts):
            mine = np.flatnonzero(together.partition == place)
            alone = SimulationConfig(
                part.nodes, part.cores, speed=part.speed, ties=ties, dependencies=dependencies
            )
            if not len(mine):
                continue
            found = simulate(workload.take(mine), policy, alone, engine="events")
            for column in SAME:
                np.testing.assert_array_equal(
                    getattr(together, column)[mine], getattr(found, column)
                )


def test_a_partition_that_only_says_how_large_it_is_runs_on_the_compiled_kernel():
    workload = jobs((0, 4, 9), (1, 4, 9))
    pytest.importorskip("numba")
    for speed, engine in ((1.0, "numba"), (2.0, "events")):
        parted = machine(Partition("a", 1, 4, speed=speed))
        assert simulate(workload, Easy(), parted, engine="kernel").engine == engine
    assert not has_kernel(Easy(), SimulationConfig(4, speed=2.0), workload)


# ------------------------------------------------------------------------------- where jobs go


def test_a_job_goes_where_it_asks_to_and_others_to_the_default_partition():
    parts = Partition("a", 7, 4), Partition("b", 9, 4, default=True)
    result = simulate(jobs(*[(0, 4, 10)] * 4, partition=[7, 9, -1, 3]), Easy(), machine(*parts))
    assert result.partition.tolist() == [0, 1, 1, 1]
    assert result.start.tolist() == [0, 0, 10, 20]


def test_names_count_where_a_log_has_names_and_the_first_known_of_several_is_taken():
    workload = replace(
        jobs(*[(0, 1, 1)] * 3, partition=[1, 2, 3]), names={"partition": ("b", "x", "x,b")}
    )
    result = simulate(workload, Easy(), machine(Partition("a", 1, 4), Partition("b", 2, 4)))
    assert result.partition.tolist() == [1, 0, 1]


def test_a_job_that_names_no_partition_goes_where_it_fits():
    parts = Partition("small", 1, 2), Partition("large", 2, 8)
    result = simulate(jobs((0, 4, 1), (0, 2, 1), (0, 9, 1)), Easy(), machine(*parts))
    assert result.partition.tolist() == [1, 0, 0]
    assert [*result.rejected] == [3]
    assert re.search(r"\bsmall\b.*\b2\b", result.rejected[3])  # of the partition it fits best


def test_each_partition_has_a_queue_of_its_own():
    """Job 2 waits for all of a; job 3, behind it, has b to itself."""
    rows = (0, 4, 100), (1, 4, 10), (2, 4, 10)
    parts = Partition("a", 1, 4), Partition("b", 2, 4)
    workload = jobs(*rows, partition=[1, 1, 2])
    assert simulate(workload, FirstComeFirstServed(), machine(*parts)).start.tolist() == [
        0,
        100,
        2,
    ]


def test_a_job_may_wait_for_the_end_of_one_in_another_partition():
    parts = Partition("a", 1, 4), Partition("b", 2, 4)
    workload = jobs((0, 4, 100), (1, 4, 10), (2, 4, 200), partition=[1, 2, 1])
    waits = {2: (1, 5.0), 3: (2, 0.0)}
    for policy in (Easy(), POLICIES["slurm"]()):
        result = simulate(workload, policy, machine(*parts, dependencies=waits))
        assert result.start[0] == 0
        assert result.start[1] >= 105
        assert result.start[2] >= result.end[1]
        assert result.completed.all()
    assert simulate(workload, Easy(), machine(*parts, dependencies=waits)).start.tolist() == [
        0,
        105,
        115,
    ]


def test_an_end_lets_a_job_of_another_partition_come_before_that_one_decides():
    """At 10 s job 3 comes, by the end of job 1 in a, and is shorter than job 4, which waits for b too."""
    parts = Partition("b", 2, 4), Partition("a", 1, 4)
    rows = (0, 4, 10), (0, 4, 10), (0, 4, 5), (0, 4, 10)
    workload = jobs(*rows, partition=[1, 2, 2, 2])
    config = machine(*parts, dependencies={3: (1, 0.0)})
    assert simulate(workload, ShortestJobFirst(), config).start.tolist() == [0, 0, 10, 15]


def test_a_rejected_predecessor_counts_as_ended():
    parts = Partition("a", 1, 4), Partition("b", 2, 8)
    workload = jobs((3, 8, 100), (4, 1, 10), partition=[1, 2])
    result = simulate(workload, Easy(), machine(*parts, dependencies={2: (1, 7.0)}))
    assert result.start[1] == 10
    assert list(result.rejected) == [1]


def test_nodes_are_numbered_through_all_partitions_where_they_fail():
    parts = Partition("a", 1, 2), Partition("b", 2, 2)
    lost = (NodeFailure(5.0, 2, 8.0),)
    result = simulate(
        jobs((0, 2, 10), (0, 2, 10), partition=[1, 2]), Easy(), machine(*parts, failures=lost)
    )
    assert result.start.tolist() == [0, 8]
    assert result.restarts == 1


def test_an_advance_reservation_is_of_the_partition_it_is_called_after_or_of_the_default_one():
    kept = AdvanceReservation(5.0, 20.0, 4, "b"), AdvanceReservation(5.0, 30.0, 4, "upgrade")
    parts = Partition("a", 1, 4), Partition("b", 2, 4)
    workload = jobs((1, 4, 10), (1, 4, 10), partition=[1, 2])
    result = simulate(workload, Easy(), machine(*parts, advance=kept))
    assert result.start.tolist() == [30, 20]
    assert sorted(one.name for one in result.reservations) == ["b", "upgrade"]


# -------------------------------------------------------------------------------------- limits


def test_speed_scales_run_times_and_leaves_requests_as_they_are():
    """Job 3 asks for no more than is left of what job 1 asked for, and so passes job 2 at any speed."""
    workload = replace(
        jobs((0, 3, 100), (1, 4, 10), (2, 1, 60)), requested=np.array([100.0, 10.0, 98.0])
    )
    for speed in (0.5, 1.0, 2.0, 4.0):
        result = simulate(workload, Easy(), machine(Partition("a", 1, 4, speed=speed)))
        np.testing.assert_allclose(result.end - result.start, workload.run / speed, rtol=1e-12)
        assert result.start[2] == 2


def test_a_slow_partition_kills_where_limits_kill():
    parts = Partition("a", 1, 4, speed=0.5), Partition("b", 2, 4)
    workload = jobs((0, 4, 100), (0, 4, 100), partition=[1, 2])
    result = simulate(workload, Easy(), machine(*parts, limits="kill"))
    assert result.end.tolist() == [100, 100]
    assert result.completed.tolist() == [False, True]
    assert result.killed == 1


def test_memory_makes_a_job_take_more_nodes_in_the_same_time():
    """3 GiB a processor: two fit on a node of 8 GiB and 4 cores, so that 4 processors take two nodes."""
    part = Partition("a", 1, 3, 4, memory=8 * GIB)
    workload = jobs(*[(0, 4, 10)] * 2, memory=[3 << 20, 1 << 20])
    result = simulate(workload, Easy(), machine(part), record=True)
    assert result.end.tolist() == [10, 10]
    assert result.node_seconds == 30
    both = jobs(*[(0, 4, 10)] * 2, memory=[3 << 20, 3 << 20])
    assert simulate(both, Easy(), machine(part)).start.tolist() == [0, 10]


def test_gpus_make_a_job_take_more_nodes():
    part = Partition("a", 1, 3, 4, gpus=2)
    result = simulate(jobs((0, 4, 10), (0, 4, 10), gpus=[4, 3]), Easy(), machine(part))
    assert result.start.tolist() == [0, 10]
    assert result.node_seconds == 40


@pytest.mark.parametrize(
    ("asked", "partition", "resource", "bound"),
    [
        ({"memory": [9 << 20]}, "a", "memory", "8,589,934,592"),
        ({"memory": [7 << 20]}, "a", "memory", "3"),
        ({"gpus": [7]}, "a", "GPUs", "3"),
        ({"partition": [2], "gpus": [1]}, "b", "GPUs", "none"),
        ({"partition": [2]}, "b", "processors", "2"),
    ],
)
def test_a_job_that_fits_nowhere_is_rejected_with_the_limit(asked, partition, resource, bound):
    parts = Partition("a", 1, 3, 4, memory=8 * GIB, gpus=2), Partition("b", 2, 2, gpus=0)
    workload = jobs(
        (0, 4, 10), (0, 1, 10), **{name: [*column, -1] for name, column in asked.items()}
    )
    result = simulate(workload, Easy(), machine(*parts))
    words = re.findall(r"[\w,]*\w", result.rejected[1])
    assert {f"partition {partition}", resource, bound} <= {*words, *map(" ".join, pairwise(words))}
    assert result.completed.tolist() == [False, True]
    figures = by_partition(workload, result, machine(*parts))
    assert sum(part["rejected"] for part in figures.values()) == 1


@dataclass(frozen=True)
class Watching(SchedulingPolicy):
    """Another policy, and a look at what is on every node before each of its passes."""

    inner: SchedulingPolicy
    memory: tuple[float, ...]
    gpus: tuple[float, ...]
    processes: tuple[int, ...]
    most: tuple[float, int]

    @property
    def uses_malleable(self):
        return self.inner.uses_malleable

    @property
    def needs_node_ids(self):
        return True

    def decide(self, cluster):
        taken = {}
        for number, running in cluster.running.items():
            k = number - 1
            for node in running.node_ids:
                processes = -(-self.processes[k] // running.nodes)
                memory, gpus = taken.get(node, (0, 0))
                taken[node] = (
                    memory + processes * self.memory[k] * 1024,
                    gpus + -(-self.gpus[k] // running.nodes),
                )
        assert len(set(taken)) <= cluster.nodes
        for memory, gpus in taken.values():
            assert memory <= self.most[0], "more memory than a node has"
            assert gpus <= self.most[1], "more GPUs than a node has"
        return self.inner.decide(cluster)


@pytest.mark.parametrize("name", ["easy", "conservative", "slurm", "equipartition", "sd"])
@settings(max_examples=examples(15), deadline=None)
@given(rows=workloads, memory=st.lists(st.integers(0, 9), min_size=14, max_size=14),
       gpus=st.lists(st.sampled_from([0, 0, 1, 2, 5]), min_size=14, max_size=14))  # fmt: skip
def test_no_node_ever_has_more_than_its_memory_and_gpus(name, rows, memory, gpus):
    count = len(rows)
    part = Partition("a", 1, 4, 2, memory=10 << 20, gpus=2)
    amounts = [one << 10 for one in memory[:count]]
    workload = jobs(*(row[:3] for row in rows), memory=amounts, gpus=gpus[:count])
    inner = POLICIES[name]()
    if inner.uses_malleable:
        workload = mark_malleable(workload, 1.0, 1, most=8)
    by_number = np.argsort(workload.job)
    watching = Watching(
        inner, *(tuple(workload.attributes[one][by_number]) for one in ("memory", "gpus")),
        tuple(workload.processors[by_number].tolist()), (part.memory, part.gpus),
    )  # fmt: skip
    result = simulate(workload, watching, machine(part), record=True)
    assert (result.completed | np.isin(workload.job, list(result.rejected))).all()
    free, ran = part.processors, {}
    for time in sorted({time for time, _, _ in result.changes}):
        ran.update({k: cores for at, k, cores in result.changes if at == time})
        assert sum(ran.values()) <= free


@pytest.mark.parametrize(
    ("mate", "guest", "share"),
    [(4.0, 4.0, True), (4.1, 1.0, False), (1.0, 4.1, False), (4.1, 4.1, False)],
)
def test_a_job_that_leaves_too_little_memory_shares_its_nodes_with_nobody(mate, guest, share):
    """GiB a processor, eight of them on a node of 64 GiB."""
    part = Partition("a", 1, 4, 8, memory=64 * GIB)
    amounts = [int(gib * (1 << 20)) for gib in (mate, guest)]
    workload = jobs((0, 32, 1000), (10, 32, 50), memory=amounts)
    workload = mark_malleable(workload, 1.0, 1, minimum=1.0)
    result = simulate(workload, SlowdownDriven(), machine(part))
    assert (result.start[1] == 10) == share == bool(result.guest[1])


def test_the_ledger_refuses_to_let_an_exclusive_job_share():
    ledger = ClusterLedger(4)
    soft = Job(1, 0.0, 4, 100.0, 4, 4, JobKind.MALLEABLE)
    for job in (soft, replace(soft, id=2, exclusive=True), replace(soft, id=3)):
        ledger.submit(job)
    assert isinstance(ledger.apply(Start(1, 4)), Accepted)
    refused = ledger.apply(Start(2, 4, mates=(1,), share=0.5))
    assert isinstance(refused, Refused)
    assert (refused.decision, refused.malformed) == (Start(2, 4, mates=(1,), share=0.5), False)
    assert [*ledger.running] == [1]
    assert isinstance(ledger.apply(Start(3, 4, mates=(1,), share=0.5)), Accepted)


def test_an_evolving_job_gets_no_fewer_nodes_than_its_memory_needs():
    part = Partition("a", 1, 4, 4, memory=8 * GIB)
    workload = jobs((0, 8, 100), memory=[3 << 20])
    config = machine(part, demands={1: ((0.5, 1),)})
    result = simulate(workload, Easy(), config, record=True)
    assert min(cores for _, _, cores in result.changes if cores) == 16


# ----------------------------------------------------------------------------------- the file


FILE = """
[[partition]]
name = "thin"
nodes = 4
cores = 8
memory = "16 GiB"

[[partition]]
name = "fat"
number = 5
nodes = 2
cores = 8
memory = "64 GiB"
gpus = 2
speed = 1.5
default = true
"""


def noted(notes, count, subject):
    """Whether exactly one note has this count and subject."""
    return sum(note.startswith(f"{count} ") and subject in note for note in notes) == 1


def test_a_machine_file_says_what_partitions_there_are(tmp_path):
    path = tmp_path / "machine.toml"
    path.write_text(FILE)
    assert read_machine(path) == (
        Partition("thin", 1, 4, 8, memory=16 * GIB, gpus=0),
        Partition("fat", 5, 2, 8, memory=64 * GIB, gpus=2, speed=1.5, default=True),
    )


@pytest.mark.parametrize(
    ("text", "code", "line", "field"),
    [
        ("", "field-missing", 1, "partition"),
        ("[[partition]]\nname = 'a'\nnodes = 0", "value-range", 3, "partition[0].nodes"),
        ("[[partition]]\nname = 'a'", "field-missing", 1, "partition[0].nodes"),
        ("[[partition]]\nname = 'a'\nnodes = 1\ncolor = 1", "field-unknown", 4, "partition[0]"),
        ("[[partition]]\nname = 'a'\nnodes = 1\nspeed = -1", "value-range", 4, "partition[0].speed"),
        ("[[partition]]\nname = 'a'\nnodes = 1\nmemory = '3 parsec'", "value-type", 4, "partition[0].memory"),
        ("[[partition]]\nname = 'a'\nnodes = 1\n" * 2, "name-repeated", 2, "partition[0].name"),
        ("[[partition]]\nname='a'\nnodes=1\nnumber=2\n[[partition]]\nname='b'\nnodes=1",
         "name-repeated", 4, "partition[0].number"),
        ("[[partition]]\nname='a'\nnodes=1\ndefault=true\n[[partition]]\nname='b'\nnodes=1\ndefault=true",
         "field-conflict", 8, "partition[1].default"),
        ("partition = 3", "value-type", 1, "partition"),
        ("nodes = 3", "document-invalid", 1, "partition"),
        ("[[partition", "file-invalid", 1, None),
    ],
)  # fmt: skip
def test_a_machine_file_that_describes_no_machine_is_refused_with_file_and_key(
    tmp_path, text, code, line, field
):
    path = tmp_path / "machine.toml"
    path.write_text(text)
    log = "lublin:jobs=5,processors=4"
    done = command(
        "apples", "simulate", log, "--policy", "easy", "--option", f"machine={path}", "--json"
    )
    assert (done.code, done.failure["code"]) == (2, code)
    fields = done.failure["fields"]
    assert fields["file"] == str(path)
    assert (fields.get("line"), fields.get("field")) == (line, field)


def test_a_machine_file_and_the_size_of_a_machine_exclude_each_other(tmp_path):
    path = tmp_path / "machine.toml"
    path.write_text(FILE)
    with pytest.raises(UsageError) as raised:
        made(tmp_path, "lublin:jobs=5", processors=4)
    assert raised.value.code == "option-conflict"
    assert {"machine", "--processors"} <= set(raised.value.fields["options"])
    with pytest.raises(UsageError) as raised:
        made(tmp_path, "lublin:jobs=5,processors=64", "topology=origin:48")
    assert raised.value.code == "option-conflict"
    assert raised.value.fields["options"] == ["topology", "machine"]


def made(folder, log, *words, policy="easy", processors=None):
    return prepare(
        log, policy, [f"machine={folder / 'machine.toml'}", *words], processors=processors, nodes=None,
        cores=None, malleable=None, seed=0,
    )  # fmt: skip


def site_log(path, **columns):
    table = {
        "submit": [0, 1, 2, 3], "run": [100] * 4, "allocated": [8, 8, 16, 32],
        "requested_processors": [8, 8, 16, 32], "requested_time": [100] * 4, "status": [1] * 4,
    } | columns  # fmt: skip
    arrays = {name: np.array(column, dtype=float) for name, column in table.items()}
    write_swf(path, Log({"job": np.arange(1.0, 5), **arrays}, np.arange(1, 5)))


def test_what_a_log_says_and_nothing_looks_at_is_counted_on_stderr(tmp_path):
    path = tmp_path / "site.swf"
    site_log(
        path,
        partition=[1, 5, 5, 9],
        preceding=[-1, 1, -1, 0],
        requested_memory=[1 << 20, 0, -1, 4],
    )
    words = ["apples", "simulate", str(path), "--policy", "easy"]
    plain = command(*words, "--processors", "48")
    notes = command(*words, "--processors", "48", "--json").document["notes"]
    assert noted(notes, 1, "another job's end")
    assert noted(notes, 2, "memory")
    assert noted(notes, 3, "partitions")
    assert all(note in plain.err for note in notes)
    (tmp_path / "machine.toml").write_text(FILE)
    done = command(
        *words,
        "--json",
        "--option",
        f"machine={tmp_path / 'machine.toml'}",
        "--option",
        "dependencies=on",
    )
    figures = json.loads(done.out)
    assert len(figures["notes"]) == 1
    assert noted(figures["notes"], 1, "partition 9")
    assert figures["notes"][0] in done.err
    assert (
        figures["by_partition"]["thin"]["jobs"] == 2
    )  # one of them is too wide for the default one
    assert figures["by_partition"]["fat"]["jobs"] == 2
    assert figures["by_partition"]["thin"]["utilisation"] > 0


def test_a_log_without_such_columns_has_nothing_said_of_them(tmp_path):
    site_log(tmp_path / "site.swf")
    words = ("--policy", "easy", "--processors", "48", "--json")
    done = command("apples", "simulate", str(tmp_path / "site.swf"), *words)
    assert done.document["notes"] == []


def test_saccts_partitions_memory_and_gpus_are_enforced(tmp_path):
    head = "JobIDRaw|Submit|Start|End|Timelimit|AllocCPUS|ReqCPUS|State|Partition|ReqTRES"
    row = "{}|2026-01-01T00:00:00|2026-01-01T00:00:00|2026-01-01T01:00:00|01:00:00|8|8|COMPLETED|{}|{}"
    rows = [
        ("fat", "cpu=8,gres/gpu=4"),
        ("thin", "cpu=8,mem=4G"),
        ("thin", "gres/gpu=1"),
        ("old", ""),
    ]
    text = "\n".join([head, *(row.format(k, *one) for k, one in enumerate(rows, 1))]) + "\n"
    (tmp_path / "site.txt").write_text(text)
    (tmp_path / "machine.toml").write_text(FILE)
    prepared = made(tmp_path, str(tmp_path / "site.txt"))
    result = prepared.run()
    assert result.start[:2].tolist() == [prepared.workload.submit[0]] * 2
    assert result.partition.tolist() == [1, 0, 0, 1]
    assert result.start[3] == result.end[0]  # its GPUs took both nodes
    (reason,) = result.rejected.values()
    assert re.search(r"\bGPUs\b.*\bthin\b", reason)
    assert noted(prepared.source.cleaning.notes, 1, "partition old")


def test_a_sweep_compares_machine_files(tmp_path):
    small, large = tmp_path / "small.toml", tmp_path / "large.toml"
    large.write_text("[[partition]]\nname = 'a'\nnodes = 64\n")
    small.write_text(large.read_text() + "speed = 0.5\n")
    done = command(
        "apples", "simulate", "lublin:jobs=20,processors=64", "--policy", "easy", "--seeds", 1,
        "--option", f"machine={large}|{small}", "--workers", 1, "--grid", tmp_path / "r.jsonl", "--json",
    )  # fmt: skip
    fast, slow = json.loads(done.out)["table"]
    assert slow["mean_response"]["mean"] > fast["mean_response"]["mean"]


def test_a_policy_of_ones_own_decides_in_each_partition_and_its_failures_are_counted_once(
    tmp_path,
):
    (tmp_path / "machine.toml").write_text(FILE)
    (tmp_path / "mine.py").write_text(
        "from apples.scheduling import SchedulingPolicy\n"
        "class Broken(SchedulingPolicy):\n"
        "    def decide(self, cluster):\n"
        "        raise ValueError(f'{cluster.nodes} nodes')\n"
    )
    site_log(tmp_path / "site.swf", partition=[1, 5, 1, 1])
    prepared = made(tmp_path, str(tmp_path / "site.swf"), policy=f"{tmp_path / 'mine.py'}:Broken")
    result = prepared.run()
    assert result.completed.all()
    assert result.failed_passes == result.passes
    ((first, count),) = result.failures
    assert (first.kind, count) == ("raises", result.failed_passes)
