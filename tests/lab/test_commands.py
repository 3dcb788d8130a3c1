"""The commands over a lab: `exec` passes everything through, `hosts` shows, names that are wrong are named."""

from pathlib import Path

import pytest
from commands import command

from apples.lab import begun

pytestmark = pytest.mark.lab


@pytest.fixture
def apples(lab, monkeypatch):
    """Return what runs a command where the lab of all tests is known."""
    monkeypatch.setenv("XDG_STATE_HOME", str(Path(lab.folder).parents[2]))
    return lambda *words: command("apples", "lab", *words)


def test_exec_passes_output_and_exit_code(apples, capfd):
    assert apples("exec", "far", "--", "sh", "-c", "hostname; exit 7").code == 7
    assert capfd.readouterr().out == "far\n"


def test_exec_in_a_document(apples):
    done = apples("exec", "--json", "ada", "--", "sh", "-c", "echo a; echo b >&2; exit 3")
    assert done.code == 3
    assert done.document == {
        "schema": "apples.lab/1",
        "host": "ada",
        "exit_code": 3,
        "stdout": "a\n",
        "stderr": "b\n",
    }


def test_a_command_that_is_not_there_is_127(apples, capfd):
    assert apples("exec", "ada", "--", "no-such-command").code == 127
    assert "no-such-command" in capfd.readouterr().err


def test_a_host_or_lab_that_is_not_there_is_named(apples):
    failure = apples("exec", "--json", "eve", "--", "true").failure
    assert (failure["exit_code"], failure["code"]) == (2, "host-unknown")
    assert failure["fields"]["host"] == "eve"
    assert failure["fields"]["known"] == ["ada", "bob", "far"]
    done = apples("down", "other")
    assert (done.code, done.error_codes) == (2, ["lab-unknown"])
    done = apples("shape", "nowhere", "1e6")
    assert (done.code, done.error_codes) == (2, ["site-unknown"])


def test_hosts_shows_every_host_with_its_limits(apples, lab):
    found = apples("hosts", "--json").document
    assert found["hosts"] == str(lab.hosts)
    assert [(m["name"], m["site"], m["cpu"], m["up"]) for m in found["machines"]] == [
        ("ada", "here", 1.5, True),
        ("bob", "here", 0.25, True),
        ("far", "there", 0.25, True),
    ]
    assert [folder.name for folder in begun()] == ["small"]
    assert "far" in apples("hosts").out


def test_a_second_lab_of_that_name_is_refused_and_the_first_stays(apples, lab, tmp_path):
    (tmp_path / "lab.toml").write_text('name = "small"\n[[host]]\nname = "x"\n')
    done = apples("up", tmp_path / "lab.toml")
    assert (done.code, done.error_codes) == (2, ["lab-exists"])
    assert "apples lab down small" in done.err  # the command that makes room for it
    assert all(machine.alive for machine in lab.machines)
