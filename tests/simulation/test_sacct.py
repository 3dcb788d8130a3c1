from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apples.errors import UsageError
from apples.simulation import clean, read_log, read_sacct, time_limit
from nws import StoredText

NAMES = "JobIDRaw|Submit|Start|End|Timelimit|AllocCPUS|ReqCPUS|State"
LOG = f"""{NAMES}
7|2026-01-01T00:00:00|2026-01-01T00:01:00|2026-01-01T01:01:00|1-02:00:00|16|16|COMPLETED
7.batch|2026-01-01T00:00:00|2026-01-01T00:01:00|2026-01-01T01:01:00||16|16|COMPLETED
8|2026-01-01T00:00:10|Unknown|Unknown|UNLIMITED|0|4|CANCELLED by 1
"""


def row(number, limit="01:00:00", cpus=4, state="COMPLETED", minute=0, *more):
    day = "2026-01-01T0"
    return "|".join(
        [str(number), f"{day}0:{minute:02}:00", f"{day}1:{minute:02}:00", f"{day}2:{minute:02}:00",
         limit, str(cpus), str(cpus), state, *more]
    )  # fmt: skip


@pytest.fixture
def read(tmp_path):
    """Read the log that lines make."""

    def reader(*lines, names=NAMES):
        path = tmp_path / "sacct.txt"
        path.write_text("\n".join([names, *lines]) + "\n")
        return read_log(path)

    return reader


def noted(notes, count, *subjects):
    """Whether exactly one note has this count and these subjects."""
    wanted = [note for note in notes if note.startswith(f"{count} ")]
    return sum(all(subject in note for subject in subjects) for note in wanted) == 1


def test_slurm_accounting_is_read(tmp_path):
    path = tmp_path / "sacct.txt"
    path.write_text(LOG)
    workload, done = clean(read_log(path), 64)
    assert workload.job.tolist() == [7]
    assert (workload.run[0], workload.requested[0], workload.processors[0]) == (3600, 93600, 16)
    assert done.dropped["no run time"] == 1
    path.write_text(LOG + "9|x\n")
    with pytest.raises(UsageError) as raised:
        read_log(path)
    assert raised.value.code == "rows-damaged"
    named = {"file": str(path), "line": 5, "problem": "columns-differ"}
    assert named.items() <= raised.value.fields.items()
    path.write_text(LOG.replace("|State", "|Status"))
    with pytest.raises(UsageError) as raised:
        read_log(path)
    assert raised.value.code == "columns-missing"
    assert raised.value.fields["columns"] == ["State"]


def test_a_time_with_an_offset_is_that_instant(read):
    at = "2026-01-01T02:00:00+02:00|2026-01-01T01:00:00|2026-01-01T01:00:00-01:00"
    log = read(f"1|{at}|01:00:00|4|4|COMPLETED")
    assert (log.columns["wait"][0], log.columns["run"][0]) == (3600, 3600)


def test_a_job_without_a_limit_gets_the_longest_of_its_partition_and_it_is_said(read):
    names = NAMES + "|Partition"
    log = read(
        row(1, "02:00:00", 4, "COMPLETED", 0, "a"),
        row(2, "UNLIMITED", 4, "COMPLETED", 1, "a"),
        row(3, "9-00:00:00", 4, "COMPLETED", 2, "b"),
        row(4, "INVALID", 4, "COMPLETED", 3, "b"),
        row(5, "Partition_Limit", 4, "COMPLETED", 4, "c"),
        names=names,
    )
    assert log.columns["requested_time"].tolist() == [7200, 7200, 777600, 777600, 777600]
    assert noted(log.notes, 2, "limit", "of its partition")
    assert noted(log.notes, 1, "limit", "of the log")
    assert log.names["partition"] == ("a", "b", "c")
    assert noted(clean(log, 64)[1].notes, 3, "partitions")


def test_the_components_of_a_heterogeneous_job_are_one_job(read):
    names = NAMES + "|JobID"
    log = read(
        row(20, "01:00:00", 4, "COMPLETED", 0, "20+0"),
        row(21, "02:00:00", 8, "COMPLETED", 5, "20+1"),
        row(22, "01:00:00", 2, "COMPLETED", 9, "22"),
        row(40, "01:00:00", 1, "COMPLETED", 9, "30_7"),
        names=names,
    )
    assert log.columns["job"].tolist() == [20, 22, 40]
    assert log.columns["allocated"].tolist() == [12, 2, 1]
    assert log.columns["run"].tolist() == [3900, 3600, 3600]
    assert log.columns["requested_time"][0] == 7200
    assert len(log.notes) == 1
    assert noted(log.notes, 2, "heterogeneous")


def test_of_a_requeued_job_the_last_run_counts(read):
    log = read(row(1, state="NODE_FAIL"), row(2), row(1, minute=30))
    assert sorted(log.columns["submit"].tolist()) == [
        log.columns["submit"][0],
        log.columns["submit"][0] + 1800,
    ]
    assert len(log.notes) == 1
    assert noted(log.notes, 1, "requeued")


def test_resources_and_dependencies_are_read_where_they_are(read):
    names = NAMES + "|ReqMem|ReqTRES|SubmitLine|QOS"
    log = read(
        row(5, "01:00:00", 4, "COMPLETED", 0, "4G", "cpu=4,gres/gpu=2,node=1", "sbatch a", "hi"),
        row(6, "01:00:00", 4, "COMPLETED", 1, "1000Mc", "", "sbatch --dependency=afterok:5 b", ""),
        row(7, "01:00:00", 8, "COMPLETED", 2, "2Gn", "node=2", "sbatch -d afterany:5:6 c", "lo"),
        names=names,
    )
    assert log.columns["gpus"].tolist() == [2, -1, -1]
    assert log.columns["requested_memory"].tolist() == [1 << 20, 1000 << 10, 1 << 19]
    assert log.columns["preceding"].tolist() == [-1, 5, 6]
    assert log.columns["queue"].tolist() == [1, -1, 2]
    notes = clean(log, 64)[1].notes
    assert noted(notes, 1, "GPUs")
    assert noted(notes, 2, "another job's end")


@pytest.mark.parametrize(
    ("column", "value", "problem"),
    [
        (0, "12_3", "value-type"),
        (1, "yesterday", "value-type"),
        (1, "Unknown", "value-type"),
        (3, "2025-01-01T00:00:00", "value-range"),
        (4, "an hour", "value-type"),
        (5, "1.5K", "value-type"),
        (6, "nan", "value-type"),
    ],
)
def test_a_damaged_value_is_named_by_its_column(read, column, value, problem):
    words = row(1).split("|")
    words[column] = value
    with pytest.raises(UsageError) as raised:
        read("|".join(words))
    assert raised.value.code == "rows-damaged"
    named = {"line": 2, "field": NAMES.split("|")[column], "problem": problem}
    assert named.items() <= raised.value.fields.items()
    log = read(*(row(k, minute=k) for k in range(2, 40)), "|".join(words))
    assert log.damaged.count == 1
    assert "sacct.txt:40" in log.notes[0]


@given(st.integers(0, 400), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_a_limit_is_read_in_each_of_its_forms(days, hours, minutes, seconds):
    whole = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    assert time_limit(f"{days}-{hours:02}:{minutes:02}:{seconds:02}") == whole
    assert time_limit(f"{hours:02}:{minutes:02}:{seconds:02}") == whole - days * 86400
    assert time_limit(f"{minutes:02}:{seconds:02}") == minutes * 60 + seconds
    assert time_limit(f"{days}-{hours}") == (days * 24 + hours) * 3600


@given(st.text(alphabet="0123456789-:|.TUnkow\n+_=K", max_size=300))
def test_no_text_breaks_the_reader(text):
    source = StoredText("log", (NAMES + "\n" + text).encode())
    with suppress(UsageError):
        read_sacct(source, iter(source), "log")


def test_exclusive_jobs_occupy_the_processors_they_were_allocated(tmp_path):
    path = tmp_path / "sacct.txt"
    path.write_text(
        "\n".join(
            [
                NAMES,
                "1|2026-01-01T00:00:00|2026-01-01T00:00:00|2026-01-01T01:00:00|02:00:00|96|1|COMPLETED",
                "2|2026-01-01T00:00:00|2026-01-01T01:00:00|2026-01-01T02:00:00|02:00:00|96|1|COMPLETED",
                "3|2026-01-01T00:00:00|Unknown|Unknown|02:00:00|0|7|PENDING",
            ]
        )
        + "\n"
    )
    log = read_log(path)
    assert log.columns["requested_processors"].tolist() == [96, 96, 7]
    assert clean(log, 96)[0].processors.tolist() == [96, 96]


@pytest.mark.parametrize(
    ("dependency", "preceding"),
    [
        ("afterany:7", 7),
        ("afterok:7:9", 9),
        ("afternotok:7", 7),
        ("aftercorr:7_3", 7),
        ("after:7+60,afterok:5", 5),
        ("afterok:5?after:7", 5),
        ("7", 7),
    ],
)
def test_only_dependency_on_the_end_of_a_job_is_followed(read, dependency, preceding):
    names = NAMES + "|SubmitLine"
    log = read(
        row(10, "01:00:00", 4, "COMPLETED", 0, f"sbatch --dependency={dependency} a.sh"),
        names=names,
    )
    assert log.columns["preceding"].tolist() == [preceding]


def test_dependency_on_the_start_of_a_job_is_left_out_and_noted(read):
    names = NAMES + "|SubmitLine"
    log = read(
        row(10, "01:00:00", 4, "COMPLETED", 0, "sbatch --dependency=after:7 a.sh"), names=names
    )
    assert "preceding" not in log.columns
    assert noted(log.notes, 1, "dependencies on the start")
