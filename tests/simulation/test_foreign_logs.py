"""Logs that other tools wrote are read with the same jobs, or refused with one line."""

import json

import pytest
from commands import command
from foreign_logs import BEGIN, HEADER, READ, REFUSED, N, jobs, pbs, sacct, swf

from apples.errors import UsageError
from apples.simulation import COLUMNS, clean, read_log

KNOWS_STARTS = {name for name in READ if not name.startswith("Batsim")}


def written(tmp_path, text):
    path = tmp_path / "log"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def table(log):
    columns = log.columns
    return [
        tuple(
            columns[name][k] for name in ("job", "run", "requested_time", "requested_processors")
        )
        for k in range(len(log))
    ]


@pytest.mark.parametrize("name", READ)
def test_the_same_jobs_are_read_from_every_log(tmp_path, name):
    log = read_log(written(tmp_path, READ[name]), COLUMNS)
    has_limit = not name.startswith("LSF")
    assert table(log) == [
        (n, e - s, limit if has_limit else -1, c) for n, _, s, e, limit, c in jobs()
    ]
    submits = log.columns["submit"]
    seconds = 60 if "no seconds" in name else 0
    assert all(abs(d - 600) <= seconds for d in (submits[1:] - submits[:-1]).tolist())
    if name in KNOWS_STARTS:
        assert set(log.columns["wait"].tolist()) == {60}
    assert log.damaged.count == 0


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_log_is_refused_with_one_line(tmp_path, name):
    text, code = REFUSED[name]
    path = written(tmp_path, text)
    with pytest.raises(UsageError) as raised:
        read_log(path)
    assert (raised.value.code, raised.value.fields["file"]) == (code, str(path))
    assert "\n" not in str(raised.value)


def test_an_unknown_kind_is_answered_with_the_kinds_that_are_read(tmp_path):
    with pytest.raises(UsageError) as raised:
        read_log(written(tmp_path, "a,b\n1,2\n"))
    for kind in ("SWF", "sacct", "Batsim", "PBS", "LSF", "SGE"):
        assert kind in str(raised.value)


@pytest.mark.parametrize("column", ["JobName", "Partition"])
def test_a_shifted_row_is_put_right_or_counted_never_lost(tmp_path, column):
    """Only a column that users fill may have a | that is no separator."""
    text = sacct(HEADER + "|Partition", tail="", **{column: "a.b|c"})
    path = written(tmp_path, text.replace("\n10|", "\n10|", 1))
    if column == "JobName":
        log = read_log(path)
        assert (len(log), log.damaged.count) == (N, 0)
        assert any(note.startswith("3 records with |") for note in log.notes)
        return
    with pytest.raises(UsageError):  # 3 of 30 rows
        read_log(path)
    lines = text.splitlines()
    path.write_text(
        "\n".join([*lines[:20], *lines[21:30], *(sacct(HEADER + "|Partition").splitlines()[1:10])])
    )
    log = read_log(path)
    assert log.damaged.count == 1
    with pytest.raises(UsageError):
        clean(log, 64, strict=True)


@pytest.mark.parametrize(
    ("resources", "gpus"),
    [
        ("cpu=4,gres/gpu:a100=1,gres/gpu:v100=3,gres/gpu=4", 4),
        ("cpu=4,gres/gpu=4,gres/gpu:a100=1,gres/gpu:v100=3", 4),
        ("billing=9,gres/gpu:a100=1,gres/gpu:v100=3", 4),
        ("gres/gpu:a100=2", 2),
        ("gres/gpumem=7,gres/gpuutil=9,gres/gpu=1", 1),
    ],
)
def test_gpus_are_the_untyped_total_or_the_sum_of_the_types(tmp_path, resources, gpus):
    text = "\n".join(
        line + ("|ReqTRES" if k == 0 else f"|{resources}")
        for k, line in enumerate(sacct().splitlines())
    )
    log = read_log(written(tmp_path, text))
    assert set(log.columns["gpus"].tolist()) == {gpus}


def test_components_are_joined_behind_a_byte_order_mark(tmp_path):
    text = sacct("JobID|" + HEADER).replace("\n1|1|", "\n1+0|1|").replace("\n2|2|", "\n1+1|2|")
    plain, marked = (read_log(written(tmp_path, mark + text)) for mark in ("", "\ufeff"))
    assert len(plain) == len(marked) == N - 1
    assert table(plain) == table(marked)


def test_a_task_of_an_array_has_a_number_of_its_own_and_the_last_run_counts(tmp_path):
    lines = pbs(lambda cpus: f"n/0*{cpus}").replace(";2.server", ";1[7].server")
    lines = lines.replace(";4.server", ";3.server")
    log = read_log(written(tmp_path, lines))
    numbers = log.columns["job"].tolist()
    assert len(numbers) == len(set(numbers)) == N - 1
    assert any("earlier runs" in note for note in log.notes)


def test_a_log_is_converted_to_swf_with_its_jobs(tmp_path):
    path = written(tmp_path, READ["sacct, lines in the last column"])
    done = command(
        "apples", "workloads", "convert", path, tmp_path / "out.swf.gz", "--processors", 64
    )
    assert done.code == 0, done.err
    back = read_log(tmp_path / "out.swf.gz", COLUMNS)
    assert table(back) == table(read_log(path))
    assert back.header_value("MaxProcs") == "64"
    assert back.header_value("UnixStartTime") == str(BEGIN)


def test_a_log_is_not_converted_onto_itself(tmp_path):
    path = written(tmp_path, READ["sacct, lines in the last column"])
    before, link = path.read_bytes(), tmp_path / "link.swf"
    link.symlink_to(path)
    for out in (path, link):
        done = command("apples", "workloads", "convert", path, out, "--json")
        assert (done.code, json.loads(done.err)["code"]) == (2, "file-exists")
    assert path.read_bytes() == before


def test_a_log_without_waits_confirms_no_policy(tmp_path):
    text = swf().replace(" 60 ", " 0 ")
    done = command("apples", "simulate", written(tmp_path, text), "--explain-waits", "--json")
    assert done.code == 2
    assert json.loads(done.err)["code"] == "waits-missing"


def test_a_long_word_without_a_value_costs_no_more_than_its_length(tmp_path):
    long = pbs(lambda cpus: f"n/0*{cpus}").replace("jobname=", "x" * 800_000 + " jobname=", 1)
    assert len(read_log(written(tmp_path, long))) == N


@pytest.mark.parametrize("none", ["NONE", "none"])
def test_a_category_of_grid_engine_may_hold_colons(tmp_path, none):
    text = READ["SGE"].replace("h_rt=3600", "h_rt=1:00:00,other=a:1:b").replace("NONE", none)
    log = read_log(written(tmp_path, text))
    assert table(log) == [(n, e - s, limit, c) for n, _, s, e, limit, c in jobs()]
    task = read_log(written(tmp_path, text.replace(none, "1.node7", 1)))
    assert len(task) == N - 1
    assert any(note.startswith("1 tasks of parallel jobs") for note in task.notes)


def test_grid_engine_is_known_by_a_first_job_that_never_started(tmp_path):
    text = READ["SGE"].replace(f":{BEGIN + 60}:", ":-1:", 1)
    assert len(read_log(written(tmp_path, text))) == N


def test_of_a_requeued_heterogeneous_job_the_last_run_of_each_component_counts(tmp_path):
    head, *rows = sacct("JobID|" + HEADER).splitlines()
    first, second = rows[0].replace("1|1|", "1+0|1|", 1), rows[1].replace("2|2|", "1+1|2|", 1)
    later = [row.replace("COMPLETED", "FAILED") for row in (first, second)]
    once = read_log(written(tmp_path, "\n".join([head, first, second, *rows[2:]])), COLUMNS)
    for order in ([first, second, *later], [first, later[0], second, later[1]]):
        log = read_log(written(tmp_path, "\n".join([head, *order, *rows[2:]])), COLUMNS)
        assert table(log) == table(once)
        assert log.columns["status"][0] != once.columns["status"][0]
        assert any(note.startswith("1 earlier runs") for note in log.notes)


def test_no_job_of_batsim_stands_in_the_place_of_another(tmp_path):
    document = json.loads(READ["Batsim"])
    for place, job in enumerate(document["jobs"]):
        if place % 3 == 0:
            del job["id"]
        elif place % 3 == 1:
            job["id"] = f"w{place}!5"
    log = read_log(written(tmp_path, json.dumps(document)))
    numbers = log.columns["job"].tolist()
    assert len(numbers) == len(set(numbers)) == N


def test_each_job_whose_delay_is_no_number_is_damaged(tmp_path):
    document = json.loads(READ["Batsim"])
    for job in document["jobs"][:3]:
        job["profile"] = "bad"
    document["profiles"]["bad"] = {"type": "delay", "delay": "long"}
    document["jobs"] += [{**job, "id": f"v!{k}"} for k, job in enumerate(document["jobs"][3:] * 3)]
    assert read_log(written(tmp_path, json.dumps(document))).damaged.count == 3


def test_the_record_of_a_whole_array_of_pbs_is_left_out_with_a_note(tmp_path):
    text = pbs(lambda cpus: f"n/0*{cpus}").replace(";E;2.server", ";E;2[].server")
    text = text.replace(";E;3.server", ";E;3[].server")
    log = read_log(written(tmp_path, text))
    assert (len(log), log.damaged.count) == (N - 2, 0)
    assert any(note.startswith("2 records of whole job arrays") for note in log.notes)


@pytest.mark.parametrize("digits", ["²", "9" * 5000], ids=["superscript", "thousands"])
def test_what_only_looks_like_a_number_is_no_number(tmp_path, digits):
    text = swf(comment=f"; MaxProcs: {digits}\n")
    done = command("apples", "simulate", written(tmp_path, text), "--policy", "fcfs")
    assert (done.code, "MaxProcs" in done.err) == (2, True)
    text = pbs(lambda cpus: f"n/0*{cpus}").replace("walltime=01:", f"walltime={digits}:", 1)
    assert read_log(written(tmp_path, text)).damaged.count == 1
    assert read_log(written(tmp_path, sacct().replace("\n3|", f"\n{digits}|"))).damaged.count == 1


def test_swf_from_swf_keeps_the_log_s_own_start_and_lines(tmp_path):
    text = swf(comment="; UnixStartTime: 1000\n; MaxProcs: 64\n; TimeZoneString: Asia/Tokyo\n")
    source = tmp_path / "log.swf"
    source.write_text(text)
    done = command("apples", "workloads", "convert", source, tmp_path / "out.swf")
    assert done.code == 0, done.err
    back = read_log(tmp_path / "out.swf")
    assert back.header_value("UnixStartTime") == "1000"
    assert back.header_value("TimeZoneString") == "Asia/Tokyo"


def test_a_log_whose_name_is_no_utf_8_is_converted(tmp_path):
    source = tmp_path / "bad\udcff.swf"
    source.write_text(swf())
    done = command("apples", "workloads", "convert", source, tmp_path / "out.swf")
    assert done.code == 0, done.err
    assert "bad\\udcff.swf" in read_log(tmp_path / "out.swf").header[1]


def test_one_object_a_line_is_refused_with_those_words(tmp_path):
    with pytest.raises(UsageError, match="one object a line is not read"):
        read_log(written(tmp_path, '{"job_number": 1}\n{"job_number": 2}\n'))
