"""Who is silent is lost only where nothing else shows that it is there."""

import os
import signal
import socket
import subprocess
import sys

import pytest

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


def test_a_connection_whose_far_end_reads_nothing_is_there_all_the_same():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        far, (_, port) = listener.accept()
        with near, far:
            near.setblocking(False)
            with pytest.raises(BlockingIOError):  # noqa: PT012 - the buffers are full some time
                while True:
                    near.send(bytes(1 << 16))
            assert peer.connection_of(os.getpid()) is True
            words = f"127.0.0.1 {port} 127.0.0.1 {listener.getsockname()[1]}"
            assert peer.login_connection(words) is True
            assert peer.login_connection(words, dialed=True) is True
    assert peer.login_connection(words) is None
    for words in ("", "a b c d", f"10.0.0.1 {'9' * 5000} 10.0.0.2 22"):
        assert peer.login_connection(words) is None


TABLE = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:0016 0100007F:9C40 01 00000000:00000000 00:00000000 0000000{sent}     0        0 77 1 0 20 4 0 10 -1
   1: 0100007F:0016 0100007F:9C41 06 00000000:00000000 00:00000000 00000009     0        0 78 1 0 20 4 0 10 -1
"""


@pytest.mark.parametrize(("sent", "there"), [(0, True), (2, True), (3, False), (7, False)])
def test_a_machine_that_acknowledges_nothing_is_not_there(sent, there, tmp_path):
    (tmp_path / "tcp").write_text(TABLE.format(sent=sent))

    def login(words, **more):
        return peer.login_connection(words, tables=str(tmp_path), **more)

    assert login("127.0.0.1 40000 127.0.0.1 22") is there
    assert login("127.0.0.1 22 127.0.0.1 40000", dialed=True) is there
    assert login("127.0.0.1 40001 127.0.0.1 22") is None  # it is closing
