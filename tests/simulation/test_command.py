"""`apples simulate` as a user sees it: stdout, stderr, exit codes."""

import csv
import gzip
import json
import random
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from commands import command
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st

SAMPLE = str(Path(__file__).parent / "sample.swf.gz")
POLICY = '''
"""A user's own policy."""

from dataclasses import dataclass

from apples.scheduling import Hold, Reserve, Resize, Start
from apples.scheduling import SchedulingPolicy


@dataclass(frozen=True)
class Patient(SchedulingPolicy):
    """First come, first served, but never more than so many jobs at once."""

    most: int = 3

    def decide(self, cluster):
        running, free = len(cluster.running), cluster.free
        for job in cluster.queue:
            nodes = cluster.nodes_for(job.processors)
            if running >= self.most or nodes > free:
                return
            running, free = running + 1, free - nodes
            yield Start(job.id, nodes)


class Broken(SchedulingPolicy):
    def decide(self, cluster):
        yield Start(cluster.queue[0].id, 1 // 0)


class Promising(SchedulingPolicy):
    def decide(self, cluster):
        for job in cluster.queue:
            yield Reserve(job.id, cluster.time + 1000)


class Talkative(SchedulingPolicy):
    def decide(self, cluster):
        while True:
            yield Reserve(cluster.queue[0].id, cluster.time)


class Greedy(SchedulingPolicy):
    def decide(self, cluster):
        for job in cluster.queue:
            yield Start(job.id, cluster.nodes_for(job.processors))


class Lazy(SchedulingPolicy):
    def decide(self, cluster):
        return iter(())


class Confused(SchedulingPolicy):
    def decide(self, cluster):
        yield Resize([], 3)


class Early(SchedulingPolicy):
    def decide(self, cluster):
        yield Resize(cluster.queue[0].id, 3)


class Silent(SchedulingPolicy):
    def decide(self, cluster):
        return None


class Unlicensed(SchedulingPolicy):
    def decide(self, cluster):
        free = cluster.free
        for job in cluster.queue:
            nodes = cluster.nodes_for(job.processors)
            if job.id % 50 == 0:
                yield Hold(job.id, f"no licence for {job.processors} processors")
            elif nodes > free:
                return
            else:
                free -= nodes
                yield Start(job.id, nodes)


class Empty:
    pass
'''


def run(*words):
    return command("apples", "simulate", *words)


def figures(*words):
    answer = run(*words, "--json")
    assert answer.code == 0, answer.err
    return answer.document


def refusal(*words):
    """Return code and fields of the error that a command ends with."""
    answer = run(*words, "--json")
    assert (answer.code, answer.out) == (2, ""), answer.err
    return answer.failure["code"], answer.failure["fields"]


SIXTY_FOUR = ("--processors", 64)


def test_the_figures_are_those_of_the_schema():
    answer = figures(SAMPLE, "--policy", "easy", *SIXTY_FOUR)
    assert answer["schema"] == "apples.simulation/1"
    promised = (
        "jobs dropped mean_wait mean_response mean_slowdown mean_bounded_slowdown percentiles "
        "makespan utilisation energy malleable_starts mates resizes "
        "simulation_seconds read_seconds"
    )
    assert set(promised.split()) <= set(answer)
    assert answer["jobs"] == 150
    assert answer["energy"] is None


def test_rows_that_cannot_be_written_do_not_take_the_answer_with_them():
    done = command(
        "apples", "simulate", SAMPLE, "--policy", "easy", *SIXTY_FOUR, "--csv", "/dev/full"
    )
    assert done.code == 4
    assert done.out.startswith("easy on ")
    assert done.error_codes == ["disk-full"]


def test_examples_in_the_help_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = command("apples", "simulate", "--help").out.replace("-\n  ", "-")
    examples = shown.partition("Example: ")[2].partition("\n\n")[0].split(";")
    local = [example.split() for example in examples if "--fetch" not in example]
    assert [command(*words).code for words in local] == [0, 0]


def test_the_csv_gives_the_means_of_the_json(tmp_path):
    path = tmp_path / "jobs.csv"
    answer = figures(SAMPLE, "--policy", "sd", "--nodes", 16, "--cores-per-node", 4, "--csv", path)
    with path.open() as file:
        rows = list(csv.DictReader(file))
    column = {name: np.array([float(row[name]) for row in rows]) for name in rows[0]}
    assert list(rows[0])[:5] == ["job", "submit", "start", "end", "processors"]
    response = column["end"] - column["submit"]
    assert (column["start"] - column["submit"]).mean() == answer["mean_wait"]
    assert response.mean() == answer["mean_response"]
    assert (response / column["run"]).mean() == pytest.approx(answer["mean_slowdown"], rel=1e-12)
    assert column["guest"].sum() == answer["malleable_starts"] > 0
    assert column["resizes"].sum() == answer["resizes"]


def test_text_and_json_say_the_same():
    answer = figures(SAMPLE, "--policy", "easy", *SIXTY_FOUR)
    first = run(SAMPLE, "--policy", "easy", *SIXTY_FOUR).out.splitlines()[0]
    assert {"easy", "sample.swf.gz"} <= set(re.findall(r"[\w.]+", first))
    assert f"{answer['mean_wait']:.6g}" in first


def test_a_users_own_policy_with_an_option(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(POLICY)
    three = figures(SAMPLE, "--policy", f"{path}:Patient", *SIXTY_FOUR)
    one = figures(SAMPLE, "--policy", f"{path}:Patient", *SIXTY_FOUR, "--option", "most=1")
    assert one["mean_wait"] > three["mean_wait"]
    assert one["engine"] == "events"


def test_jobs_that_a_policy_never_released_are_said_on_every_face(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(POLICY)
    words = (SAMPLE, "--policy", f"{path}:Unlicensed", *SIXTY_FOUR)
    document = figures(*words)
    assert (document["held"], document["completed"]) == (3, 147)
    first = document["first_held"]
    assert first["job"] == 50
    answer = run(*words)
    line = answer.err.splitlines()[-1].removeprefix("apples: ")
    assert line.startswith("3 ")
    assert f"job 50: {first['reason']}" in line
    assert f"  {line}" in answer.out.splitlines()
    assert figures(SAMPLE, "--policy", "easy", *SIXTY_FOUR)["first_held"] is None


def test_a_policy_in_random_py_with_postponed_annotations_replaces_no_module(tmp_path):
    path = tmp_path / "random.py"
    path.write_text("from __future__ import annotations\n" + POLICY)
    plain = tmp_path / "mine.py"
    plain.write_text(POLICY)

    answers = [
        figures(SAMPLE, "--policy", f"{each}:Patient", *SIXTY_FOUR) for each in (path, plain)
    ]
    assert answers[0]["mean_wait"] == answers[1]["mean_wait"]
    assert sys.modules["random"] is random


def test_either_engine_can_be_asked_for():
    pytest.importorskip("numba")
    fast, slow = (
        figures(SAMPLE, "--policy", "easy", *SIXTY_FOUR, "--option", f"engine={name}")
        for name in ("kernel", "events")
    )
    assert (fast["engine"], slow["engine"]) == ("numba", "events")
    assert slow["mean_wait"] == fast["mean_wait"]


def test_energy_is_idle_power_all_the_time_and_more_for_busy_nodes():
    watts = ("--option", "idle_watts=100", "--option", "busy_watts=300")
    answer = figures(SAMPLE, "--policy", "easy", *SIXTY_FOUR, *watts)
    idle = 100 * 64 * answer["makespan"]
    assert answer["energy"] == pytest.approx(idle * (1 + 2 * answer["utilisation"]))


def test_what_was_dropped_is_counted_and_said(tmp_path):
    path = tmp_path / "log.swf"
    path.write_text(
        "1 0 -1 0 4 -1 -1 4 9 -1 1 1 1 1 1 1 -1 -1\n2 0 -1 5 4 -1 -1 4 9 -1 1 1 1 1 1 1 -1 -1\n"
    )
    answer = run(path, "--policy", "easy", "--processors", 8, "--json")
    assert answer.document["dropped"]["no run time"] == 1
    assert (answer.document["records"], answer.document["jobs"]) == (2, 1)
    assert re.findall(r"\d+", answer.err.rpartition(path.name)[2]) == ["2", "1", "1"]
    code, fields = refusal(path, "--policy", "easy", "--processors", 8, "--strict")
    assert (code, fields["file"], fields["line"]) == ("record-unusable", str(path), 1)
    assert fields["reason"] == "no run time"


def test_random_failures_are_those_of_the_seed():
    risk = ("--option", "mtbf=3e5", "--option", "mttr=3600", "--policy", "easy", *SIXTY_FOUR)
    one, again, other = (figures(SAMPLE, *risk, "--seed", seed) for seed in (1, 1, 2))
    assert one["restarts"] > 0
    assert one["mean_wait"] == again["mean_wait"] != other["mean_wait"]


def option(word, policy="easy"):
    return ("--policy", policy, *SIXTY_FOUR, "--option", word)


@pytest.mark.parametrize(
    ("words", "code", "fields"),
    [
        (("--policy", "esay", *SIXTY_FOUR), "policy-unknown", {"value": "esay"}),
        (("--policy", "none.py:P", *SIXTY_FOUR), "file-missing", {"file": "none.py"}),
        (("--policy", "json:nothing", *SIXTY_FOUR), "user-code-missing", {"value": "nothing"}),
        (("--policy", "easy", "--processors", 0), "value-range", {"option": "--processors", "value": 0}),
        (("--policy", "easy", *SIXTY_FOUR, "--nodes", 3), "option-missing", {"option": "--cores-per-node"}),
        (
            ("--policy", "easy", *SIXTY_FOUR, "--nodes", 3, "--cores-per-node", 4),
            "option-conflict", {"value": 64, "bound": 12},
        ),
        (option("depth"), "value-invalid", {"option": "--option", "value": "depth"}),
        (option("deep=1"), "option-unknown", {"option": "deep", "policy": "easy"}),
        (option("order=best"), "value-unknown", {"option": "order", "value": "best"}),
        (option("ties=none"), "value-unknown", {"option": "ties", "value": "none"}),
        (option("clean=none"), "value-unknown", {"option": "clean", "value": "none"}),
        (option("ties=predictsim", "fcfs"), "option-not-applicable", {"option": "ties"}),
        (
            ("--policy", "sd", *SIXTY_FOUR, "--malleable-fraction", "1.5"),
            "value-range", {"option": "--malleable-fraction", "value": 1.5},
        ),
        (("--policy", "sd", *SIXTY_FOUR), "value-range", {"option": "sharing_factor", "cores": 1}),
        (option("idle_watts=3"), "option-missing", {"option": "busy_watts"}),
        (option("idle_watts=x"), "value-type", {"option": "idle_watts", "value": "x"}),
        (option("failures=none.csv"), "file-missing", {"option": "failures", "file": "none.csv"}),
        (
            ("--policy", "easy", *SIXTY_FOUR, "--csv", "/nowhere/jobs.csv"),
            "directory-missing", {"option": "--csv", "file": "/nowhere/jobs.csv"},
        ),
        (option("max_slowdown=lots", "sd"), "value-invalid", {"option": "max_slowdown", "value": "lots"}),
        (option("max_slowdown=-1", "sd"), "value-range", {"option": "max_slowdown", "value": -1}),
        (option("mates=1.5", "sd"), "value-type", {"option": "mates", "value": "1.5"}),
        (option("guard=3", "sd"), "value-type", {"option": "guard", "value": "3"}),
        (option("depth=x"), "value-type", {"option": "depth", "value": "x"}),
        ((*option("mtbf=1e-9"), "--option", "mttr=1e-9"), "value-range", {"option": "mtbf", "value": 1e-9}),
        (option("data_bytes=inf"), "value-range", {"option": "data_bytes", "value": "inf"}),
        (("--policy", "easy", *SIXTY_FOUR, "--seed", -1), "value-range", {"option": "--seed", "value": -1}),
    ],
)  # fmt: skip
def test_bad_input_is_one_clear_line_and_exit_code_two(words, code, fields):
    answer, named = refusal(SAMPLE, *words)
    assert answer == code
    assert fields.items() <= named.items()


def test_the_nearest_name_is_suggested():
    assert "'easy'" in run(SAMPLE, "--policy", "esay", *SIXTY_FOUR).err
    assert "'depth'" in run(SAMPLE, *option("deep=1")).err


def test_a_policy_that_breaks_is_reported_with_its_line(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(POLICY)
    code, fields = refusal(SAMPLE, "--policy", f"{path}:Broken", *SIXTY_FOUR, "--strict")
    assert (code, fields["kind"]) == ("policy-failed", "raises")
    assert fields["where"].endswith(f"{path}:28")
    code, fields = refusal(SAMPLE, "--policy", f"{path}:Empty", *SIXTY_FOUR)
    assert (code, fields["field"]) == ("policy-invalid", "decide")
    path.write_text("def")
    code, fields = refusal(SAMPLE, "--policy", f"{path}:Patient", *SIXTY_FOUR)
    assert (code, fields["kind"]) == ("user-code-failed", "SyntaxError")


@pytest.mark.parametrize(
    ("name", "kind", "culprit"),
    [
        ("Promising", "idle", "job 1 "),
        ("Talkative", "too many", ""),
        ("Greedy", "refused", "Start(job="),
        ("Lazy", "idle", "job 1 "),
        ("Confused", "no decision", "Resize(job=[], nodes=3)"),
        ("Early", "refused", "Resize(job=1, nodes=3)"),
        ("Silent", "raises", "NoneType"),
    ],
)
def test_a_policy_that_cannot_be_obeyed_is_named_and_the_run_goes_on(
    tmp_path, name, kind, culprit
):
    path, few = tmp_path / "mine.py", tmp_path / "few.swf"
    path.write_text(POLICY)
    lines = gzip.decompress(Path(SAMPLE).read_bytes()).splitlines()
    jobs = [line.split() for line in lines if not line.startswith(b";")][
        :40
    ]  # each waits for long
    few.write_bytes(b"".join(b" ".join([job[0], b"0", *job[2:], b"\n"]) for job in jobs))
    answer = run(few, "--policy", f"{path}:{name}", *SIXTY_FOUR, "--json")
    assert answer.code == 2
    lines = [line for line in answer.err.splitlines() if line.startswith("apples: policy ")]
    assert f"{path}:" in lines[0]
    document = answer.document
    first = document["policy_failures"][0]
    assert first["kind"] == kind
    assert culprit in first["reason"]
    assert f"{path}:" in first["where"]
    assert document["completed"] == document["jobs"] == 40
    assert document["failed_passes"] > 0
    assert sum(kind["passes"] for kind in document["policy_failures"]) == document["failed_passes"]


def test_a_result_that_is_not_all_the_policys_says_so_on_every_face(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(POLICY)
    mine = ("--policy", f"{path}:Broken", *SIXTY_FOUR)
    failed = run(SAMPLE, *mine, "--json").document["failed_passes"]
    assert failed > 0
    text = run(SAMPLE, *mine)
    assert text.code == 2
    assert str(failed) in re.findall(r"\d+", text.out.splitlines()[1])
    page = tmp_path / "page.html"
    report = command("apples", "report", SAMPLE, "--policy", "easy", *mine, "--out", page)
    assert report.code == 2
    assert str(failed) in re.findall(r"\d+", page.read_text())
    out = tmp_path / "sweep.jsonl"
    sweep = command("apples", "simulate", SAMPLE, *mine, "--grid", out, "--workers", 1)
    assert sweep.code == 2
    assert str(failed) in re.findall(r"\d+", sweep.out)


def test_the_header_says_how_large_the_machine_is_where_the_command_does_not(tmp_path):
    answer = run(SAMPLE, "--policy", "easy", "--json")
    assert "64 processors" in answer.err
    same = figures(SAMPLE, "--policy", "easy", *SIXTY_FOUR)
    assert answer.document["mean_wait"] == same["mean_wait"]
    path = tmp_path / "log.swf"
    path.write_text(record())
    code, fields = refusal(path, "--policy", "easy")
    assert (code, fields["option"], fields["log"]) == ("option-missing", "--processors", str(path))


def record(job=1, submit=0, run=10, width=4, asked=9):
    return f"{job} {submit} -1 {run} {width} -1 -1 {width} {asked} -1 1 1 1 1 1 1 -1 -1\n"


@pytest.mark.parametrize(
    ("text", "code", "fields"),
    [
        ("", "log-empty", {}),
        ("; MaxProcs: 8\n", "log-empty", {}),
        (record(run=0), "no-job-fits", {"processors": 8}),
        (record() + "1 2 3\n", "rows-damaged", {"line": 2, "problem": "columns-differ"}),
        (record() + record().strip() + " 7\n", "rows-damaged", {"line": 2, "problem": "columns-differ"}),
        (record(run="ten"), "rows-damaged", {"line": 1, "problem": "value-type"}),
        (record() + record(run="1e308"), "rows-damaged", {"line": 2, "problem": "value-range"}),
        (record(run="1e-300"), "rows-damaged", {"line": 1, "problem": "value-range"}),
        (record(submit="nan"), "rows-damaged", {"line": 1, "problem": "value-invalid"}),
    ],
)  # fmt: skip
def test_a_log_that_cannot_be_simulated_is_named_with_its_line(tmp_path, text, code, fields):
    path = tmp_path / "log.swf"
    path.write_text(text)
    answer, named = refusal(path, "--policy", "easy", "--processors", 8)
    assert answer == code
    assert fields.items() <= named.items()
    assert str(path) in {named.get("file"), named.get("log")}


def test_what_is_raised_and_reordered_is_said_too(tmp_path):
    path = tmp_path / "log.swf"
    path.write_text(record(2, 5) + record(1, 0) + record(3, 5, asked=99))
    answer = run(path, "--policy", "easy", "--processors", 8, "--json")
    assert (answer.document["records"], answer.document["jobs"]) == (3, 3)
    assert (answer.document["reordered"], answer.document["requests_raised"]) == (1, 2)
    assert re.findall(r"\d+", answer.err.rpartition(path.name)[2]) == ["3", "3", "1", "2"]


NUMBERS = st.one_of(
    st.integers(-2, 12).map(str),
    st.sampled_from(["-1", "0.5", "1e15", "1e16", "-7", "nan", "x", "1e-12", "99999999999"]),
)
LINES = st.one_of(
    st.lists(NUMBERS, min_size=5, max_size=5).map(lambda words: record(*words)),
    st.builds(record, st.integers(1, 9), st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)),
    st.text("0 1-;\n.e\0", max_size=40).map(lambda text: text + "\n"),
)
WORDS = st.sampled_from(
    ["order", "depth", "mates", "guard", "max_slowdown", "sharing_factor", "free_nodes", "clean",
     "ties", "speedup", "model", "minimum", "maximum", "cost", "shrink_seconds", "data_bytes",
     "bandwidth", "mtbf", "mttr", "engine", "idle_watts"]
)  # fmt: skip
VALUES = st.one_of(
    NUMBERS,
    st.sampled_from(
        [
            "inf",
            "dynamic",
            "on",
            "off",
            "predictsim",
            "event",
            "worst",
            "kale",
            "amdahl:0.1",
            "events",
            "64",
            "=",
        ]
    ),
)


@settings(max_examples=examples(150), deadline=None)
@given(
    lines=st.lists(LINES, max_size=8),
    policy=st.sampled_from(["easy", "fcfs", "conservative", "equipartition", "sd", "sjf", "nope"]),
    options=st.lists(st.tuples(WORDS, VALUES), max_size=2),
    machine=st.sampled_from(
        [("--processors", "8"), ("--nodes", "4", "--cores-per-node", "2"), ("--nodes", "0")]
    ),
    strict=st.booleans(),
)
def test_whatever_the_input_the_answer_is_figures_or_one_clear_line(
    tmp_path_factory, lines, policy, options, machine, strict
):
    path = tmp_path_factory.getbasetemp() / "fuzzed.swf"
    path.write_text("".join(lines))
    words = [word for key, value in options for word in ("--option", f"{key}={value}")]
    answer = run(path, "--policy", policy, *machine, *words, *["--strict"] * strict, "--json")
    if answer.code == 0:
        given = json.loads(answer.out, parse_constant=pytest.fail)
        assert given["jobs"] >= 1
    else:
        assert (answer.code, answer.out) == (2, ""), answer.err
        *notes, _ = answer.err.splitlines()
        assert all(line.startswith("apples: ") for line in notes)
        assert answer.failure["code"] != "internal-error"


@pytest.mark.slow
def test_the_program_ends_with_two_and_one_line_on_stderr():
    """Slow: an interpreter is started."""
    answer = subprocess.run(
        [sys.executable, "-c", "from apples.__main__ import main; main()", "simulate", "none.swf",
         "--policy", "easy", "--processors", "4"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert answer.returncode == 2
    assert answer.stdout == ""
    assert answer.stderr.count("\n") == 1
    assert "none.swf" in answer.stderr
    assert answer.stderr.endswith(" [file-missing]\n")


@pytest.mark.slow
def test_numba_is_loaded_only_where_a_kernel_runs():
    """Slow: an interpreter is started."""
    code = (
        "import sys; from apples.__main__ import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(*sys.modules)"
    )
    answer = subprocess.run(
        [
            sys.executable,
            "-c",
            code,
            "simulate",
            SAMPLE,
            "--policy",
            "easy",
            "--processors",
            "64",
            "--option",
            "engine=events",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(answer.stdout.splitlines()[-1].split())
    assert "apples.simulation.run" in loaded
    assert not loaded & {"numba", "requests", "scipy"}
