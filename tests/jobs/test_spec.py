"""`JobSpec`, `ProgramSpec` and `UnitsSpec`: what is stored is what was asked, wherever it is read."""

import json
from dataclasses import fields
from pathlib import Path

import pytest

import apples
from apples import LaunchError, RunSpec, UsageError
from apples.jobs import JobSpec, ProgramSpec, UnitsSpec, spec
from blueprints import all_resources

HERE = Path("/somewhere")
FULL = RunSpec(
    "hosts.toml", "template.toml", "user.toml", {"grid": "400", "note": "a=b"}, "module:name", "static",
    "linear", "paper", "strip", "slurm", {"partition": "short"}, Path("out"), False,
    warm=("ada", "bob"), commit_seconds=2.5, silent=("bob",), learn=False,
)  # fmt: skip


@pytest.mark.parametrize(
    "given",
    [
        JobSpec(FULL, HERE),
        JobSpec(RunSpec(), HERE),
        ProgramSpec(("sh", "-c", "true"), Path("hosts.toml"), ("ada", "bob"), directory=HERE),
        UnitsSpec(
            Path("m.toml"),
            Path("h"),
            {"count": "3"},
            "w.json",
            "none",
            ("ada",),
            "ssh",
            True,
            HERE,
        ),
        ProgramSpec(("x",), Path("h"), ("a",), "none", 0.5, Path("out"), HERE),
    ],
)
def test_a_specification_is_read_as_it_was_stored(given):
    stored = json.loads(json.dumps(given.document()))
    read = spec.read(stored)
    assert read.document() == given.document()
    assert type(read) is type(given)


def test_files_are_named_so_that_they_do_not_depend_on_where_one_stands():
    document = JobSpec(FULL, HERE).document()
    assert document["hosts"] == "/somewhere/hosts.toml"
    assert document["output"] == "/somewhere/out"
    assert JobSpec(RunSpec("/abs/hosts.toml"), HERE).document()["hosts"] == "/abs/hosts.toml"


def test_every_field_of_a_run_is_stored():
    code = {"host_filters", "filters"}  # functions, which a job refuses
    assert {*(field.name for field in fields(RunSpec))} - code <= {*JobSpec(FULL, HERE).document()}


@pytest.mark.parametrize("learn", [None, True, False])
def test_job_learns_as_its_run_was_specified(learn):
    stored = JobSpec(RunSpec(learned=True, learn=learn), HERE).document()
    assert JobSpec.read(stored).run.learn is learn


def test_settings_keep_what_comes_after_the_first_equals_sign():
    read = JobSpec.read(JobSpec(FULL, HERE).document())
    assert read.run.settings == {"grid": "400", "note": "a=b"}
    assert read.run.slurm == {"partition": "short"}


def test_a_job_stored_without_settings_can_be_read():
    document = {**JobSpec(FULL, HERE).document(), "settings": None, "slurm": []}
    assert JobSpec.read(document).run.settings == {}


@pytest.mark.parametrize(
    "given",
    [
        {"blueprint": all_resources},
        {"model": lambda _: None},
        {"filters": (lambda *_: None,)},
        {"host_filters": (lambda *_: None,)},
    ],
    ids=lambda given: next(iter(given)),
)
def test_a_function_is_refused_for_it_cannot_be_stored(given):
    with pytest.raises(UsageError) as refused:
        JobSpec(RunSpec(**given), HERE)
    assert refused.value.code == "value-type"
    assert [refused.value.fields["field"]] == list(given)


def test_without_a_working_directory_a_run_is_refused(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    spec = RunSpec(hosts=tmp_path / "hosts.toml", template=tmp_path / "template.toml")
    with pytest.raises(LaunchError) as refused:
        apples.run(spec)
    assert refused.value.code == "working-directory-missing"
