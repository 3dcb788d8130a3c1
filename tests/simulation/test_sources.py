import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from apples.errors import LaunchError, UsageError
from apples.simulation import LOGS, fetch_log
from nws import StoredText


class Quiet(SimpleHTTPRequestHandler):
    """Serves a folder without a word."""

    def log_message(self, *_):
        pass


@pytest.fixture
def mirror(tmp_path):
    """An archive on this machine: its folder and its address."""
    folder = tmp_path / "archive"
    folder.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield folder, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join(10)


def offer(folder, name, data):
    place = folder / LOGS[name].folder
    place.mkdir(exist_ok=True)
    (place / f"{name}.swf.gz").write_bytes(data)


def test_a_log_is_fetched_once(mirror, tmp_path):
    folder, address = mirror
    offer(folder, "ANL-Intrepid-2009-1", b"; a log\n")
    path, found = fetch_log("ANL-Intrepid-2009-1", tmp_path / "logs", address)
    assert path.read_bytes() == b"; a log\n"
    assert found == StoredText(path).unpacked_sha256()
    offer(folder, "ANL-Intrepid-2009-1", b"; another\n")
    assert fetch_log("ANL-Intrepid-2009-1", tmp_path / "logs", address)[1] == found


def test_a_wrong_sum_is_refused_and_nothing_is_kept(mirror, tmp_path):
    folder, address = mirror
    offer(folder, "KTH-SP2-1996-2", b"; not it\n")
    with pytest.raises(UsageError) as raised:
        fetch_log("KTH-SP2-1996-2", tmp_path / "logs", address)
    assert raised.value.code == "checksum-differs"
    assert raised.value.fields["bound"] == LOGS["KTH-SP2-1996-2"].sha256
    assert not (tmp_path / "logs").exists()


def test_without_the_archive_the_way_by_hand_is_said(mirror, tmp_path):
    _, address = mirror
    with pytest.raises(LaunchError) as raised:
        fetch_log("RICC-2010-2", tmp_path / "logs", address)
    assert raised.value.code == "download-failed"
    assert raised.value.fields["url"].startswith(address)
    assert raised.value.fields["file"] == str(tmp_path / "logs" / "RICC-2010-2.swf.gz")
    with pytest.raises(UsageError) as raised:
        fetch_log("NONE", tmp_path / "logs", address)
    assert raised.value.code == "log-unknown"
    assert (raised.value.fields["log"], raised.value.fields["known"]) == ("NONE", [*LOGS])


def test_the_sums_are_those_of_the_logs_at_hand(logs):
    for name, log in LOGS.items():
        path = logs / f"{name}.swf.gz"
        if log.sha256 and path.exists():
            assert StoredText(path).unpacked_sha256() == log.sha256
