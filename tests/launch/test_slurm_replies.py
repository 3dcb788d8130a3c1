"""What Slurm prints, read as recorded: 22.05 from our own cluster, 24.11 as its documents show it."""

from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apples.errors import LaunchError
from apples.launch import (
    MAX_NAMES,
    expand,
    follow,
    host_entries,
    host_list,
    hostd,
    left_out,
    nodes,
    replies,
)

RECORDED = Path(__file__).with_name("slurm_outputs")


def recorded(name):
    return (RECORDED / name).read_text()


def test_silent_job_is_polled_about_once_a_second():
    """Its files are on a file system that many jobs share."""
    pauses = follow.backoff(follow.LOOK_SECONDS, follow.MAX_LOOK_SECONDS)
    in_a_minute = list(islice(pauses, 70))
    assert sum(in_a_minute) > 55.0
    assert in_a_minute[0] == 0.05  # the end of a short job is noticed at once
    assert sum(in_a_minute[:10]) < 2.5


def passed_on(path, tail_type, pieces):
    """Return what a follower of a file passes on while pieces are appended to it."""
    with path.with_name("passed on").open("w+b") as out:
        tail = tail_type(path, out.fileno())
        for piece in pieces:
            with path.open("ab") as stream:
                stream.write(piece)
            while tail.pass_on():
                pass
        tail.finish()
        out.seek(0)
        return out.read()


@pytest.mark.parametrize(
    ("tail_type", "label"), [(follow.Tail, b""), (follow.LabelledTail, b" 1: ")]
)
def test_follower_keeps_the_begin_of_a_line_without_end_only(tmp_path, tail_type, label):
    """A program that prints no end of line costs no memory here; the run keeps the same part of a line."""
    pieces = [label + b"first\n" + label, *[b"x" * 50_000] * 100, b"\n" + label + b"last"]
    first, long, last = passed_on(tmp_path / "talk", tail_type, pieces).split(b"\n")
    assert (first, last) == (b"first", b"last")
    assert set(long) == {ord("x")}
    assert hostd.LINE_LIMIT < len(long) < hostd.LINE_LIMIT + 100


def test_the_nodes_of_a_cluster_of_2022():
    found = nodes(recorded("sinfo-22.05.json"))
    assert [(n.name, n.address, n.cpus, n.cores) for n in found] == [
        ("h1", "10.94.143.1", 2, 2),
        ("h2", "10.94.143.2", 1, 1),
        ("h3", "10.94.143.3", 1, 1),
    ]
    assert {n.platform for n in found} == {"x86_64"}
    assert found[0].memory == 1024 << 20
    assert [n.features for n in found] == [("here",), ("here",), ("there",)]
    assert not any(n.refusal for n in found)


def test_the_nodes_of_a_cluster_of_2024_stand_once_with_all_their_partitions():
    found = {n.name: n for n in nodes(recorded("sinfo-24.11.json"))}
    assert list(found) == ["n01", "n02", "login", "n07"]
    assert found["n01"].partitions == ("cpu", "debug")
    assert (found["n01"].address, found["login"].address) == ("10.0.0.1", "10.0.0.3")
    assert (found["n01"].cores, found["n01"].cpus) == (4, 8)
    assert "drain" in found["n07"].refusal
    assert "fan is broken" in found["n07"].refusal


def test_a_host_list_has_the_nodes_that_take_jobs_at_their_sites():
    found = nodes(recorded("sinfo-24.11.json"))
    (line,) = left_out(found)
    assert "n07" in line
    assert found[-1].refusal in line
    assert [(e["name"], e["slots"], e["site"]) for e in host_entries(found, ["west", "east"])] == [
        ("n01", 4, "east"),
        ("n02", 4, "east"),
        ("login", 4, "east"),
    ]
    assert "free_memory = 16777216000" in host_list(found)


@pytest.mark.parametrize(
    ("job", "state", "waiting", "running"),
    [
        (15, "RUNNING", False, True),
        (16, "PENDING", True, False),
        (8, "CANCELLED", False, False),
        (99, "", False, False),
    ],
)
def test_the_state_of_a_job_in_the_queue_of_2022(job, state, waiting, running):
    found = replies.job_state(recorded("squeue-22.05.json"), job)
    assert (found.state, found.waiting, found.running) == (state, waiting, running)


def test_the_state_of_a_job_in_the_queue_of_2024():
    text = recorded("squeue-24.11.json")
    assert replies.job_state(text, 16) == replies.SlurmJobState(
        "PENDING", "Resources", None, 1755290999.0
    )
    assert replies.job_state(text, 17).running  # it is being ended: its processes may be alive


def test_how_jobs_ended_as_the_controller_remembers_it():
    failed, done, cancelled, pending = map(
        replies.job_end, recorded("scontrol-22.05.txt").splitlines()
    )
    assert (failed.state, failed.reason, failed.code) == ("FAILED", "NonZeroExitCode", 1)
    assert (done.state, done.code) == ("COMPLETED", 0)
    assert (cancelled.state, cancelled.code) == ("CANCELLED", 128 + 15)
    assert pending.reason == "Resources"


@pytest.mark.parametrize("line", recorded("scontrol-22.05-timeout.txt").splitlines())
def test_a_job_at_its_time_limit_is_known_while_it_ends_and_afterwards(line):
    state, said = replies.job_end(line), []
    assert state.out_of_time
    assert state.limit == 60
    assert follow.time_limit_judged(143, state, said.append) == follow.TIMED_OUT
    (words,) = said
    assert "1 minute" in words


@pytest.mark.parametrize("line", ["", *recorded("scontrol-22.05.txt").splitlines()])
def test_a_job_that_ended_otherwise_keeps_its_own_code(line):
    state, said = replies.job_end(line), []
    assert not state.out_of_time
    assert follow.time_limit_judged(5, state, said.append) == 5
    assert follow.time_limit_judged(follow.TIMED_OUT, state, said.append) == 1
    assert said == []


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("00:01:00", 60),
        ("1-02:03:04", 93784),
        ("UNLIMITED", None),
        ("Partition_Limit", None),
        ("-1", None),
    ],
)
def test_a_limit_is_read_as_slurm_writes_it(text, seconds):
    assert replies.job_end(f"JobState=RUNNING TimeLimit={text}").limit == seconds


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"jobs": 3}', '{"nodes": {}}', "[" * 5000])
def test_what_is_no_answer_is_refused_in_one_line(text):
    for read in (nodes, lambda t: replies.job_state(t, 1)):
        with pytest.raises(LaunchError) as refusal:
            read(text)
        assert refusal.value.code == "slurm-answer-invalid"
        assert "\n" not in str(refusal.value)


NOBODY = {
    "jobs": '{"errors": [{"description": "Failed while looking for jobs", "error_number": -1,'
    ' "error": "Unspecified error", "source": "slurm_load_jobs"}], "jobs": []}',
    "nodes": '{"errors": [{"error": "Unspecified error", "errno": -1}], "nodes": []}',
}
"""What 22.05 prints, with exit code 0, when the controller is not there."""


def test_a_controller_that_is_not_there_is_no_sign_that_a_job_is_over():
    with pytest.raises(LaunchError) as raised:
        replies.job_state(NOBODY["jobs"], 16)
    assert (raised.value.code, raised.value.fields["command"]) == (
        "slurm-command-failed",
        "squeue",
    )
    assert raised.value.fields["reason"].startswith("Failed while looking for jobs")
    with pytest.raises(LaunchError) as raised:
        nodes(NOBODY["nodes"])
    assert (raised.value.code, raised.value.fields["command"]) == ("slurm-command-failed", "sinfo")
    assert raised.value.fields["reason"] == "Unspecified error"


def test_an_error_beside_the_answer_takes_nothing_from_it():
    listed = '{"errors": [{"error": "x"}], "jobs": [{"job_id": 16, "job_state": "PENDING"}]}'
    assert replies.job_state(listed, 16).waiting


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "nodes",
                    "cpus",
                    "number",
                    "set",
                    "state",
                    "memory",
                    "name",
                    "job_state",
                    "features",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON, JSON)
def test_no_answer_is_more_than_a_list_of_nodes_or_an_error(one, other):
    import json

    for document in (
        {"nodes": [one, other]},
        {"sinfo": [one, other]},
        {"jobs": [one, other]},
        {"jobs": [], "nodes": [], "errors": one},
    ):
        text = json.dumps(document)
        for read in (lambda t: host_entries(nodes(t)), lambda t: replies.job_state(t, 1)):
            try:
                read(text)
            except LaunchError:
                continue


@given(st.lists(st.integers(0, 9999), min_size=1, max_size=20, unique=True), st.integers(0, 5))
def test_a_list_of_names_is_what_it_was_folded_from(numbers, width):
    texts = [str(number).zfill(width) for number in numbers]
    assert expand(f"n[{','.join(texts)}]x,last") == [*(f"n{t}x" for t in texts), "last"]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a[1-2]b[3-4]", ["a1b3", "a1b4", "a2b3", "a2b4"]),
        ("n[08-11]", ["n08", "n09", "n10", "n11"]),
        ("x,y", ["x", "y"]),
    ],
)
def test_lists_of_names_as_slurm_folds_them(text, names):
    assert expand(text) == names


@pytest.mark.parametrize(
    "text",
    [
        "n[1-",
        "n]1[",
        "n[a-b]",
        f"n[1-{10 * MAX_NAMES}]",
        "[[1]]",
        pytest.param("n" + "[1]" * 5000, id="deep"),
    ],
)
def test_what_is_no_list_of_names_is_refused(text):
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - a parser's only error
        expand(text)
    assert type(raised.value) is ValueError


@pytest.mark.parametrize("text", ["", "Submitted batch job", "12a", "-1", "9" * 40])
def test_sbatch_that_names_no_job_is_an_error(text):
    with pytest.raises(LaunchError) as raised:
        replies.submitted(text)
    assert raised.value.code == "slurm-answer-invalid"
    assert raised.value.fields["command"] == "sbatch"


def test_sbatch_may_say_other_things_first():
    assert replies.submitted("sbatch: welcome\n4711;cluster\n") == 4711
