"""What all tests share: hypothesis without a clock, the same examples on every CI run."""

import contextlib
import os
import signal
import subprocess
import tempfile
from pathlib import Path

import endings
import labs
import pytest
import sshd as own
from drawn import examples
from hypothesis import settings
from sites import masters
from waiting import until

from apples import lab as emulation

# `make quick` and `make test` draw a part of the cases of each property, CI and `make test-more` all of them.
settings.register_profile(
    "apples",
    deadline=None,
    database=None,
    derandomize="CI" in os.environ,
    max_examples=examples(100),
)
settings.load_profile("apples")
DOCUMENTATION = Path(__file__).parent / "docs"
collect_ignore_glob = ["golden/files/*"]  # files that sessions use, no tests
# Labs of other workers come and go while MPI looks at this machine's interfaces: what it says of that
# is no program's output.
os.environ.setdefault("UCX_LOG_FILE", "stderr")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # So it is in a background shell, and the commands that tests start and interrupt would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config):
    """Have every run end, whatever hangs in it."""
    config.pluginmanager.register(endings)


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the groups
def pytest_collection_modifyitems(items):
    """Skip what needs a lab where there can be none, and say why; keep together what shares a lab or an sshd."""
    marked = [item for item in items if item.get_closest_marker("lab")]
    reason = labs.lacking() if marked else ""
    for item in marked if reason else ():
        item.add_marker(pytest.mark.skip(reason=reason))
    for item in items:
        names = {*getattr(item, "fixturenames", ()), *(mark.name for mark in item.iter_markers())}
        if names & {"lab", "slurm", "browser", "criu"} or DOCUMENTATION in item.path.parents:
            item.add_marker(pytest.mark.more)
        if names & {"lab", "slurm", "cgroup"}:  # both make cpusets of this machine's kernel
            item.add_marker(pytest.mark.xdist_group("lab"))
        elif "sshd" in names:
            item.add_marker(pytest.mark.xdist_group("sshd"))


@pytest.fixture(autouse=True)
def environment():
    """Give every test the environment that the one before found: what sets threads says so in it."""
    before = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
    yield
    for name in {*os.environ, *before} - {"PYTEST_CURRENT_TEST"}:
        if os.environ.get(name) != before.get(name):
            if name in before:
                os.environ[name] = before[name]
            else:
                del os.environ[name]


@pytest.fixture
def state(monkeypatch):
    """A state directory whose path leaves room for the name of a socket; its logins are gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="s-", dir="/tmp") as folder:
        monkeypatch.setenv("XDG_STATE_HOME", folder)
        yield Path(folder)
        for pid in masters(folder):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until(lambda: masters(folder) == [])


@pytest.fixture
def full(tmp_path):
    """A folder of a file system that has room for names and for no more bytes."""
    folder = tmp_path / "full"
    folder.mkdir()
    made = subprocess.run(
        ["/bin/mount", "-t", "tmpfs", "-o", "size=64k", "none", str(folder)],
        capture_output=True,
        check=False,
    )
    if made.returncode:
        pytest.skip(f"no file system can be mounted: {made.stderr.decode().strip()}")
    with (folder / "ballast").open("wb", buffering=0) as ballast, contextlib.suppress(OSError):
        while True:
            ballast.write(bytes(4096))
    yield folder
    subprocess.run(
        ["/bin/umount", "--lazy", str(folder)], check=True
    )  # who has it open may end later


@pytest.fixture(scope="session")
def lab(tmp_path_factory):
    """One lab for all tests that need a real one: hosts ada, bob and far, with sshd, and Slurm if it is here."""
    folder = tmp_path_factory.mktemp("lab")
    slurm = "false" if labs.lacking(slurm=True) else "true"
    (folder / "lab.toml").write_text(f"slurm = {slurm}\n{labs.SMALL}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        made = emulation.up(folder / "lab.toml")
        place = emulation.labs() / made.name
    yield made
    emulation.down(place)
    assert labs.belongings(place) == set()


@pytest.fixture(scope="session")
def sshd(tmp_path_factory):
    """An sshd that answers on a few loopback addresses."""
    if lacks := own.missing():
        pytest.skip(f"no ssh here: {lacks} missing")
    running = own.Sshd(tmp_path_factory.mktemp("sshd"))
    yield running
    running.close()


@pytest.fixture
def slurm(lab, monkeypatch):
    """The lab, with Slurm's commands of this machine speaking to its Slurm."""
    if not lab.slurm_conf:
        pytest.skip(labs.lacking(slurm=True))
    monkeypatch.setenv("SLURM_CONF", lab.slurm_conf)
    return lab
