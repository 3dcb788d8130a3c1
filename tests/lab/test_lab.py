"""One real lab: its hosts are apart from each other, as slow as they are said to be, and reachable."""

import json
import subprocess
from pathlib import Path

import pytest
from labs import on, python, steady_rate
from waiting import until

from apples.lab import entering, environment
from apples.resources import read_host_list

pytestmark = pytest.mark.lab

SHARE = """
import time
wall, own = time.monotonic(), time.process_time()
while time.monotonic() - wall < 0.6: pass
print((time.process_time() - own) / (time.monotonic() - wall))
"""


def over_ssh(lab, host, *words):
    command = ["ssh", "-F", lab.ssh_config, host, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def groups(text):
    return {line.split(":")[1]: line.split(":")[2] for line in text.splitlines()}


def test_every_host_has_its_own_name_address_processes_and_interfaces(lab):
    for machine in lab.machines:
        assert on(lab, machine.name, "hostname") == machine.name
        addresses = json.loads(on(lab, machine.name, "ip", "-j", "-4", "address", "show", "eth0"))
        assert addresses[0]["addr_info"][0]["local"] == machine.address
        seen = on(lab, machine.name, "ps", "-e", "-o", "comm=").split()
        assert len(seen) < 12
        assert sorted(on(lab, machine.name, "ls", "/sys/class/net").split()) == ["eth0", "lo"]


def test_a_host_knows_the_names_of_all(lab):
    for machine in lab.machines:
        assert on(lab, "far", "getent", "hosts", machine.name).split()[0] == machine.address


@pytest.mark.hardware
def test_a_quota_is_what_a_process_gets(lab):
    assert float(python(lab, "bob", SHARE)) == pytest.approx(0.25, abs=0.06)


def test_a_login_lands_in_the_hosts_own_limits_and_namespaces(lab):
    own, inside = (
        over_ssh(lab, "bob", "cat", "/proc/self/cgroup"),
        on(lab, "bob", "cat", "/proc/self/cgroup"),
    )
    assert groups(own) == groups(inside)
    assert sum("/bob" in place for place in groups(own).values()) == len(
        lab.machine("bob").cgroups
    )
    assert over_ssh(lab, "bob", "hostname") == "bob"
    names = [f"/proc/self/ns/{kind}" for kind in ("net", "uts", "pid", "mnt", "ipc")]
    assert over_ssh(lab, "bob", "readlink", *names) == on(lab, "bob", "readlink", *names)
    assert "UCX_TLS=tcp,self" in over_ssh(lab, "bob", "env").splitlines()


def test_a_login_does_not_run_the_start_up_file_that_all_hosts_share(lab, tmp_path):
    (tmp_path / ".bashrc").write_text("echo from the start-up file\n")
    words = [f"HOME={tmp_path}", "bash", "-c", "true"]
    as_the_first = over_ssh(lab, "bob", "env", "SHLVL=$((SHLVL - 1))", *words)
    assert as_the_first == ""
    assert over_ssh(lab, "bob", "env", "-u", "SHLVL", *words) == "from the start-up file"


def test_the_memory_limit_ends_what_takes_more(lab):
    hungry = "x = bytearray(400 << 20); print(len(x))"
    with pytest.raises(AssertionError):
        python(lab, "bob", hungry)
    assert python(lab, "ada", hungry) == str(400 << 20)


@pytest.mark.hardware
def test_the_link_between_sites_has_the_rate_of_the_slower(lab):
    assert steady_rate(lab, "ada", "far", 2e6) == pytest.approx(2e6, rel=0.15)


def test_what_runs_on_a_host_ends_with_the_one_who_asked(lab):
    words = [
        "/usr/bin/env",
        "python3",
        "-c",
        "import time; print('up', flush=True); time.sleep(60)",
    ]
    process = subprocess.Popen(
        entering(lab.machine("ada"), words), env=environment(lab), stdout=subprocess.PIPE
    )
    assert process.stdout.readline() == b"up\n"
    process.kill()
    process.communicate()
    until(lambda: "time.sleep(60)" not in on(lab, "ada", "ps", "-e", "-o", "args="))


def test_the_host_list_can_be_planned_with(lab):
    hosts = read_host_list(lab.hosts)
    assert [host.name for host in hosts] == ["ada", "bob", "far"]
    assert hosts["ada"].slots == 2
    assert {host.name: host.cpu for host in hosts} == {"ada": 0.75, "bob": 0.25, "far": 0.25}
    assert all(host.seconds_per_point and host.python for host in hosts)
    assert hosts["bob"].free_memory < 256e6
    assert hosts.network.link(hosts["ada"], hosts["far"]).bandwidth == 2e6
    assert hosts.network.link(hosts["ada"], hosts["bob"]).bandwidth > 1e8
    assert hosts.ssh_config == lab.ssh_config


def test_nothing_of_the_users_own_ssh_is_touched_or_read(lab):
    text = Path(lab.ssh_config).read_text()
    assert str(Path.home() / ".ssh") not in text
    assert "StrictHostKeyChecking yes" in text
    for place in Path(lab.folder).glob("*.key"):
        assert place.stat().st_mode & 0o077 == 0
