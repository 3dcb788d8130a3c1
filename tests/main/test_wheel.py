"""The wheel works without a clone: built, installed in an environment of its own, and used there.

The environment takes the dependencies from the interpreter that runs the tests, so that nothing is downloaded.
"""

import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from waiting import begun

pytest.importorskip("hatchling", reason="hatchling builds the wheel: make setup")
ROOT = Path(__file__).parents[2]
PACKAGES = ("apples", "nws", "hat", "blueprints")
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
IMPORT_ALL = """
import importlib, pathlib, pkgutil
for name in ("apples", "nws", "hat", "blueprints"):
    package = importlib.import_module(name)
    modules = [m.name for m in pkgutil.walk_packages(package.__path__, name + ".")]
    for module in modules:
        if not module.endswith("__main__"):
            print(importlib.import_module(module).__file__)
"""
pytestmark = [pytest.mark.more, pytest.mark.xdist_group("wheel")]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def prefix(wheel, tmp_path_factory):
    """An environment with the wheel, the MPI library of this interpreter and its other packages."""
    prefix = tmp_path_factory.mktemp("environment")
    venv.create(prefix, symlinks=True)
    python = prefix / "bin/python"
    install = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--no-deps",
        "--no-index",
    ]
    subprocess.run([*install, "--quiet", wheel], check=True)
    packages = next(prefix.glob("lib/python*/site-packages"))
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    ours = Path(sys.prefix)
    for name in (*ours.glob("bin/mpi*"), *ours.glob("bin/hydra*"), *ours.glob("lib/*mpi*")):
        (prefix / name.relative_to(ours)).symlink_to(name)
    return prefix


@pytest.fixture
def typed(prefix, tmp_path):
    """A function that runs a command of the wheel in an empty folder and returns its output."""

    def run(*words, folder="."):
        done = subprocess.run(
            [prefix / "bin" / words[0], *words[1:]],
            cwd=tmp_path / folder, env=environment(prefix, tmp_path), capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def environment(prefix, home):
    return {"HOME": str(home), "PATH": f"{prefix}/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}


def test_wheel_has_every_file_of_the_packages_and_pages(wheel):
    moved = SETTINGS["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    wanted = {
        f"{target}/{path.relative_to(ROOT / source)}"
        for source, target in {**{name: name for name in PACKAGES}, **moved}.items()
        for path in (ROOT / source).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert len(wanted) > 800
    assert wanted <= {*zipfile.ZipFile(wheel).namelist()}


def test_every_module_imports_from_the_wheel(typed, prefix):
    files = typed("python", "-c", IMPORT_ALL).splitlines()
    assert len(files) > 500
    assert [file for file in files if not file.startswith(f"{prefix}/")] == []


@pytest.mark.parametrize("topic", ["jobs", "reference/files"])
def test_pages_of_help_are_in_the_wheel(topic, typed):
    page = topic if "/" in topic else f"how-to/{topic}"
    assert typed("apples", "help", topic) == (ROOT / f"docs/{page}.md").read_text()


def test_sample_of_the_wheel_is_planned(typed):
    typed("hat", "new", "jacobi", "--sample")
    answer = typed("apples", "plan", "--weather", "static", folder="jacobi")
    assert answer.startswith("Run on ada, eve, bob: 18.6 ms an iteration")


def test_new_application_runs_and_has_a_page(typed, tmp_path):
    """Slow: two MPI programs."""
    typed("hat", "new", "heat")
    assert "Verified: " in typed("apples", "run", "--no-calibrate", folder="heat")
    name = typed("apples", "jobs").splitlines()[1].split()[0]
    typed("apples", "report", name, "--out", "run.html")
    assert "<html" in (tmp_path / "run.html").read_text()


def test_simulation_has_a_page(typed, tmp_path):
    machine = ["--nodes", "4", "--cores-per-node", "4"]
    policies = ["--policy", "easy", "--policy", "fcfs"]
    log = "lublin:jobs=50,processors=16"
    typed("apples", "simulate", "--grid", "results.jsonl", log, *policies, *machine)
    typed("apples", "report", "results.jsonl", "--out", "grid.html")
    assert "<html" in (tmp_path / "grid.html").read_text()


@pytest.mark.parametrize("words", [("apples", "serve"), ("nws", "serve", "--engine", "numpy")])
def test_server_of_the_wheel_starts(words, prefix, tmp_path):
    program, *verb = words
    argv = [prefix / "bin" / program, *verb, "--listen", "127.0.0.1:0"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with begun(argv, cwd=tmp_path, env=environment(prefix, tmp_path), **pipes) as server:
        assert any("http://127.0.0.1:" in line for line in server.stdout)
