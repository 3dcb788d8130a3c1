"""What a terminal may be given: every character of it is shown."""

from __future__ import annotations

from typing import Final

INVISIBLE: Final = (
    range(0x034F, 0x0350), range(0x115F, 0x1161), range(0x17B4, 0x17B6), range(0x180B, 0x1810),
    range(0x2060, 0x2070), range(0x3164, 0x3165), range(0xFE00, 0xFE10), range(0xFFA0, 0xFFA1),
    range(0xFFF0, 0xFFF9), range(0xE0000, 0xE1000),
)  # fmt: skip
"""What has no width and is not of a category of `STEERING`: Unicode's ``Default_Ignorable_Code_Point``."""
STEERING: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Categories of what a terminal could take for a command or leave out: controls, C1 and DEL among them, marks that
turn the direction of writing, joiners, soft hyphens, halves of pairs, and ends of lines that are none of ours."""


class _Escapes(dict[int, int | str]):
    """Code point -> itself, or its escape, which JSON's readers read too; found when it is first asked for."""

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
    r"""Return a text whose every character a terminal shows: a file's name or a vendor's XML may hold any.

    Examples
    --------
    >>> escaped("red: \x1b[31m, turned: \u202e, hidden: \u200b")
    'red: \\u001b[31m, turned: \\u202e, hidden: \\u200b'
    """
    return text.translate(_ESCAPES)
