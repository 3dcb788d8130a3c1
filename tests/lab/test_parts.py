"""The lab's parts that change nothing: the file, addresses, what is written where, what is run."""

import getpass
import ipaddress
import json
import math
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hat
from apples.errors import LaunchError, UsageError
from apples.lab import (
    EmulatedHost,
    HostEntry,
    LabCgroup,
    LabDocument,
    LabHierarchy,
    LabJournal,
    cgroups,
    configuration,
    down,
    host_list,
    identity,
    network,
    record,
    requirements,
    ssh,
)
from apples.resources import HostListDocument

HOST = '[[host]]\nname = "ada"\n'
ADA = EmulatedHost("ada", "local", "10.64.0.1", 7, 7)


def lab(text):
    return hat.parse(f'name = "x"\n{text}', LabDocument, source="lab.toml")


@pytest.mark.parametrize(
    ("text", "line", "field", "code"),
    [
        ("", 1, "host", "field-missing"),
        (HOST + HOST, 3, "host[0].name", "name-repeated"),
        (HOST + '[[host]]\nname = "ADA"\n', 3, "host[0].name", "name-repeated"),
        ('[[host]]\nname = "localhost"\n', 3, "host[0].name", "name-reserved"),
        ('[[host]]\nname = "switch-of-the-lab"\n', 3, "host[0].name", "name-reserved"),
        ('slurm = true\n[[host]]\nname = "ALL"\n', 4, "host[0].name", "name-reserved"),
        ('slurm = true\n[[host]]\nname = "default"\n', 4, "host[0].name", "name-reserved"),
        ('[[host]]\nname = "; rm -rf"\n', 3, "host[0].name", "value-invalid"),
        ('[[host]]\nname = "-x"\n', 3, "host[0].name", "value-invalid"),
        ('[[host]]\nname = "../x"\n', 3, "host[0].name", "value-invalid"),
        (HOST + "cpu = 0\n", 4, "host[0].cpu", "value-range"),
        (HOST + "cpu = nan\n", 4, "host[0].cpu", "value-range"),
        (HOST + "memory = 5\n", 4, "host[0].memory", "value-range"),
        (HOST + "cpus = [0, 0]\n", 4, "host[0].cpus", "value-invalid"),
        (HOST + "bandwidth = -1.0\n", 4, "host[0].bandwidth", "value-range"),
        (HOST + "colour = 1\n", 4, "host[0]", "field-unknown"),
        (HOST + '[[load]]\nhost = "bob"\n', 5, "load[0].host", "host-unknown"),
        (
            HOST + '[[load]]\nhost = "ada"\nstart = 3.0\nstop = 3.0\n',
            7,
            "load[0].stop",
            "value-range",
        ),
        (
            HOST + '[[load]]\nhost = "ada"\nprocesses = 1000\n',
            6,
            "load[0].processes",
            "value-range",
        ),
    ],
)
def test_a_mistake_is_named_with_its_line(text, line, field, code):
    with pytest.raises(hat.DocumentError) as raised:
        lab(text)
    assert raised.value.code == code
    assert (line, field) in [(p.line, p.field) for p in raised.value.problems]


def test_a_host_of_an_unknown_site_is_named_with_the_nearest_one():
    with pytest.raises(hat.DocumentError) as raised:
        lab(HOST + 'site = "hree"\n[[site]]\nname = "here"\n')
    (problem,) = raised.value.problems
    assert (problem.line, problem.field, problem.suggestion) == (4, "host[0].site", "here")


def test_what_is_missing_is_said_all_at_once(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    document = lab("slurm = true\n" + HOST + "cpus = [4095]\n")
    with pytest.raises(UsageError) as raised:
        requirements.require(document, user=1000, places=())
    assert raised.value.code == "lab-unsupported"
    missing = raised.value.fields["missing"]
    for word in ("user 1000", "openssh-server", "iproute2", "CPU 4095"):
        assert any(word in line for line in missing)
    assert "\n" not in str(raised.value)


@given(st.lists(st.integers(0, 1 << 14), max_size=40), st.integers(0, 1 << 32))
def test_a_network_overlaps_none_that_is_routed(taken, seed):
    routes = [
        str(ipaddress.IPv4Network((int(network.POOL[0]) + (k % (1 << 14) << 8), 24)))
        for k in taken
    ]
    free = network.free_network(f"{seed:08x}", routes)
    assert not any(free.network.overlaps(ipaddress.ip_network(route)) for route in routes)
    addresses = {free.agent, free.head, *(free.host(i) for i in range(200))}
    assert len(addresses) == 202
    assert all(ipaddress.ip_address(a) in free.network for a in addresses)


def test_every_route_and_address_of_the_machine_counts():
    addresses = [{"addr_info": [{"local": "192.0.2.2", "prefixlen": 24}, {}]}, {}]
    routes = [{"dst": "default"}, {"dst": "10.64.0.0/16"}, {"dst": "10.9.9.9", "type": "local"}]
    found = network.routed(json.dumps(addresses), json.dumps(routes))
    assert found == ["192.0.2.2/24", "10.64.0.0/16"]


def test_labs_of_one_name_in_two_places_have_nothing_in_common():
    one, other = identity(Path("/a/labs/x")), identity(Path("/b/labs/x"))
    assert one != other
    assert network.free_network(one, []) != network.free_network(other, [])


@given(
    quotas=st.lists(
        st.sampled_from((None, 0.12, 0.4, 0.7, 1.0, 1.5, 6.0)), min_size=1, max_size=9
    ),
    own=st.sets(st.integers(0, 9), min_size=1, max_size=6).map(sorted),
    first=st.integers(0, 2**32),
)
def test_a_host_with_a_quota_has_as_many_cpus_as_begun_cores_and_none_has_much_more_to_do(
    quotas, own, first
):
    hosts = [HostEntry(name=f"h{i}", cpu=quota) for i, quota in enumerate(quotas)]
    placed = cgroups.placed(hosts, own, first)
    assert [host.name for host in placed] == [host.name for host in hosts]
    to_do = dict.fromkeys(own, 0.0)
    for host in placed:
        assert set(host.cpus) <= set(own)
        assert len(host.cpus) == (min(len(own), math.ceil(host.cpu)) if host.cpu else 0)
        for cpu in host.cpus:
            to_do[cpu] += min(1.0, host.cpu / len(host.cpus))
    assert max(to_do.values()) - min(to_do.values()) <= 1.0 + 1e-9


def test_hosts_with_a_quota_keep_away_from_cpus_that_others_are_pinned_to():
    hosts = [HostEntry(name="ada", cpus=(0, 2)), HostEntry(name="bob", cpu=0.9, cpus=(3,))]
    hosts += [HostEntry(name="eve", cpu=0.2), HostEntry(name="dan", cpu=0.2)]
    cpus = [host.cpus for host in cgroups.placed(hosts, (0, 1, 2, 3))]
    assert cpus == [(0, 2), (3,), (1,), (1,)]


def test_limits_in_version_two_stand_in_one_group_of_a_host():
    host = HostEntry(name="ada", cpu=1.5, cpus=(0, 2), memory=1 << 28)
    here = dict.fromkeys(("cpu", "memory", "cpuset"), LabHierarchy(Path("/cg"), 2))
    above, own = cgroups.groups(host, "7f", here, hosts=3)
    assert above == LabCgroup(
        Path("/cg/apples-lab-7f"),
        (("cgroup.subtree_control", "+cpu +memory +cpuset"), ("cpu.weight", "300")),
    )
    assert own.path == Path("/cg/apples-lab-7f/ada")
    assert dict(own.writes) == {
        "cpu.max": "15000 10000",
        "memory.max": str(1 << 28),
        "memory.swap.max": "0",
        "cpuset.cpus": "0,2",
    }
    assert own.optional == ("memory.swap.max",)


def test_what_version_two_lacks_is_switched_on_and_recorded_before(tmp_path):
    (tmp_path / "cgroup.subtree_control").write_text("cpu pids\n")
    here = dict.fromkeys(("cpu", "memory"), LabHierarchy(tmp_path, 2))
    assert cgroups.delegations(iter(["cpu", "memory", "cpu"]), here) == [
        (tmp_path / "cgroup.subtree_control", "memory")
    ]


def test_both_versions_are_found_where_they_are_mounted(tmp_path):
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "cgroup.controllers").write_text("memory io\n")
    lines = [
        f"1 2 0:1 / {tmp_path}/one rw - cgroup cgroup rw,cpu,cpuacct",
        f"1 2 0:1 / {tmp_path}/two rw - cgroup2 cgroup2 rw",
        "1 2 0:1 / /proc rw - proc proc rw",
    ]
    (tmp_path / "mountinfo").write_text("\n".join(lines))
    assert cgroups.hierarchies(tmp_path) == {
        "cpu": LabHierarchy(tmp_path / "one", 1),
        "memory": LabHierarchy(tmp_path / "two", 2),
    }


def test_a_group_is_recorded_before_it_is_made_and_a_refusal_names_its_file(tmp_path):
    seen = []
    group = LabCgroup(tmp_path / "g", (("a/b", "1"),))
    with pytest.raises(LaunchError) as raised:
        cgroups.make([group], lambda *step: seen.append((step, group.path.exists())))
    assert raised.value.code == "cgroup-unwritable"
    assert raised.value.fields == {"file": str(tmp_path / "g/a/b"), "value": "1"}
    assert seen == [(("cgroup", str(group.path)), False)]


def test_a_torn_line_of_the_journal_is_passed_over(tmp_path):
    journal = LabJournal(tmp_path)
    journal.record("link", "al0")
    journal.record("cgroup", "/cg/x")
    with journal.path.open("a") as stream:
        stream.write('["directory", "/etc')
    assert list(journal.steps()) == [("cgroup", "/cg/x"), ("link", "al0")]


def test_a_journal_from_before_lines_had_checksums_is_read(tmp_path):
    LabJournal(tmp_path).path.write_text('["link", "al0"]\n["cgroup", "/cg/x"]\n["directory", "/e')
    assert list(LabJournal(tmp_path).steps()) == [("cgroup", "/cg/x"), ("link", "al0")]


def test_slow_links_are_what_the_host_list_says():
    document = lab(
        '[[site]]\nname = "a"\nbandwidth = 5e6\nlatency = 0.01\n[[site]]\nname = "b"\nbandwidth = 2e6\n'
        '[[host]]\nname = "x"\nsite = "a"\nbandwidth = 1e6\n[[host]]\nname = "y"\nsite = "b"\n'
        '[[host]]\nname = "z"\nsite = "a"\ncpu = 0.5\nmemory = "1 GiB"\n'
    )
    machines = [
        EmulatedHost(h.name, h.site, f"10.64.0.{i}", 7, 7) for i, h in enumerate(document.host)
    ]
    text = host_list.host_list(document, machines, {"x": 1e-9}, "/s", delayed=True)
    hosts = hat.parse(text, HostListDocument, source="hosts.toml")
    links = {frozenset(link.between): link for link in hosts.link}
    assert links[frozenset("ab")].bandwidth == 2e6
    assert links[frozenset("ab")].latency == pytest.approx(0.01, abs=1e-3)
    assert links[frozenset("xa")].bandwidth == links[frozenset("xb")].bandwidth == 1e6
    x, y, z = hosts.host
    assert (x.seconds_per_point, y.seconds_per_point, z.cpu) == (1e-9, None, 0.5)
    assert 0 < z.free_memory < 1 << 30
    assert {host.user for host in hosts.host} == {getpass.getuser()}


def test_shaping_lets_no_border_pass_at_once():
    line = network.shaped("up0", 1e6)
    assert "rate 1000000bps" in line
    assert int(line.split("burst ")[1].split()[0]) < 4000
    assert network.shaped("up0", None) == ""
    assert "netem delay 5000us" in network.shaped("up0", 1e6, 0.005)


def test_sshd_knows_only_the_labs_own_keys_and_takes_no_password():
    text = ssh.server_config(ADA, Path("/lab of mine"))
    assert 'AuthorizedKeysFile "/lab of mine/user.key.pub"' in text
    assert "PasswordAuthentication no" in text
    assert "ListenAddress 10.64.0.1" in text


def test_slurm_counts_a_core_for_each_slot():
    ada = EmulatedHost("ada", "s", "10.64.0.1", 7, 7, cpu=1.5, memory=1 << 30, host_name="ada")
    head = EmulatedHost("switch", "", "10.64.0.253", 7, 7, host_name="head")
    text = configuration("x", head, [ada], Path("/run/x"), Path("/spool"))
    assert "NodeName=ada NodeAddr=10.64.0.1 CPUs=2 RealMemory=1024 Feature=s" in text
    assert "SlurmctldHost=head(10.64.0.253)" in text


def test_a_lab_that_is_only_half_way_up_is_no_lab(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with pytest.raises(UsageError) as raised:
        record.find(None)
    assert raised.value.code == "lab-missing"
    folder = record.labs() / "x"
    folder.mkdir(parents=True)
    LabJournal(folder).record("link", "al0")
    with pytest.raises(UsageError) as raised:
        record.find(None)
    assert (raised.value.code, raised.value.fields["lab"]) == ("lab-incomplete", "x")
    with pytest.raises(UsageError) as raised:
        record.find("y")
    assert raised.value.code == "lab-unknown"
    assert raised.value.fields == {"lab": "y", "known": ["x"]}
    (record.labs() / "z").mkdir()
    LabJournal(record.labs() / "z").record("link", "al1")
    with pytest.raises(UsageError) as raised:
        record.find(None)
    assert raised.value.code == "lab-ambiguous"
    assert sorted(raised.value.fields["known"]) == ["x", "z"]


@pytest.mark.parametrize("after", range(1, 27, 5))
def test_a_lab_whose_directory_is_half_removed_is_still_known_by_name(
    after, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder = record.labs() / "small"
    (folder / "slurm").mkdir(parents=True)
    LabJournal(folder).record("directory", str(tmp_path / "sockets"))
    for name in (*"abcdefghijklmnopqrstuvwxyz", "slurm/munge.key"):
        (folder / name).write_text("secret")
    real, removed = os.unlink, []

    def until_killed(path, **where):
        if len(removed) == after:
            raise KeyboardInterrupt
        removed.append(path)
        real(path, **where)

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", until_killed)
        with pytest.raises(KeyboardInterrupt):
            down(folder)
    assert len(removed) == after
    assert list(record.begun()) == [folder]
    down(folder)
    assert not folder.exists()
