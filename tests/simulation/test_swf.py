import numpy as np
import pytest

from apples.errors import UsageError
from apples.simulation import COLUMNS, Log, clean, read_log, read_swf, slice_jobs, write_swf

LINE = "{} {} -1 {} {} -1 -1 {} {} -1 1 1 1 -1 -1 -1 -1 -1"


def line(job=1, submit=0, *, run=10, allocated=-1, requested=4, time=20):
    return LINE.format(job, submit, run, allocated, requested, time)


def written(folder, *lines, name="log.swf"):
    path = folder / name
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_log_is_read_back_as_it_was_written(tmp_path):
    rng = np.random.default_rng(0)
    columns = {name: rng.integers(-1, 10_000, 50).astype(float) for name in COLUMNS}
    columns["submit"] = rng.random(50) * 1e6
    log = Log(columns=columns, lines=np.arange(50), header=("Computer: none", "MaxProcs: 64"))
    for name in ("log.swf", "log.swf.gz"):
        write_swf(tmp_path / name, log)
        again = read_swf(tmp_path / name, COLUMNS)
        assert again.header_value("MaxProcs") == "64"
        assert again.lines.tolist() == list(range(3, 53))
        for column in COLUMNS:
            assert again.columns[column].tolist() == columns[column].tolist()


def test_whole_numbers_and_fractions_are_read_alike(tmp_path):
    plain = written(tmp_path, line(submit=5), line(2, 7))
    spaced = written(
        tmp_path, "; a", line(submit="5.0"), "", line(2, "+7e0").replace(" ", "\t"), name="b"
    )
    for name in ("job", "submit", "run", "requested_processors"):
        assert read_swf(plain).columns[name].tolist() == read_swf(spaced).columns[name].tolist()
    assert read_swf(spaced).lines.tolist() == [2, 4]


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        ("1 2 3", "columns-differ"),
        (line() + " 7", "columns-differ"),
        (line(run="ten"), "value-type"),
        (line(run="1-2"), "value-type"),
        (line(run="--2"), "value-type"),
        (line(run="-"), "value-type"),
        (line(run="nan"), "value-invalid"),
        (line(run="1e999"), "value-invalid"),
    ],
    ids=["short", "long", "word", "dash inside", "two dashes", "dash alone", "nan", "infinite"],
)
def test_a_bad_line_is_named(tmp_path, bad, problem):
    path = written(tmp_path, "; header", line(), bad, line(3))
    with pytest.raises(UsageError) as raised:
        read_swf(path)
    assert raised.value.code == "rows-damaged"
    named = {"file": str(path), "line": 3, "problem": problem, "value": 1, "rows": 3}
    assert named.items() <= raised.value.fields.items()


def test_a_missing_and_a_spare_column_do_not_cancel_out(tmp_path):
    words = line().split()
    path = written(tmp_path, " ".join(words[:-1]), " ".join([*words, "1"]))
    with pytest.raises(UsageError) as raised:
        read_swf(path)
    assert raised.value.code == "rows-damaged"
    assert (raised.value.fields["line"], raised.value.fields["problem"]) == (1, "columns-differ")


def test_a_file_that_is_not_there_or_holds_nothing(tmp_path):
    with pytest.raises(UsageError) as raised:
        read_log(tmp_path / "none.swf")
    assert raised.value.code == "file-missing"
    assert raised.value.fields["file"] == str(tmp_path / "none.swf")
    with pytest.raises(UsageError) as raised:
        read_log(written(tmp_path, "; only a comment"))
    assert raised.value.code == "log-empty"


def test_a_few_damaged_rows_are_left_out_counted_and_the_first_named(tmp_path):
    good = [line(k, k) for k in range(1, 40)]
    path = written(tmp_path, *good[:20], "1 2 3", *good[20:], line(40, run="ten"))
    log = read_swf(path)
    assert log.columns["job"].tolist() == list(range(1, 40))
    assert log.lines.tolist() == [*range(1, 21), *range(22, 41)]
    assert log.damaged.count == 2
    (note,) = log.notes
    assert note.startswith("2 ")
    assert f"{path}:21: " in note
    _, done = clean(log, 64)
    assert note in str(done)
    with pytest.raises(UsageError) as raised:
        clean(log, 64, strict=True)
    assert raised.value.code == "rows-damaged"
    assert raised.value.fields == {
        "file": str(path), "line": 21, "problem": "columns-differ", "value": 2,
    }  # fmt: skip
    with pytest.raises(UsageError) as raised:
        read_swf(written(tmp_path, *good[:20], "1 2 3", *good[20:], *("x" for _ in range(3))))
    assert raised.value.code == "rows-damaged"
    assert raised.value.fields["line"] == 21
    assert (raised.value.fields["value"], raised.value.fields["rows"]) == (4, 43)


def test_of_two_records_with_one_number_the_first_counts_in_every_engine(tmp_path):
    path = written(tmp_path, line(1, 5, run=-1), line(1, 10), line(1, 20), line(2, 30))
    workload, done = clean(read_swf(path), 64)
    assert workload.submit.tolist() == [10, 30]
    assert done.dropped["the number of an earlier job"] == 1
    with pytest.raises(UsageError) as raised:
        clean(read_swf(written(tmp_path, line(1), line(1, 9))), 64, strict=True)
    assert raised.value.code == "record-unusable"
    assert raised.value.fields["line"] == 2
    assert raised.value.fields["reason"] == "the number of an earlier job"


def test_what_cleaning_drops_and_reorders_is_counted(tmp_path):
    path = written(
        tmp_path,
        line(4, 50),
        line(2, 30),
        line(3, 10, run=0),
        line(5, 60, requested=65),
        line(6, 70, requested=-1, allocated=8),
        line(7, 80, requested=-1, allocated=-1),
        line(8, 90, run=30, time=20),
    )
    workload, done = clean(read_swf(path), 64)
    assert workload.job.tolist() == [2, 4, 6, 8]
    assert workload.processors.tolist() == [4, 4, 8, 4]
    assert workload.requested.tolist() == [20, 20, 20, 30]
    assert dict(done.dropped) == {
        "no processors": 1,
        "no run time": 1,
        "more than 64 processors": 1,
        "the number of an earlier job": 0,
    }
    assert (done.reordered, done.raised) == (1, 1)
    cut, _ = clean(read_swf(path), 64, "predictsim")
    assert cut.run.tolist() == [10, 10, 10, 20]


def test_requested_processors_count_before_allocated_ones(tmp_path):
    path = written(
        tmp_path, line(1, requested=4, allocated=2), line(2, 5, requested=2, allocated=4)
    )
    assert clean(read_swf(path), 64)[0].processors.tolist() == [4, 2]


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ((line(), line(2, run=0)), "no run time"),
        ((line(), line(2, requested=65)), "more than 64 processors"),
        ((line(1, 5), line(2, 3)), "out of order of submission"),
        ((line(2, 5), line(1, 5)), "out of order of submission"),
    ],
    ids=["dropped", "too large", "late", "number"],
)
def test_strict_names_the_line(tmp_path, lines, reason):
    path = written(tmp_path, *lines)
    with pytest.raises(UsageError) as raised:
        clean(read_swf(path), 64, strict=True)
    assert raised.value.code == "record-unusable"
    named = {"file": str(path), "line": 2, "reason": reason}
    assert named.items() <= raised.value.fields.items()


def test_a_slice_has_the_jobs_submitted_in_it(tmp_path):
    workload, _ = clean(read_swf(written(tmp_path, line(1, 100), line(2, 200), line(3, 400))), 64)
    assert slice_jobs(workload, 200, 400).job.tolist() == [2]


def test_what_a_job_asks_for_stays_with_it_where_submissions_are_one_instant(tmp_path):
    path = written(
        tmp_path,
        line(2, "5.0000001", requested=2, run=8, time=6),
        line(1, "5.0000002", requested=1, run=9, time=7),
    )
    log = read_log(path)
    log.columns["user"] = log.columns["job"] * 10
    workload, done = clean(log, 64, limits_kill=True)
    assert workload.job.tolist() == [1, 2]
    assert workload.processors.tolist() == [1, 2]
    assert workload.requested.tolist() == [7, 6]
    assert workload.attributes["user"].tolist() == [10, 20]
    assert done.reordered == 1
