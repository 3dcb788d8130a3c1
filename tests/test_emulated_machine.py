"""Emulated machines are no part of the tests: here only that their programs say what they lack."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parents[1] / "packaging/vm"


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["emulated.py", "build"], "emulated machine"),
        (["emulated.py", "check"], "emulated machine"),
        (["lab.py"], "lab of emulated machines"),
    ],
)
def test_without_the_emulator_it_is_skipped_with_the_reason(words, what, tmp_path):
    program, *verb = words
    done = subprocess.run(
        [sys.executable, PROGRAMS / program, *verb],
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 77
    assert done.stderr.startswith(f"{what}: skipped: ")
    assert "qemu-system-x86" in done.stderr
