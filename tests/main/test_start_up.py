"""A command loads what it uses: what is slow to load is not loaded where it has no use.

The times themselves are measured by `python -m benchmarks start_up`.
"""

import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import UnixStreamServer

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
    "apples.jobs.records",
    "apples.jobs.service",
    "apples.jobs.store",
    "apples.malleable.control.client",
    "apples.launch.slurm.client",
    "nws.clique.sites",
}
"""What a run has no use for that is neither detached, nor moved, nor elsewhere, nor asks a weather service."""
NOT_PLANNED_WITH = {
    "apples.agent.launching",
    "apples.agent.learning",
    "apples.agent.objective",
    "apples.agent.rescheduling",
    "apples.agent.verification",
    "apples.cluster",
    "apples.launch.events",
    "apples.launch.plan",
    "apples.launch.remote.ssh",
    "apples.malleable",
    "apples.scheduling",
    "apples.topology.message_matrix",
    "apples.weather.source",
    "platformdirs",
    "statistics",
}
"""A static plan starts, verifies, learns and moves nothing, and asks neither a host nor a scheduler."""
LOG = Path(__file__).parents[1] / "simulation" / "sample.swf.gz"
EASY = ("--policy", "easy", "--processors", "64")
SIMULATOR = {"apples.simulation.prepare", "apples.scheduling.policies", "apples.simulation.text"}
HEAVY = {*SLOW, "numpy", "apples.agent.coordinator", "apples.launch.actuator"}

MAINS = {
    "apples": "apples.__main__",
    "hat": "apples.applications.commands",
    "nws": "apples.weather.commands.nws",
}


def loaded_by(program, *words):
    """The names of all modules that are loaded when a command ends."""
    code = (
        f"import sys; sys.argv = {[program, *map(str, words)]!r}\n"
        f"from {MAINS[program]} import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stderr.splitlines()[-1].split())


@pytest.mark.more
@pytest.mark.parametrize(
    ("command", "without"),
    [
        (("apples", "--help"), {*HEAVY, "pydantic"}),
        (("apples", "jobs"), {*HEAVY, "pydantic", "apples.agent.pages.charts"}),
        (("apples", "serve", "--help"), {*HEAVY, "pydantic", "apples.ui.web.site"}),
        (("apples", "simulate", "--help"), {*HEAVY, *SIMULATOR, "pydantic"}),
        (("apples", "simulate", LOG, *EASY), {*SLOW, "pydantic", "pandas", "nws.client"}),
        (("hat", "check", SAMPLE / "template.toml"), {*HEAVY, "apples.resources"}),
        (("hat", "check", SAMPLE / "user.toml"), {*HEAVY, "apples.resources"}),
        (("apples", "check", SAMPLE / "hosts.toml"), HEAVY),
        (("apples", *RUN), {*UNUSED, "numpy.ma", "scipy", "numba", "pulp"}),
        (("apples", *PLAN), {*SLOW, *NOT_PLANNED_WITH, "numpy.ma"}),
    ],
    ids=lambda each: " ".join(map(str, each[:2])) if isinstance(each, tuple) else "",
)
def test_a_command_loads_nothing_slow_that_it_does_not_use(
    command, without, monkeypatch, tmp_path
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert not loaded_by(*command) & without


class StartsAll(BaseHTTPRequestHandler):
    """Answers as a scheduler that has started whatever is submitted."""

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        answer = {"job": "local.1", "state": "starting", "position": 0, "reason": ""}
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Say nothing: its client has no address."""


def test_a_job_is_submitted_without_what_only_a_scheduler_and_its_log_need(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("APPLES_SCHEDULER", str(tmp_path))
    with UnixStreamServer(str(tmp_path / "socket"), StartsAll) as server:
        answering = threading.Thread(target=server.serve_forever)
        answering.start()
        try:
            loaded = loaded_by("apples", "submit", "--template", SAMPLE / "template.toml")
        finally:
            server.shutdown()
            answering.join()
    assert "apples.cluster.submission" in loaded
    assert "apples.jobs.scheduler_client" in loaded
    others = {
        "apples.scheduling",
        "apples.cluster.log",
        "apples.cluster.scheduler",
        "apples.cluster.service",
        "pydantic",
        "apples.launch.message_counts.counter",
        "apples.topology.message_matrix",
        "apples.io.journal",
    }
    assert loaded & {*HEAVY, *others} - {"ssl"} == set()  # http.client loads it


@pytest.mark.parametrize("module", ["json", "click"])
@pytest.mark.parametrize("program", MAINS)
def test_interrupt_during_the_first_imports_ends_with_130_and_prints_nothing(program, module):
    code = (
        "import sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == '{module}':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        f"from {MAINS[program]} import main\n"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
