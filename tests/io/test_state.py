"""Documents are replaced whole: whatever fails, and wherever, a reader sees the old or the new one."""

import errno
import json
import os
import signal
from pathlib import Path

import pytest
from coding import with_errno

from apples.io import documents, state


@pytest.fixture(autouse=True)
def own_state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def count(document):
    return {**document, "n": document.get("n", 0) + 1}


class Faults:
    """Does something at the K-th system call of those a replacement is made of."""

    CALLS = (
        (os, "mkdir"), (os, "fsync"), (os, "open"), (os, "close"), (os, "replace"), (os, "rename"),
        (documents.fcntl, "flock"), (documents.tempfile, "mkstemp"), (Path, "replace"), (Path, "mkdir"),
    )  # fmt: skip

    def __init__(self, monkeypatch, at, act):
        self.seen, self.at, self.act = [], at, act
        for place, name in self.CALLS:
            monkeypatch.setattr(place, name, self.wrapped(getattr(place, name), name))

    def wrapped(self, call, name):
        def instead(*arguments, **options):
            self.seen.append(name)
            if len(self.seen) == self.at:
                self.act(name)
            return call(*arguments, **options)

        return instead


def fail(name):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)


def kill(_name):
    os.kill(os.getpid(), signal.SIGKILL)


def steps():
    with pytest.MonkeyPatch.context() as patch:
        faults = Faults(patch, 0, fail)
        state.update("sample", count)
    return len(faults.seen)


def test_a_failure_at_every_step_leaves_the_old_or_the_new_document():
    state.update("sample", count)
    total = steps()
    assert total >= 5
    for k in range(1, total + 1):
        before = state.read("sample")
        with pytest.MonkeyPatch.context() as patch:
            Faults(patch, k, fail)
            try:
                state.update("sample", count)
                acknowledged = True
            except OSError:
                acknowledged = False
        after = state.read("sample")
        assert after in (before, count(before))
        assert after == count(before) or not acknowledged
        leftovers = [
            p.name for p in state.directory().iterdir() if p.name.startswith(".sample.json")
        ]
        assert leftovers == []


def test_a_kill_at_every_step_leaves_the_old_or_the_new_document():
    state.update("sample", count)
    total = steps()
    for k in range(1, total + 1):
        before = state.read("sample")
        child = os.fork()
        if not child:
            with pytest.MonkeyPatch.context() as patch:
                Faults(patch, k, kill)
                state.update("sample", count)
            os._exit(1)
        _, status = os.waitpid(child, 0)
        assert os.WTERMSIG(status) == signal.SIGKILL
        assert state.read("sample") in (before, count(before))
        state.update("sample", count)  # nothing holds the lock


def test_acknowledged_means_synced_file_and_directory():
    with pytest.MonkeyPatch.context() as patch:
        faults = Faults(patch, 0, fail)
        state.update("sample", count)
    assert faults.seen.count("fsync") == 2
    assert faults.seen.index("fsync") < faults.seen.index("replace")


def test_reading_makes_nothing(tmp_path):
    assert state.read("sample") == {}
    assert not (tmp_path / "state").exists()


def test_the_directory_is_the_users_alone():
    state.update("sample", count)
    assert state.directory().stat().st_mode & 0o777 == 0o700


def test_a_state_that_cannot_be_kept_is_reported_and_in_nobodys_way(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    assert state.read("sample") == {}
    assert str(tmp_path / "file") in capsys.readouterr().err
    with pytest.raises(OSError, check=with_errno(errno.ENOTDIR, errno.EEXIST)):
        state.update("sample", count)


def test_a_reader_never_sets_aside_what_was_repaired_meanwhile(monkeypatch):
    path = state.directory() / "sample.json"
    path.write_text("{")
    whole = state.lock_of

    def repaired(name):
        path.write_text(json.dumps({"n": 7}))
        return whole(name)

    monkeypatch.setattr(state, "lock_of", repaired)
    assert state.read("sample") == {"n": 7}
    assert not path.with_suffix(".damaged").exists()


@pytest.mark.parametrize("number", ["1" + "0" * 400, "-1" + "0" * 400, "1e999", "NaN"])
def test_a_number_that_no_float_holds_is_damage(number, capsys):
    path = state.directory() / "sample.json"
    path.write_text(f'{{"n": {number}}}')
    assert state.read("sample") == {}
    assert path.with_suffix(".damaged").exists()
    assert str(path.with_suffix(".damaged")) in capsys.readouterr().err
