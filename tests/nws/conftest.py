"""What several tests need: a recorded file tree, and the names of two hosts' series."""

import os
import shutil
import socket
import subprocess
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

MEMORY_DISK = Path("/dev/shm")  # noqa: S108 - only as the place for a directory of our own


@pytest.fixture
def tree(tmp_path):
    """Return a function that writes {path: text} below a root and returns the root."""

    def write(files) -> Path:
        for path, text in files.items():
            file = tmp_path / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return tmp_path

    return write


@pytest.fixture
def quick_disk(tmp_path):
    """Return a directory where a sync costs nothing, for what is not about the disk itself."""
    if not os.access(MEMORY_DISK, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=MEMORY_DISK) as directory:
        yield Path(directory)


@pytest.fixture(scope="module")
def serving(tmp_path_factory):
    """Return a service that runs, on a port of its own."""
    pytest.importorskip("uvicorn", reason="needs apples[service]")
    from nws import BodyLimits, Listen, Serving

    directory = tmp_path_factory.mktemp("service")
    limits = BodyLimits(body=1 << 20)
    with Serving(directory, Listen(port=0), limits=limits) as running:
        yield running


@pytest.fixture
def client(serving):
    """Return a client of the service, with the operator's token."""
    from nws import Client

    with Client(serving.url, serving.token) as asking:
        yield asking


@dataclass
class RunningPrometheus:
    """A real server that scrapes a real exporter, and a service of ours if there is one."""

    url: str
    directory: Path
    node: int
    ours: int
    exporter: subprocess.Popen


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def prometheus_in(directory, stack):
    node, port, ours = free_port(), free_port(), free_port()
    (directory / "p.yml").write_text(
        "global: {scrape_interval: 250ms, scrape_timeout: 250ms}\nscrape_configs:\n"
        f"- job_name: node\n  static_configs: [{{targets: ['127.0.0.1:{node}']}}]\n"
        f"- job_name: nws\n  authorization: {{credentials_file: {directory / 'nws/token'}}}\n"
        f"  static_configs: [{{targets: ['127.0.0.1:{ours}']}}]\n"
    )
    commands = [
        ["prometheus-node-exporter", f"--web.listen-address=127.0.0.1:{node}"],
        [
            "prometheus", f"--config.file={directory / 'p.yml'}",
            f"--storage.tsdb.path={directory / 'data'}", f"--web.listen-address=127.0.0.1:{port}",
        ],
    ]  # fmt: skip
    running = []
    for command in commands:
        process = stack.enter_context(subprocess.Popen(command, stderr=subprocess.DEVNULL))
        stack.callback(process.kill)  # nothing of it is wanted again
        running.append(process)
    return RunningPrometheus(f"http://127.0.0.1:{port}", directory, node, ours, running[0])


@pytest.fixture
def prometheus(tmp_path):
    """Return a real Prometheus; it takes 5 s before it looks for targets."""
    if not (shutil.which("prometheus") and shutil.which("prometheus-node-exporter")):
        pytest.skip("needs Debian's prometheus and prometheus-node-exporter")
    with ExitStack() as stack:
        yield prometheus_in(tmp_path, stack)
