"""Kills a lab at every step of coming up and going down, and looks for what is left.

``python tests/soak_lab.py [--slurm]`` as root; exit 1 when anything was left.
"""

import os
import subprocess
import sys
import tempfile
from itertools import count
from pathlib import Path

from labs import SMALL, belongings

from apples import lab
from apples.lab import labs

INTERRUPTED = Path(__file__).parent / "lab" / "programs" / "interrupted.py"


def interrupted(step, verb, target):
    """Return whether the verb lived to its end when it was to be killed at its step."""
    words = [sys.executable, INTERRUPTED, str(step), verb, str(target)]
    return subprocess.run(words, capture_output=True, timeout=120, check=False).returncode == 0


def main():
    """Kill at every step; print how many there were and what was left."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_STATE_HOME"] = folder
        file = Path(folder) / "lab.toml"
        file.write_text(("slurm = true\n" if "--slurm" in sys.argv else "") + SMALL)
        place, left = labs() / "small", 0
        for verb in ("up", "down"):
            for step in count(1):
                if verb == "down":
                    lab.up(file, speeds=lambda *_: {})
                over = interrupted(step, verb, file if verb == "up" else place)
                lab.down(place)
                found = belongings(place)
                left += bool(found)
                if found:
                    print(f"{verb} killed at step {step}: {sorted(found)}")
                if over:
                    print(f"{verb}: killed at each of {step - 1} steps", flush=True)
                    break
    print(f"{left} times something was left")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
