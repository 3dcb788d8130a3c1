"""A look at a host: what it says, and what it does not load to say it."""

import importlib.metadata
import json
import subprocess
import sys
from importlib.metadata import version

import pytest

from apples.launch import LOOK, bootstrap, host_probe

TOLD = {
    "modules": ["json"],
    "programs": [],
    "directory": "",
    "slots": 1,
    "probe": "",
    "start": bootstrap.START,
}
HEAVY = ("importlib.metadata", "email", "encodings.idna", "shutil", "pathlib")


def looked(**told):
    """Look at this machine as hosts are looked at; return what was found, and the modules that it took."""
    parcel = bootstrap.Program(LOOK).parcel({**TOLD, "commands": [], "back": None, **told})
    argv = [sys.executable, "-X", "importtime", *bootstrap.words(site=True)]
    done = subprocess.run(argv, input=parcel, capture_output=True, check=True)
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.decode().splitlines()}
    return json.loads(done.stdout), loaded


def test_a_look_names_the_versions_that_are_installed_and_loads_little_for_it():
    found, loaded = looked()
    assert found["packages"] == {one: version(one) for one in ("apples", "mpich", "mpi4py")}
    assert "json" in loaded
    assert loaded.isdisjoint(HEAVY)


def test_a_look_finds_the_commands_that_it_is_asked_for():
    assert looked(commands=["sh", "nothing-of-this-name"])[0]["commands"] == {
        "sh": True,
        "nothing-of-this-name": False,
    }


@pytest.mark.parametrize(
    ("folder", "file", "text", "found"),
    [
        (
            "Mpich-9.9.dist-info",
            "METADATA",
            "Name: mpich\nVersion: 9.9+site\n\nVersion: 1\n",
            "9.9+site",
        ),
        ("mpich-9.8.dist-info", "METADATA", "Name: mpich\n\nVersion: 1\n", ""),
        ("mpich_more-9.7.dist-info", "METADATA", "Version: 9.7\n", ""),
        ("mpich-9.6.egg-info", "PKG-INFO", "Name: mpich\nVersion: 9.6\n", "9.6"),
        ("mpich-9.5.dist-info", "RECORD", "", ""),
    ],
)
def test_a_version_is_that_of_the_metadata_wherever_it_is_installed(
    tmp_path, monkeypatch, folder, file, text, found
):
    (tmp_path / folder).mkdir()
    (tmp_path / folder / file).write_text(text)
    monkeypatch.setattr(sys, "path", ["/nowhere", str(tmp_path)])
    assert host_probe.installed_version("mpich") == found


def test_a_folder_without_metadata_has_no_version_for_libraries_that_say_so(monkeypatch):
    def version(_):
        raise FileNotFoundError("No package metadata was found.")

    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr(importlib.metadata, "version", version)
    assert host_probe.installed_version("mpich") == ""
