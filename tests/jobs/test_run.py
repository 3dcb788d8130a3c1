"""`apples run`: for real on the sample, and what it says and learns around a run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import rowed
from commands import EXAMPLE, command, files, refused

from apples.agent import load_information, sequential
from apples.jobs import run_record, store

SAMPLE = [
    word
    for name in ("hosts", "template", "user")
    for word in (f"--{name}", str(EXAMPLE / f"{name}.toml"))
]
SMALL = ["--set", "grid=200", "--set", "iterations=20"]
FAKE = Path(__file__).parents[1] / "launch" / "programs" / "fake.py"


@pytest.fixture(autouse=True)
def own_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", os.environ.get("XDG_CACHE_HOME", str(tmp_path / "cache")))


def run(*options):
    return command("apples", "run", *SAMPLE, *SMALL, "--weather", "static", *options)


def refused_run(*options):
    return refused("apples", "run", *SAMPLE, *SMALL, "--weather", "static", *options)


@pytest.mark.mpi
def test_the_sample_runs_on_several_hosts_and_equals_the_sequential_run_whatever_the_method():
    digests, hosts = set(), set()
    for blueprint in ("blocked", "single_host"):
        done = run("--json", "--verify", "full", "--blueprint", blueprint)
        assert done.code == 0, done.err
        document = done.document
        assert document["schema"] == "apples.run/1"
        assert document["verified"] is True
        execution = document["execution"]
        assert execution["iterations"] == 20
        assert execution["predicted_seconds"] == document["plan"]["chosen"]["execution_seconds"]
        assert execution["iteration_seconds"] == pytest.approx(execution["measured_seconds"] / 20)
        assert [h["rows"] for h in execution["hosts"]] == document["plan"]["chosen"]["rows"]
        record = run_record(document["record"])
        assert (record.state, record.plan) == ("finished", document["plan"])
        (measured,) = (event for event in record.events if event["event"] == "measured")
        assert measured["seconds"] == execution["measured_seconds"]
        task = json.loads((store.record(record.id).folder / "task.json").read_text())
        assert [piece["rows"] for piece in task["partition"]] == [*record.summary["rows"]]
        digests.add(document["result_sha256"])
        hosts.add(len(execution["hosts"]))
    assert len(digests) == 1
    assert hosts == {1, 4}


def lying(tile):
    """Return a rectangle as a plan and a task both have it."""
    return [tile[key] for key in ("first_row", "rows", "first_column", "columns")]


@pytest.mark.mpi
@pytest.mark.more
def test_rectangles_run_verified_with_the_digest_of_strips_and_are_on_record_and_on_the_page(
    tmp_path,
):
    strips = run("--json", "--blueprint", "blocked").document["result_sha256"]
    for how in (["square_blocks"], ["all_resources", "--planner", "rectangles"]):
        done = run("--json", "--verify", "full", "--blueprint", *how)
        assert done.code == 0, done.err
        document = done.document
        assert document["verified"] is True
        assert document["result_sha256"] == strips
        chosen, execution = document["plan"]["chosen"], document["execution"]
        tiles = [lying(one["rectangle"]) for one in chosen["strips"]]
        assert [lying(one["rectangle"]) for one in execution["hosts"]] == tiles
        assert [one["rows"] for one in execution["hosts"]] == chosen["rows"]
        assert sum(rows * columns for _, rows, _, columns in tiles) == 200 * 200
        assert all(one["predicted_seconds"] > 0 for one in execution["borders"])
        task = json.loads((store.record(document["record"]).folder / "task.json").read_text())
        assert [lying(piece) for piece in task["partition"]] == tiles
        page = tmp_path / "page.html"
        assert command("apples", "report", document["record"], "-o", str(page)).code == 0
        assert 'id="h-rectangles"' in page.read_text()
    assert f"{tiles[0][1]} x {tiles[0][3]}" in run("--blueprint", *how).out


def test_a_job_that_is_moved_has_no_rectangles():
    failure = refused_run("--blueprint", "redistribute", "--planner", "rectangles")
    assert (failure["exit_code"], failure["code"]) == (2, "rectangles-unsupported")


def test_a_dry_run_prints_the_command_and_the_task_and_starts_nothing(tmp_path):
    document = run("--dry-run", "--json").document
    task = json.loads(document["command"]["files"]["task.json"])
    assert [piece["rows"] for piece in task["partition"]] == document["plan"]["chosen"]["rows"]
    assert document["execution"] is None
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    ("options", "code", "fields"),
    [
        (
            ["--actuator", "cloud"],
            "launcher-unknown",
            {"value": "cloud", "known": ["local", "recording", "slurm", "ssh"]},
        ),
        (["--output", "/dev/null/x"], "file-unwritable", {"file": "/dev/null/x"}),
    ],
)
def test_a_bad_option_starts_nothing(options, code, fields):
    failure = refused_run(*options)
    assert (failure["exit_code"], failure["code"]) == (2, code)
    assert failure["fields"].items() >= fields.items()


def test_a_bad_parameter_starts_nothing():
    failure = refused_run("--set", "grid=0")
    fields = failure["fields"]
    assert (failure["exit_code"], fields["file"], fields["field"]) == (2, "--set", "grid")


def test_an_unwritable_page_is_refused_before_the_run_is_recorded():
    failure = refused_run("--report", "/dev/null/x/page.html")
    assert (failure["exit_code"], failure["code"]) == (2, "file-unwritable")
    assert failure["fields"]["file"].startswith("/dev/null/x")
    assert store.records() == []


def test_no_plan_ends_with_3(tmp_path):
    given = files(tmp_path, hosts='[[host]]\nname = "a"\nfree_memory = 1000\n')
    done = command("apples", "run", *given, "--weather", "static", "--json")
    assert (done.code, done.failure["code"]) == (3, "no-feasible-plan")
    assert done.failure["fields"]["reason"].startswith("a offers 1.00 kB")


@pytest.fixture
def fake(tmp_path):
    """The pool of the test program, on hosts of a platform of their own."""

    def make(how, platforms='"any"', speed=1e-9):
        template = (
            f'name = "fake"\nprogram = ["{{python}}", "-S", "{FAKE}"]\n'
            "[parameters.grid]\ndefault = 30\n[parameters.iterations]\ndefault = 2\n"
            f'[parameters.how]\ndefault = "{how}"\n'
            f'[[implementation]]\nname = "default"\nplatforms = {platforms}\n'
        )
        hosts = f'[[host]]\nname = "ada"\nplatform = "x86_64"\nseconds_per_point = {speed}\n'
        files(tmp_path, hosts=hosts, template=template)
        return load_information(
            *(tmp_path / f"{n}.toml" for n in ("hosts", "template", "user")),
            settings={},
            weather="static",
        )

    return make


@pytest.mark.mpi
def test_the_reference_is_computed_by_what_runs_on_the_platform_of_the_hosts(fake):
    assert sequential(fake("", platforms='["x86_64"]')).iterations == 2


@pytest.mark.mpi
def test_a_program_that_was_never_measured_is_measured_before_its_first_run(tmp_path):
    given = files(tmp_path, hosts=rowed.HOSTS, template=rowed.template())
    words = ("apples", "run", *given, "--no-verify", "--json", "--blueprint", "blocked")
    skipped = command(*words, "--no-calibrate")
    assert (skipped.code, "measuring" in skipped.err) == (0, False), skipped.err
    assert {one["source"] for one in skipped.document["plan"]["speeds"].values()} == {"host list"}
    first = command(*words)
    assert "measuring rowed on ada, bob first" in first.err
    assert first.document["phases"]["calibrate"] > 0
    for speed in first.document["plan"]["speeds"].values():
        assert speed == {"source": "measured", "points": 30.0 * 30, "factor": 1.0}
    second = command(*words)
    assert "measuring" not in second.err
    larger = command(*words, "--set", "grid=90")
    assert "measuring" in larger.err, "nine times the points"


@pytest.mark.mpi
def test_a_program_that_cannot_be_measured_is_run_with_a_warning(tmp_path):
    given = files(tmp_path, hosts=rowed.HOSTS, template=rowed.template("uncalibrated"))
    done = command("apples", "run", *given, "--no-verify", "--json")
    assert done.code == 0, done.err
    assert "warning: default on ada: " in done.err
    assert {one["source"] for one in done.document["plan"]["speeds"].values()} == {"host list"}


@pytest.mark.parametrize("option", ["--calibrate", "--no-calibrate"])
def test_a_run_that_measures_nothing_refuses_to_be_told_about_it(option):
    failure = refused_run(option)
    assert (failure["exit_code"], failure["code"]) == (2, "option-conflict")
    assert failure["fields"]["options"] == [option, "--weather"]


def test_contradicting_and_unknown_ways_to_verify_are_refused():
    failure = refused_run("--verify", "full", "--no-verify")
    assert (failure["exit_code"], failure["code"]) == (2, "option-conflict")
    assert failure["fields"]["options"] == ["--verify", "--no-verify"]
    failure = refused_run("--verify", "most")
    assert (failure["exit_code"], failure["code"]) == (2, "value-unknown")
    assert failure["fields"]["value"] == "most"
    assert failure["fields"]["known"] == ["full", "sample", "none"]


@pytest.mark.mpi
def test_a_wrong_result_ends_with_6_and_the_row_and_its_owner(tmp_path):
    template = rowed.template(fault="partition")
    given = files(tmp_path, hosts=rowed.HOSTS, template=template)
    options = ("--weather", "static", "--blueprint", "blocked", "--verify", "sample")
    done = command("apples", "run", *given, *options, "--json")
    assert (done.code, done.failure["code"]) == (6, "result-differs"), done.err
    assert done.failure["fields"] == {"row": 15, "rank": 1, "host": "bob"}
    assert done.document["verified"] is False
    assert done.document["verification"]["how"] == "sample"


@pytest.mark.more
@pytest.mark.mpi
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may write beside /dev/full")
def test_a_page_that_cannot_be_written_is_a_warning_after_the_answer(capfd):
    program = "import os, sys; os.dup2(1, 2); from apples.__main__ import main; main()"
    words = [*SAMPLE, *SMALL, "--weather", "static", "--blueprint", "single_host"]
    done = subprocess.run(
        [sys.executable, "-c", program, "run", *words, "--report", "/dev/full"], check=False
    )
    assert done.returncode == 0
    *_, answered, warned = capfd.readouterr().out.splitlines()
    assert "apples run " in answered
    assert warned.startswith("warning: --report /dev/full: ")


@pytest.mark.mpi
def test_calibrating_a_program_of_job_names_the_two_ways_out():
    folder = Path(__file__).parent / "sample"
    files_ = [f"--{name}={folder / name}.toml" for name in ("hosts", "template", "user")]
    done = command("apples", "calibrate", *files_)
    assert done.code == 4
    assert "cannot be calibrated: write it on apples.program.Task" in done.err
