import errno
import json
import shutil

import pytest
from adversaries.faulty_folder import FaultyFolder, FolderFaults
from coding import with_code
from daemons import quick_folder
from hypothesis import given
from hypothesis import strategies as st

from apples.io import Folder, Journal, JournalError, encode_record, parse

RECORDS = [{"do": "jobs", "jobs": {f"j{n}": None}} for n in range(6)]


def written(path, records=RECORDS):
    """A journal with these records; return its bytes."""
    with Folder.open(path) as folder:
        journal = Journal(folder, "apples.test/1")
        journal.recover()
        journal.rewrite([])
        for record in records:
            journal.append(record)
        journal.close()
    return (path / "journal").read_bytes()


def recovered(path):
    with Folder.open(path) as folder:
        journal = Journal(folder, "apples.test/1")
        found = journal.recover()
        journal.close()
        return found


def test_what_was_recorded_is_found_again(tmp_path):
    written(tmp_path)
    assert recovered(tmp_path) == (found := recovered(tmp_path))
    assert list(found.records) == RECORDS
    assert not found.problems


def test_a_damaged_byte_costs_one_record_and_is_reported_wherever_it_is():
    data = b"".join(encode_record(n, record) for n, record in enumerate(RECORDS, 1))
    for place in range(len(data) - 1):  # the last byte is the end of the last line
        damaged = bytearray(data)
        damaged[place] ^= 0x20
        records, problems, _ = parse(bytes(damaged))
        kept = [r for r in records if r in RECORDS]
        assert kept == records
        assert len(records) >= len(RECORDS) - 2  # an end of line that is gone joins two records
        assert problems


def test_missing_numbers_are_a_problem():
    records, problems, last = parse(encode_record(1, {"do": "x"}) + encode_record(4, {"do": "y"}))
    assert ([record["do"] for record in records], last) == (["x", "y"], 4)
    assert len(problems) == 1
    assert "2" in problems[0]
    assert "3" in problems[0]


def test_a_cut_at_any_byte_keeps_all_whole_records():
    data = b"".join(encode_record(n, record) for n, record in enumerate(RECORDS, 1))
    for length in range(len(data)):
        records, _, _ = parse(data[:length])
        whole = data[:length].count(b"\n")
        assert records in (RECORDS[:whole], RECORDS[: whole + 1])


def test_records_that_are_appended_together_share_one_sync(tmp_path):
    faults = FolderFaults()
    journal = Journal(FaultyFolder(Folder.open(tmp_path), faults), "apples.test/1")
    journal.recover()
    journal.rewrite([])
    before = faults.changes.count("append")
    journal.append(*RECORDS)
    journal.close()
    assert faults.changes.count("append") == before + 1
    assert list(recovered(tmp_path).records) == RECORDS


def test_another_programs_journal_is_refused_and_left_as_it_is(tmp_path):
    data = written(tmp_path)
    with Folder.open(tmp_path) as folder:
        other = Journal(folder, "apples.other/2")
        file, known = str(tmp_path / "journal"), ["apples.other/2"]
        foreign = with_code("log-foreign", file=file, value="apples.test/1", known=known)
        with pytest.raises(JournalError, check=foreign):
            other.recover()
    assert (tmp_path / "journal").read_bytes() == data
    assert recovered(tmp_path).records


def test_a_plain_journal_is_json_lines_and_loses_a_torn_one_alone(tmp_path):
    with Folder.open(tmp_path) as folder:
        journal = Journal(folder, "", "results.jsonl")
        journal.recover()
        journal.rewrite([RECORDS[0]])
        journal.append(*RECORDS[1:])
        journal.close()
    path = tmp_path / "results.jsonl"
    assert [json.loads(line) for line in path.read_text().splitlines()] == RECORDS
    with path.open("a") as stream:
        stream.write('{"key": "cut o')
    with Folder.open(tmp_path) as folder:
        journal = Journal(folder, "", "results.jsonl")
        found = journal.recover()
        assert (list(found.records), len(found.problems)) == (RECORDS, 1)
        journal.rewrite(found.records)
        journal.close()
    assert [json.loads(line) for line in path.read_text().splitlines()] == RECORDS
    assert (tmp_path / "results.jsonl.bad-1").read_text().endswith("cut o")


@given(st.binary(max_size=300))
def test_bytes_that_nobody_wrote_are_no_records(data):
    records, _, _ = parse(data)
    assert not records


def test_a_damaged_journal_is_copied_aside_and_goes_on(tmp_path):
    data = written(tmp_path)
    (tmp_path / "journal").write_bytes(data[:50] + b"\0" + data[51:] + b"half a rec")
    with Folder.open(tmp_path) as folder:
        journal = Journal(folder, "apples.test/1")
        found = journal.recover()
        assert len(found.problems) >= 2
        assert not journal.whole
        with pytest.raises(
            JournalError, check=with_code("log-unwritable", file=str(tmp_path / "journal"))
        ):
            journal.append(RECORDS[0])
        journal.rewrite(found.records)
        journal.append({"do": "more"})
        journal.close()
    assert recovered(tmp_path).records[-1] == {"do": "more"}
    assert (tmp_path / "journal.bad-1").read_bytes().endswith(b"half a rec")


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_an_error_of_the_disk_at_any_step_loses_nothing_that_was_recorded(error):
    steps = 1
    while True:
        home = quick_folder()
        faults = FolderFaults(steps, error)
        folder = FaultyFolder(Folder.open(home), faults)
        journal = Journal(folder, "apples.test/1")
        kept, acknowledged = [], []
        try:
            journal.recover()
        except OSError:
            assert steps == 1
            journal.recover()
        for record in RECORDS:
            for _ in range(3):
                try:
                    if not journal.whole:
                        journal.rewrite(kept)
                    journal.append(record)
                except JournalError:
                    continue
                kept.append(record)
                acknowledged.append(record)
                break
        journal.close()
        assert acknowledged == RECORDS
        assert list(recovered(home).records) == RECORDS
        shutil.rmtree(home)
        if len(faults.changes) < steps:
            return
        steps += 1
