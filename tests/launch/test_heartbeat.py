"""Who is silent is lost only where nothing else shows that it is there."""

import os
import signal
import subprocess
import sys

from apples.launch import heartbeat as peer
from apples.launch import state_of


def test_a_process_that_is_stopped_or_gone_does_not_run_and_one_that_sleeps_does():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        assert peer.process_runs(process.pid)
        process.send_signal(signal.SIGSTOP)
        while state_of(process.pid) != "T":
            os.sched_yield()
        assert not peer.process_runs(process.pid)
        process.kill()
        process.wait()
        assert not peer.process_runs(process.pid)
