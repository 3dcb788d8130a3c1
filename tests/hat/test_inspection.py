"""A file is known by what is in it, and checked for what only shows beside others."""

import pytest
from problems import assert_problem
from pydantic import BaseModel

from hat import check, inspect


class HostList(BaseModel, extra="forbid"):
    host: tuple[dict[str, str], ...]


OTHERS = {"host list": (lambda data: "host" in data, lambda: HostList)}


def written(tmp_path, text, name="some.toml"):
    path = tmp_path / name
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('name = "x"\nprogram = ["x"]', "application template"),
        ('[[implementaton]]\nname = "x"', "application template"),
        ("", "user specifications"),
        ("[objective]", "user specifications"),
        ("[preference]\nrisk = 1", "user specifications"),
        ('[[host]]\nname = "a"', "host list"),
        ("zzz = 1", "unknown"),
        ("[", "unknown"),
    ],
)
def test_a_file_is_known_by_its_content(tmp_path, text, kind):
    assert inspect(written(tmp_path, text), OTHERS).kind == kind


def test_a_good_file_comes_back_as_its_model(tmp_path):
    found = inspect(written(tmp_path, '[[host]]\nname = "a"'), OTHERS)
    assert found.document == HostList(host=({"name": "a"},))
    assert not found.problems


def test_a_file_of_no_kind_is_one_line(tmp_path):
    path = written(tmp_path, "zzz = 1")
    (problem,) = check(path, OTHERS)
    assert problem.file == str(path)
    assert_problem(problem, (None, "", "document-unknown", "host list", "'zzz'"))


def test_a_broken_and_a_missing_file_are_one_line_each(tmp_path):
    (broken,) = check(written(tmp_path, "[", "broken.toml"))
    (missing,) = check(tmp_path / "missing.toml")
    assert (broken.code, missing.code) == ("file-invalid", "file-missing")


def test_a_size_that_fails_at_the_defaults_is_found(tmp_path):
    text = 'name = "x"\nprogram = ["x"]\n[structure]\nrows = "grid - 1000"\ncolumns = "1"\n'
    path = written(tmp_path, text)
    (problem,) = check(path)
    assert problem.file == str(path)
    assert_problem(problem, (4, "structure.rows", "value-range", "'grid - 1000'", "0", "1"))


def test_sizes_wait_for_parameters_that_the_user_must_set(tmp_path):
    text = 'name = "x"\nprogram = ["x"]\n[parameters]\ngrid = {}\n[structure]\nrows = "grid-9"\n'
    assert check(written(tmp_path, text)) == []


def test_a_script_that_is_not_there_is_found(tmp_path):
    path = written(tmp_path, 'name = "x"\n\nprogram = ["{python}", "x.py"]\n')
    (problem,) = check(path)
    assert problem.file == str(path)
    assert_problem(problem, (3, "program", "file-missing", "'x.py'"))
    (tmp_path / "x.py").touch()
    assert check(path) == []
