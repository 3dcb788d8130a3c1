"""An sshd of the tests' own: keys of its own, a few loopback addresses, gone with the tests."""

import getpass
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

from waiting import until

ADDRESSES = ("127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5")
DEAD = "127.0.0.9"
"""Nobody listens there."""

# SHLVL: a bash that believes to be called from another shell does not read its .bashrc, whatever it costs.
SERVER = """
Port {port}
{listen}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
StrictModes no
UsePAM no
PasswordAuthentication no
MaxStartups 100:30:200
SetEnv SHLVL=9
PidFile none
"""
CLIENT = """
Host *
  Port {port}
  User {user}
  IdentityFile {folder}/user_key
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known_hosts
  StrictHostKeyChecking yes
"""


def missing():
    """What the machine lacks, empty where nothing."""
    lacks = [name for name in ("ssh", "ssh-keygen") if not shutil.which(name)]
    if not server():
        lacks.append("sshd (Debian: openssh-server)")
    return ", ".join(lacks)


def server():
    return shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


class Sshd:
    """Runs from construction to `close`."""

    def __init__(self, folder):
        self.folder = Path(folder)
        with socket.create_server(("127.0.0.2", 0)) as one:
            self.port = one.getsockname()[1]
        for key in ("host_key", "user_key"):
            made = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / key)]
            subprocess.run(made, check=True)
        host_key = " ".join((self.folder / "host_key.pub").read_text().split()[:2])
        known = "".join(f"[{one}]:{self.port} {host_key}\n" for one in (*ADDRESSES, DEAD))
        (self.folder / "known_hosts").write_text(known)
        listen = "\n".join(f"ListenAddress {one}" for one in ADDRESSES)
        names = {"folder": self.folder, "port": self.port, "user": getpass.getuser()}
        (self.folder / "sshd_config").write_text(SERVER.format(listen=listen, **names))
        self.config = self.folder / "ssh_config"
        self.config.write_text(CLIENT.format(**names))
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        self.log = (self.folder / "log").open("wb")
        argv = [server(), "-D", "-e", "-f", str(self.folder / "sshd_config")]
        self.process = subprocess.Popen(argv, stderr=self.log)
        until(self._answers)

    def _answers(self):
        try:
            with socket.create_connection((ADDRESSES[0], self.port), timeout=1) as one:
                return one.recv(4).startswith(b"SSH")
        except OSError:
            return False

    def host_list(self, count=4, *, dead=0, extra=""):
        """The text of a host list of so many hosts, h1, h2, .., and dead ones after them."""
        hosts = [f'name = "h{i + 1}"\naddress = "{ADDRESSES[i]}"\n' for i in range(count)]
        hosts += [f'name = "dead{i + 1}"\naddress = "{DEAD}"\n' for i in range(dead)]
        entries = "".join(
            f'[[host]]\n{each}python = "{sys.executable}"\nseconds_per_point = 1e-9\n{extra}'
            for each in hosts
        )
        link = "[default_link]\nlatency = 1e-9\nbandwidth = 1e12\n"  # so that every host is worth using
        return f'ssh_config = "{self.config}"\n{entries}{link}'

    def close(self):
        self.process.terminate()
        self.process.wait(60)
        self.log.close()
