"""Find the sample application: the Jacobi2D solver that comes with the package."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from apples.errors import UsageError


def example_folder() -> Path:
    """Return the folder of the Jacobi2D example: inside the installed package, or beside it."""
    package = Path(str(resources.files("apples")))
    for folder in (package / "examples" / "jacobi2d", package.parent / "examples" / "jacobi2d"):
        if (folder / "template.toml").is_file():
            return folder
    raise UsageError(
        "the Jacobi2D example is not installed with this package", code="example-missing"
    )
