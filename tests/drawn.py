"""How many cases a property draws: ``APPLES_EXAMPLES`` percent of the number that its test names."""

import os

PERCENT = int(os.environ.get("APPLES_EXAMPLES", "100"))


def examples(count):
    """Return how many cases to draw where `count` are wanted: at least 5."""
    return max(5, count * PERCENT // 100)
