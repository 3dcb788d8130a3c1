"""Matrices of messages on pages: small ones as they are, large ones added up, nothing lost, a number a shade."""

import re

from hypothesis import given
from hypothesis import strategies as st
from pages.documents import run

from apples.jobs import MATRIX_PAIRS, MATRIX_ROWS, matrix_table, matrix_tables, run_page

AMOUNT = st.sampled_from([0, 0, 0, 1, 7, 900, 10**6, 10**12])


@st.composite
def matrices(draw):
    side = draw(st.one_of(st.integers(1, 6), st.sampled_from([24, 25, 49, 70])))
    values = draw(st.lists(AMOUNT, min_size=1, max_size=50))
    return [
        [values[(row * side + column) % len(values)] for column in range(side)]
        for row in range(side)
    ]


def labels_of(matrix):
    return [{"host": f"host{k}", "rank": k, "world": 0} for k in range(len(matrix))]


def value(shown):
    return int(shown.value)


@given(matrices())
def test_nothing_is_lost_and_a_table_stays_small(matrix):
    table = matrix_table(labels_of(matrix), matrix, matrix)
    assert len(table.rows) == len(table.labels) <= MATRIX_ROWS
    sums = [sum(value(one.bytes) for one in row) for row in table.rows]
    together = table.together
    assert sums == [
        sum(map(sum, matrix[start : start + together]))
        for start in range(0, len(matrix), together)
    ]
    names = [one["rank"] for ends in table.labels for one in ends]
    assert names == sorted(names)
    assert (names[0], names[-1]) == (0, len(matrix) - 1)


@given(matrices())
def test_few_rows_are_shown_one_by_one(matrix):
    table = matrix_table(labels_of(matrix), matrix, matrix)
    if len(matrix) <= MATRIX_ROWS:
        assert table.together == 1
        assert [[value(one.bytes) for one in row] for row in table.rows] == matrix
        assert not table.pairs


@given(matrices())
def test_a_shade_says_what_part_of_the_most_was_sent(matrix):
    table = matrix_table(labels_of(matrix), matrix, matrix)
    cells = [one for row in table.rows for one in row]
    most = max(value(one.bytes) for one in cells)
    for one in cells:
        part = value(one.bytes) / most if most else 0.0
        least = {4: 1 / 2, 3: 1 / 8, 2: 1 / 32, 1: 0.0, 0: 0.0}[one.shade]
        assert part >= least
        assert (one.shade == 0) == (part == 0)
        assert one.shade in {0, 4} or part < {3: 1 / 2, 2: 1 / 8, 1: 1 / 32}[one.shade]


@given(matrices())
def test_where_neighbours_are_added_up_the_largest_pairs_are_named(matrix):
    table = matrix_table(labels_of(matrix), matrix, matrix)
    if table.together == 1:
        return
    sent = [
        amount
        for row, line in enumerate(matrix)
        for column, amount in enumerate(line)
        if row != column and amount
    ]
    apart = sorted(sent, reverse=True)
    assert [value(one.bytes) for *_, one in table.pairs] == apart[:MATRIX_PAIRS]
    for sender, receiver, one in table.pairs:
        assert matrix[sender["rank"]][receiver["rank"]] == value(one.bytes)


def document(hosts, ranks):
    """A run whose ranks send to the next, and to themselves on the same host."""
    each = ranks // hosts
    sent = [[1000 * ((b - a) % ranks == 1) for b in range(ranks)] for a in range(ranks)]
    names = [f"host{k:03}" for k in range(hosts)]
    parts = [slice(k * each, (k + 1) * each) for k in range(hosts)]
    rows = [[sum(sum(line[b]) for line in sent[a]) for b in parts] for a in parts]
    found = run(("ada", "bob"))
    found["execution"] |= {
        "messages": {
            "source": "counted", "hosts": names, "missed": 0, "bytes": rows, "messages": rows,
            "ranks": [{"host": names[k // each], "world": 0, "rank": k} for k in range(ranks)],
            "rank_bytes": sent, "rank_messages": sent,
        }
    }  # fmt: skip
    return found


def test_a_page_of_256_ranks_on_64_hosts_is_small_and_names_who_shares_a_row():
    page = run_page(document(64, 256))
    assert len(page.encode()) <= 300_000
    assert "<bdi>host000</bdi> to <bdi>host002</bdi>" in page
    tables = matrix_tables(document(64, 256)["execution"]["messages"])
    assert (tables["host_matrix"].together, tables["rank_matrix"].together) == (3, 11)


def test_shades_stand_beside_numbers_and_ranks_that_are_hosts_are_not_told_twice():
    page = run_page(document(4, 4))
    shaded = re.findall(r'<td class="n nw sent-(\d)">(.*?)</td>', page)
    assert len(shaded) == 4
    assert all("data value" in inside for _, inside in shaded)
    assert page.count('<table class="sent">') == 1
    assert run_page(document(4, 8)).count('<table class="sent">') == 2
