"""Whatever stands in a file: no shell runs a part of it, and ssh takes none of it for an option.

hosts.toml -- Reach (checked) --> ssh argv --> login shell: exec 'PYTHON' -I -S -c 'CONSTANT'
                                     stdin --> everything else, as JSON
"""

import json
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from drawn import examples
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from apples import Host, HostList, Network, UsageError
from apples.launch import bootstrap, hydra, ssh
from apples.launch import ssh_command as line
from hat import DocumentError

MEAN = (
    *("; touch canary", "$(touch canary)", "`touch canary`", "| touch canary", "&& touch canary"),
    *(
        "'; touch canary; '",
        '"; touch canary; "',
        "\n touch canary\n",
        "-oProxyCommand=touch canary",
    ),
    *(
        "%h",
        "\\",
        "!",
        "~",
        "*",
        " ",
        "-",
        "--",
        "a",
        "é",
        "\x1b",
        "\t",
        "${IFS}touch${IFS}canary",
    ),
)
REFUSED = set("'\"`$\\!\n\t\x1b")
TEXT = st.lists(st.sampled_from(MEAN) | st.text(max_size=5), min_size=1, max_size=4).map("".join)


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    """Runs what ssh would hand to a login shell, in a folder where a canary would be seen."""
    folder, programs = tmp_path_factory.mktemp("shell"), tmp_path_factory.mktemp("programs")
    for program in ("touch", "printf"):  # and nothing else that a text could name by accident
        (programs / program).symlink_to(shutil.which(program))

    def run(text, name="sh"):
        environment = {"PATH": str(programs), "HOME": str(folder)}
        done = subprocess.run(
            [shutil.which(name), "-c", text],
            cwd=folder,
            env=environment,
            capture_output=True,
            timeout=120,
            check=False,
        )
        assert not list(folder.rglob("canary*")), text
        return done

    return run


@settings(max_examples=examples(150))
@given(python=TEXT)
@example(python="'; touch canary; '")
@example(python="~/$(touch canary)/python")
def test_no_python_of_a_host_list_is_run_as_anything_else(shell, python):
    try:
        one = line.Reach("ada", "10.0.0.1", python)
    except UsageError:
        return
    assume(shutil.which(python) is None)  # a program there is would be run, as the list says
    argv = line.command(one, bootstrap.words(site=False))
    assert argv[-3:-1] == ["--", "10.0.0.1"]
    assert shell(argv[-1]).returncode in {126, 127}  # no such program, and nothing else happened


@settings(max_examples=examples(150))
@given(address=TEXT, user=TEXT)
@example(address="-oProxyCommand=touch canary", user="")
@example(address="; rm -rf", user="root; touch canary")
def test_an_address_or_login_that_reaches_ssh_is_one_plain_word(address, user):
    try:
        one = line.Reach("ada", address, "/usr/bin/python3", user)
    except UsageError:
        return
    argv = line.command(one, ["-c", "pass"])
    for word in (address, user):
        assert not word.startswith("-")
        assert not set(word) & set(" ;|&$`'\"\\\n\t!*~(){}<>#")
    assert shlex.join([address]) == address
    assert argv[argv.index("--") + 1] == address


@settings(max_examples=examples(150))
@given(python=st.lists(st.sampled_from([m for m in MEAN if not set(m) & REFUSED])))
def test_what_a_python_may_hold_is_quoted(shell, python):
    way = line.Reach("ada", "10.0.0.1", "/nowhere/" + "".join(python))
    assert shell(line.command(way, bootstrap.words(site=False))[-1]).returncode in {126, 127}


@settings(max_examples=examples(60))
@given(texts=st.lists(TEXT, min_size=4, max_size=4))
def test_whatever_a_template_says_reaches_no_command_line(shell, texts):
    program, argument, directory, host = texts
    rank_group = hydra.RankGroup(host, 2, (program, argument))
    way = line.Reach("ada", "10.0.0.2", "/opt/python")
    target = ssh.LaunchTarget(rank_group, "10.0.0.2", way, directory, (program,), {"X": argument})
    try:
        order = ssh.command([target], {"x": host}, job="j", here="10.0.0.1", directory=Path("/"))
    except ssh.LaunchError:
        assert "\0" in program + argument or not program
        return
    plain = hydra.RankGroup("ada", 2, ("true",))
    same = ssh.LaunchTarget(plain, "10.0.0.2", way)
    assert (
        order.argv == ssh.command([same], {}, job="j", here="10.0.0.1", directory=Path("/")).argv
    )
    launch = json.loads(order.files["launch.json"])
    (there,) = launch["remote"]
    assert there["ssh"] == line.command(way, bootstrap.words(site=False))
    (told,) = ssh.host_orders(order)
    assert told["launch"]["hosts"][0]["program"] == [program, argument]
    shell(there["ssh"][-1])


@pytest.mark.parametrize("shell_name", ["sh", "bash", "dash"])
def test_what_is_shipped_runs_the_same_in_every_shell(shell, shell_name, tmp_path):
    (tmp_path / "my python").symlink_to("/usr/bin/env")
    way = line.Reach("ada", "10.0.0.1", str(tmp_path / "my python"))
    text = line.command(way, ["printf", "%s|", "a b", "it's", "$HOME"])[-1]
    assert shell(text, shell_name).stdout == b"a b|it's|$HOME|"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", "; rm -rf"),
        ("name", "-oProxyCommand=x"),
        ("address", "-oProxyCommand=touch canary"),
        ("address", "10.0.0.1; touch canary"),
        ("address", "ada\n"),
        ("user", "-l"),
        ("user", "$(touch canary)"),
        ("python", "-c"),
        ("python", "/bin/'sh"),
        ("directory", "-rf"),
    ],
)
def test_a_host_list_that_means_harm_is_refused_with_file_line_and_field(tmp_path, field, value):
    from apples import read_host_list

    path = tmp_path / "hosts.toml"
    name = "" if field == "name" else 'name = "ada"\n'
    path.write_text(f"[[host]]\n{name}{field} = {json.dumps(value)}\n")
    with pytest.raises(DocumentError) as caught:
        read_host_list(path)
    fields = caught.value.fields
    assert (fields["file"], fields["line"]) == (str(path), 2 if field == "name" else 3)
    assert fields["field"] == f"host[0].{field}"


def test_a_word_that_went_round_the_host_list_is_refused_all_the_same():
    for name, value in (("address", "-x"), ("user", "-x"), ("python", ""), ("address", "a\n")):
        fields = {"address": "10.0.0.1", "python": "/usr/bin/python3", name: value}
        with pytest.raises(UsageError) as raised:
            line.Reach("ada", **fields)
        assert raised.value.code == ("value-invalid" if value else "value-missing")
        assert (raised.value.fields["host"], raised.value.fields["field"]) == ("ada", name)


@pytest.mark.ssh
@pytest.mark.usefixtures("sshd")  # or there may be no ssh
def test_not_even_a_proxy_command_sees_more_than_words(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = tmp_path / "config"
    config.write_text("Host *\n  ProxyCommand sh -c 'echo $0 $1 > seen' %h %r\n")
    for address, user in (("a-b.c", "x@y"), ("10.0.0.1", "r.o+o-t"), ("fe80::1%eth0", "_x")):
        argv = line.command(line.Reach("ada", address, "/p", user, str(config)), ["-c", "pass"])
        assert (
            subprocess.run(argv, capture_output=True, timeout=120, check=False).returncode == 255
        )
        assert (tmp_path / "seen").read_text().split()[1] == user
    assert {p.name for p in tmp_path.iterdir()} == {"config", "seen"}


def test_the_ssh_configuration_is_found_beside_the_host_list(tmp_path):
    listed = HostList((Host("ada"),), Network(), "keys/config", str(tmp_path / "hosts.toml"))
    assert line.reach(listed["ada"], listed).config == str(tmp_path / "keys/config")
    none = HostList((Host("ada"),), Network())
    assert "-F" not in line.command(line.reach(none["ada"], none), [])
