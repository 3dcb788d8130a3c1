"""sshd on each emulated host, with keys of the lab: the user's ``~/.ssh`` is neither read nor written."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from pathlib import Path

from apples.errors import LaunchError
from apples.lab import requirements
from apples.lab.execution import leave_running, run
from apples.lab.quoting import for_ssh, login
from apples.lab.record import TRANSPORT, EmulatedHost

ANSWER_SECONDS = 15.0
PORT = 22
INNER = {"SHLVL": "1"}
"""Marks a nested shell, so that bash does not run ``~/.bashrc`` for a command from sshd.
All hosts of a lab share one home: that file's commands would run under each quota and wait for a shared lock."""


def server_config(machine: EmulatedHost, folder: Path) -> str:
    """Return the sshd configuration of one host; `folder` holds the lab's keys."""
    variables = " ".join(f"{name}={value}" for name, value in {**TRANSPORT, **INNER}.items())
    return f"""Port {PORT}
ListenAddress {machine.address}
HostKey {for_ssh(folder / f"host-{machine.name}.key", expanded=False)}
AuthorizedKeysFile {for_ssh(folder / "user.key.pub")}
PidFile none
UsePAM no
StrictModes no
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UseDNS no
PrintMotd no
PrintLastLog no
MaxStartups 100
MaxSessions 100
LogLevel ERROR
SetEnv {variables}
Subsystem sftp internal-sftp
"""


def client_config(machines: Sequence[EmulatedHost], folder: Path) -> str:
    """Return the ssh configuration that reaches the hosts, by name and by address.

    Examples
    --------
    >>> ada = EmulatedHost("ada", "local", "10.64.0.1", 7, 7)
    >>> print(client_config([ada], Path("/lab")).splitlines()[0])
    Host ada 10.64.0.1
    """
    lines = []
    for machine in machines:
        lines += [f"Host {machine.name} {machine.address}", f"  HostName {machine.address}"]
        lines += [f"  HostKeyAlias {machine.name}"]
    lines += [
        "Host *",
        f"  User {login()}",
        f"  Port {PORT}",
        f"  IdentityFile {for_ssh(folder / 'user.key')}",
        "  IdentitiesOnly yes",
        f"  UserKnownHostsFile {for_ssh(folder / 'known_hosts')}",
        "  GlobalKnownHostsFile /dev/null",
        "  StrictHostKeyChecking yes",
        "  BatchMode yes",
        "  ConnectTimeout 5",
        "  LogLevel ERROR",
    ]
    return "\n".join(lines) + "\n"


def make_keys(names: Sequence[str], folder: Path) -> None:
    """Generate the user's key, a key for each host, and the file of known hosts."""
    known = []
    for name, file in [("user", "user.key"), *((name, f"host-{name}.key") for name in names)]:
        place = folder / file
        comment = f"apples lab {name}"
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(place)])
        public = place.with_suffix(".key.pub").read_text(encoding="ascii").split()
        known.append(f"{name} {public[0]} {public[1]}\n")
    (folder / "known_hosts").write_text("".join(known[1:]), encoding="ascii")


def serve(identity: str, machines: Sequence[EmulatedHost], folder: Path) -> None:
    """Start sshd on each host; all of them answer when this returns.

    Raises
    ------
    LaunchError
        One does not answer in time; the message has the end of its log.
    """
    for machine in machines:
        config = folder / f"host-{machine.name}.sshd_config"
        config.write_text(server_config(machine, folder), encoding="utf-8")
        words = [requirements.path_of("sshd"), "-D", "-e", "-f", str(config)]
        leave_running(identity, machine, words, folder / f"host-{machine.name}.sshd.log")
    deadline = time.monotonic() + ANSWER_SECONDS
    for machine in machines:
        _await(machine, deadline, folder)


def _await(machine: EmulatedHost, deadline: float, folder: Path) -> None:
    while True:
        try:
            with socket.create_connection((machine.address, PORT), timeout=1.0) as connection:
                if connection.recv(4) == b"SSH-":
                    return
        except OSError:
            pass
        if time.monotonic() > deadline:
            log = folder / f"host-{machine.name}.sshd.log"
            text = log.read_text(errors="replace").strip() if log.exists() else ""
            raise LaunchError(
                f"{machine.name}: sshd does not answer: {text[-300:]}",
                code="startup-timeout",
                host=machine.name,
                value="sshd",
            )
        time.sleep(0.02)
