import gzip

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
    ("bad", "message"),
    [
        ("1 2 3", r"log.swf:3: 3 columns where SWF has 18"),
        (line() + " 7", r"log.swf:3: 19 columns"),
        (line(run="ten"), r"log.swf:3: could not convert"),
        (line(run="1-2"), r"log.swf:3: could not convert"),
        (line(run="--2"), r"log.swf:3: could not convert"),
        (line(run="-"), r"log.swf:3: could not convert"),
        (line(run="nan"), r"log.swf:3: a value that is no finite number"),
        (line(run="1e999"), r"log.swf:3: a value that is no finite number"),
    ],
    ids=["short", "long", "word", "dash inside", "two dashes", "dash alone", "nan", "infinite"],
)
def test_a_bad_line_is_named(tmp_path, bad, message):
    with pytest.raises(UsageError, match=message):
        read_swf(written(tmp_path, "; header", line(), bad, line(3)))


def test_a_missing_and_a_spare_column_do_not_cancel_out(tmp_path):
    words = line().split()
    path = written(tmp_path, " ".join(words[:-1]), " ".join([*words, "1"]))
    with pytest.raises(UsageError, match=r"log.swf:1: 17 columns"):
        read_swf(path)


def test_a_truncated_gzip_is_said_to_be_one(tmp_path):
    path = tmp_path / "log.swf.gz"
    data = gzip.compress("\n".join(line(k, k * k % 977) for k in range(2000)).encode())
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(UsageError, match="truncated gzip"):
        read_log(path)
    path.write_bytes(data[:200] + b"garbage" + data[207:])
    with pytest.raises(UsageError, match="damaged"):
        read_log(path)


def test_a_file_that_is_not_there_or_holds_nothing(tmp_path):
    with pytest.raises(UsageError, match="No such file"):
        read_log(tmp_path / "none.swf")
    with pytest.raises(UsageError, match="no job records"):
        read_log(written(tmp_path, "; only a comment"))


def test_a_few_damaged_rows_are_left_out_counted_and_the_first_named(tmp_path):
    good = [line(k, k) for k in range(1, 40)]
    path = written(tmp_path, *good[:20], "1 2 3", *good[20:], line(40, run="ten"))
    log = read_swf(path)
    assert log.columns["job"].tolist() == list(range(1, 40))
    assert log.lines.tolist() == [*range(1, 21), *range(22, 41)]
    assert log.damaged.count == 2
    assert log.notes == (
        f"2 damaged rows left out, the first: {path}:21: 3 columns where SWF has 18",
    )
    _, done = clean(log, 64)
    assert "2 damaged rows left out" in str(done)
    with pytest.raises(UsageError, match=r"log.swf:21: 3 columns.*--strict"):
        clean(log, 64, strict=True)
    with pytest.raises(UsageError, match=r"log.swf:21: .*\(4 of 43 rows"):
        read_swf(written(tmp_path, *good[:20], "1 2 3", *good[20:], *("x" for _ in range(3))))


def test_of_two_records_with_one_number_the_first_counts_in_every_engine(tmp_path):
    path = written(tmp_path, line(1, 5, run=-1), line(1, 10), line(1, 20), line(2, 30))
    workload, done = clean(read_swf(path), 64)
    assert workload.submit.tolist() == [10, 30]
    assert done.dropped["the number of an earlier job"] == 1
    with pytest.raises(UsageError, match=r"log.swf:2: the number of an earlier job"):
        clean(read_swf(written(tmp_path, line(1), line(1, 9))), 64, strict=True)


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


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ((line(), line(2, run=0)), r"log.swf:2: no run time"),
        ((line(), line(2, requested=65)), r"log.swf:2: more than 64"),
        ((line(1, 5), line(2, 3)), r"log.swf:2: out of order"),
        ((line(2, 5), line(1, 5)), r"log.swf:2: out of order"),
    ],
    ids=["dropped", "too large", "late", "number"],
)
def test_strict_names_the_line(tmp_path, lines, message):
    with pytest.raises(UsageError, match=message):
        clean(read_swf(written(tmp_path, *lines)), 64, strict=True)


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
