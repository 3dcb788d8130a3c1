"""The CPU time of a command before it does its work, in ratio to an import of NumPy.

User and system seconds of the whole process, medians without the first round. The commands run in turn, so that
other work on the machine disturbs all of them alike.
"""

import resource
import subprocess
import sys
import sysconfig
from pathlib import Path
from statistics import median

from benchmarks.common import Row

SAMPLE = Path(__file__).parents[1] / "examples" / "jacobi2d"
SCRIPTS = Path(sysconfig.get_path("scripts"))
FILES = [f"--{name}={SAMPLE / name}.toml" for name in ("hosts", "template", "user")]
UNIT = "import numpy"

COMMANDS = {
    UNIT: ([sys.executable, "-c", UNIT], None),
    "import click, pydantic and build a model": (
        [
            sys.executable,
            "-c",
            "import click, pydantic\nclass A(pydantic.BaseModel):\n    a: int = 0",
        ],
        None,
    ),
    "apples --help": ([SCRIPTS / "apples", "--help"], 1.4),
    "apples jobs": ([SCRIPTS / "apples", "jobs"], 1.4),
    "hat check": ([SCRIPTS / "hat", "check", SAMPLE / "template.toml"], 1.4),
    "apples check": ([SCRIPTS / "apples", "check", SAMPLE / "hosts.toml"], 1.2),
    "apples plan": ([SCRIPTS / "apples", "plan", "--weather=static", *FILES], 3.0),
}
"""By name: the command, and the bar."""


def cpu_seconds(words):
    """Run a command and return its user and system seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(list(map(str, words)), capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(settings):
    """Measure the commands in turn."""
    seconds = settings.raw["cpu_seconds"] = {name: [] for name in COMMANDS}
    for _ in range(settings.pick(10, 1) + 1):
        for name, (words, _) in COMMANDS.items():
            seconds[name].append(cpu_seconds(words))
    typical = {name: median(values[1:]) for name, values in seconds.items()}
    for name, (_, bar) in COMMANDS.items():
        if name != UNIT:
            yield Row(
                name, f"{name}: CPU time over an import of NumPy", typical[name] / typical[UNIT], "x",
                at_most=bar, peer=f"NumPy {1e3 * typical[UNIT]:.3g} ms",
            )  # fmt: skip


PARTS = {"": measure}
