"""UNIX sockets in folders whose path is longer than the kernel takes."""

import os
import socket

import pytest

from apples.io import socket_name


def test_long_path_is_bound_and_connected(tmp_path):
    folder = tmp_path / ("long" * 30) / ("er" * 40)
    folder.mkdir(parents=True)
    path = folder / "control"
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as client:
        with pytest.raises(OSError, match="AF_UNIX path too long"):
            listener.bind(str(path))
        with socket_name(path) as name:
            listener.bind(name)
        listener.listen()
        with socket_name(os.fspath(path)) as name:
            client.connect(name)
        client.sendall(b"here")
        with listener.accept()[0] as server:
            assert server.recv(4) == b"here"
    assert [one.name for one in folder.iterdir()] == ["control"]


def test_relative_path_is_in_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as listener, socket_name("control") as name:
        listener.bind(name)
    assert (tmp_path / "control").is_socket()


def test_missing_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError) as missing, socket_name(tmp_path / "gone" / "control"):
        pass
    assert missing.value.filename == str(tmp_path / "gone")
