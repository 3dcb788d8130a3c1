import json
import tempfile
from pathlib import Path

import pytest

from apples.agent import launch_plan, load_information
from apples.resources import Allocation, Schedule

FAKE = Path(__file__).parents[1] / "programs" / "fake.py"

HOSTS = """
[[host]]
name = "ada"
slots = 2
cpus = [0]
seconds_per_point = 1e-9
[[host]]
name = "bob"
cpu = 0.4
seconds_per_point = 1e-9
"""
TEMPLATE = """
name = "fake"
program = ["{{python}}", "-S", "{program}"]
[parameters.grid]
default = 30
[parameters.iterations]
default = 2
[parameters.how]
default = ""
[parameters.record]
default = "{record}"
"""


class Case:
    """A template, a host list and a schedule over them, of the test program."""

    def __init__(self, folder, hosts=None, **settings):
        self.folder = folder
        (folder / "records").mkdir(exist_ok=True)
        texts = {
            "hosts": hosts.read_text() if hosts else HOSTS,
            "user": "",
            "template": TEMPLATE.format(program=FAKE, record=folder / "records"),
        }
        for name, text in texts.items():
            (folder / f"{name}.toml").write_text(text)
        files = [folder / f"{name}.toml" for name in ("hosts", "template", "user")]
        self.information = load_information(*files, settings=settings, weather="static")
        ada, bob, *_ = self.information.hosts
        self.schedule = Schedule((Allocation(ada, 20, "default"), Allocation(bob, 10, "default")))

    @property
    def plan(self):
        """What an actuator is told of the schedule."""
        return launch_plan(self.schedule, self.information)

    def records(self):
        """What each rank wrote down of its start."""

        files = sorted((self.folder / "records").iterdir())
        return [json.loads(file.read_text()) for file in files]


@pytest.fixture
def case(tmp_path, monkeypatch):
    """A maker of cases, whose runs leave no temporary directory."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield lambda **settings: Case(tmp_path, **settings)
    assert not list(temporary.iterdir())
