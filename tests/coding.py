"""Checks of an error by its code and fields, for ``pytest.raises(.., check=with_code(..))``."""

import os
import re


def with_code(code, **fields):
    """Return a check: the error has this code, and these among its fields."""

    def check(error):
        assert (error.code, {name: error.fields.get(name) for name in fields}) == (code, fields)
        return True

    return check


def with_errno(*numbers, file=None):
    """Return a check: an error of the operating system with one of these numbers, and about this file."""

    def check(error):
        assert error.errno in numbers, error
        assert file is None or os.fspath(file) == error.filename
        return True

    return check


def in_order(text, *values):
    """Whether a line that a person reads contains these values, in this order."""
    return (
        re.search(".*".join(rf"(?<!\w){re.escape(value)}(?!\w)" for value in values), text)
        is not None
    )
