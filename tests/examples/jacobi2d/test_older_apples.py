"""Jacobi2D on a host whose apples is older than the program."""

import os
import subprocess
import sys

from apples.launch import example_folder


def test_error_on_a_host_with_older_apples_has_both_versions_and_the_remedy(tmp_path):
    (tmp_path / "apples").mkdir()
    (tmp_path / "apples" / "__init__.py").touch()
    (tmp_path / "apples" / "program.py").write_text("class Task:\n    pass\n")
    done = subprocess.run(
        [sys.executable, str(example_folder() / "solver.py")],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    (line,) = done.stderr.splitlines()
    assert done.returncode == 1
    for part in ("interface 2", "interface 1", str(tmp_path / "apples"), "install"):
        assert part in line
