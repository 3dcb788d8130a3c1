import errno
import os
import sys
from pathlib import Path

import pytest
from waiting import until

from apples.launch import on_host as counting


def wrapper(folder, monkeypatch, script):
    """Have another machine's interpreter lie beside a compiler that is a script; return what comes along to it."""
    (folder / "mpicc").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "mpicc").chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    return {"library": "", "mpi": "/lib/libmpi.so.12", "fits": "another", "source": "int x;"}


def compiled(carried, folder):
    """Compile to the end."""
    compilation = counting.begin(carried, str(folder))
    while not compilation.read():
        pass
    compilation.finish()


def test_a_compiler_that_hangs_is_ended_with_its_children(tmp_path, monkeypatch):
    carried = wrapper(tmp_path, monkeypatch, f"sleep 600 & echo $! > {tmp_path}/child; wait")
    compilation = counting.begin(carried, str(tmp_path))
    child = tmp_path / "child"
    until(lambda: child.exists() and child.read_text())
    assert not compilation.late
    with pytest.raises(TimeoutError) as raised:
        compilation.finish()
    assert f"{tmp_path}/mpicc took more than 60 s" in raised.value.strerror
    until(lambda: not running(child.read_text().strip()))


def test_what_a_compiler_says_is_read_to_its_end_and_its_fault_is_named(tmp_path, monkeypatch):
    notes = "yes note | head -c {} >&2;"
    fault = "echo x.c:1: error: no such thing >&2;"
    script = f"{notes.format(50_000)} {fault} {notes.format(1_000_000)} exit 1"
    with pytest.raises(OSError) as raised:  # noqa: PT011 - its number is checked
        compiled(wrapper(tmp_path, monkeypatch, script), tmp_path)
    assert raised.value.errno == errno.ENOEXEC
    assert raised.value.strerror.endswith(": x.c:1: error: no such thing")


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
        carried = wrapper(tmp_path, monkeypatch, f"cat > {tmp_path}/read")
        compiled(carried, tmp_path)
        assert (tmp_path / "read").read_bytes() == b""
    finally:
        os.dup2(before, 0)
        os.close(before)
        os.close(reader)
