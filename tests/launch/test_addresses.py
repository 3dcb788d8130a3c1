"""Whether a host of a list is this machine."""

import socket

import pytest

from apples import Host
from apples.launch import is_here, names_in


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.0.1.1", "::1", "0:0:0:0:0:0:0:1", "::ffff:127.0.0.1", "localhost", "LOCALHOST.",
        socket.gethostname(), socket.gethostname().upper(),
    ],
)  # fmt: skip
def test_each_spelling_of_this_machine_is_here(address):
    assert is_here(Host("ada", address=address))


@pytest.mark.parametrize(
    "address", ["198.51.100.77", "2001:db8::7", "cluster-node-7", "fe80::1%nosuch0"]
)
def test_address_decides_also_for_a_host_with_cpus(address):
    assert not is_here(Host("ada", address=address))
    assert not is_here(Host("ada", address=address, cpus=(0,)))


def test_cpus_without_address_or_login_are_a_part_of_this_machine():
    assert is_here(Host("ada", cpus=(0,)))
    assert not is_here(Host("ada", cpus=(0,), user="alice"))
    assert not is_here(Host("ada"))


def test_name_whose_first_label_is_ours_is_another_machine_if_it_does_not_resolve_to_ours():
    assert not is_here(Host("ada", address=f"{socket.gethostname().partition('.')[0]}.invalid"))


def test_hosts_file_names_full_name_of_this_machine():
    text = "127.0.0.1 localhost\n127.0.1.1\tada.example.org ada # us\n198.51.100.77 bob\n::1 ip6-localhost\nx y\n"
    assert names_in(text, {"127.0.0.1", "127.0.1.1", "::1"}) == {
        "localhost", "ada.example.org", "ada", "ip6-localhost",
    }  # fmt: skip
