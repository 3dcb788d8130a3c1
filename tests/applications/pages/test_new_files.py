"""New files from the scaffolds, and files deleted: never outside the folder, nothing lost."""

import errno
import os

import pytest
from coding import with_code
from jobs.pages.test_pages import is_tame

from apples.applications import (
    KINDS_OF_NEW,
    DocumentFolder,
    FileChangedError,
    digest_of,
    new,
    new_document,
)
from apples.applications import files as user_files
from apples.errors import UsageError
from apples.io import Folder


@pytest.mark.parametrize("kind", KINDS_OF_NEW)
def test_a_new_file_says_what_hat_new_writes_and_has_a_form(site, visitor, own_state, kind):
    (own_state / "sub").mkdir()
    for name in ("heat.toml", "sub/heat.toml"):
        answer = site.post(visitor, "/files/new", "/files", name=name, kind=kind)
        assert answer.status_code == 303, answer.text
        text = (own_state / name).read_text()
        assert text == new_document(kind, "heat")
        page = visitor.get(site.url + answer.headers["location"]).text
        assert name in page
        assert is_tame(page)
        wrong = [one.message for one in user_files.inspect(own_state / name).problems]
        assert all("program.py" in one for one in wrong), wrong  # of a new agent it is beside
    assert sorted(os.listdir(own_state)) == ["heat.toml", "sub"]  # noqa: PTH208 - and nothing beside


def test_a_new_agent_is_the_folder_that_hat_new_makes(site, visitor, own_state, tmp_path):
    new("heat", tmp_path, kind="malleable")
    answer = site.post(visitor, "/files/agent", "/files", name="heat", kind="malleable")
    assert answer.headers["location"] == "/file?name=heat%2Ftemplate.toml"
    for made in (tmp_path / "heat").iterdir():
        assert (own_state / "heat" / made.name).read_text() == made.read_text()
    again = site.post(visitor, "/files/agent", "/files", name="heat", kind="rigid")
    assert "[file-exists]" in again.text
    for name, kind in (("../x", "rigid"), ("x/y", "rigid"), (".x", "rigid"), ("x", "<b>")):
        answer = site.post(visitor, "/files/agent", "/files", name=name, kind=kind)
        assert answer.status_code == 400
        assert is_tame(answer.text)


@pytest.mark.parametrize(
    "name",
    [
        "../out.toml", "sub/../../out.toml", "/etc/out.toml", ".out.toml", "sub/.out.toml",
        "out.txt", "out", ".toml", "sub", "", " .toml", "a b.toml", "-rf.toml", "a\nb.toml", "a\0b.toml",
        "<b>.toml", "linked/out.toml", "dangling.toml", "sub/../sub/out.toml", "missing/out.toml",
        "x" * 300 + ".toml", "a/b/c/d/e/out.toml", "there.toml",
    ],
)  # fmt: skip
def test_no_name_makes_a_file_elsewhere_or_over_another(site, visitor, own_state, tmp_path, name):
    (own_state / "sub").mkdir()
    (own_state / "a/b/c/d/e").mkdir(parents=True)
    outside = tmp_path / "outside"
    outside.mkdir()
    (own_state / "linked").symlink_to(outside)
    (own_state / "dangling.toml").symlink_to(outside / "out.toml")
    (own_state / "there.toml").write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    answer = site.post(visitor, "/files/new", "/files", name=name, kind="hosts.toml")
    assert answer.status_code in {400, 409}, answer.text
    assert is_tame(answer.text)
    assert sorted(tmp_path.rglob("*")) == before
    assert (own_state / "there.toml").read_text() == "mine"


def test_a_disk_that_takes_nothing_is_said_of_the_file_that_was_asked_for(own_state, monkeypatch):
    def refuse(_, name, *__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), name)

    for verb in (
        "open_file",
        "remove",
    ):  # so says Linux of both, whether or not there is such a file
        monkeypatch.setattr(Folder, verb, refuse)
    with pytest.raises(UsageError, check=with_code("file-unwritable", file="new.toml")):
        DocumentFolder(own_state).create("new.toml", "")


def test_a_kind_that_is_none_makes_nothing(site, visitor, own_state):
    for kind in ("program.py", "../template.toml", ""):
        answer = site.post(visitor, "/files/new", "/files", name="heat.toml", kind=kind)
        assert answer.status_code == 400
    assert list(own_state.iterdir()) == []


def test_a_file_is_deleted_when_its_name_is_typed_and_its_text_is_kept(site, visitor, own_state):
    place = own_state / "heat.toml"
    place.write_text("name = 'heat'\n# mine\n")
    (own_state / "heat.toml.bak").write_text("older")
    page = visitor.get(site.url + "/file/delete?name=heat.toml").text
    assert "# mine" in page
    assert is_tame(page)
    order = {"name": "heat.toml", "digest": digest_of(place.read_text())}
    where = ("/file/delete", "/file/delete?name=heat.toml")
    refused = site.post(visitor, *where, **order, typed="heat")
    assert refused.status_code == 400
    assert "[confirmation-missing]" in refused.text
    assert place.exists()
    answer = site.post(visitor, *where, **order, typed="heat.toml")
    assert (answer.status_code, answer.headers["location"]) == (303, "/files")
    page = visitor.get(site.url + "/files").text
    assert "heat.toml.bak2" in page
    assert "file?name=heat.toml" not in page
    assert not place.exists()
    assert (own_state / "heat.toml.bak2").read_text() == "name = 'heat'\n# mine\n"
    assert (own_state / "heat.toml.bak").read_text() == "older"


def test_a_file_that_somebody_changed_meanwhile_is_not_deleted(site, visitor, own_state):
    place = own_state / "heat.toml"
    place.write_text("name = 'theirs'\n")
    answer = site.post(
        visitor, "/file/delete", "/file/delete?name=heat.toml", name="heat.toml",
        typed="heat.toml", digest=digest_of("name = 'heat'\n"),
    )  # fmt: skip
    assert answer.status_code == 409
    assert "[file-changed]" in answer.text
    assert [one.name for one in own_state.iterdir()] == ["heat.toml"]
    assert place.read_text() == "name = 'theirs'\n"


@pytest.mark.parametrize(
    "name",
    [
        "../out.toml", "linked/out.toml", "link.toml", "inner.toml", "nothing.toml", "sub.toml", "user.py",
        ".git/x.toml",
    ],
)  # fmt: skip
def test_nothing_outside_and_nothing_by_a_link_is_deleted(
    site, visitor, own_state, tmp_path, name
):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "out.toml").write_text("theirs")
    (own_state / "linked").symlink_to(outside)
    (own_state / "link.toml").symlink_to(outside / "out.toml")
    (own_state / "real.toml").write_text("theirs")
    (own_state / "inner.toml").symlink_to("real.toml")
    (own_state / "user.py").write_text("theirs")
    (own_state / "sub.toml").mkdir()
    before = sorted(tmp_path.rglob("*"))
    answer = site.post(
        visitor, "/file/delete", "/files", name=name, typed=name, digest=digest_of("theirs")
    )
    assert answer.status_code in {400, 409}, answer.text
    assert is_tame(answer.text)
    assert sorted(tmp_path.rglob("*")) == before


def test_of_two_who_delete_or_make_a_file_one_is_refused(own_state):
    folder = DocumentFolder(own_state)
    folder.create("heat.toml", "mine")
    with pytest.raises(UsageError, check=with_code("file-exists", file="heat.toml")):
        folder.create("heat.toml", "theirs")
    assert (own_state / "heat.toml").read_text() == "mine"
    with pytest.raises(FileChangedError, check=with_code("file-changed", file="heat.toml")):
        folder.put_aside("heat.toml", digest_of("another"))
    assert folder.put_aside("heat.toml", digest_of("mine")) == "heat.toml.bak"
    with pytest.raises(UsageError, check=with_code("file-missing", file="heat.toml")):
        folder.put_aside("heat.toml", digest_of("mine"))
    assert [one.name for one in own_state.iterdir()] == ["heat.toml.bak"]
