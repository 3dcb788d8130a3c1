"""A command loads what it uses: what is slow to load is not loaded where it has no use.

The times themselves are measured by `benchmarks/start_up.py`.
"""

import subprocess
import sys
from pathlib import Path

import pytest

import apples

SAMPLE = Path(apples.__file__).parents[1] / "examples" / "jacobi2d"
PLAN = [
    *("plan", "--weather", "static", "--hosts", SAMPLE / "hosts.toml"),
    *("--template", SAMPLE / "template.toml", "--user", SAMPLE / "user.toml"),
]

SLOW = {
    "requests",
    "urllib3",
    "ssl",
    "scipy",
    "jinja2",
    "numba",
    "pulp",
    "psutil",
    "tomlkit",
    "rich",
    "fastapi",
    "uvicorn",
    "starlette",
}
"""No command that starts nothing needs any of them."""
RUN = ["run", "--weather", "live", "--dry-run", *PLAN[3:]]
UNUSED = {
    "requests",
    "urllib3",
    "jinja2",
    "rich",
    "apples.jobs",
    "apples.malleable.control.client",
    "apples.launch.slurm.client",
    "nws.clique.sites",
}
"""What a run has no use for that is neither detached, nor moved, nor elsewhere, nor asks a weather service."""
LOG = Path(__file__).parents[1] / "simulation" / "sample.swf.gz"
EASY = ("--policy", "easy", "--processors", "64")
SIMULATOR = {"apples.simulation.prepare", "apples.scheduling.policies", "apples.views.simulation"}
HEAVY = {*SLOW, "numpy", "apples.agent.coordinator", "apples.launch.actuator"}


def loaded_by(program, *words):
    """The names of all modules that are loaded when a command ends."""
    code = (
        f"import sys; sys.argv = {[program, *map(str, words)]!r}\n"
        f"from apples.cli.{'main' if program == 'apples' else program} import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return set(done.stderr.splitlines()[-1].split())


@pytest.mark.parametrize(
    ("command", "without"),
    [
        (("apples", "--help"), {*HEAVY, "pydantic"}),
        (("apples", "jobs"), {*HEAVY, "pydantic", "apples.views.charts"}),
        (("apples", "runs"), {*HEAVY, "pydantic"}),
        (("apples", "serve", "--help"), {*HEAVY, "pydantic", "apples.web.app"}),
        (("apples", "simulate", "--help"), {*HEAVY, *SIMULATOR, "pydantic"}),
        (("apples", "simulate", LOG, *EASY), {*SLOW, "pydantic", "pandas", "nws"}),
        (("apples", "sweep", "--help"), {*HEAVY, *SIMULATOR, "pydantic"}),
        (("hat", "check", SAMPLE / "template.toml"), {*HEAVY, "apples.resources"}),
        (("hat", "check", SAMPLE / "user.toml"), {*HEAVY, "apples.resources"}),
        (("apples", "hosts", "check", SAMPLE / "hosts.toml"), HEAVY),
        (("apples", *RUN), {*UNUSED, "numpy.ma", "scipy", "numba", "pulp"}),
        (("apples", *PLAN), {*SLOW, "numpy.ma", "apples.malleable.runtime"}),
    ],
    ids=lambda each: " ".join(map(str, each[:2])) if isinstance(each, tuple) else "",
)
def test_a_command_loads_nothing_slow_that_it_does_not_use(
    command, without, monkeypatch, tmp_path
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert not loaded_by(*command) & without
