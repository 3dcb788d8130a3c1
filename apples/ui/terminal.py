"""Text for a terminal: every character is visible and none controls the terminal."""

from __future__ import annotations

from typing import Final

INVISIBLE: Final = (
    range(0x034F, 0x0350), range(0x115F, 0x1161), range(0x17B4, 0x17B6), range(0x180B, 0x1810),
    range(0x2060, 0x2070), range(0x3164, 0x3165), range(0xFE00, 0xFE10), range(0xFFA0, 0xFFA1),
    range(0xFFF0, 0xFFF9), range(0xE0000, 0xE1000),
)  # fmt: skip
"""Characters without a width outside the categories of `STEERING`: Unicode's ``Default_Ignorable_Code_Point``."""
STEERING: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Categories of characters that a terminal could execute or hide: controls (also C1 and DEL), marks that change
the direction of writing, joiners, soft hyphens, surrogates, and line separators."""


class _Escapes(dict[int, int | str]):
    """Code point -> itself, or its escape in JSON's form; computed at the first use."""

    def __missing__(self, code: int) -> int | str:
        import unicodedata  # noqa: PLC0415 - for what is not ASCII only

        found: int | str = code
        if any(code in each for each in INVISIBLE) or unicodedata.category(chr(code)) in STEERING:
            units = chr(code).encode("utf-16-be", "surrogatepass")
            found = "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))
        self[code] = found
        return found


_ESCAPES = _Escapes({code: code for code in (*range(0x20, 0x7F), *map(ord, "\t\n"))})


def escaped(text: str) -> str:
    r"""Return a text in which a terminal shows every character, for example of a file name or a vendor's XML.

    Examples
    --------
    >>> escaped("red: \x1b[31m, turned: \u202e, hidden: \u200b")
    'red: \\u001b[31m, turned: \\u202e, hidden: \\u200b'
    """
    return text.translate(_ESCAPES)
