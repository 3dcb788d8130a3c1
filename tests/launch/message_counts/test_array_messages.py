"""What declared arrays exchange, as the program tells it: beside the library that counts, and through resizes."""

import json
import os
import shutil
import tracemalloc
from contextlib import nullcontext
from pathlib import Path

import pytest
from commands import command
from hypothesis import given
from hypothesis import strategies as st
from waiting import until

from apples import RunSpec, jobs
from apples.agent import prepare
from apples.jobs import RunRecord, document_so_far, run_page, store
from apples.launch import (
    HOSTS_LIMIT,
    ArrayMessages,
    MessageCounts,
    MessagesSent,
    parse,
)
from apples.launch import (
    arrays as array_messages,
)
from apples.malleable import (
    LINE_BYTES,
    MAX_RANKS,
    HaloMessages,
    RowArray,
    RowRange,
    TileArray,
    exchanged_bytes,
    transfers,
)
from apples.topology import CountedRank, MessageMatrix

PROGRAM = Path(__file__).parent / "programs" / "halos.py"
HOSTS = """
[[host]]
name = "ada"
slots = 2
seconds_per_point = 1e-4
[[host]]
name = "bob"
slots = 2
seconds_per_point = 1e-4
[[host]]
name = "eve"
seconds_per_point = 1e-4
"""
TEMPLATE = """
name = "halos"
program = ["{python}", "halos.py"]
malleable = true
[parameters.grid]
default = 64
[parameters.iterations]
default = 50
[parameters.pause]
default = 0.0
[structure]
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", os.environ.get("XDG_CACHE_HOME", str(tmp_path / "cache")))
    (tmp_path / "halos.py").write_text(PROGRAM.read_text())
    (tmp_path / "hosts.toml").write_text(HOSTS)
    (tmp_path / "template.toml").write_text(TEMPLATE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def spec(folder, **more):
    files = [folder / f"{name}.toml" for name in ("hosts", "template")]
    return RunSpec(*files, None, weather="static", verify=False, **more)


def between(matrix):
    """Messages and bytes by the two ranks; of the worlds of a host each is known by how many were before it."""
    worlds = dict.fromkeys((rank.host, rank.world) for rank in matrix.ranks)
    before = {one: sum(h == one[0] and w < one[1] for h, w in worlds) for one in worlds}
    ranks = [one._replace(world=before[one.host, one.world]) for one in matrix.ranks]
    return {
        (one, other): (matrix.messages[a][b], matrix.bytes[a][b])
        for a, one in enumerate(ranks)
        for b, other in enumerate(ranks)
        if matrix.messages[a][b]
    }


# --------------------------------------------------------------------- what one exchange sends


@st.composite
def strips(draw):
    """Strips of some ranks in any order; some ranks have none."""
    heights = draw(st.lists(st.integers(0, 9), min_size=1, max_size=9).filter(any))
    order = draw(st.permutations(range(len(heights))))
    found, first = [RowRange(0, 0)] * len(heights), 0
    for rank in order:
        found[rank] = RowRange(first, first + heights[rank])
        first += heights[rank]
    return found


@given(strips(), st.integers(0, 3), st.booleans())
def test_what_an_exchange_sends_is_what_its_messages_are(every, halo, of_tiles):
    rows = max(one.stop for one in every)
    array = (TileArray if of_tiles else RowArray)("u", (rows, 12), halo=halo)
    array.tiles = array.parts(every)
    owned, needed = map(array.owned, array.tiles), map(array.needed, array.tiles)
    owned, needed = list(owned), list(needed)
    found = exchanged_bytes(array).tolist()
    for rank in range(len(every)):
        told = {other: array.size(part) for other, part in transfers(rank, owned, needed).sends}
        assert {other: size for one, other, size in found if one == rank} == told


def said_by(messages, iteration, capfd):
    messages.report(iteration)
    return [json.loads(line) for line in capfd.readouterr().out.splitlines() if line]


def test_a_job_tells_its_messages_when_there_are_new_ones_and_no_line_is_too_long(capfd):
    array = RowArray("u", (4000, 2), halo=1)
    layout = [(f"host-{rank:04}", RowRange(2 * rank, 2 * rank + 2)) for rank in range(2000)]
    layout = [(f"host-{rank // 8:04}", rows) for rank, (_, rows) in enumerate(layout)]
    array.allocate(array.parts([rows for _, rows in layout]), 0)
    array.exchanges = 7  # of a map before
    messages = HaloMessages([array], layout, 3, anew=False, together=False)
    first = said_by(messages, 10, capfd)
    assert [(one["epoch"], one["iteration"], one["sent"]) for one in first] == [(3, 10, [])]
    assert first[0]["hosts"][:2] == [["host-0000", 8], ["host-0001", 8]]
    assert said_by(messages, 11, capfd) == [], "nothing new"
    array.exchanges += 5
    lines = said_by(messages, 20, capfd)
    assert len(lines) > 1
    assert max(len(json.dumps(one)) for one in lines) < LINE_BYTES + 1000
    sent = [pair for one in lines for pair in one["sent"]]
    assert len(sent) == 2 * 1999
    assert sent[:3] == [[0, 1, 5, 80], [1, 0, 5, 80], [1, 2, 5, 80]]


def test_what_several_arrays_exchange_is_added_up_by_ranks_that_exchange_any(capfd):
    one, other = RowArray("u", (6, 1), halo=1), RowArray("v", (6, 1), "f4", halo=2)
    rows = [RowRange(k, k + 2) for k in (0, 2, 4)]
    rows.insert(1, RowRange(2, 2))
    for array in (one, other):
        array.allocate(array.parts(rows), 0)
    layout = [("ada", each) for each in rows]
    messages = HaloMessages([one, other], layout, 0, anew=False, together=True)
    one.exchanges, other.exchanges = 3, 5
    ((line),) = said_by(messages, 1, capfd)
    each = [8, 3 * 8 + 5 * 2 * 4]
    assert line["sent"] == [[0, 2, *each], [2, 0, *each], [2, 3, *each], [3, 2, *each]]


@pytest.mark.parametrize(("hosts", "lines"), [(HOSTS_LIMIT, 1), (HOSTS_LIMIT + 1, 0)])
def test_nothing_is_told_of_more_hosts_than_an_agent_takes(hosts, lines, capfd):
    array = RowArray("u", (hosts, 2), halo=1)
    layout = [(f"h{rank}", RowRange(rank, rank + 1)) for rank in range(hosts)]
    array.allocate(array.parts([rows for _, rows in layout]), 0)
    messages = HaloMessages([array], layout, 0, anew=False, together=True)
    messages.report(0)
    said = capfd.readouterr().out.encode().splitlines()
    assert [type(parse(line)) for line in said if line] == [MessagesSent] * lines


def test_what_is_told_of_many_ranks_takes_no_memory_for_those_that_send_nothing(capfd):
    array = RowArray("u", (MAX_RANKS, 2), halo=1)
    layout = [(f"h{rank // 8}", RowRange(rank, rank + 1)) for rank in range(MAX_RANKS)]
    array.allocate(array.parts([rows for _, rows in layout]), 0)
    messages = HaloMessages([array], layout, 0, anew=False, together=True)
    array.exchanges = 1
    tracemalloc.start()
    try:
        messages.report(1)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    capfd.readouterr()
    assert most < MAX_RANKS**2  # of a matrix each number has eight bytes


def test_a_job_of_very_many_ranks_tells_nothing_and_makes_no_matrix_of_them(capfd):
    array = RowArray("u", (MAX_RANKS + 1, 2), halo=1)
    layout = [("ada", RowRange(rank, rank + 1)) for rank in range(MAX_RANKS + 1)]
    array.allocate(array.parts([rows for _, rows in layout]), 0)
    messages = HaloMessages([array], layout, 0, anew=False, together=True)
    array.exchanges += 1
    assert said_by(messages, 1, capfd) == []


def test_a_job_without_halos_tells_nothing(capfd):
    messages = HaloMessages(
        [RowArray("u", (4, 2))], [("ada", RowRange(0, 4))], 0, anew=False, together=True
    )
    assert said_by(messages, 1, capfd) == []


# ------------------------------------------------------------------------ through all maps


def heard(*said, **options):
    found = ArrayMessages(**options)
    for one in said:
        found.hear(one)
    return found


ADA_BOB = (("ada", 2), ("bob", 1))


def test_a_rigid_program_is_one_world():
    found = heard(MessagesSent(ADA_BOB, ((0, 1, 1, 8), (1, 2, 1, 16)))).matrix()
    assert found.ranks == tuple(
        CountedRank(h, 0, r) for h, r in (("ada", 0), ("ada", 1), ("bob", 2))
    )
    assert found.by_host(found.bytes) == ((8, 16), (0, 0))
    assert found.source == "arrays"


def test_what_is_said_later_of_a_map_takes_the_place_of_what_was_said_before():
    first = MessagesSent(ADA_BOB, ((0, 1, 1, 8),), iteration=10)
    found = heard(first, MessagesSent(ADA_BOB, ((1, 2, 2, 32),), iteration=10),
                  MessagesSent(ADA_BOB, ((0, 1, 6, 48),), iteration=14))  # fmt: skip
    assert found.matrix().bytes == ((0, 48, 0), (0, 0, 32), (0, 0, 0))
    assert found.per_iteration() == {("ada", "bob"): 8.0}


def test_a_host_that_stays_keeps_its_world_and_all_have_new_ones_after_a_loss():
    one = {"together": False}
    maps = [
        MessagesSent(ADA_BOB, ((0, 1, 1, 8), (1, 2, 1, 8)), 1, **one),
        MessagesSent((("bob", 1), ("ada", 2)), ((0, 1, 1, 8),), 2, **one),
        MessagesSent((("ada", 2),), ((0, 1, 1, 8),), 3, together=True),
        MessagesSent(ADA_BOB, ((1, 2, 1, 8),), 4, **one, anew=True),
    ]
    found = heard(*maps).matrix(["ada", "bob"])
    assert found.ranks == (
        CountedRank("ada", 0, 0), CountedRank("ada", 0, 1), CountedRank("ada", 1, 0), CountedRank("ada", 1, 1),
        CountedRank("bob", 2, 0), CountedRank("bob", 3, 0),
    )  # fmt: skip
    assert found.bytes[0] == (0, 16, 0, 0, 0, 0)
    assert (found.bytes[1][4], found.bytes[4][0], found.bytes[3][5]) == (8, 8, 8)


def test_pairs_are_bounded_through_all_maps_and_those_that_are_known_go_on():
    pairs = ((0, 1, 1, 8), (1, 2, 1, 8))
    later = [MessagesSent(ADA_BOB, pairs, epoch, anew=True) for epoch in range(2, 9)]
    first = MessagesSent(ADA_BOB, pairs, 1)
    assert heard(first, *later, most_pairs=3).matrix().messages[0][1] == 1
    found = heard(first, *later, first, most_pairs=3)
    assert sum(map(sum, found.matrix().messages)) == 3


def test_messages_with_ranks_beyond_the_most_are_missed_while_the_map_goes_on_and_afterwards():
    hosts = (("ada", array_messages.MAX_RANKS), ("bob", 1))
    found = heard(MessagesSent(hosts, ((0, 1, 1, 8), (0, array_messages.MAX_RANKS, 5, 40))))
    assert found.matrix().missed == 5
    found.hear(MessagesSent((("ada", 1),), (), 1))
    assert found.matrix().missed == 5


def test_a_matrix_of_as_many_ranks_as_there_can_be_is_no_burden():
    most = array_messages.MAX_RANKS
    found = heard(MessagesSent((("ada", most),), tuple((k, k + 1, 1, 8) for k in range(most - 1))))
    tracemalloc.start()
    try:
        found.matrix()
        _, used = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used < 64 << 20


def test_a_program_that_says_nothing_has_no_matrix():
    assert heard().matrix() is None
    assert heard(MessagesSent(ADA_BOB, ())).matrix() is None
    assert heard().per_iteration() == {}


@given(
    st.lists(
        st.builds(
            MessagesSent,
            st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 3)), min_size=1, max_size=3).map(tuple),
            st.lists(st.tuples(*[st.integers(0, 9)] * 4), max_size=5).map(tuple),
            st.integers(0, 3), st.integers(0, 9), st.booleans(), st.booleans(),
        ),
        max_size=9,
    )
)  # fmt: skip
def test_whatever_a_program_says_there_is_a_matrix_or_none(said):
    found = heard(*said).matrix(["b", "x"])
    assert found is None or len(found.bytes) == len(found.ranks) == len(set(found.ranks))


# -------------------------------------------------------------------------------- in runs


@pytest.mark.more
@pytest.mark.mpi
def test_a_run_has_the_messages_of_its_arrays_on_all_faces_and_another_is_arranged_by_them(folder):
    done = command(
        "apples",
        "run",
        "--weather",
        "static",
        "--blueprint",
        "all_resources",
        "--no-verify",
        "--json",
    )
    assert done.code == 0, done.err
    found = done.document["execution"]["messages"]
    assert (found["source"], found["hosts"], found["missed"]) == (
        "arrays",
        ["ada", "bob", "eve"],
        0,
    )
    assert [one["rank"] for one in found["ranks"]] == [0, 1, 2, 3, 4]
    assert {one["world"] for one in found["ranks"]} == {0}
    rows = found["rank_messages"]
    assert min(rows[rank][rank + 1] for rank in range(4)) >= 50
    assert max(map(max, rows)) <= 100
    assert "(arrays)" in run_page(done.document)
    (folder / "run.json").write_text(json.dumps(done.document))
    assert MessageMatrix.of_run(folder / "run.json").source == "arrays"
    planned = command(
        "apples",
        "plan",
        "--weather",
        "static",
        "--blueprint",
        "all_resources",
        "--messages",
        "run.json",
    )
    assert "(arrays)" in planned.out


@pytest.mark.more
@pytest.mark.mpi
@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")
def test_arrays_and_the_library_that_counts_agree(folder):
    ran = []

    def follow(_, execution):
        ran.append(execution)
        return nullcontext(ran.append)

    prepared = prepare(spec(folder, blueprint="all_resources", count_messages=True))
    result = prepared.execute(follow=follow)
    counted, arrays = between(result.messages), between(ran[0].array_messages.matrix())
    assert result.messages.source == "counted"
    assert arrays
    for (one, other), (messages, sent) in arrays.items():
        found = counted[one, other]
        # Reductions of the safe points go to the next rank, the task from the first and the result to it.
        if one.rank and other.rank and other.rank != one.rank + 1:
            assert found == (messages, sent)
        assert messages <= found[0]
        assert sent <= found[1]


@pytest.mark.more
@pytest.mark.mpi
@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")
def test_a_job_is_followed_while_it_runs_and_through_resizes_as_the_library_counts_it(folder):
    settings = {"iterations": 1_000_000, "pause": 0.004}
    job = jobs.submit(
        spec(folder, settings=settings, count_messages=True, blueprint="all_resources")
    )
    try:
        stored = store.record(job.id)
        counts = MessageCounts(stored.folder / "messages", Path())

        def now():
            found = stored.record().get("messages")
            return [] if found is None else [(r["host"], r["world"]) for r in found["ranks"]]

        until(now)
        page = document_so_far(RunRecord.of(stored))
        assert page["execution"]["messages"]["source"] == "arrays"
        assert set(page["execution"]["messages"]["hosts"]) == {"ada", "bob", "eve"}
        jobs.resize(job.id, {"ada": 1, "eve": 1})
        jobs.resize(job.id, {"bob": 1, "ada": 1})
        until(lambda: len({world for host, world in now() if host == "bob"}) == 2)
        assert len({world for host, world in now() if host == "ada"}) == 1
        until(lambda: grown(stored))
        told = MessageMatrix.of_messages(stored.record()["messages"], stored.folder)
        library = between(counts.read(told.hosts))
        assert len(between(told)) > 10
        for (one, other), (messages, sent) in between(told).items():
            assert messages <= library[one, other][0]
            assert sent <= library[one, other][1]
    finally:
        jobs.cancel(job.id)


def grown(stored):
    """Whether the last world on bob has sent something."""
    found = stored.record()["messages"]
    last = max(number for number, one in enumerate(found["ranks"]) if one["host"] == "bob")
    return sum(found["rank_messages"][last]) > 100
