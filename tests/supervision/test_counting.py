import os
import sys
from pathlib import Path

import pytest
from waiting import until

from apples.supervision import counting


def wrapper(folder, monkeypatch, script):
    """Have another machine's interpreter lie beside a compiler that is a script; return what comes along to it."""
    (folder / "mpicc").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "mpicc").chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    return {"library": "", "mpi": "/lib/libmpi.so.12", "fits": "another", "source": "int x;"}


def test_a_compiler_that_hangs_is_ended_with_its_children(tmp_path, monkeypatch):
    monkeypatch.setattr(counting, "COMPILE_SECONDS", 1.0)
    carried = wrapper(tmp_path, monkeypatch, f"sleep 600 & echo $! > {tmp_path}/child; wait")
    with pytest.raises(OSError, match="took more than 1 s"):
        counting.begin(carried, str(tmp_path))
    child = (tmp_path / "child").read_text().strip()
    until(lambda: not running(child))


def running(process):
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def test_a_compiler_is_not_given_the_connection_to_the_agent_to_read(tmp_path, monkeypatch):
    reader, writer = os.pipe()
    before = os.dup(0)
    try:
        os.write(writer, b"an order of the agent's")
        os.close(writer)
        os.dup2(reader, 0)
        counting.begin(wrapper(tmp_path, monkeypatch, f"cat > {tmp_path}/read"), str(tmp_path))
        assert (tmp_path / "read").read_bytes() == b""
    finally:
        os.dup2(before, 0)
        os.close(before)
        os.close(reader)
