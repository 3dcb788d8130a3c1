"""The emulated machine is no part of the tests: here only that it says what it lacks."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[1] / "packaging/vm/emulated.py"


@pytest.mark.parametrize("verb", ["build", "check"])
def test_without_the_emulator_it_is_skipped_with_the_reason(verb, tmp_path):
    done = subprocess.run(
        [sys.executable, PROGRAM, verb],
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 77
    assert done.stderr == (
        "emulated machine: skipped: not installed: qemu-system-x86 mmdebstrap e2fsprogs\n"
    )
