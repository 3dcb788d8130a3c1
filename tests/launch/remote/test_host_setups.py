"""Set-ups of hosts, made of keys with forced commands and client configurations: the check and the launch agree.

A forced command stands for a login: its shell, start-up files, home, limits. Each set-up is checked together with
one plain host; two ranks, one on each, must then meet if and only if the check found it fit.
"""

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest
import sshd as own

from apples import Host, HostList, Network
from apples.errors import ApplesError
from apples.launch import (
    LaunchTarget,
    Needs,
    RankGroup,
    Run,
    job_processes,
    log_in,
    preflight,
    ssh,
    with_meeting,
)
from apples.launch import reach_by_ssh as reach

pytestmark = [pytest.mark.more, pytest.mark.ssh, pytest.mark.mpi]
AS_ASKED = 'exec sh -c "$SSH_ORIGINAL_COMMAND"'
SMALL_SHM = "exec unshare -m sh -c 'mount -t tmpfs -o size=2m none /dev/shm; eval \"$SSH_ORIGINAL_COMMAND\"'"
MEETS = """
import json
from mpi4py import MPI
ranks = MPI.COMM_WORLD.allreduce(1)
if MPI.COMM_WORLD.rank == 0:
    event = {"event": "ready", "protocol": 1, "program": "meets", "version": "1", "ranks": ranks}
    print("\\n" + json.dumps(event), flush=True)
    print("\\n" + json.dumps({"event": "done"}), flush=True)
"""
HERE = sys.executable
# name: what the login does, fields of the host, lines of the client's configuration, the check that refuses it
SETUPS = {
    "a number": ("", {}, "", ""),
    "an alias": ("", {"address": "ada-1"}, "Host ada-1\n  HostName 127.0.0.2\n", ""),
    "an alias with a dot": ("", {"address": "node.a_1"}, "Host node.a_1\n  HostName 127.0.0.2\n", ""),
    "an alias in capitals": ("", {"address": "ADA"}, "Host ADA ada\n  HostName 127.0.0.2\n", ""),
    "a jump": ("", {}, "Host 127.0.0.2\n  ProxyJump 127.0.0.4\n", ""),
    "an alias behind a jump": (
        "", {"address": "deep"}, "Host deep\n  HostName 127.0.0.2\n  ProxyJump 127.0.0.4\n", ""),
    "a jump that is dead": ("", {}, "Host 127.0.0.2\n  ProxyJump 127.0.0.9\n", "ssh"),
    "a wrong port": ("", {}, "Host 127.0.0.2\n  Port 1\n", "ssh"),
    "no key": ("", {}, "Host 127.0.0.2\n  PubkeyAuthentication no\n", "ssh"),
    "an unknown host key": ("", {}, "Host 127.0.0.2\n  UserKnownHostsFile /dev/null\n", "ssh"),
    "an unknown name": ("", {"address": "no-such-host.invalid"}, "", "ssh"),
    "an unknown user": ("", {"user": "nobody-of-this-name"}, "", "ssh"),
    "a dead address": ("", {"address": own.DEAD}, "", "ssh"),
    "the same address": ("", {"address": "127.0.0.5"}, "", "address"),
    "python below home": ("HOME={folder} " + AS_ASKED, {"python": "~/env/bin/python"}, "", ""),
    "python below $HOME": ("HOME={folder} " + AS_ASKED, {"python": "$HOME/env/bin/python"}, "", ""),
    "python below ${HOME}": ("HOME={folder} " + AS_ASKED, {"python": "${HOME}/env/bin/python"}, "", ""),
    "python relative to home": ("cd {folder}; " + AS_ASKED, {"python": "env/bin/python"}, "", ""),
    "python in a path with blanks": ("", {"python": "{folder}/my env/bin/python"}, "", ""),
    "python that is missing": ("", {"python": "~/nowhere/python"}, "", "python"),
    "python that is a shell": ("", {"python": "/bin/sh"}, "", "login"),
    "python that does nothing": ("", {"python": "/bin/true"}, "", "login"),
    "a directory below home": ("HOME={folder} " + AS_ASKED, {"directory": "~/env"}, "", ""),
    "a directory with blanks": ("", {"directory": "{folder}/my env"}, "", ""),
    "a directory that is missing": ("", {"directory": "~/nowhere"}, "", "directory"),
    "a login that prints": ("echo Welcome; " + AS_ASKED, {}, "", ""),
    "a login that prints half a line": ("printf 'Disk 90 %%'; " + AS_ASKED, {}, "", ""),
    "a login that prints false answers": ('echo \'{{"schema": "other/1"}}\'; ' + AS_ASKED, {}, "", ""),
    "a login that complains": ("echo no such module >&2; " + AS_ASKED, {}, "", ""),
    "a login that reads a line": ("read line; " + AS_ASKED, {}, "", "login"),
    "a login that reads all": ("cat >/dev/null; " + AS_ASKED, {}, "", "login"),
    "a login that is closed": ("echo This account is not available.; exit 1", {}, "", "login"),
    "a login that is closed in silence": ("exit 1", {}, "", "login"),
    "a forced command": ("date", {}, "", "login"),
    "a forced command without a word": ("true", {}, "", "login"),
    "a shell that refuses": ("echo 'fatal: not allowed' >&2; exit 128", {}, "", "login"),
    "a shell without the command": ("exec sh -c 'exit 127'", {}, "", "python"),
    "dash": ('exec dash -c "$SSH_ORIGINAL_COMMAND"', {}, "", ""),
    "bash": ('exec bash -c "$SSH_ORIGINAL_COMMAND"', {}, "", ""),
    "a bare environment": (
        'exec env -i SSH_CONNECTION="$SSH_CONNECTION" HOME=/tmp sh -c "$SSH_ORIGINAL_COMMAND"', {}, "", ""),
    "variables of another launcher": ("export PMI_RANK=3 OMPI_COMM_WORLD_SIZE=4; " + AS_ASKED, {}, "", ""),
    "one CPU": ('exec taskset -c 0 sh -c "$SSH_ORIGINAL_COMMAND"', {}, "", ""),
    "few files": ("ulimit -n 256; " + AS_ASKED, {}, "", ""),
    "a container's shared memory": (SMALL_SHM, {"slots": 4}, "", "shm"),
    "no transport of MPI": ("export UCX_TLS=none-such; " + AS_ASKED, {}, "", "meeting"),
}  # fmt: skip


LAUNCHED_NEVERTHELESS = (
    "a wrong port",
    "the same address",
    "a forced command",
    "python that is missing",
)
"""Refused hosts on which a launch is tried too: one of each kind, for each takes some seconds."""


@pytest.fixture(scope="module")
def keys(sshd, tmp_path_factory):
    """A key for each login, allowed at the sshd for as long as these tests last; their folder."""
    folder = tmp_path_factory.mktemp("setups")
    for name in ("env", "my env"):
        (folder / name / "bin").mkdir(parents=True)
        (folder / name / "bin" / "python").write_text(f'#!/bin/sh\nexec {HERE} "$@"\n')
        (folder / name / "bin" / "python").chmod(0o755)
    allowed = sshd.folder / "user_key.pub"
    before, lines = allowed.read_text(), []
    for number, (login, *_) in enumerate(SETUPS.values()):
        if login:
            key = folder / f"key-{number}"
            made = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)]
            subprocess.run(made, check=True)
            text = login.format(folder=folder).replace("\\", "\\\\").replace('"', '\\"')
            lines.append(f'command="{text}" {key.with_suffix(".pub").read_text()}')
    allowed.write_text(before + "".join(lines))
    yield folder
    allowed.write_text(before)


def listed(name, sshd, folder, tmp_path):
    """The host of a set-up and the plain one beside it."""
    number = list(SETUPS).index(name)
    login, fields, client, _ = SETUPS[name]
    identity = f"Host 127.0.0.2\n  IdentityFile {folder}/key-{number}\n" if login else ""
    config = tmp_path / "config"
    config.write_text(f"{identity}{client}Host *\n  Include {sshd.config}\n")
    given = {"address": "127.0.0.2", "python": HERE, **fields}
    filled = {
        key: value.replace("{folder}", str(folder)) if isinstance(value, str) else value
        for key, value in given.items()
    }
    hosts = (Host("plain", address="127.0.0.5", python=HERE), Host("odd", **filled))
    return HostList(hosts, Network(), str(config), str(tmp_path / "hosts.toml"))


def meet(hosts, found, job):
    """Start a rank on each host; return once they have met."""
    groups = [RankGroup(host.name, 1, ("{python}", "-c", MEETS)) for host in hosts]
    targets = [
        LaunchTarget(
            group, found[host.name].address or host.reached_at, reach(host, hosts), host.directory,
            back=found[host.name].back,
        )
        for group, host in zip(groups, hosts, strict=True)
    ]  # fmt: skip
    order = ssh.command(targets, {}, job=job.name, here="127.0.0.1", directory=Path.cwd())
    run = Run(
        order, groups, job=job.name, talk=job.talk.append, startup_seconds=job.patience,
        connections=[log_in(target.reach, job.name) for target in targets],
    )  # fmt: skip
    with contextlib.ExitStack() as stack:
        stack.callback(run.cancel)
        run.until_ready()


@pytest.mark.parametrize("name", SETUPS)
def test_check_and_launch_agree_on_a_host(name, sshd, keys, job, tmp_path):
    *_, check = SETUPS[name]
    if check == "shm" and not shared_memory_can_be_small():
        pytest.skip("no file system can be mounted")
    hosts = listed(name, sshd, keys, tmp_path)
    found = preflight(hosts.hosts, hosts, Needs())
    if check == "meeting":  # no check from inside the host finds it
        assert found["odd"].refusal == ""
        found = with_meeting(found, hosts)
    assert found["plain"].refusal == ""
    odd = found["odd"].refusal
    if not check:
        assert odd == ""
        meet(hosts, found, job)
        return
    assert odd.startswith(f"{check}: ")
    assert "(" in odd, "a remedy"
    assert "\n" not in odd
    if name in LAUNCHED_NEVERTHELESS:
        with pytest.raises(ApplesError):
            meet(hosts, found, job)
    assert not job_processes.marked(job.name)


def shared_memory_can_be_small():
    mounts = ["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"]
    return subprocess.run(mounts, capture_output=True, check=False).returncode == 0
