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


@pytest.fixture
def orders():
    """The end of a connection at which nothing is said, and the other end."""
    reader, writer = os.pipe()
    yield reader, writer
    os.close(reader)
    os.close(writer)


def still():
    return True


def test_a_compiler_that_hangs_is_ended_with_its_children(tmp_path, monkeypatch, orders):
    carried = wrapper(tmp_path, monkeypatch, f"sleep 600 & echo $! > {tmp_path}/child; wait")
    with pytest.raises(TimeoutError) as raised:
        counting.begin(carried, str(tmp_path), orders[0], still, seconds=1.0)
    assert f"{tmp_path}/mpicc" in raised.value.strerror
    child = (tmp_path / "child").read_text().strip()
    until(lambda: not running(child))


def test_a_compiler_is_ended_with_its_children_where_the_run_is_not_wanted_any_more(
    tmp_path, monkeypatch, orders
):
    carried = wrapper(tmp_path, monkeypatch, f"sleep 600 & echo $! > {tmp_path}/child; wait")
    heard = []

    def wanted():
        heard.append(os.read(orders[0], 9))
        until(lambda: (tmp_path / "child").exists() and (tmp_path / "child").read_text())
        return heard[-1] != b"end"

    os.write(orders[1], b"look")
    with pytest.raises(counting.NotWanted):
        counting.begin(
            carried, str(tmp_path), orders[0], lambda: wanted() and os.write(orders[1], b"end")
        )
    assert heard == [b"look", b"end"]
    child = (tmp_path / "child").read_text().strip()
    until(lambda: not running(child))


def test_what_a_compiler_says_is_read_to_its_end_and_its_fault_is_named(
    tmp_path, monkeypatch, orders
):
    notes = "yes note | head -c {} >&2;"
    fault = "echo x.c:1: error: no such thing >&2;"
    script = f"{notes.format(50_000)} {fault} {notes.format(1_000_000)} exit 1"
    with pytest.raises(OSError) as raised:  # noqa: PT011 - its number is checked
        counting.begin(wrapper(tmp_path, monkeypatch, script), str(tmp_path), orders[0], still)
    assert raised.value.errno == errno.ENOEXEC
    assert raised.value.strerror.endswith(": x.c:1: error: no such thing")


def running(process):
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def test_a_compiler_is_not_given_the_connection_to_the_agent_to_read(
    tmp_path, monkeypatch, orders
):
    reader, writer = os.pipe()
    before = os.dup(0)
    try:
        os.write(writer, b"an order of the agent's")
        os.close(writer)
        os.dup2(reader, 0)
        carried = wrapper(tmp_path, monkeypatch, f"cat > {tmp_path}/read")
        counting.begin(carried, str(tmp_path), orders[0], still)
        assert (tmp_path / "read").read_bytes() == b""
    finally:
        os.dup2(before, 0)
        os.close(before)
        os.close(reader)
