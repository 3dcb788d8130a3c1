"""What hosts answer when they are looked at, and what is made of it."""

import json
import sys

import pytest
import sshd as own

from apples import Host, HostList, Network, read_host_list
from apples.launch import (
    Needs,
    Reach,
    RemoteAnswer,
    RemoteQuestion,
    address_towards,
    ask,
    is_number,
    judge,
    numbers,
    own_version,
    preflight,
)

WELL = {
    "schema": "apples.look/1",
    "python": list(sys.version_info[:3]),
    "packages": {p: own_version(p) for p in ("apples", "mpich", "mpi4py")},
    "proxy": True,
    "machine": "x86_64",
    "boot": "b",
    "cpus": 8,
    "address": "10.0.0.1",
    "modules": {"numpy": True, "numba": False},
    "commands": {"cc": False},
    "programs": [],
    "asked": 1,
    "directory": "",
    "disk": {"/": 10**12},
    "shm": "",
    "name": "ada",
    "resolves": {"value": "10.0.0.1", "seconds": 0.01},
    "back": {"value": "10.0.0.9", "seconds": 0.01},
    "time": 1000.0,
}


def judged(**changed):
    answer = RemoteAnswer(b"Welcome!\n" + json.dumps(WELL | changed).encode(), b"", 0, 1000.5)
    return judge("ada", answer, 0.5, "/usr/bin/python3")


def test_a_host_that_is_well_is_fit_and_what_it_lacks_is_known():
    found = judged()
    assert found.refusal == ""
    assert {f.status for f in found.findings} == {"ok"}
    assert found.missing == {"numba", "cc"}
    assert (found.cpus, found.machine, found.address) == (8, "b", "10.0.0.1")


@pytest.mark.parametrize(
    ("changed", "check", "values"),
    [
        ({"python": [3, 9, 2]}, "python", ["3.9.2", "3.11"]),
        ({"packages": {**WELL["packages"], "mpich": "3.4"}}, "mpi", ["3.4", own_version("mpich")]),
        ({"proxy": False}, "mpi", [f"mpich=={own_version('mpich')}"]),
        ({"programs": ["/x/solver.py"]}, "program", ["/x/solver.py"]),
        ({"directory": "is no directory"}, "directory", ["is no directory"]),
        ({"disk": {"/": 10**12, "/var": 0}}, "disk", ["0 B"]),
        (
            {"shm": "16 of 16 MB free; 4 ranks of MPI need 22 MB"},
            "shm",
            ["16 MB", "--shm-size"],
        ),
        ({"time": 1200.0}, "clock", ["199.5 s ahead"]),
        ({"time": 800.0}, "clock", ["200.5 s behind"]),
        (
            {"resolves": {"error": "no answer", "seconds": 2.0}},
            "name",
            ["2.00 s", "10.0.0.1 ada"],
        ),
        ({"back": {"errors": {"10.0.0.9": "no answer"}}}, "back", ["10.0.0.9: no answer"]),
        ({"back": {"errors": {}}, "address": "fd77::1"}, "back", ["IPv6 alone", "fd77::1"]),
        ({"cpus": "many"}, "ssh", ["ValueError"]),
        ({"disk": None}, "ssh", ["AttributeError"]),
    ],
)
def test_each_reason_not_to_go_there_is_named_with_its_cure(changed, check, values):
    found = judged(**changed)
    (failed,) = [finding for finding in found.findings if finding.status == "fail"]
    assert failed.name == check
    assert bool(failed.cure) == (check != "ssh")
    assert found.refusal.startswith(f"{check}: {failed.detail}")
    assert all(value in found.refusal for value in values)


def test_what_a_host_says_of_itself_is_no_news_for_a_terminal_or_a_machine_file():
    found = judged(
        name="\x1b]0;x\x07",
        address="10.0.0.1\n10.0.0.66",
        resolves={"error": "x\ny", "seconds": 0},
    )
    assert found.address == ""
    assert all(text.isprintable() for f in found.findings for text in (f.detail, f.cure))


def test_what_is_odd_but_no_reason_is_a_warning():
    odd = judged(time=1010.0, resolves={"error": "unknown", "seconds": 0.1}, disk={"/": 5 * 10**7})
    assert odd.refusal == ""
    assert [f.name for f in odd.findings if f.status == "warn"] == ["disk", "name", "clock"]


@pytest.mark.parametrize(
    ("answer", "check", "values"),
    [
        (RemoteAnswer(b"", b"", None, 0.0), "ssh", ["5.5 s"]),
        (RemoteAnswer(b"", b"ssh: no route\n", 255, 0.0), "ssh", ["no route"]),
        (RemoteAnswer(b"hello", b"x: not found\n", 127, 0.0), "python", ["/p", "x: not found"]),
        (RemoteAnswer(b'{"schema": "other/1"}', b"", 0, 0.0), "login", ["/p", "code 0"]),
        (RemoteAnswer(b'{"schema"' + b"[" * 100_000, b"", 0, 0.0), "login", ["/p"]),
        (RemoteAnswer(b"Not available.\n", b"", 1, 0.0), "login", ["Not available.", "/p"]),
        (RemoteAnswer(b"", b"fatal: no shell\n", 128, 0.0), "login", ["fatal: no shell", "128"]),
        (RemoteAnswer(b"", b"Unknown option: -I\n", 2, 0.0), "python", ["Unknown option"]),
        (RemoteAnswer(b"Site? ", b"", 9, 0.0), "login", ["standard input", "Site?"]),
        (RemoteAnswer(b"Maintenance\n", b"", None, 0.0), "ssh", ["5.5 s", "Maintenance"]),
    ],
)
def test_silence_has_its_reason_too(answer, check, values):
    (failed,) = judge("ada", answer, 5.5, "/p").findings
    assert (failed.name, failed.status, bool(failed.cure)) == (check, "fail", True)
    assert all(value in failed.detail for value in values)


def test_failed_login_names_the_command_to_try():
    refused = RemoteAnswer(b"", b"ssh: no route\n", 255, 0.0)
    fitness = judge("ada", refused, 5.5, "/p", "ssh -F config -l guest 10.0.0.1")
    assert "ssh -F config -l guest 10.0.0.1 true" in fitness.refusal
    assert "ssh ada true" in judge("ada", refused, 5.5, "/p").refusal


@pytest.mark.more
def test_one_deadline_holds_for_all_questions_and_ends_what_is_late():
    slow = RemoteQuestion([sys.executable, "-c", "import time; time.sleep(60)"], b"")
    quick = RemoteQuestion(["cat"], b"x" * 200_000)
    loud = RemoteQuestion(["cat", "/dev/zero"], b"")
    none = RemoteQuestion(["/no/such/program"], b"")
    found = ask({"slow": slow, "quick": quick, "loud": loud, "none": none}, 10.0)
    assert [found[name].code for name in ("slow", "quick", "loud", "none")] == [None, 0, None, 127]
    assert len(found["quick"].output) == 200_000
    assert len(found["loud"].output) == 1 << 20


@pytest.mark.more
def test_who_has_begun_to_answer_may_end():
    slow = RemoteQuestion(["sh", "-c", "echo begun; sleep 6; echo done"], b"")
    assert ask({"slow": slow}, 5.0, 300.0)["slow"].output == b"begun\ndone\n"


def test_an_address_is_a_number_and_ours_is_the_one_on_the_way():
    assert is_number("10.0.0.1")
    assert is_number("fe80::1%eth0")
    assert not is_number("ada")
    assert address_towards(["127.0.0.5", "ada"]) == "127.0.0.1"
    assert address_towards(["ada"]) == ""


@pytest.mark.ssh
def test_hosts_are_looked_at_side_by_side_and_the_dead_are_named(sshd, tmp_path):
    path = tmp_path / "hosts.toml"
    path.write_text(sshd.host_list(2, dead=2))
    listed = read_host_list(path)
    needs = Needs(("numpy", "no_such_module"), ("no-such-command",), (str(path), "/nope/x.py"))
    found = preflight(listed.hosts, listed, needs)
    assert list(found) == ["h1", "h2", "dead1", "dead2"]
    assert found["h1"].refusal.startswith("program: ")
    assert "/nope/x.py" in found["h1"].refusal
    assert found["h1"].missing == {"no_such_module", "no-such-command"}
    assert (found["h1"].address, found["h2"].address) == own.ADDRESSES[:2]
    assert found["h1"].machine == found["h2"].machine != ""
    assert found["dead1"].refusal.startswith("ssh: ")
    assert "127.0.0.9" in found["dead1"].refusal
    well = preflight(listed.hosts[:2], listed, Needs(programs=(str(path),)))
    assert [one.refusal for one in well.values()] == ["", ""]


@pytest.mark.ssh
def test_one_machine_under_two_names_is_used_once(sshd, tmp_path):
    hosts = (Host("one", address="127.0.0.2"), Host("two", address="127.0.0.2"))
    listed = HostList(hosts, Network(), str(sshd.config), str(tmp_path / "hosts.toml"))
    found = preflight(hosts, listed, Needs())
    assert found["one"].refusal == ""
    assert found["two"].refusal.startswith("address: ")
    assert "127.0.0.2" in found["two"].refusal


@pytest.mark.ssh
def test_a_python_that_is_not_there_is_said_to_be_missing(sshd, tmp_path):
    host = Host("ada", address="127.0.0.2", python="/no/such python")
    listed = HostList((host,), Network(), str(sshd.config), str(tmp_path / "hosts.toml"))
    (found,) = preflight((host,), listed, Needs()).values()
    assert found.refusal.startswith("python: /no/such python ")


@pytest.mark.ssh
def test_an_alias_of_the_configuration_is_the_number_it_stands_for(sshd, tmp_path):
    config = tmp_path / "config"
    config.write_text(f"Host ada\n  HostName 127.0.0.3\nHost *\n  Include {sshd.config}\n")
    names = {"ada": "ada", "bob": "10.0.0.9", "me": "localhost", "who": "no-such-host.invalid"}
    found = numbers({n: Reach(n, word, "/p", "", str(config)) for n, word in names.items()})
    assert (found["ada"], found["bob"]) == ("127.0.0.3", "10.0.0.9")
    assert found["me"] in {"127.0.0.1", "::1"}
    assert "who" not in found
    hosts = (Host("ada", python=sys.executable),)
    listed = HostList(hosts, Network(), str(config), str(tmp_path / "hosts.toml"))
    (seen,) = preflight(hosts, listed, Needs()).values()
    (back,) = [finding for finding in seen.findings if finding.name == "back"]
    assert back.status == "ok"
    assert any(letter.isdigit() for letter in back.detail)  # the seconds that it took
