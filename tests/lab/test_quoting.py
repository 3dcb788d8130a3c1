"""Wherever a lab is kept and whatever its hosts are called: nothing of that is run, and all is read back as it is.

lab file -> LabDocument (names checked) -> ip and tc batches, /etc/hosts
directory, login -> quoting (refused, or a word) -> sshd_config, ssh_config, slurm.conf
"""

import ipaddress
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import labs
import pytest
from commands import command
from drawn import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from apples import lab as emulation
from apples.errors import UsageError
from apples.lab import (
    EmulatedHost,
    LabDocument,
    network,
    quoting,
    requirements,
    slurm,
    ssh,
)
from apples.lab import (
    execution as commands,
)

MEAN = (
    *("; touch canary", "$(touch canary)", "`touch canary`", "| touch canary", "&& touch canary"),
    *(
        '" touch canary "',
        "' touch canary '",
        "\n touch canary\n",
        '\nMatch exec "touch canary"\n',
    ),
    *("#", "\\", '"', "'", " ", "%h", "%%", "${HOME}", "$HOME", "~", "-o", "=", ",", "é", "\t"),
    *("\r", "\n", "\x1b", "\udcff", "a", "A-b_c.d", "default"),
)
TEXT = st.lists(st.sampled_from(MEAN) | st.text(max_size=4), min_size=1, max_size=4).map("".join)
WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]*")
HEAD = EmulatedHost("switch", "", "10.64.0.253", 7, 7, host_name="head")


def machine(name="ada", site="local"):
    return EmulatedHost(name, site, "10.64.0.1", 2**22, 7, memory=1 << 28, host_name=name)


def in_slurm_conf(text):
    """Read `slurm.conf` by the rules of Slurm's parse_config.c: comments, then escapes, then one pattern."""
    found = {}
    for line in text.split("\n"):
        bare = re.sub(r"((?:^|[^\\])(?:\\\\)*)#.*", r"\1", line)
        bare = re.sub(r"\\(.)", r"\1", bare)
        pair = re.match(r'\s*([\w.]+)\s*=\s*(?:"([^"]*)"|(\S+))(\s|$)', bare, re.ASCII)
        if pair:
            found.setdefault(pair[1], pair[2] or pair[3])
        assert pair or not bare
    return found


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """The keys of a lab, made once; skips where there is no ssh."""
    if lacks := [name for name in ("ssh", "sshd", "ssh-keygen") if not requirements.find(name)]:
        pytest.skip(f"no {', '.join(lacks)} here")
    folder = tmp_path_factory.mktemp("keys")
    ssh.make_keys(["ada"], folder)
    return folder


@pytest.fixture(scope="module")
def quiet(tmp_path_factory):
    """Runs a command in a folder where a canary would be seen."""
    folder = tmp_path_factory.mktemp("quiet")

    def run(*words):
        done = subprocess.run(words, cwd=folder, capture_output=True, timeout=120, check=False)
        assert not list(folder.rglob("canary*")), words
        return done

    return run


def placed(above, text):
    """Return a directory of that name, as far as a directory can be called that."""
    name = text.replace("/", "").replace("\0", "").encode(errors="surrogateescape")[:150]
    place = above / ("x" + name.decode(errors="surrogateescape"))
    place.mkdir(exist_ok=True)
    return place


def refusal(asked, *arguments, **options):
    """Return the error that refuses something, in one line; None where nothing does."""
    try:
        asked(*arguments, **options)
    except UsageError as error:
        found = error
    else:
        return None
    assert "\n" not in str(found)
    assert found.code in {"path-unsupported", "name-invalid"}
    return found


def encodable(text):
    """Whether a file system can hold it."""
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return True


@settings(max_examples=examples(80))
@given(text=TEXT.filter(encodable))
@example(text='"\nMatch exec "touch canary"\n')
@example(text="${HOME}")
@example(text="\\\\")
@example(text="\x85")  # to Python, but not to ssh, the end of a line
def test_ssh_and_sshd_read_every_path_they_are_given_as_it_is(keys, quiet, tmp_path_factory, text):
    folder = placed(tmp_path_factory.getbasetemp(), text)
    server, client = keys / "sshd_config", keys / "ssh_config"
    if refused := refusal(quoting.require, folder, ssh=True, slurm=False):
        assert refusal(ssh.client_config, [machine()], folder)
        assert refusal(ssh.server_config, machine(), folder).code == refused.code
        return
    shutil.copy(keys / "host-ada.key", folder)
    server.write_text(ssh.server_config(machine(), folder), encoding="utf-8")
    client.write_text(ssh.client_config([machine()], folder), encoding="utf-8")
    said = quiet("ssh", "-G", "-F", client, "ada")
    assert said.returncode == 0, said.stderr
    options = dict(line.split(" ", 1) for line in os.fsdecode(said.stdout).strip().split("\n"))
    assert options["userknownhostsfile"] == f"{folder}/known_hosts"
    assert options["identityfile"].replace("%%", "%") == f"{folder}/user.key"
    assert options["hostname"] == "10.64.0.1"
    said = quiet(requirements.path_of("sshd"), "-T", "-f", server)
    if b"privilege separation" in said.stderr:
        pytest.skip("sshd was never set up here")
    options = dict(line.split(" ", 1) for line in os.fsdecode(said.stdout).strip().split("\n"))
    assert options["authorizedkeysfile"].replace("%%", "%") == f"{folder}/user.key.pub"
    assert options["hostkey"] == f"{folder}/host-ada.key"


@settings(max_examples=examples(150))
@given(text=TEXT.filter(encodable))
@example(text="a b#c\\d\\")
@example(text='"\nJobCompLoc=/tmp/canary')
def test_slurm_reads_every_path_it_is_given_as_it_is(quiet, tmp_path_factory, text):
    folder = placed(tmp_path_factory.getbasetemp(), text) / "slurm"
    shutil.rmtree(folder, ignore_errors=True)
    plain = slurm.configuration("x", HEAD, [machine()], Path("/run/x"), Path("/lab/spool"))
    if refusal(quoting.require, folder.parent, ssh=False, slurm=True):
        where = (Path("/run/x"), folder / "spool")
        assert refusal(slurm.configuration, "x", HEAD, [machine()], *where)
        return
    conf = slurm.write("x", HEAD, [machine()], Path("/run/x"), folder)
    found = in_slurm_conf(conf.read_text(encoding="utf-8"))
    assert found == in_slurm_conf(plain) | {
        "StateSaveLocation": f"{folder}/spool",
        "JobCompLoc": f"{folder}/spool/finished.txt",
        "TaskProlog": f"{folder}/task_prolog",
    }
    prolog = quiet("/bin/sh", "-c", '"$0"', folder / "task_prolog")
    assert prolog.stdout == b"echo export UCX_TLS=tcp,self\n".removeprefix(b"echo ")


@settings(max_examples=examples(150))
@given(texts=st.lists(TEXT, min_size=3, max_size=3), own=TEXT)
@example(texts=["x", "ada", "local"], own="ada\n10.0.0.1 canary")
def test_a_name_that_gets_through_is_one_word_wherever_it_is_written(texts, own):
    lab, host, site = texts
    try:
        document = LabDocument(
            name=lab,
            site=[{"name": site, "bandwidth": 1e6, "latency": 0.01}],
            host=[{"name": host, "site": site, "bandwidth": 1e6}],
        )
    except ValidationError:
        document = LabDocument(name="x", host=[{"name": "ada", "bandwidth": 1e6}])
    here = network.Addresses(ipaddress.ip_network("10.64.0.0/24"))
    pids = {entry.name: 7 for entry in document.host}
    for text in (
        network.names(document, here, own),
        network.switch_links(document, here, "al7f", 8, pids),
        network.own_links(here.within(here.agent), "al7f"),
        network.switch_shaping(document, delayed=True),
    ):
        assert all(WORD.fullmatch(word) or word == "::1" for word in text.split())
        assert not set(text) & set(";|&$`'\"\\#\t\r~*()<>")
    lines = network.names(document, here, own).splitlines()
    assert len(lines) == 4 + (re.fullmatch(r"[A-Za-z0-9][\w.-]*", own, re.ASCII) is not None)
    assert all(len(line.split()) == 2 for line in lines)


@settings(max_examples=examples(60))
@given(name=TEXT.filter(lambda text: text and encodable(text) and "\0" not in text))
@example(name='x\nMatch exec "touch canary"')
@example(name="root -oProxyCommand=touch")
def test_a_login_is_one_word_or_refused(name):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOGNAME", name)
        if refusal(quoting.login):
            assert refusal(ssh.client_config, [machine()], Path("/lab"))
            return
        text = ssh.client_config([machine()], Path("/lab"))
    assert text.splitlines()[4] == f"  User {name}"
    assert len(name.split()) == 1


@settings(max_examples=examples(10))
@given(texts=st.lists(TEXT.filter(encodable), min_size=2, max_size=2))
def test_what_enters_a_host_runs_nothing_that_a_name_says(quiet, texts):
    name, log = (text.replace("\0", "") for text in texts)
    words = commands.entering(machine(name), ["touch", "canary"], Path(log))
    assert quiet(*words).returncode == 126  # there is no such host


@pytest.mark.parametrize(
    ("letter", "needs", "reader"),
    [
        ('"', "ssh", "ssh"),
        ("\n", "ssh", "ssh"),
        ("\\", "ssh", "ssh"),
        ("${", "ssh", "ssh"),
        ('"', "slurm", "Slurm"),
        ("\r", "slurm", "Slurm"),
    ],
)
def test_a_place_that_cannot_be_named_is_refused_before_anything_is_done(
    letter, needs, reader, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / f"a{letter}b"))
    asked = f"ssh = {json.dumps(needs == 'ssh')}\nslurm = {json.dumps(needs == 'slurm')}\n"
    (tmp_path / "lab.toml").write_text(f'name = "x"\n{asked}[[host]]\nname = "ada"\n')
    try:
        done = command("apples", "lab", "up", "--json", tmp_path / "lab.toml")
    finally:
        for folder in emulation.begun():  # should it have got further
            emulation.down(folder)
    assert (done.code, done.out) == (2, "")
    failure = done.failure
    assert failure["code"] == "path-unsupported"
    assert (failure["fields"]["reader"], failure["fields"]["value"]) == (reader, letter)
    assert done.err.count("\n") == 1
    assert not emulation.labs().exists()


@pytest.mark.lab
@pytest.mark.slurm
def test_a_lab_is_up_with_ssh_and_slurm_in_a_place_of_any_name(tmp_path, monkeypatch):
    if lacks := labs.lacking(slurm=True):
        pytest.skip(lacks)
    state = tmp_path / "it's a #1 100% $(touch canary)"
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    (tmp_path / "lab.toml").write_text('name = "odd"\nslurm = true\n[[host]]\nname = "ada"\n')
    lab = emulation.up(tmp_path / "lab.toml", speeds=lambda *_: {})
    try:
        told = commands.run(["scontrol", "show", "config"], settings=Path(lab.slurm_conf))
        assert f"StateSaveLocation       = {lab.folder}/slurm/spool\n" in told
        task = ["srun", "--nodes=1", "sh", "-c", "echo $UCX_TLS; hostname"]
        assert commands.run(task, settings=Path(lab.slurm_conf)) == "tcp,self\nada\n"
        assert commands.run(["ssh", "-F", lab.ssh_config, "ada", "hostname"]) == "ada\n"
    finally:
        emulation.down(Path(lab.folder))
    assert labs.belongings(Path(lab.folder)) == set()
    assert not Path("canary").exists()
