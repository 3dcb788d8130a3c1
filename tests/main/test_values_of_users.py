"""A value of a user's file is what was written, or refused with file, line, field, value and the form allowed."""

import json

import pytest
from commands import TEMPLATE, command, files

HOST = '[[host]]\nname = "ada"\nseconds_per_point = 1e-8\nfree_memory = {}\n'
WRONG_SIZES = [
    "2,5 GB", "1,024 MiB", "12GB, of 16", "1.000.000", "1e9", "2 GB free", "1 2 GB", "-1 GB", "0x10", "2_000",
    "1.5", "2.5.1 GB", "1.5 B", "", "GB", "٢ GB",
]  # fmt: skip
SIZES = {
    "2 GiB": 2 << 30,
    "2GB": 2 * 10**9,
    " 1.5 kB ": 1500,
    ".5 GB": 5 * 10**8,
    "500000": 500000,
}


@pytest.mark.parametrize("size", WRONG_SIZES)
def test_check_finds_a_size_that_is_more_than_a_size(tmp_path, size):
    path = tmp_path / "hosts.toml"
    path.write_text(HOST.format(json.dumps(size, ensure_ascii=False)))
    done = command("hat", "check", path)
    assert done.code == 2
    said = done.err + done.out
    assert f"{path}:4: host[0].free_memory: must be a number of bytes, such as" in said
    user = tmp_path / "user.toml"
    user.write_text(f"[constraints]\nmemory = {json.dumps(size, ensure_ascii=False)}\n")
    done = command("hat", "check", user)
    assert done.code == 2
    assert f"{user}:2: constraints.memory: must be" in done.err + done.out


@pytest.mark.parametrize("size", SIZES)
def test_a_size_is_what_its_unit_says(size):
    import hat

    text = f'[constraints]\nmemory = "{size}"\n'
    assert hat.parse(text, hat.UserSpecifications).constraints.memory == SIZES[size]


@pytest.mark.parametrize("verb", ["plan", "run"])
def test_a_size_of_the_template_without_a_value_is_named_by_its_line(tmp_path, verb):
    options = files(tmp_path, template=TEMPLATE + '[structure]\nrows = "grid/3"\n')
    done = command("apples", verb, *options, "--weather", "static", "--json")
    assert done.code == 2
    assert f"{tmp_path / 'template.toml'}:4: structure.rows: " in done.failure["message"]


def test_a_setting_that_leaves_a_size_without_a_value_is_to_blame(tmp_path):
    template = TEMPLATE + '[structure]\nrows = "grid/4"\n'
    options = files(tmp_path, template=template)
    done = command(
        "apples", "plan", *options, "--weather", "static", "--set", "grid=1001", "--json"
    )
    assert done.code == 2
    assert done.failure["message"].startswith("--set: structure.rows: ")


@pytest.mark.parametrize(
    "verb", [("jobs",), ("queue",), ("simulate", "--fetch", "KTH-SP2-1996-2")]
)
def test_a_user_without_a_home_is_told_to_set_one(monkeypatch, verb):
    """As in a container started with the number of a user that it does not know."""

    def unknown(number):
        raise KeyError(number)

    for name in ("HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown)
    done = command("apples", *verb, "--json")
    assert done.code == 2
    assert done.failure["code"] == "home-missing"
    assert "set HOME" in done.failure["message"]
