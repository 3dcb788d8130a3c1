"""Why an action failed, as it crosses a process boundary."""

import pytest

import hat
import nws
from apples.errors import ApplesError, Failure, UsageError, coded, failure_of, within


@pytest.mark.parametrize("exit_code", [1, 2, 3, 4, 5, 6, 7])
def test_failure_survives_a_process_boundary(exit_code):
    failure = Failure("why", exit_code, "host-unknown", {"host": "eva"})
    error = Failure.of_document(failure.document()).error()
    assert isinstance(error, ApplesError)
    assert failure_of(error) == failure


@pytest.mark.parametrize("document", [{}, {"exit_code": "2"}, {"fields": [1], "message": "why"}])
def test_damaged_failure_is_a_launch_failure(document):
    failure = failure_of(Failure.of_document(document).error())
    assert (failure.exit_code, failure.code, failure.fields) == (4, "launch-failed", {})


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (
            FileNotFoundError(2, "no such file", "hosts.toml"),
            ("hosts.toml: no such file", 4, "system-error", {"file": "hosts.toml"}),
        ),
        (
            KeyError("rows"),
            ("internal error: KeyError: 'rows'", 1, "internal-error", {"kind": "KeyError"}),
        ),
        (
            ValueError("no JSON"),
            ("internal error: ValueError: no JSON", 1, "internal-error", {"kind": "ValueError"}),
        ),
    ],
)
def test_unforeseen_error_is_one_line_with_a_code(error, failure):
    assert failure_of(error) == failure


def test_within_adds_the_file_and_keeps_code_and_fields():
    with pytest.raises(UsageError) as raised, within("sweep.toml"):
        raise UsageError("work: must be positive", code="value-range", field="work")
    assert raised.value.code == "value-range"
    assert raised.value.fields == {"file": "sweep.toml", "field": "work"}


@pytest.mark.parametrize("base", [ApplesError, nws.CodedError, hat.HatError])
def test_the_three_base_classes_take_code_and_fields_alike(base):
    error = base("why", code="host-unknown", host="eva", line=None)
    assert (str(error), error.code, error.fields) == ("why", "host-unknown", {"host": "eva"})
    assert (base("why").code, base("why").fields) == (base.code, {})
    assert coded(error) == {"code": "host-unknown", "host": "eva"}
