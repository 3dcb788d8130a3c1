"""What all tests share: hypothesis without a clock, the same examples on every CI run."""

import os

from hypothesis import settings

settings.register_profile("apples", deadline=None, database=None, derandomize="CI" in os.environ)
settings.load_profile("apples")
