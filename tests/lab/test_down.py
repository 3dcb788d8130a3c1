"""A lab leaves the machine as it was, wherever coming up or going down was cut short."""

import random
import subprocess
import sys
from pathlib import Path

import pytest
from labs import SMALL, belongings

from apples import lab
from apples.errors import UsageError
from apples.lab import labs

pytestmark = pytest.mark.lab
INTERRUPTED = Path(__file__).parent / "programs" / "interrupted.py"
SAMPLE = 5
"""Interrupted labs in `make test`; `make soak` takes every step there is."""


@pytest.fixture
def world(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "lab.toml").write_text(SMALL)
    folder = labs() / "small"
    yield tmp_path / "lab.toml", folder
    lab.down(folder)
    assert belongings(folder) == set()


def interrupted(step, verb, target):
    done = subprocess.run(
        [sys.executable, INTERRUPTED, str(step), verb, str(target)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode in {0, -9}, done.stderr
    return int(done.stdout) if done.returncode == 0 else None


def test_a_lab_that_was_up_leaves_nothing(world):
    file, folder = world
    steps = interrupted(0, "up", file)
    assert steps > 40, "the test would miss what it does not count"
    assert len(belongings(folder)) > 8
    lab.down(folder)
    assert belongings(folder) == set()
    assert not labs().exists()


@pytest.mark.parametrize("share", [(k + 0.5) / SAMPLE for k in range(SAMPLE)])
def test_a_lab_killed_on_its_way_up_leaves_nothing_once_it_is_taken_down(world, share):
    file, folder = world
    step = 1 + int(share * 60) + random.randrange(12)
    interrupted(step, "up", file)
    lab.down(folder)
    assert belongings(folder) == set(), step


def test_going_down_may_be_cut_short_too(world):
    file, folder = world
    for step in random.sample(range(1, 30), 2):
        lab.up(file, speeds=lambda *_: {})
        interrupted(step, "down", folder)
        lab.down(folder)
        assert belongings(folder) == set(), step


def test_a_half_made_lab_is_said_to_be_one_and_is_not_built_upon(world):
    file, folder = world
    interrupted(60, "up", file)
    if not (folder / "journal.jsonl").exists():
        pytest.fail("nothing was begun: the step is too early to test this")
    with pytest.raises(UsageError) as raised:
        lab.up(file, speeds=lambda *_: {})
    assert (raised.value.code, raised.value.fields["lab"]) == ("lab-exists", "small")


def test_a_step_that_fails_undoes_the_steps_before_it(world):
    file, folder = world

    def broken(*_):
        raise RuntimeError("measuring failed")

    with pytest.raises(RuntimeError):
        lab.up(file, speeds=broken)
    assert belongings(folder) == set()
