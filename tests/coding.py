"""The check of an error by its code and fields, for ``pytest.raises(.., check=with_code(..))``."""


def with_code(code, **fields):
    """Return a check: the error has this code, and these among its fields."""

    def check(error):
        assert (error.code, {name: error.fields.get(name) for name in fields}) == (code, fields)
        return True

    return check
