"""Programs written with apples 0.2 run: the old names of modules, the old scaffolds, the names of each door."""

import importlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import apples
from apples import MOVED
from apples.applications import new

MPIEXEC = shutil.which("mpiexec", path=Path(sys.executable).parent)

RELEASED = json.loads((Path(__file__).parent / "names-0.2.json").read_text())
"""The public names of each door of apples 0.2."""

EXPERTS = {"Analog", "AutoLagAr", "EwAr1", "RobustAr", "SelfTuningSmoothing"}
ENDED = {
    "nws": {"Bank", "JournalMemory", "Outlook", "UdpSensor", "dynamite", *EXPERTS},
    "apples.simulation": {"ENGINE"},
}
"""Those that are in no later version, each named in CHANGELOG.md with what to use instead."""

IMPORTS = {
    "sweep": "apples.sweeps",
    "pipeline": "apples.pipelines",
    "master-worker": "apples.master_worker",
}
"""What the agents of these scaffolds imported where they now import apples.applications."""


def ran(folder, text):
    """Run a program of these lines; return what it printed, and its warnings."""
    program = folder / "written.py"
    program.write_text(text)
    done = subprocess.run(
        [sys.executable, program], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, re.findall(r"FutureWarning: (.*)", done.stderr)


@pytest.mark.parametrize("door", RELEASED)
def test_each_public_name_of_the_release_is_where_it_was(door, tmp_path):
    names = [name for name in RELEASED[door].split() if name not in ENDED.get(door, ())]
    lines = [f"import {door}", *(f"{door}.{name}" for name in names)]
    _, warned = ran(tmp_path, "\n".join(lines))
    moved = {f"apples.{old}" for old in MOVED} | {"hat", "nws"}
    assert not warned or door in moved
    assert all(line.startswith((f"{door} moved: ", f"{door}.")) for line in warned)


@pytest.mark.parametrize(
    ("door", "name"), [(door, name) for door in ENDED for name in sorted(ENDED[door])]
)
def test_a_name_that_ended_was_public_and_is_in_the_changelog(door, name):
    assert name in RELEASED[door].split()
    assert not hasattr(importlib.import_module(door), name)
    changelog = Path(__file__).parents[1] / "CHANGELOG.md"
    assert f"\n- `{door}.{name}`. Use " in changelog.read_text("utf-8")


def test_a_moved_module_has_its_names_and_warns_once_with_the_import_to_write(tmp_path):
    said, warned = ran(
        tmp_path,
        "from apples.sweeps import SweepSpec, plan_parameter_sweep, run_parameter_sweep\n"
        "import apples.applications\n"
        "print(SweepSpec is apples.applications.SweepSpec)\n",
    )
    assert said == "True\n"
    assert warned == ["apples.sweeps moved: write `from apples.applications import SweepSpec`"]


def test_names_of_one_module_that_went_to_several_warn_once_each(tmp_path):
    _, warned = ran(
        tmp_path,
        "from apples.testing import check_balancer, check_policy, rehearse, replay\n"
        "from apples.plugins import resolve\n"
        "from apples.agent.weather.conditions import Conditions\n"
        "from apples.schedule import Schedule\n",
    )
    assert warned == [
        "apples.testing moved: write `from apples.malleable import check_balancer`",
        "apples.testing moved: write `from apples.simulation import check_policy`",
        "apples.plugins moved: write `from apples.io.plugins import resolve`",
        "apples.agent.weather.conditions moved: write `from apples.weather.conditions import Conditions`",
        "apples.schedule moved: write `from apples.resources.schedule import Schedule`",
    ]


def test_names_that_left_the_libraries_are_found_by_their_old_names(tmp_path):
    _, warned = ran(
        tmp_path, "from hat import new, new_document\nimport nws\nnws.picture, nws.picture\n"
    )
    assert warned == [
        "hat.new moved: write `from apples.applications.scaffold import new`",
        "hat.new_document moved: write `from apples.applications.scaffold import new_document`",
        "nws.picture moved: write `from apples.weather import picture`",
    ]


@pytest.mark.parametrize("old", MOVED)
def test_each_line_of_the_table_leads_to_modules_that_are_there(old):
    for place in MOVED[old]:
        importlib.import_module(f"apples.{place}")
    assert not (Path(apples.__file__).parent / old.replace(".", "/")).with_suffix(".py").exists()


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("import apples.views", "No module named 'apples.views'"),
        ("import apples.sweeps.tasks", "'apples.sweeps' is not a package"),
        ("from apples.sweeps import nothing", "cannot import name 'nothing' from 'apples.sweeps'"),
        ("from apples import nothing", "cannot import name 'nothing' from 'apples'"),
    ],
)
def test_a_name_that_was_never_public_ends_in_the_error_of_python(line, text):
    with pytest.raises(ImportError, match=re.escape(text)):
        exec(line)  # noqa: S102 - an import as a user writes it


def test_a_documented_command_runs_by_its_old_module():
    old = "apples.testing.actuator_checks"
    words = [sys.executable, "-m", old, "nothing"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert f"{old} moved: write `python -m apples.launch.actuators.checks`" in done.stderr
    assert "--actuator 'nothing'" in done.stderr
    assert done.returncode == 2


@pytest.mark.parametrize("kind", IMPORTS)
def test_the_agent_of_an_old_scaffold_is_imported_with_its_old_lines(kind, tmp_path):
    agent = new("app", tmp_path, kind=kind)[0].parent / "agent.py"
    text = agent.read_text()
    agent.write_text(text.replace("from apples.applications", f"from {IMPORTS[kind]}"))
    assert agent.read_text() != text
    names = re.search(r"from apples\S+ import (\w+)", text)[1]
    _, warned = ran(agent.parent, "import agent\n")
    assert warned == [f"{IMPORTS[kind]} moved: write `from apples.applications import {names}`"]


def test_the_agent_of_an_old_sweep_plans(tmp_path):
    folder = new("app", tmp_path, kind="sweep")[0].parent
    said, _ = ran(
        folder,
        "from pathlib import Path\n"
        "from apples.sweeps import SweepSpec, plan_parameter_sweep\n"
        "spec = SweepSpec(Path('sweep.toml'), Path('hosts.toml'))\n"
        "print(len(plan_parameter_sweep(spec).decision.makespans))\n",
    )
    assert int(said) > 1
