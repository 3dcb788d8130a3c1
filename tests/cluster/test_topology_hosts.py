"""``apples topology hosts``: machines and free CPUs of a host list, over ssh."""

import os

import pytest
from commands import command
from daemons import Daemon

HERE = sorted(os.sched_getaffinity(0))


def test_each_host_of_a_list_is_shown_over_ssh(sshd, tmp_path):
    hosts = tmp_path / "hosts.toml"
    with Daemon() as daemon:
        hosts.write_text(sshd.host_list(2, dead=1, extra=f'topologyd = "{daemon.socket}"\n'))
        daemon.ask("allocate", job="j", count=2, until="told")
        done = command("apples", "topology", "hosts", "--hosts", hosts, "--json")
    first, second, dead = done.document["hosts"]
    assert (done.code, first["host"], dead["host"]) == (0, "h1", "dead1")
    assert first["topology"]["cpus"] == second["topology"]["cpus"] == HERE
    assert first["free"] == [2, 3, 4, 5, 6, 7]
    assert dead.keys() == {"host", "error", "daemon_error"}


def test_a_host_without_a_daemon_has_a_machine_and_no_free_cpus(tmp_path):
    hosts = tmp_path / "hosts.toml"
    hosts.write_text('[[host]]\nname = "ada"\n[[host]]\nname = "bob"\ntopologyd = "/none.sock"\n')
    ada, bob = command("apples", "topology", "hosts", "--hosts", hosts, "--json").document["hosts"]
    assert ada["topology"]["cpus"] == HERE
    assert "free" not in ada
    assert "/none.sock" in bob["daemon_error"]


@pytest.mark.parametrize("address", ["https://ada:7000", "ada:7000", "tls://[::1]:7000"])
def test_a_daemon_by_an_address_of_a_network_is_refused(tmp_path, address):
    hosts = tmp_path / "hosts.toml"
    hosts.write_text(f'[[host]]\nname = "ada"\ntopologyd = "{address}"\n')
    done = command("apples", "topology", "hosts", "--hosts", hosts)
    assert (done.code, done.error_codes) == (2, ["value-invalid"])
    assert "over ssh" in done.err
