"""A directory is told from every other: by no path, and never by what was copied with it."""

import errno
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from coding import with_code, with_errno

from apples.errors import UsageError
from apples.io import Folder, identity_of


@pytest.fixture
def place(tmp_path):
    (tmp_path / "state").mkdir(mode=0o700)
    return tmp_path / "state"


def identity(path, **options):
    with Folder.open(path) as folder:
        return identity_of(folder, **options)


def test_two_directories_of_one_relative_path_are_two(tmp_path, monkeypatch):
    found = []
    for name in "ab":
        (tmp_path / name / "daemon").mkdir(parents=True)
        monkeypatch.chdir(tmp_path / name)
        with Folder.open(Path("daemon")) as folder:
            found.append(identity_of(folder))
    assert found[0] != found[1]
    assert found == [identity(tmp_path / name / "daemon") for name in "ab"]


def test_a_directory_that_was_renamed_is_the_same(place):
    before = identity(place)
    moved = place.rename(place.with_name("moved"))
    assert identity(moved) == before


def test_a_copy_is_refused_until_it_is_said_to_be_the_original(place):
    before = identity(place)
    copy = shutil.copytree(place, place.with_name("copy"))
    copied = with_code("directory-copied", file=str(copy), option="--restored")
    with pytest.raises(UsageError, check=copied):
        identity(copy)
    assert identity(copy, restored=True) == before
    assert identity(copy) == before  # from now on it is the original
    assert (place / "identity").read_bytes() != (copy / "identity").read_bytes()


def test_all_that_start_at_once_find_one_identity(place):
    code = (
        "import sys; from pathlib import Path; from apples.io import Folder\n"
        "from apples.io import identity_of\n"
        "print(identity_of(Folder.open(Path(sys.argv[1]))))"
    )

    def started(_):
        words = [sys.executable, "-c", code, place]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(started, range(4))) == {identity(place)}


def test_a_file_that_a_crash_left_empty_was_never_used(place):
    (place / "identity").touch()
    assert len(identity(place)) == 32


@pytest.mark.parametrize("said", [b"x", b"0" * 32, b"0" * 32 + b" 1\nmore\n", b"\0" * 64])
def test_a_damaged_identity_is_refused_and_left_as_it_is(place, said):
    (place / "identity").write_bytes(said)
    with pytest.raises(UsageError, check=with_code("file-damaged", file=str(place / "identity"))):
        identity(place)
    assert (place / "identity").read_bytes() == said


def test_a_link_in_its_place_is_not_followed(place, tmp_path):
    (place / "identity").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, check=with_errno(errno.ELOOP)):
        identity(place)
    assert not (tmp_path / "elsewhere").exists()
