"""Manual pages are made from the help, without a warning of the formatter."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "packaging/man_pages.py"


@pytest.mark.more
@pytest.mark.skipif(shutil.which("groff") is None, reason="groff formats manual pages")
def test_manual_page_has_each_command_and_no_warning(tmp_path):
    """Slow: a process for the help of each command."""
    subprocess.run([sys.executable, PROGRAM, tmp_path, "hat"], check=True)
    page = (tmp_path / "hat").with_suffix(".1")
    groff = [shutil.which("groff"), "-man", "-Tutf8", "-ww", page]
    done = subprocess.run(groff, check=True, capture_output=True, text=True)
    assert done.stderr == ""
    for title in ("hat new", "hat check", "hat import"):
        assert f".SS {title}\n" in page.read_text()
