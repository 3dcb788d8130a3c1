"""What is told to another process of an error."""

import pytest

from apples.errors import ApplesError
from apples.refusals import error_of, refusal_of
from apples.wire.json_lines import LineError


@pytest.mark.parametrize("code", [1, 2, 3, 4, 5, 7])
def test_a_refusal_keeps_its_words_and_its_exit_code(code):
    error = error_of("why", code)
    assert isinstance(error, ApplesError)
    assert refusal_of(error) == ("why", code)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (FileNotFoundError(2, "no such file", "hosts.toml"), ("hosts.toml: no such file", 4)),
        (KeyError("rows"), ("internal error: KeyError: 'rows'", 1)),
        (LineError("no JSON"), ("internal error: LineError: no JSON", 1)),
    ],
)
def test_what_nobody_foresaw_is_said_in_one_line(error, said):
    assert refusal_of(error) == said
