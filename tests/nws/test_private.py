"""What others may have written is not believed."""

import json
import os

import pytest

from nws import (
    InputError,
    NotPrivateError,
    Serving,
    TokenFile,
    TokenFileError,
    check_directory,
    check_owned,
    digest,
    read_secret,
    read_token,
)


@pytest.fixture
def elsewhere(monkeypatch):
    """Make this process somebody else than who owns its files."""
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)


def planted(folder):
    """Write a file of tokens with one that is good for everything; return that token."""
    entry = {"name": "eve", "hash": digest("nws_planted"), "scopes": ["read", "write", "probe"]}
    path = folder / "tokens.json"
    path.write_text(json.dumps({"schema": "nws.tokens/1", "tokens": [entry]}))
    path.chmod(0o600)
    return "nws_planted"


@pytest.mark.usefixtures("elsewhere")
def test_a_planted_token_is_not_taken(tmp_path):
    with pytest.raises(TokenFileError) as raised:
        TokenFile(tmp_path / "tokens.json").find(planted(tmp_path))
    assert raised.value.code == "file-not-private"
    assert raised.value.fields["owner"] == tmp_path.stat().st_uid


def test_a_token_in_a_file_of_ours_is_taken(tmp_path):
    assert TokenFile(tmp_path / "tokens.json").find(planted(tmp_path)).name == "eve"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_a_file_of_tokens_that_others_can_open_is_refused_as_soon_as_it_is(tmp_path, mode):
    tokens = TokenFile(tmp_path / "tokens.json")
    assert tokens.find(planted(tmp_path)) is not None
    tokens.path.chmod(mode)
    with pytest.raises(TokenFileError) as raised:
        tokens.find("nws_planted")
    assert raised.value.code == "file-not-private"
    assert raised.value.fields == {"file": str(tokens.path), "mode": f"{mode:o}"}


def test_a_link_in_place_of_a_secret_is_refused(tmp_path):
    (tmp_path / "real").write_text("secret")
    (tmp_path / "real").chmod(0o600)
    (tmp_path / "token").symlink_to(tmp_path / "real")
    with pytest.raises(NotPrivateError) as raised:
        read_secret(tmp_path / "token")
    assert raised.value.code == "file-not-regular"


def test_a_pipe_in_place_of_a_secret_does_not_hang(tmp_path):
    os.mkfifo(tmp_path / "token", 0o600)
    with pytest.raises(NotPrivateError) as raised:
        read_secret(tmp_path / "token")
    assert (raised.value.code, raised.value.fields["file"]) == (
        "file-not-regular",
        str(tmp_path / "token"),
    )


@pytest.mark.usefixtures("elsewhere")
def test_a_token_in_a_file_of_somebody_else_is_not_shown_to_a_service(tmp_path):
    (tmp_path / "token").write_text("nws_planted")
    (tmp_path / "token").chmod(0o600)
    with pytest.raises(NotPrivateError) as raised:
        read_token(tmp_path / "token")
    assert raised.value.code == "file-not-private"
    assert raised.value.fields["owner"] == tmp_path.stat().st_uid


@pytest.mark.parametrize("content", [b"", b"\n", b"a b", b"a\nb", b"\xff", b"\0", b"x" * 201])
def test_a_token_is_one_word(tmp_path, content):
    (tmp_path / "token").write_bytes(content)
    (tmp_path / "token").chmod(0o600)
    with pytest.raises(InputError) as raised:
        read_token(tmp_path / "token")
    assert (raised.value.code, raised.value.fields["file"]) == (
        "token-invalid",
        str(tmp_path / "token"),
    )
    (tmp_path / "token").write_bytes(b" nws_word\r\n")
    assert read_token(tmp_path / "token") == "nws_word"


def test_a_file_of_a_token_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InputError) as raised:
        read_token(tmp_path / "token")
    assert (raised.value.code, raised.value.fields["file"]) == (
        "file-missing",
        str(tmp_path / "token"),
    )


@pytest.mark.parametrize("mode", [0o770, 0o707])
def test_a_directory_that_others_may_write_to_starts_no_service(tmp_path, mode):
    tmp_path.chmod(mode)
    with pytest.raises(NotPrivateError) as raised:
        Serving(tmp_path)
    assert raised.value.code == "directory-not-private"
    assert raised.value.fields["mode"] == f"{mode:o}"
    assert not (tmp_path / "tokens.json").exists()


@pytest.mark.usefixtures("elsewhere")
def test_a_directory_of_somebody_else_is_refused_with_both_users(tmp_path):
    with pytest.raises(NotPrivateError) as raised:
        check_directory(tmp_path)
    assert raised.value.code == "directory-not-private"
    assert raised.value.fields["owner"] == tmp_path.stat().st_uid
    assert str(os.geteuid()) in str(raised.value)


def test_a_directory_that_others_may_read_holds_nothing_secret(tmp_path):
    tmp_path.chmod(0o755)
    check_owned(tmp_path, tmp_path.stat())
