"""Root in directories that a user reaches too: nothing of his is ever followed."""

import contextlib
import errno
import os

import pytest
from coding import with_errno

from apples.io import DIRECTORY, Folder, Journal, JournalError, walk

SECRET = b"the user must not change this"


@pytest.fixture
def places(tmp_path):
    """A directory of ours, and one that nothing may reach through it."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.mkdir()
    theirs.mkdir()
    (theirs / "file").write_bytes(SECRET)
    return ours, theirs


def test_a_link_in_any_place_of_a_path_is_refused_for_every_operation(places):
    ours, theirs = places
    (ours / "link").symlink_to(theirs)
    (ours / "file").symlink_to(theirs / "file")
    with Folder.open(ours) as folder:
        for act in (
            lambda: folder.read("link/file"),
            lambda: folder.read("file"),
            lambda: folder.write("link/file", "x"),
            lambda: folder.write("file", "x"),
            lambda: folder.truncate("file", 0),
            lambda: folder.below("link"),
            lambda: folder.open_file("link/new", os.O_WRONLY | os.O_CREAT),
        ):
            with pytest.raises(OSError, check=with_errno(errno.ELOOP)):
                act()
        assert folder.folders() == []
        folder.remove("file")  # the link goes, not what it leads to
    assert (theirs / "file").read_bytes() == SECRET
    assert list(theirs.iterdir()) == [theirs / "file"]


def test_a_link_on_the_way_to_the_directory_is_refused_unless_it_is_allowed(places):
    ours, theirs = places
    (ours / "link").symlink_to(theirs)
    with pytest.raises(OSError, check=with_errno(errno.ELOOP)):
        Folder.open(ours / "link")
    with Folder.open(ours / "link", links=True) as folder:
        assert folder.names() == ["file"]


@pytest.mark.parametrize(
    "name", ["..", "../theirs/file", "a/../../theirs/file", "/etc", "", "a\0b"]
)
def test_names_that_lead_out_are_refused(places, name):
    with Folder.open(places[0]) as folder, pytest.raises((OSError, ValueError)):
        folder.read(name)


def test_a_pipe_or_a_device_does_not_hold_us_up(places):
    ours, _ = places
    os.mkfifo(ours / "pipe")
    with Folder.open(ours) as folder:
        with pytest.raises(OSError, check=with_errno(errno.EINVAL)):
            folder.read("pipe")
        with pytest.raises(OSError, check=with_errno(errno.ENXIO)):
            folder.write("pipe", "x")


def test_without_openat2_the_same_is_refused_component_by_component(places):
    ours, theirs = places
    (ours / "real").mkdir()
    (ours / "real/file").write_bytes(b"ours")
    (ours / "link").symlink_to(theirs)
    here = os.open(ours, DIRECTORY)
    found = walk(here, "real/file", os.O_RDONLY, 0)
    assert os.read(found, 10) == b"ours"
    os.close(found)
    for path in ("link/file", "link"):
        with pytest.raises(OSError, check=with_errno(errno.ELOOP, errno.ENOTDIR)):
            walk(here, path, os.O_RDONLY, 0)
    os.close(here)


def swap_until_killed(ours, theirs):
    """Exchange a directory, and the files in it, for links to another's, as fast as it goes."""
    while True:
        for name in ("journal", "journal.new", "cpuset.cpus"):
            with contextlib.suppress(OSError):
                (ours / f".{name}").symlink_to(theirs / "file")
                (ours / f".{name}").rename(ours / "group" / name)
        with contextlib.suppress(OSError):
            (ours / "group").rename(ours / "real")
            (ours / "group").symlink_to(theirs)
            (ours / "group").unlink()
            (ours / "real").rename(ours / "group")


def test_a_racing_swapper_gets_nothing_written_through_its_links(places):
    ours, theirs = places
    (ours / "group").mkdir()
    child = os.fork()
    if child == 0:
        swap_until_killed(ours, theirs)
    done = {"done": 0, "refused": 0}
    try:
        with Folder.open(ours) as folder:
            turns = 0
            while turns < 3000 or (not done["done"] and turns < 300_000):
                turns += 1
                for act in (
                    lambda: folder.write("group/cpuset.cpus", "0"),
                    lambda: journal_in(folder),
                ):
                    try:
                        act()
                        done["done"] += 1
                    except (OSError, JournalError):
                        done["refused"] += 1
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
    assert min(done.values()) > 0, f"the race never happened: {done}"
    assert (theirs / "file").read_bytes() == SECRET
    assert list(theirs.iterdir()) == [theirs / "file"]


def journal_in(folder):
    with folder.below("group") as group:
        journal = Journal(group, "apples.test/1")
        try:
            journal.rewrite([{"do": "x"}])
            journal.append({"do": "y"})
        finally:
            journal.close()
