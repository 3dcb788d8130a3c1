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
COUNTED = """
import json, os, subprocess, sys
from apples.launch import host_agent, hostd

hostd.LAST_REPORTS_SECONDS = 0.5

class Agent(host_agent.RemoteRunAgent):
    def open(self):
        super().open()
        self.counts = self.directory
        with open(os.path.join(self.directory, "0" * 16), "wb") as file:
            file.write(bytes.fromhex(sys.argv[2]).ljust(int(sys.argv[3]), b"\\0"))
        child = subprocess.Popen(["sleep", "1000"])
        sys.stderr.write(f"{child.pid}\\n")
        sys.stderr.flush()

Agent(json.loads(sys.argv[1])).run()
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


def told(folder, **others):
    """The order of a host agent that is to run one rank."""
    entry = {"host": "ada", "program": ["x"], "programs": [], "environment": {}}
    return {
        "directory": str(folder), "job": f"job{os.getpid()}", "home": "", "files": {}, "counting": None,
        "launch": {"hosts": [{**entry, "first_rank": 0, "ranks": 1}]}, **others,
    }  # fmt: skip


def test_ranks_that_counted_are_ended_though_nobody_reads_what_they_have_counted(tmp_path):
    folder = tmp_path / "run"
    places = (counting.MAX_BYTES - counting.HEADER_BYTES) // counting.DESTINATION_BYTES
    head = bytearray(counting.HEADER_BYTES)
    head[counting.USED_AT : counting.USED_AT + 4] = places.to_bytes(4, sys.byteorder)
    size = counting.HEADER_BYTES + places * counting.DESTINATION_BYTES
    words = [sys.executable, "-c", COUNTED, json.dumps(told(folder)), head.hex(), str(size)]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        rank = int(process.stderr.readline())
        process.stdin.close()
        try:
            until(lambda: not is_there(rank))
            until(lambda: process.poll() is not None)
            reports = process.stdout.read()
        finally:
            process.kill()
    assert process.returncode == 0
    assert b'"messages"' in reports
    assert b'"clear"' not in reports, "the connection takes no more"
    assert not folder.exists()


@pytest.mark.parametrize(
    ("how", "code"), [("end", 0), ("gone", 0), (signal.SIGTERM, 1), (signal.SIGHUP, 1)]
)
def test_a_run_that_is_ended_while_the_library_is_compiled_does_not_start(tmp_path, how, code):
    environment, folder = tmp_path / "environment", tmp_path / "run"
    script(tmp_path / "mpicc", f"sleep 1000 & echo $$ $! > {tmp_path}/those; env > {environment}.new; "
           f"mv {environment}.new {environment}; wait")  # fmt: skip
    script(tmp_path / "hydra_pmi_proxy", f"touch {tmp_path}/started")
    carried = {"library": "", "mpi": "/lib/libmpi.so.12", "fits": "another", "source": "int x;"}
    orders = told(folder, python=str(tmp_path / "python"), counting=carried)
    words = [sys.executable, "-c", SERVE, json.dumps(orders)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            until(environment.exists)
            if how == "end":
                process.stdin.write(b'{"order":"start","argv":[]}\n{"order":"end"}\n')
                process.stdin.flush()
            elif how == "gone":
                process.stdin.close()
            else:
                process.send_signal(how)
            until(lambda: process.poll() is not None, 30)  # a compiler may take twice as long
        finally:
            process.kill()
    assert process.returncode == code
    assert f"APPLES_JOB={orders['job']}\n" in environment.read_text()
    assert not any(map(is_there, (tmp_path / "those").read_text().split()))
    assert not folder.exists()
    assert not (tmp_path / "started").exists()
