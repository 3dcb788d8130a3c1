"""Memory of rows is there when it was asked for, and only that of the rows that were."""

import math
from pathlib import Path

from apples.malleable import MappedRows, RowRange, unused_pages

ROWS, PITCH = 3000, 10_000
HUGE = 2 << 20


def there(memory):
    """Return the bytes of the mapping that exist."""
    first = memory.rows.ctypes.data
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    for line in lines:
        begin, _, rest = line.partition("-")
        if rest and int(begin, 16) <= first < int(rest.split()[0], 16):
            break
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("Rss:"))


def test_pages_of_the_rows_that_are_made_exist_and_no_others_do():
    memory = MappedRows(ROWS, RowRange(0, 1), PITCH, unused_pages(ROWS * PITCH))
    before = there(memory)
    memory.make(RowRange(1000, 1500), math.inf)
    assert 500 * PITCH <= there(memory) - before <= 500 * PITCH + 2 * HUGE


def test_making_rows_leaves_what_they_hold():
    memory = MappedRows(ROWS, RowRange(0, 1), PITCH, unused_pages(ROWS * PITCH))
    memory.rows[1100] = 7
    memory.make(RowRange(1000, 1500), math.inf)
    assert memory.rows[1100].min() == 7


def test_no_rows_need_no_memory():
    memory = MappedRows(ROWS, RowRange(0, 0), PITCH, unused_pages(ROWS * PITCH))
    before = there(memory)
    memory.make(RowRange(0, 0), math.inf)
    assert there(memory) == before


def test_rows_whose_deadline_has_passed_with_those_of_other_arrays_are_not_made():
    memory = MappedRows(ROWS, RowRange(0, 1), PITCH, unused_pages(ROWS * PITCH))
    before = there(memory)
    memory.make(RowRange(1000, 1500), -math.inf)
    assert there(memory) == before
