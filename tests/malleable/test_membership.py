"""How a rank ends: all that its program has open is flushed."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys
from apples.malleable import membership

class Kind(type):
    def __eq__(one, other):
        return one is other

class Thing(metaclass=Kind):
    pass

things, said = [Thing()], open(sys.argv[1], "w")
said.write("kept")
membership.end_at_once()
"""


@pytest.mark.mpi
def test_a_program_with_classes_that_have_no_hash_ends_as_others_do(tmp_path):
    words = [sys.executable, "-c", PROGRAM, str(tmp_path / "said")]
    done = subprocess.run(words, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "said").read_text() == "kept"
