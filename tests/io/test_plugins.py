"""The one loader of users' code: what it loads, what it leaves alone, and how it refuses."""

import importlib
import random
import subprocess
import sys

import pytest
from coding import with_code

from apples.errors import UsageError, place_in_users_code, where_in_users_code
from apples.io import did_you_mean, resolve

KNOWN = {"easy": dict, "fcfs": list}
POLICY = """\
from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mine:
    most: int = 3

    def decide(self, cluster):
        return 1 // 0
"""


def refused(reference):
    with pytest.raises(UsageError) as caught:
        resolve(reference, KNOWN, "policy")
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.fixture
def file(tmp_path):
    def write(text, name="mine.py"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def test_a_name_of_ours_is_ours_and_a_dotted_name_is_imported():
    assert resolve("easy", KNOWN, "policy") is dict
    assert resolve("json:loads", KNOWN, "policy")("[1]") == [1]


def test_a_dataclass_with_postponed_annotations_is_loaded_and_found_by_its_module(file):
    made = resolve(f"{file(POLICY)}:Mine", KNOWN, "policy")
    assert made(most=2).most == 2
    assert importlib.import_module(made.__module__).Mine is made  # as pickle finds it


def test_a_file_called_random_replaces_no_standard_module(file):
    made = resolve(f"{file(POLICY, 'random.py')}:Mine", KNOWN, "policy")
    assert sys.modules["random"] is random
    assert importlib.import_module("random").__file__ == random.__file__
    assert made.__module__ not in {"random", "mine"}


def test_a_file_called_like_an_installed_module_that_is_not_loaded_yet_hides_nothing(file):
    path = file(POLICY, "antigravity.py")
    code = (
        "import sys; from apples.io.plugins import resolve; "
        f"resolve({str(path) + ':Mine'!r}, {{}}, 'policy'); "
        "assert 'antigravity' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_file_is_run_once_until_it_is_edited(file):
    path = file(POLICY)
    first = resolve(f"{path}:Mine", KNOWN, "policy")
    assert resolve(f"{path}:Mine", KNOWN, "policy") is first
    path.write_text(POLICY.replace("= 3", "= 5"))  # of the same length, within the same second
    assert resolve(f"{path}:Mine", KNOWN, "policy")().most == 5
    assert first().most == 3


def test_users_code_is_compiled_without_our_own_future_statements(file):
    text = "def f(x: int): ...\n"
    made = resolve(f"{file(text)}:f", KNOWN, "policy")
    assert made.__annotations__ == {"x": int}


def test_nothing_is_written_beside_a_users_file(file):
    path = file(POLICY)
    resolve(f"{path}:Mine", KNOWN, "policy")
    assert [each.name for each in path.parent.iterdir()] == ["mine.py"]


@pytest.mark.parametrize(
    ("reference", "code", "fields", "near"),
    [
        ("esay", "policy-unknown", {"value": "esay", "known": ["easy", "fcfs"]}, "easy"),
        ("json:lods", "user-code-missing", {"file": "json", "value": "lods"}, "loads"),
        ("sys:version", "user-code-not-callable", {"value": "version"}, ""),
        ("nonesuch:x", "user-code-failed", {"kind": "ModuleNotFoundError"}, "nonesuch"),
        (":x", "policy-unknown", {"known": ["easy", "fcfs"]}, ""),
        ("x:", "policy-unknown", {"known": ["easy", "fcfs"]}, ""),
    ],
)
def test_a_wrong_name_is_refused_with_the_nearest_right_one(reference, code, fields, near):
    error = refused(reference)
    assert with_code(code, **fields)(error)
    assert near in str(error)


def test_what_cannot_be_called_with_its_arguments_is_refused_before_it_is_called(file):
    path = file("def takes_one(a): ...\ndef takes_any(*a, b=1): ...\n")
    asked = ("resources", "information")
    wrong = with_code("user-code-signature", file=str(path), value="takes_one", known=list(asked))
    with pytest.raises(UsageError, check=wrong):
        resolve(f"{path}:takes_one", KNOWN, "planner", asked)
    assert resolve(f"{path}:takes_any", KNOWN, "planner", asked)(1, 2) is None
    assert resolve("operator:itemgetter", KNOWN, "planner", asked)  # says nothing of its arguments


def test_a_wrong_file_or_name_in_it_is_refused_with_the_nearest_right_one(file):
    path = file(POLICY)
    near = path.with_name("mien.py")
    error = refused(f"{near}:Mine")
    assert with_code("file-missing", file=str(near))(error)
    assert "'mine.py'" in str(error)
    error = refused(f"{path}:Mien")
    assert with_code("user-code-missing", file=str(path), value="Mien")(error)
    assert "'Mine'" in str(error)
    assert did_you_mean("quite different", KNOWN) == ""


@pytest.mark.parametrize(
    ("text", "line", "kind"),
    [
        ("x = 1\ndef\n", 2, "SyntaxError"),
        ("x = 1\n\n1 // 0\n", 3, "ZeroDivisionError"),
        ("import nonesuch\n", 1, "ModuleNotFoundError"),
        ("import sys\nsys.exit(0)\n", 2, "SystemExit"),
        ("import json\n\n\njson.loads('{')\n", 4, "JSONDecodeError"),
    ],
)
def test_a_file_that_cannot_be_run_is_refused_with_its_line_and_forgotten(file, text, line, kind):
    path = file(text)
    loaded = set(sys.modules)
    failed = with_code("user-code-failed", file=str(path), line=line, kind=kind)
    assert failed(refused(f"{path}:Mine"))
    assert not {name for name in set(sys.modules) - loaded if "mine" in name}


def test_what_users_code_raises_later_is_known_by_its_file_and_line(file):
    path = file(POLICY)
    mine = resolve(f"{path}:Mine", KNOWN, "policy")()
    with pytest.raises(ZeroDivisionError) as caught:
        mine.decide(None)
    assert place_in_users_code(caught.value) == {"file": str(path), "line": POLICY.count("\n")}
    assert f"{path}:Mine" in where_in_users_code(caught.value)
    with pytest.raises(ZeroDivisionError) as ours:
        divmod(1, 0)
    assert where_in_users_code(ours.value) == ""
