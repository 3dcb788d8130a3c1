"""Settings of apples.toml: defaults of options, each with its source."""

from pathlib import Path

import pytest
from commands import EXAMPLE, command, refused


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A current folder and a user's configuration of the test's own."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "config" / "apples").mkdir(parents=True)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    for variable in ("APPLES_SCHEDULER", "APPLES_TOKEN_FILE", "APPLES_CA"):
        monkeypatch.delenv(variable, raising=False)
    return tmp_path


def shown():
    entries = command("apples", "config", "--json").document["settings"]
    return {entry["setting"]: (entry["value"], entry["source"]) for entry in entries}


def test_a_setting_nowhere_set_is_built_in():
    assert {source for _, source in shown().values()} == {"built in"}


def test_variable_then_folder_then_user_file_counts(folder, monkeypatch):
    users = folder / "config" / "apples" / "apples.toml"
    users.write_text('hosts = "mine.toml"\nactuator = "ssh"\nscheduler = "https://head:8443"\n')
    assert shown()["hosts"] == (str(users.parent / "mine.toml"), str(users))
    assert shown()["scheduler"] == ("https://head:8443", str(users))
    own = Path("apples.toml").absolute()
    own.write_text('hosts = "office.toml"\nscheduler = "pool"\n')
    assert shown()["hosts"] == (str(own.parent / "office.toml"), str(own))
    assert shown()["actuator"] == ("ssh", str(users))
    assert shown()["scheduler"] == (str(own.parent / "pool"), str(own))
    monkeypatch.setenv("APPLES_SCHEDULER", "/var/lib/lab")
    assert shown()["scheduler"] == ("/var/lib/lab", "$APPLES_SCHEDULER")
    assert str(own) in command("apples", "config").out


def test_plan_takes_the_host_list_of_the_settings():
    Path("apples.toml").write_text(f'hosts = "{EXAMPLE / "hosts.toml"}"\n')
    words = ["--template", str(EXAMPLE / "template.toml"), "--weather", "static", "--json"]
    assert command("apples", "plan", *words).document["chosen"]["hosts"]
    typed = refused("apples", "plan", "--hosts", "none.toml", *words[:-1])
    assert typed["fields"]["file"] == "none.toml"


def test_the_scheduler_of_the_settings_is_asked_but_for_local_jobs():
    Path("apples.toml").write_text('scheduler = "nowhere"\n')
    assert refused("apples", "queue")["fields"]["file"] == str(Path("nowhere").absolute())
    assert refused("apples", "wait", "0a1b2c3d")["code"] == "run-unknown"


@pytest.mark.parametrize(
    ("text", "code"),
    [('host = "x"', "field-unknown"), ("hosts = 3", "value-type"), ("hosts =", "file-invalid")],
)
def test_a_wrong_file_is_named_with_its_line(text, code):
    Path("apples.toml").write_text(text)
    failure = refused("apples", "config")
    assert failure["exit_code"] == 2
    assert "apples.toml:1" in failure["message"]
    assert failure["code"] == code


@pytest.mark.parametrize(
    "line", ['scheduler = "https://evil:1"', 'token_file = "t"', 'ca = "ca.pem"']
)
def test_a_folder_selects_no_server_that_would_get_the_users_token(line):
    Path("apples.toml").write_text(line)
    failure = refused("apples", "queue")
    assert (failure["code"], failure["exit_code"]) == ("setting-of-user", 2)
    assert "apples.toml:1" in failure["message"]


def test_a_home_that_is_missing_is_named():
    Path("apples.toml").write_text('hosts = "~no-such-user/x.toml"')
    assert refused("apples", "config")["code"] == "home-missing"
