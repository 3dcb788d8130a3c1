"""The supervisor of a run on another machine whose messages are counted: it ends when it is asked to."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import until

from apples.launch import on_host as counting

SERVE = """
import json, sys
from apples.launch import host_agent

told = json.loads(sys.argv[1])
sys.executable = told["python"]
raise SystemExit(host_agent.serve(told))
"""
CLEAR = """
import os, sys
from apples.launch import host_agent

one = host_agent.RemoteSupervisor({"directory": sys.argv[1]})
one.counts = sys.argv[1]
host_agent.LAST_WORDS_SECONDS = 0.5
if not (rank := os.fork()):
    os.execlp("sleep", "sleep", "1000")
sys.stderr.write(f"{rank}\\n")
one.clear()
"""


def script(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o700)


def is_there(process):
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def test_ranks_that_counted_are_ended_though_nobody_reads_what_they_have_counted(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    places = (counting.MOST_BYTES - counting.HEADER_BYTES) // counting.DESTINATION_BYTES
    head = bytearray(counting.HEADER_BYTES)
    head[counting.USED_AT : counting.USED_AT + 4] = places.to_bytes(4, sys.byteorder)
    (folder / ("0" * counting.NAME_LETTERS)).write_bytes(
        head + bytes(places * counting.DESTINATION_BYTES)
    )
    words = [sys.executable, "-c", CLEAR, str(folder)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        rank = int(process.stderr.readline())
        try:
            until(lambda: not is_there(rank))
            until(lambda: process.poll() is not None)
            said = process.stdout.read()
        finally:
            process.kill()
    assert process.returncode == 0
    assert said.startswith(b"messages ")
    assert not said.endswith(b"clear"), "what follows would be taken for counts"
    assert not folder.exists()


@pytest.mark.parametrize(
    ("how", "code"), [("end", 0), ("gone", 0), (signal.SIGTERM, 1), (signal.SIGHUP, 1)]
)
def test_a_run_that_is_ended_while_the_library_is_compiled_does_not_start(tmp_path, how, code):
    environment, folder = tmp_path / "environment", tmp_path / "run"
    script(tmp_path / "mpicc", f"sleep 1000 & echo $$ $! > {tmp_path}/those; env > {environment}.new; "
           f"mv {environment}.new {environment}; wait")  # fmt: skip
    script(tmp_path / "hydra_pmi_proxy", f"touch {tmp_path}/started")
    entry = {"host": "ada", "program": ["x"], "programs": [], "environment": {}}
    told = {
        "python": str(tmp_path / "python"), "directory": str(folder), "job": f"job{os.getpid()}", "home": "",
        "launch": {"hosts": [{**entry, "first_rank": 0, "ranks": 1}]}, "files": {}, "proxy": [],
        "counting": {"library": "", "mpi": "/lib/libmpi.so.12", "fits": "another", "source": "int x;"},
    }  # fmt: skip
    words = [sys.executable, "-c", SERVE, json.dumps(told)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            until(environment.exists)
            if how == "end":
                process.stdin.write(b"end\n")
                process.stdin.flush()
            elif how == "gone":
                process.stdin.close()
            else:
                process.send_signal(how)
            until(lambda: process.poll() is not None, 30)  # a compiler may take twice as long
        finally:
            process.kill()
    assert process.returncode == code
    assert f"APPLES_JOB={told['job']}\n" in environment.read_text()
    assert not any(map(is_there, (tmp_path / "those").read_text().split()))
    assert not folder.exists()
    assert not (tmp_path / "started").exists()
