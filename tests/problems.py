"""Compare a problem of a document with what a test expects: its place, its code and its values, no sentence."""


def assert_problem(problem, expected):
    """Check line, field and code of a `hat.Problem`, and that its text contains the values that follow."""
    line, field, code, *values = expected
    assert (problem.line, problem.field, problem.code) == (line, field, code)
    text = f"{problem.message} {problem.suggestion}"
    assert [value for value in values if value not in text] == []
