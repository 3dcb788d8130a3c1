"""`CpuSet`: a frozen set of CPUs, identified by the numbers of the operating system."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import nws
from apples.errors import UsageError

MAX_CPUS = nws.MAX_CPUS
"""CPU and node numbers are below this; larger bitmaps raise an error."""
_WORD = re.compile(r"(?:0x)?[0-9a-f]{1,8}|", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class CpuSet:
    """A set of CPU (or memory node) numbers as one integer; bit i stands for number i.

    Examples
    --------
    >>> a = CpuSet.parse("0-3,8")
    >>> len(a), list(a), str(a - CpuSet.of([1]))
    (5, [0, 1, 2, 3, 8], '0,2-3,8')
    """

    mask: int = 0

    def __post_init__(self) -> None:
        if self.mask < 0 or self.mask.bit_length() > MAX_CPUS:
            raise UsageError(
                f"a CPU set holds numbers from 0 to {MAX_CPUS - 1}",
                code="value-range",
                field="cpus",
                bound=MAX_CPUS - 1,
            )

    @staticmethod
    def of(numbers: Iterable[int]) -> CpuSet:
        """Return the set of some numbers; `UsageError` for a number out of range."""
        mask = 0
        for number in numbers:
            if not 0 <= number < MAX_CPUS:
                raise UsageError(
                    f"CPU {number}: must lie between 0 and {MAX_CPUS - 1}",
                    code="value-range",
                    field="cpu",
                    value=number,
                    bound=MAX_CPUS - 1,
                )
            mask |= 1 << number
        return CpuSet(mask)

    @staticmethod
    def parse(text: str) -> CpuSet:
        """Return the set of a list such as `0-3,8`; white space and an empty list are allowed.

        Raises
        ------
        UsageError
            The text is not such a list; with the position of the error. Permanent.
        """
        try:
            ranges = nws.parse_cpu_ranges(text)
        except nws.InputError as error:
            raise UsageError(str(error), code=error.code, **error.fields) from None
        mask = 0
        for first, last in ranges:
            mask |= (1 << last + 1) - (1 << first)
        return CpuSet(mask)

    def __iter__(self) -> Iterator[int]:
        """Iterate over the numbers, ascending."""
        mask = self.mask
        while mask:
            low = mask & -mask
            yield low.bit_length() - 1
            mask ^= low

    def __len__(self) -> int:
        """Return the number of CPUs."""
        return self.mask.bit_count()

    def __bool__(self) -> bool:
        """Whether the set has any CPU."""
        return self.mask != 0

    def __contains__(self, number: object) -> bool:
        """Whether a number belongs to the set."""
        return isinstance(number, int) and number >= 0 and bool(self.mask >> number & 1)

    def __or__(self, other: CpuSet) -> CpuSet:
        """Return the union of two sets."""
        return CpuSet(self.mask | other.mask)

    def __and__(self, other: CpuSet) -> CpuSet:
        """Return the intersection of two sets."""
        return CpuSet(self.mask & other.mask)

    def __sub__(self, other: CpuSet) -> CpuSet:
        """Return the CPUs of this set that the other lacks."""
        return CpuSet(self.mask & ~other.mask)

    def __le__(self, other: CpuSet) -> bool:
        """Whether this set is a subset of the other."""
        return not self.mask & ~other.mask

    def __str__(self) -> str:
        """Return the list form that `parse` reads, as the kernel writes it."""
        parts, mask, at = [], self.mask, 0
        while mask:
            gap = (mask & -mask).bit_length() - 1
            mask >>= gap
            run = (~mask & mask + 1).bit_length() - 1
            parts.append(f"{at + gap}-{at + gap + run - 1}" if run > 1 else f"{at + gap}")
            mask >>= run
            at += gap + run
        return ",".join(parts)


NO_CPUS = CpuSet()


def hwloc_bitmap(text: str) -> int:
    """Return the integer of an hwloc bitmap: 32-bit words, highest first; negative if it is infinite.

    Raises
    ------
    UsageError
        The text is not a bitmap, or longer than `MAX_CPUS` bits. Permanent.

    Examples
    --------
    >>> hwloc_bitmap("0x000000ff,,0x1") == (0xFF << 64) + 1, hwloc_bitmap("0xf...f")
    (True, -1)
    """
    if len(text) > MAX_CPUS // 32 * 11 + 8:
        raise UsageError(
            f"a bitmap of {len(text)} characters holds more than {MAX_CPUS} CPUs",
            code="value-range",
            field="bitmap",
            value=len(text),
            bound=MAX_CPUS,
        )
    mask, words = 0, text.strip().split(",")
    if words[0].lower() == "0xf...f":
        mask, words = -1, words[1:]
    if not text.strip() or not all(_WORD.fullmatch(word) for word in words):
        raise UsageError(
            f"'{text[:40]}' is not an hwloc bitmap such as 0x000000ff,,0x0000000f",
            code="bitmap-invalid",
            value=text[:40],
        )
    for word in words:
        mask = mask << 32 | int(word or "0", 16)
    if mask > 0 and mask.bit_length() > MAX_CPUS:
        raise UsageError(
            f"a bitmap names CPU {mask.bit_length() - 1}, at most {MAX_CPUS - 1}",
            code="value-range",
            field="bitmap",
            value=mask.bit_length() - 1,
            bound=MAX_CPUS - 1,
        )
    return mask
