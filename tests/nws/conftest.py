"""What several tests need: a recorded file tree, and the names of two hosts' series."""

from pathlib import Path

import pytest


@pytest.fixture
def tree(tmp_path):
    """Return a function that writes {path: text} below a root and returns the root."""

    def write(files) -> Path:
        for path, text in files.items():
            file = tmp_path / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return tmp_path

    return write
