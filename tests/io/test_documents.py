"""A lock goes with the process that holds it, is waited for as long as is said, and may be shared."""

import errno
import os
import signal
import threading
from contextlib import suppress

import pytest
from coding import with_errno

from apples.io import lock, locked, put, replace, written


def test_a_lock_that_another_holds_is_not_had_until_it_is_let_go(tmp_path):
    path = tmp_path / "lock"
    with locked(path):
        with pytest.raises(BlockingIOError), locked(path, 0.0):
            pass
        with pytest.raises(BlockingIOError), locked(path, 0.05):
            pass
    with locked(path, 0.0):
        pass


def test_a_lock_that_is_waited_for_is_had_once_it_is_free(tmp_path):
    had = threading.Event()

    def wait():
        with locked(tmp_path / "lock"):
            had.set()

    with locked(tmp_path / "lock"):
        waiting = threading.Thread(target=wait)
        waiting.start()
        assert not had.is_set()
    waiting.join(120)
    assert had.is_set()


def test_several_may_share_a_lock_and_none_of_them_has_it_alone(tmp_path):
    one, two, three = (os.open(tmp_path, os.O_RDONLY) for _ in range(3))
    try:
        assert lock(one, 0.0, shared=True)
        assert lock(two, 0.0, shared=True)
        assert not lock(three, 0.0)
    finally:
        for descriptor in (one, two, three):
            os.close(descriptor)


def test_a_lock_is_gone_with_the_process_that_held_it(tmp_path):
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        with locked(tmp_path / "lock"):
            os.write(writing, b"x")
            signal.pause()
        os._exit(0)
    os.read(reading, 1)
    with pytest.raises(BlockingIOError), locked(tmp_path / "lock", 0.0):
        pass
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with locked(tmp_path / "lock", 0.0):
        pass
    os.close(reading)
    os.close(writing)


def test_a_directory_that_is_not_there_is_not_made_for_its_lock(tmp_path):
    with pytest.raises(FileNotFoundError), locked(tmp_path / "none", directory=True):
        pass
    assert not list(tmp_path.iterdir())


def test_a_file_that_a_user_named_is_written_whole_or_is_as_it_was(tmp_path):
    path, link = tmp_path / "page.html", tmp_path / "link.html"
    put(tmp_path / "deep" / "er" / "page.html", "new")
    put(path, "old")
    assert path.stat().st_mode & 0o777 == 0o666 & ~umask()
    path.chmod(0o640)
    link.symlink_to(path.name)
    seen = os.open(path, os.O_RDONLY)
    with suppress(RuntimeError), written(link) as stream:
        stream.write("half of it")
        stream.flush()
        raise RuntimeError("what is written fails to be made")
    assert path.read_text() == "old"
    put(link, "new")
    assert link.is_symlink()
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("new", 0o640)
    assert os.pread(seen, 9, 0) == b"old", "whoever reads the old page has all of it"
    os.close(seen)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["deep", "link.html", "page.html"]


def test_what_is_no_file_is_written_to_as_it_is(tmp_path):
    link = tmp_path / "full"
    link.symlink_to("/dev/full")
    with pytest.raises(OSError, check=with_errno(errno.ENOSPC, file=link)):
        put(link, "x")
    with pytest.raises(OSError, check=with_errno(errno.EEXIST)):
        put(tmp_path / "full" / "x", "x")
    with pytest.raises(OSError, check=with_errno(errno.EISDIR, file=tmp_path)):
        put(tmp_path, "x")
    assert [one.name for one in tmp_path.iterdir()] == ["full"]


def umask():
    os.umask(old := os.umask(0))
    return old


def test_what_replaces_a_file_is_its_owners_alone_and_leaves_nothing_beside(tmp_path):
    path = tmp_path / "document"
    path.write_text("old")
    replace(path, "new")
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]
