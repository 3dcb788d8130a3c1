"""`hat new` makes a folder that is whole, checked and runs; or nothing at all."""

import ast
import difflib
import json
import py_compile
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from commands import command

from apples.applications import ScaffoldError, new
from hat import ApplicationTemplate, UserSpecifications, inspect, read

MPIEXEC = shutil.which("mpiexec", path=Path(sys.executable).parent)
needs_mpiexec = pytest.mark.skipif(MPIEXEC is None, reason="the wheel's mpiexec is not installed")


KINDS = pytest.mark.parametrize(
    "folder", ["rigid", "malleable", "blocks", "rectangle"], indirect=True
)
COMPILED = pytest.mark.parametrize("folder", ["c", "fortran"], indirect=True)
GRIDS = pytest.mark.parametrize("folder", ["rigid", "malleable", "rectangle"], indirect=True)


@pytest.fixture
def folder(tmp_path, request):
    return new("my-solver", tmp_path, kind=getattr(request, "param", "rigid"))[0].parent


def test_the_folder_holds_all_an_agent_needs(folder):
    assert sorted(path.name for path in folder.parent.rglob("*") if path.is_file()) == [
        "README.md",
        "agent.py",
        "hosts.toml",
        "program.py",
        "template.toml",
        "user.toml",
    ]
    assert [path.name for path in folder.parent.iterdir()] == ["my-solver"]


@COMPILED
def test_a_compiled_programs_folder_holds_its_source_and_how_it_is_built(folder):
    found = {path.name for path in folder.iterdir()}
    sources = {"program.f90", "apples.f90"} if "program.f90" in found else {"program.c"}
    assert found == sources | {
        "Makefile", "README.md", "agent.py", "apples.h", "hosts.toml", "template.toml", "user.toml",
    }  # fmt: skip
    told = (folder / "README.md").read_text()
    assert all(f"`{name}`" in told for name in found - {"README.md"})


@COMPILED
def test_a_compiled_program_by_hand_has_the_parameters_of_its_template(folder):
    template = inspect(folder / "template.toml").document
    assert (template.program, template.malleable) == (("./program",), False)
    (source,) = folder.glob("program.*")
    said = " ".join(f"{name}={one.default}" for name, one in template.parameters.items())
    assert f'"{said}"' in source.read_text()


@pytest.mark.parametrize(
    "folder", ["rigid", "malleable", "blocks", "c", "fortran", "rectangle"], indirect=True
)
def test_the_documents_pass_the_check(folder):
    assert isinstance(inspect(folder / "template.toml").document, ApplicationTemplate)
    assert isinstance(inspect(folder / "user.toml").document, UserSpecifications)


def test_a_master_workers_folder_passes_the_check_and_its_agent_is_short(tmp_path):
    folder = new("cells", tmp_path, kind="master-worker")[0].parent
    assert {path.name for path in folder.iterdir()} == {
        "README.md", "agent.py", "hosts.toml", "master-worker.toml", "program.py",
    }  # fmt: skip
    checked = command("hat", "check", str(folder / "master-worker.toml"))
    assert checked.code == 0
    assert "master/worker" in checked.out
    assert len((folder / "agent.py").read_text().splitlines()) <= 60


def test_a_rigid_program_becomes_malleable_by_a_few_lines(tmp_path):
    """The bar is 15; comments, which say how to start it, are not counted because there are none in it."""
    rigid, other = (
        (new("heat", tmp_path / kind, kind=kind)[0].parent / "program.py").read_text()
        for kind in ("rigid", "malleable")
    )
    changed = [
        line for line in difflib.ndiff(rigid.splitlines(), other.splitlines()) if line[0] in "-+"
    ]
    assert sum(line[0] == "+" for line in changed) <= 6, changed
    assert sum(line[0] == "-" for line in changed) <= 9, changed


@KINDS
def test_only_a_malleable_programs_template_says_so(folder):
    template = read(folder / "template.toml", ApplicationTemplate)
    declares = ("task.array(", "task.blocks(")
    assert template.malleable == any(
        one in (folder / "program.py").read_text() for one in declares
    )


def test_the_template_leaves_only_the_cost_open(folder):
    template = read(folder / "template.toml", ApplicationTemplate)
    assert [assumption.field for assumption in template.missing()] == [
        "implementation[0].seconds_per_point"
    ]
    assert template.bind().strip_memory(10) == 2 * 12 * 1000 * 8


def test_the_users_file_is_nothing_but_defaults(folder):
    assert read(folder / "user.toml", UserSpecifications) == UserSpecifications()


@KINDS
@pytest.mark.parametrize("file", ["agent.py", "program.py"])
def test_the_programs_compile_and_are_short(folder, file):
    py_compile.compile(str(folder / file), doraise=True)
    text = (folder / file).read_text()
    assert len(text.splitlines()) <= 60
    assert ast.get_docstring(ast.parse(text))


@KINDS
def test_every_line_is_short(folder):
    for path in folder.iterdir():
        assert max(map(len, path.read_text().splitlines())) <= 100, path


@pytest.mark.parametrize(
    "options", [("--c", "--fortran"), ("--c", "--malleable"), ("--fortran", "--blocks")]
)
def test_two_kinds_at_once_are_refused(tmp_path, options):
    done = command("hat", "new", "heat", "--into", tmp_path, *options)
    assert done.code == 2
    assert done.err.rstrip().endswith("[option-conflict]")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name", ["", "9lives", "../up", "a b", "a/b", ".hid", "-x", "x" * 65, "é", "a\n"]
)
def test_an_unfit_name_is_refused(tmp_path, name):
    with pytest.raises(ScaffoldError) as raised:
        new(name, tmp_path)
    assert raised.value.code == "name-invalid"
    assert list(tmp_path.iterdir()) == []


def test_nothing_that_exists_is_touched(folder):
    (folder / "template.toml").write_text("mine")
    with pytest.raises(ScaffoldError) as raised:
        new("my-solver", folder.parent)
    assert (raised.value.code, raised.value.fields["file"]) == ("file-exists", str(folder))
    assert (folder / "template.toml").read_text() == "mine"
    assert [path.name for path in folder.parent.iterdir()] == ["my-solver"]


def test_a_dangling_link_is_not_followed(tmp_path):
    (tmp_path / "x").symlink_to("nowhere")
    with pytest.raises(ScaffoldError) as raised:
        new("x", tmp_path)
    assert raised.value.code == "file-exists"


def test_a_place_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ScaffoldError) as raised:
        new("x", tmp_path / "file")
    assert raised.value.code == "file-unwritable"
    assert raised.value.fields["file"] == str(tmp_path / "file" / "x")
    assert "\n" not in str(raised.value)


def task(tmp_path, **fields):
    path = tmp_path / "task.json"
    parameters = {"grid": 40, "iterations": 25}
    path.write_text(json.dumps({"schema": "apples.task/1", "parameters": parameters, **fields}))
    return path


def run(folder, path, processes):
    """Return the events of the scaffolded program; `messages` of a malleable one's arrays come at any time."""
    finished = subprocess.run(
        [MPIEXEC, "-n", str(processes), sys.executable, str(folder / "program.py")],
        env={"APPLES_TASK": str(path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    events = [json.loads(line) for line in finished.stdout.splitlines() if line.startswith("{")]
    return [event for event in events if event["event"] != "messages"]


def partition(*strips):
    first = [sum(rows for _, rows, _ in strips[:i]) for i in range(len(strips))]
    return [
        {"host": host, "address": "127.0.0.1", "ranks": ranks, "first_row": at, "rows": rows}
        for at, (host, rows, ranks) in zip(first, strips, strict=True)
    ]


@GRIDS
@pytest.mark.mpi
@needs_mpiexec
def test_the_program_gives_one_result_whatever_the_partition(folder, tmp_path):
    results = []
    for parts in (partition(("a", 40, 1)), partition(("a", 33, 2), ("b", 7, 1))):
        path = task(
            tmp_path, mode="run", partition=parts, save=False, output=None, progress_seconds=0
        )
        ranks = sum(part["ranks"] for part in parts)
        events = run(folder, path, ranks)
        assert [event["event"] for event in events] == [
            "ready", *["progress"] * 24, *["rows"] * ranks, "result", "done"
        ]  # fmt: skip
        result = events[-2]
        assert [host["host"] for host in result["hosts"]] == [part["host"] for part in parts]
        assert events[0] == {
            "event": "ready", "protocol": 1, "program": "my-solver", "version": "1",
            "ranks": sum(part["ranks"] for part in parts),
        }  # fmt: skip
        results.append((result["iterations"], result["sha256"]))
    assert results[0] == results[1]


@pytest.mark.parametrize(
    "folder",
    ["rigid", pytest.param("malleable", marks=pytest.mark.more)],
    indirect=True,
)
@pytest.mark.mpi
@needs_mpiexec
def test_the_program_measures_its_kernel(folder, tmp_path):
    path = task(tmp_path, mode="calibrate", implementation="numpy", sizes=[5, 50])
    events = run(folder, path, 1)
    assert [event["event"] for event in events] == ["ready", "calibration", "calibration", "done"]
    assert [event["rows"] for event in events[1:3]] == [5, 50]
    assert all(event["seconds_per_point"] > 0 and event["error"] >= 0 for event in events[1:3])


@pytest.mark.more
@pytest.mark.mpi
@needs_mpiexec
def test_the_program_says_what_failed(folder, tmp_path):
    path = task(tmp_path, mode="run", save=False, output=None)
    event = run(folder, path, 1)[-1]
    assert (event["event"], event["code"], event["rank"]) == ("error", "task-invalid", 0)


def run_agent(folder, tmp_path):
    return subprocess.run(
        [sys.executable, str(folder / "agent.py")],
        env={"PATH": "/usr/bin:/bin", "XDG_STATE_HOME": str(tmp_path), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.mpi
@needs_mpiexec
def test_a_mistake_in_the_program_is_named_with_its_line(folder, tmp_path):
    program = folder / "program.py"
    mistake = "    if task.rank == 1:\n        raise ValueError('row 7 is bad')\n    new[1:-1"
    program.write_text(program.read_text().replace("    new[1:-1", mistake, 1))
    line = program.read_text().splitlines().index("        raise ValueError('row 7 is bad')") + 1
    said = run_agent(folder, tmp_path).stderr
    assert "rank 1 (there): row 7 is bad" in said
    assert f'File "{program}", line {line}' in said


@pytest.mark.mpi
@needs_mpiexec
def test_the_agent_runs_at_once(folder, tmp_path):
    finished = run_agent(folder, tmp_path)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.startswith("100 iterations in ")
    assert "Verified" in finished.stdout
    (record,) = (tmp_path / "apples" / "jobs").glob("*/result.json")
    assert json.loads(record.read_text())["plan"]["blueprint"] == "fastest"


@pytest.mark.more
@pytest.mark.mpi
@needs_mpiexec
@pytest.mark.parametrize("folder", ["rectangle"], indirect=True)
def test_the_agent_of_rectangles_runs_some(folder, tmp_path):
    finished = run_agent(folder, tmp_path)
    assert finished.returncode == 0, finished.stderr
    lines = finished.stdout.splitlines()
    hosts = [line.split()[0] for line in lines if " x " in line]
    assert hosts == ["one", "two", "three", "four"], "on these hosts rectangles are quicker"


def test_sample_is_a_copy_of_the_example(tmp_path):
    made = command("hat", "new", "jacobi", "--sample", "--into", tmp_path, "--json").document[
        "files"
    ]
    example = Path(__file__).parents[2] / "examples" / "jacobi2d"
    assert {Path(file).name for file in made} == {
        path.name for path in example.iterdir() if path.is_file()
    }
    assert all(
        Path(file).read_bytes() == (example / Path(file).name).read_bytes() for file in made
    )
    assert command("hat", "check", tmp_path / "jacobi" / "template.toml").code == 0
